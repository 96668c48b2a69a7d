import {z} from 'zod'
import {groupThousands} from '../money.ts'

type Field = z.core.JSONSchema._JSONSchema

/** Where a schema is `true`, anything goes. */
function partsOf(field: Field): z.core.JSONSchema.BaseSchema {
  return typeof field === 'boolean' ? {} : field
}

/** Makes text safe to stand in a page. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`)
}

const code = (value: unknown): string => `<code>${escapeHtml(String(value))}</code>`

const FORMATS: Record<string, string> = {
  'date-time': 'instant, ISO 8601',
  date: 'date, YYYY-MM-DD',
  email: 'e-mail address',
  uri: 'URL',
}

function nameType(field: Field): string {
  const {type, format = '', anyOf, items, properties, ...rest} = partsOf(field)
  if (anyOf) return anyOf.map(nameType).join(' or ')
  if (rest.enum) return rest.enum.map(code).join(', ')
  if (rest.contentMediaType) return 'file'
  if (items && !Array.isArray(items)) return `list of ${nameType(items)}`
  if (properties) return `{${Object.keys(properties).map(code).join(', ')}}`
  return FORMATS[format] ?? [type ?? 'any'].flat().join(' or ')
}

/** What is said of a field beside its type; limits that are only those of the number type are none. */
function describe(field: Field): string[] {
  const {description, format, minimum, maximum, maxLength, pattern, examples, anyOf, ...rest} = partsOf(field)
  const isLimited = minimum !== undefined && maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER
  const isReadable = pattern !== undefined && format === undefined && !pattern.includes('\\x')
  return [
    ...(description ? [escapeHtml(description)] : []),
    ...(anyOf?.flatMap(describe) ?? []),
    ...(isLimited ? [`${minimum} to ${groupThousands(String(maximum))}.`] : []),
    ...(maxLength ? [`At most ${groupThousands(String(maxLength))} characters.`] : []),
    ...(isReadable ? [`Matches ${code(pattern)}.`] : []),
    ...(rest.default === undefined ? [] : [`Default ${code(rest.default)}.`]),
    ...(Array.isArray(examples) ? [`Such as ${examples.map(code).join(', ')}.`] : []),
  ]
}

/**
 * The fields of an object as rows of an HTML table: name, type, and what is said of it.
 *
 * @param use a query comes as text: shown is what it is read as; of a body its required fields are named
 * @returns empty text where there are none
 */
export function renderFieldTable(schema: z.ZodType, use: 'query' | 'body' | 'answer'): string {
  const io = use === 'query' ? 'output' : 'input'
  const {$defs, ...whole} = z.toJSONSchema(schema, {io, unrepresentable: 'any'})
  const {properties = {}, required = []} = partsOf(Object.values($defs ?? {})[0] ?? whole)
  const rows = Object.entries(properties).map(([name, field]) => {
    const isRequired = use === 'body' && required.includes(name)
    const words = [...(isRequired ? ['Required.'] : []), ...describe(field)]
    return `<tr><td>${code(name)}<td>${nameType(field)}<td>${words.join(' ')}`
  })
  return rows.length === 0 ? '' : `<table>${rows.join('')}</table>`
}
