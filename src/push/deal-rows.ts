import {parse} from 'csv-parse/sync'
import {z} from 'zod'
import {type NewDeal, newDealSchema} from '../contract/deal-record.ts'
import {IDEMPOTENCY_KEY} from '../contract/endpoint.ts'
import {ConfigError, type LoantapeError, messageOf, newError} from '../errors.ts'
import {parseCents} from '../money.ts'

/** A row of the file: the deal to create, or what is wrong with it. */
export type DealRow = {line: number; reference: string} & ({deal: NewDeal} | {problem: string})

const REQUIRED = ['external_reference', 'property_address', 'loan_amount'] as const
const COLUMNS: readonly string[] = [...REQUIRED, 'property_value', 'loan_program']

const recordsSchema = z.array(
  z.object({record: z.record(z.string(), z.string()), info: z.object({lines: z.number()})}),
)

function createFileError(file: string, problem: string, cause?: unknown): LoantapeError {
  return newError('PUSH_FILE', `File '${file}': ${problem}.`, {
    next: `Give it a header with ${REQUIRED.join(', ')} and, where known, property_value and loan_program.`,
    cause,
  })
}

function readHeader(file: string, header: readonly string[]): string[] {
  const names = header.map((name) => name.trim())
  const missing = REQUIRED.filter((name) => !names.includes(name))
  const unknown = names.filter((name) => !COLUMNS.includes(name))
  const repeated = names.filter((name, index) => names.indexOf(name) !== index)
  if (missing.length > 0) throw createFileError(file, `column ${missing.join(', ')} is missing`)
  if (unknown.length > 0) throw createFileError(file, `column '${unknown.join("', '")}' is not known`)
  if (repeated.length > 0) throw createFileError(file, `column '${repeated.join("', '")}' is there twice`)
  return names
}

const amountField = z.string().transform((text, context): number => {
  const cents = parseCents(text)
  if (typeof cents === 'bigint') return Number(cents) / 100
  context.addIssue({code: 'custom', message: cents})
  return z.NEVER
})

const emptyAsNull = (text: string | undefined): string | null =>
  text === undefined || text === '' ? null : text

const rowSchema = z
  .object({
    external_reference: z.string().regex(IDEMPOTENCY_KEY, 'expected 1 to 255 printable ASCII characters'),
    property_address: z.string(),
    loan_amount: amountField,
    property_value: z.preprocess(emptyAsNull, amountField.nullable()).optional(),
    loan_program: z.string().optional().transform(emptyAsNull),
  })
  .transform(({external_reference, ...deal}): unknown => deal)
  .pipe(newDealSchema)

function problemOf(error: z.ZodError): string {
  return error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ')
}

/**
 * Reads a CSV file of deals: header, then one deal a row, each with a reference of the system it comes from.
 *
 * @throws ConfigError `PUSH_FILE` when the file is no CSV or its header is wrong; a wrong row is a row with a problem
 */
export function parseDealRows(file: string, text: string): DealRow[] {
  if (text.trim() === '') throw createFileError(file, 'it is empty')
  let records: z.output<typeof recordsSchema>
  try {
    const columns = (header: string[]): string[] => readHeader(file, header)
    records = recordsSchema.parse(
      parse(text, {bom: true, columns, info: true, trim: true, skip_empty_lines: true}),
    )
  } catch (error) {
    if (error instanceof ConfigError) throw error
    throw createFileError(file, messageOf(error), error)
  }
  const lines = new Map<string, number>()
  return records.map(({record, info: {lines: line}}) => {
    const reference = record.external_reference ?? ''
    const earlier = lines.get(reference)
    lines.set(reference, earlier ?? line)
    if (earlier !== undefined)
      return {line, reference, problem: `external_reference: also in line ${earlier}`}
    const parsed = rowSchema.safeParse(record)
    return parsed.success
      ? {line, reference, deal: parsed.data}
      : {line, reference, problem: problemOf(parsed.error)}
  })
}
