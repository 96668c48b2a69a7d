const quoted = (text: string, mark: string): string =>
  `${mark}${text.replaceAll('\\', '\\\\').replaceAll(mark, `\\${mark}`)}${mark}`

/** A name as ClickHouse quotes it. */
export const quote = (name: string): string => quoted(name, '`')

/** A text as ClickHouse quotes it. */
export const literal = (text: string): string => quoted(text, "'")
