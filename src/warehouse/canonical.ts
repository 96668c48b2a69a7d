/**
 * SQL of a text as it is compared: in lower case, without the blanks around it, which are those of JavaScript's `trim`.
 */
export function canonicalSql(text: string): string {
  return `lower(regexp_replace(${text}, '^[\\s\\x0b\\p{Z}\\x{feff}]+|[\\s\\x0b\\p{Z}\\x{feff}]+$', '', 'g'))`
}
