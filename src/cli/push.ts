import {appendFileSync, existsSync, readFileSync, statSync, truncateSync} from 'node:fs'
import {parse} from 'csv-parse/sync'
import {stringify} from 'csv-stringify/sync'
import pLimit from 'p-limit'
import {z} from 'zod'
import {ApiError, createDealClient, type DealClient} from '../client/client.ts'
import {type NewDeal, newDealSchema} from '../contract/deal.ts'
import {refuseSourceFile} from '../contract/description.ts'
import {IDEMPOTENCY_KEY} from '../contract/endpoint.ts'
import {PROBLEMS} from '../contract/problem.ts'
import {requireSource} from '../core/config.ts'
import {codeOf, exitCodeOf, isOfKind, type LoantapeError, messageOf, newError} from '../core/errors.ts'
import {describeIssues} from '../core/json.ts'
import {parseCents, quantity} from '../core/money.ts'
import {tellForeign} from '../core/text.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {shareWithFolder} from '../store/files.ts'
import {readDescription} from '../sync/at-source.ts'
import {does, type Invocation} from './command.ts'

export const commands = {
  'push deals': does(
    pushFile,
    ({created, known, invalid, refused, result_file}) =>
      `${quantity(created, 'deal')} created, ${known} known from before, ${quantity(invalid, 'row')} invalid, ${refused} refused.\n` +
      `Row by row: ${result_file}`,
    ({invalid, refused}) => (invalid + refused > 0 ? exitCodeOf('check') : 0),
  ),
}

/** The number of rows by outcome; `push deals --json` prints it. */
async function pushFile(call: Invocation<{result?: string; dryRun?: boolean}>, file: string) {
  const {cli, options} = call
  const rows = parseDealRows(file, readCsv(file))
  const result_file = options.result ?? `${file}.result.csv`
  if (options.dryRun) {
    const problems = rows.flatMap((row) => ('problem' in row ? `line ${row.line}: ${row.problem}` : []))
    for (const words of problems) cli.complain(words)
    return {created: 0, known: 0, invalid: problems.length, refused: 0, result_file}
  }
  const folder = dataFolderAt(call.config.dataDir)
  if (readDescription(folder))
    throw refuseSourceFile(folder.source)('deals are pushed to a Deal Financing Service only')
  const {baseUrl, baseUrlQuery = '', apiKey, retries, requestTimeoutSeconds} = requireSource(call.config)
  const {signal, realClock, random} = call.world
  const client = createDealClient({
    baseUrl,
    apiKey,
    retries,
    timeoutMs: requestTimeoutSeconds * 1000,
    clock: realClock,
    random,
    fetch: (url, asked) => {
      const query = String(url).includes('?') ? baseUrlQuery.replace('?', '&') : baseUrlQuery
      return fetch(url + query, asked)
    },
  })
  return {...(await pushDeals(rows, {client, resultFile: result_file, signal})), result_file}
}

/**
 * Creates the deal of every row once: its external reference is the Idempotency-Key, and rows of earlier pushes are not sent.
 *
 * @param world.resultFile gets the result of each row, and has those of earlier pushes
 * @throws ConfigError `PUSH_FILE`; AuthError `PUSH_UNAUTHORIZED`; DeferredError `PUSH_UNREACHABLE`, `INTERRUPTED`, when the same
 * command can send the rest
 */
export async function pushDeals(
  rows: readonly DealRow[],
  {client, resultFile, signal}: {client: Pick<DealClient, 'deals'>; resultFile: string; signal: AbortSignal},
) {
  const known = readCreated(resultFile)
  const counts = {created: 0, known: 0, invalid: 0, refused: 0}
  const limit = pLimit(4)
  let failure: unknown
  const pushOne = async (row: DealRow): Promise<void> => {
    if (failure !== undefined || signal.aborted) return
    try {
      const {outcome, deal_id = '', message = ''} = await pushRow(row, known, client)
      counts[outcome]++
      const {line, reference} = row
      appendResult(resultFile, {line, external_reference: reference, outcome, deal_id, message})
    } catch (error) {
      failure ??= error
    }
  }
  await Promise.all(rows.map((row) => limit(() => pushOne(row))))
  if (failure !== undefined) throw failure
  if (signal.aborted)
    throw newError('INTERRUPTED', 'The push was asked to stop.', {
      kept: 'The result file names every deal created so far.',
      next: 'Run the same command again: it sends the remaining rows.',
    })
  return counts
}

/** `created` and `known` rows have a deal; `invalid` ones were not sent, `refused` ones were. */
async function pushRow(
  row: DealRow,
  known: ReadonlyMap<string, string>,
  client: Pick<DealClient, 'deals'>,
): Promise<{outcome: 'created' | 'known' | 'invalid' | 'refused'; deal_id?: string; message?: string}> {
  if ('problem' in row) return {outcome: 'invalid', message: row.problem}
  const deal_id = known.get(row.reference)
  if (deal_id !== undefined) return {outcome: 'known', deal_id}
  try {
    const {id} = await client.deals.create(row.deal, {idempotencyKey: row.reference})
    return {outcome: 'created', deal_id: id}
  } catch (cause) {
    if (!(cause instanceof ApiError)) throw cause
    const {status, code, message, errors} = cause
    const answer = status === 0 ? 'no answer came' : `status ${status} (${tellForeign(code, KNOWN_CODES)})`
    // What concerns every row ends the push; what concerns one is its result.
    if (status === 401 || status === 403)
      throw newError('PUSH_UNAUTHORIZED', `The service refused the API key: ${answer}.`, {cause})
    if (status === 0 || status === 429 || status >= 500)
      throw newError('PUSH_UNREACHABLE', `The service does not accept deals now: ${answer}.`, {cause})
    const fields = errors.map((wrong) => `${wrong.path}: ${wrong.message}`)
    return {outcome: 'refused', message: [message, ...fields].join('; ')}
  }
}

const KNOWN_CODES = new Set([...Object.keys(PROBLEMS), 'unknown', 'answer_too_large'])

/** A row of the file: the deal to create, or its problem. */
type DealRow = {line: number; reference: string} & ({deal: NewDeal} | {problem: string})

const REQUIRED = ['external_reference', 'property_address', 'loan_amount'] as const
const COLUMNS: readonly string[] = [...REQUIRED, 'property_value', 'loan_program']

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
  if (repeated.length > 0) throw createFileError(file, `column '${repeated.join("', '")}' appears twice`)
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

function readCsv(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw createFileError(file, `cannot be read (${codeOf(cause)})`, cause)
  }
}

/** The deals of a CSV file with a header; a wrong row is a row with a problem. @throws ConfigError `PUSH_FILE` */
export function parseDealRows(file: string, text: string): DealRow[] {
  if (text.trim() === '') throw createFileError(file, 'it is empty')
  let records: {record: Record<string, string>; info: {lines: number}}[]
  try {
    const columns = (header: string[]): string[] => readHeader(file, header)
    records = parse(text, {bom: true, columns, info: true, trim: true, skip_empty_lines: true})
  } catch (error) {
    if (isOfKind(error, 'config')) throw error
    throw createFileError(file, messageOf(error), error)
  }
  const lines = new Map<string, number>()
  return records.map(({record, info: {lines: line}}) => {
    const reference = record.external_reference ?? ''
    const earlier = lines.get(reference)
    lines.set(reference, earlier ?? line)
    if (earlier !== undefined)
      return {line, reference, problem: `external_reference: also in line ${earlier}`}
    const {success, data, error} = rowSchema.safeParse(record)
    return {line, reference, ...(success ? {deal: data} : {problem: describeIssues(error).join('; ')})}
  })
}

const RESULT_COLUMNS = ['line', 'external_reference', 'outcome', 'deal_id', 'message'] as const
const HEADER = `${RESULT_COLUMNS.join(',')}\n`

const createdRow = z.object({
  external_reference: z.string(),
  outcome: z.literal('created'),
  deal_id: z.string().startsWith('deal_'),
})

/** Reads the deals that earlier pushes created, by external reference; cuts off half a line at the end. */
function readCreated(path: string): Map<string, string> {
  if (!existsSync(path)) return new Map()
  const text = readFileSync(path, 'utf8')
  // A spreadsheet may have saved it.
  const plain = text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n')
  if (!HEADER.startsWith(plain.slice(0, HEADER.length)))
    throw newError(
      'PUSH_FILE',
      `File '${path}' holds no results of a push: expected one that begins with ${RESULT_COLUMNS.join(',')}.`,
      {next: 'Name another file with --result.'},
    )
  // A push that was killed may have left half a line; the service still knows its Idempotency-Key.
  const whole = text.slice(0, text.lastIndexOf('\n') + 1)
  if (whole.length < text.length) truncateSync(path, Buffer.byteLength(whole))
  const rows: unknown[] = parse(whole, {bom: true, columns: true, relax_column_count: true})
  const created = rows.flatMap((row) => createdRow.safeParse(row).data ?? [])
  return new Map(created.map((row) => [row.external_reference, row.deal_id]))
}

/** Appends the result of one row, durably; the file is never rewritten. */
function appendResult(path: string, result: Record<(typeof RESULT_COLUMNS)[number], string | number>): void {
  const header = (statSync(path, {throwIfNoEntry: false})?.size ?? 0) === 0
  appendFileSync(path, stringify([result], {header, columns: [...RESULT_COLUMNS]}), {flush: true})
  if (header) shareWithFolder(path)
}
