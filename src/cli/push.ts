import {appendFileSync, existsSync, readFileSync, truncateSync} from 'node:fs'
import {dirname} from 'node:path'
import {parse} from 'csv-parse/sync'
import {stringify} from 'csv-stringify/sync'
import pLimit from 'p-limit'
import {fetch} from 'undici'
import {z} from 'zod'
import {ApiError, createDealClient, type DealClient} from '../client/client.ts'
import {type NewDeal, newDealSchema} from '../contract/deal.ts'
import {refuseSourceFile} from '../contract/description.ts'
import {IDEMPOTENCY_KEY} from '../contract/endpoint.ts'
import {PROBLEMS} from '../contract/problem.ts'
import {HOUR_MS, type RealClock} from '../core/clock.ts'
import {requireSource} from '../core/config.ts'
import {codeOf, exitCodeOf, findMachineFault, isOfKind, messageOf, newError} from '../core/errors.ts'
import {describeIssues, type Refuse} from '../core/json.ts'
import {groupThousands, parseCents, quantity} from '../core/money.ts'
import {openAgent} from '../core/outgoing.ts'
import {tellForeign} from '../core/text.ts'
import {readCertificate} from '../source/client.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {isFile, readWrittenText, shareWithFolder, syncToDisk} from '../store/files.ts'
import {readDescription, readPin} from '../sync/at-source.ts'
import {does, type Invocation} from './command.ts'

export const commands = {
  'push deals': does(
    pushFile,
    ({rows, created, known, invalid, refused, unclear, result_file}) =>
      result_file === null
        ? `${quantity(rows, 'row')} checked, ${groupThousands(invalid)} invalid. Nothing was sent or written.`
        : `${quantity(created, 'deal')} created, ${known} known from before, ${quantity(invalid, 'row')} invalid, ${refused} refused` +
          `${unclear > 0 ? `, ${unclear} unclear` : ''}.\nRow by row: ${result_file}`,
    ({invalid, refused, unclear}) => (invalid + refused + unclear > 0 ? exitCodeOf('check') : 0),
  ),
}

/** Node's own takes no dispatcher of another version of undici. */
const send = fetch as unknown as (url: string, asked: object) => Promise<Response>

/** Returns the number of rows, also by outcome, which `push deals --json` prints. */
async function pushFile(call: Invocation<{result?: string; dryRun?: boolean}>, file: string) {
  const {cli, options} = call
  const rows = parseDealRows(file, readWrittenText(file, refuseFile(file)))
  if (options.dryRun) {
    const problems = rows.flatMap((row) => ('problem' in row ? `line ${row.line}: ${row.problem}` : []))
    for (const words of problems) cli.complain(words)
    const counts = {created: 0, known: 0, invalid: problems.length, refused: 0, unclear: 0}
    return {rows: rows.length, ...counts, result_file: null}
  }
  const result_file = options.result ?? `${file}.result.csv`
  const folder = dataFolderAt(call.config.dataDir)
  if (readDescription(folder))
    throw refuseSourceFile(folder.source)('deals are pushed to a Deal Financing Service only')
  const source = requireSource(call.config)
  await readPin(folder, source, call.world)
  const {baseUrl, baseUrlQuery = '', apiKey, retries, requestTimeoutSeconds} = source
  const {signal, realClock, random} = call.world
  const service = {baseUrl, apiKey, retries, clock: realClock, random}
  const timeoutMs = requestTimeoutSeconds * 1000
  await using dispatcher = openAgent(baseUrl, {timeoutMs, certificate: readCertificate(source)})
  const client = createDealClient({
    ...service,
    timeoutMs,
    // What is pushed goes to addresses without a query of their own.
    fetch: (url, asked) => send(url + baseUrlQuery, {...asked, dispatcher}),
  })
  const counts = await pushDeals(rows, {...service, client, resultFile: result_file, signal})
  return {rows: rows.length, ...counts, result_file}
}

interface PushWorld {
  client: Pick<DealClient, 'deals'>
  baseUrl: string
  apiKey: string
  /** Gets the result of each row; it also holds those of earlier pushes. */
  resultFile: string
  clock: Pick<RealClock, 'now'>
  signal: AbortSignal
}

/**
 * Creates the deal of every row once: its external reference is the Idempotency-Key, and the result file says what was sent before.
 * @throws ConfigError `PUSH_FILE`; AuthError `PUSH_UNAUTHORIZED`; DeferredError `PUSH_UNREACHABLE`, `INTERRUPTED`: run it again
 */
export async function pushDeals(rows: readonly DealRow[], world: PushWorld) {
  const results = openResults(world.resultFile)
  const counts = {created: 0, known: 0, invalid: 0, refused: 0, unclear: 0}
  const limit = pLimit(4)
  let failure: unknown
  const pushOne = async (row: DealRow): Promise<void> => {
    if (failure !== undefined || world.signal.aborted) return
    try {
      counts[await pushRow(row, results, world)]++
    } catch (error) {
      failure ??= error
    }
  }
  await Promise.all(rows.map((row) => limit(() => pushOne(row))))
  if (failure !== undefined) throw failure
  if (world.signal.aborted)
    throw newError('INTERRUPTED', 'The push was asked to stop.', {
      kept: 'The result file names every deal created so far.',
      next: 'Run the same command again: it sends the remaining rows.',
    })
  return counts
}

/** The service remembers an Idempotency-Key for 24 hours, per API key; one hour is left for retries and clocks that differ. */
const SENT_AGAIN_MS = 23 * HOUR_MS
/** Statuses that concern one row only; any other failure ends the push. */
const OF_ROW = new Set([400, 409, 413, 422])
const LOOK = 'a deal may exist: look, then change unclear to created, with its deal_id, or to refused'

async function pushRow(row: DealRow, results: ReturnType<typeof openResults>, world: PushWorld) {
  const {line, reference} = row
  const request = `${new URL(world.baseUrl).href} ${reference}`
  const tell = <O extends string>(outcome: O, said: ResultLine = {}): O => {
    results.append({line, external_reference: reference, outcome, request, ...said})
    return outcome
  }
  if ('problem' in row) return tell('invalid', {message: row.problem})
  const earlier = results.earlier.get(request)
  if (earlier?.outcome === 'created') return tell('known', {deal_id: earlier.deal_id})
  const isOpen = earlier !== undefined && earlier.outcome !== 'refused'
  const now = world.clock.now()
  const by = `API key ${tellForeign(world.apiKey)}`
  const isRecent = isOpen && Math.abs(now - Date.parse(earlier.sent_at)) < SENT_AGAIN_MS
  if (isOpen && !(isRecent && earlier.message === by)) return tell('unclear', {message: LOOK})
  if (!isOpen) tell('sent', {message: by, sent_at: new Date(now).toISOString()})
  try {
    const {id} = await world.client.deals.create(row.deal, {idempotencyKey: reference})
    return tell('created', {deal_id: id})
  } catch (cause) {
    if (!(cause instanceof ApiError)) throw cause
    const {status, code, errors} = cause
    const mayExist = isOpen || cause.mayBeDone
    const message = [cause.message, ...errors.map((wrong) => `${wrong.path}: ${wrong.message}`)].join('; ')
    if (OF_ROW.has(status) && (mayExist || code === 'idempotency_key_reused'))
      return tell('unclear', {message: `${message}; ${LOOK}`})
    if (OF_ROW.has(status)) return tell('refused', {message})
    const isPassing = status === 0 || status === 429 || status >= 500
    if (!isPassing && status >= 300 && !mayExist) tell('refused', {message})
    const answer = status === 0 ? 'no answer came' : `status ${status} (${tellForeign(code, KNOWN_CODES)})`
    if (status === 401 || status === 403)
      throw newError('PUSH_UNAUTHORIZED', `The service refused the API key: ${answer}.`, {cause})
    const next = isPassing ? {} : {next: 'Check the base URL, then run the same command again.'}
    throw newError('PUSH_UNREACHABLE', `The service does not accept deals now: ${answer}.`, {cause, ...next})
  }
}

const KNOWN_CODES = new Set([...Object.keys(PROBLEMS), 'unknown', 'answer_too_large'])

type DealRow = {line: number; reference: string} & ({deal: NewDeal} | {problem: string})

const refuseFile =
  (file: string, next?: string): Refuse =>
  (problem, cause) =>
    newError('PUSH_FILE', `File '${file}': ${problem}.`, {next, cause})

function readHeader(file: string, header: readonly string[]): string[] {
  const others = COLUMNS.filter((name) => !REQUIRED.includes(name)).join(' and ')
  const next = `Give it a header with ${REQUIRED.join(', ')} and, where known, ${others}.`
  const refuse = refuseFile(file, next)
  const names = header.map((name) => name.trim())
  const missing = REQUIRED.filter((name) => !names.includes(name))
  const unknown = names.filter((name) => !COLUMNS.includes(name))
  const repeated = names.filter((name, index) => names.indexOf(name) !== index)
  if (missing.length > 0) throw refuse(`column ${missing.join(', ')} is missing`)
  if (unknown.length > 0) throw refuse(`column '${unknown.join("', '")}' is not known`)
  if (repeated.length > 0) throw refuse(`column '${repeated.join("', '")}' appears twice`)
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

const rowShape = z.object({
  external_reference: z.string().regex(IDEMPOTENCY_KEY, 'expected 1 to 255 printable ASCII characters'),
  property_address: z.string(),
  loan_amount: amountField,
  property_value: z.preprocess(emptyAsNull, amountField.nullable()).optional(),
  loan_program: z.string().optional().transform(emptyAsNull),
})
const COLUMNS = Object.keys(rowShape.shape)
const REQUIRED = ['external_reference', 'property_address', 'loan_amount']

const rowSchema = rowShape.transform(({external_reference, ...deal}): unknown => deal).pipe(newDealSchema)

/** A wrong row becomes a row with a problem. @throws ConfigError `PUSH_FILE` */
export function parseDealRows(file: string, text: string): DealRow[] {
  if (text.trim() === '') throw refuseFile(file)('it is empty')
  let records: {record: Record<string, string>; info: {lines: number; error: unknown}}[]
  try {
    const columns = (header: string[]): string[] => readHeader(file, header)
    const more = {info: true, trim: true, skip_empty_lines: true, relax_column_count: true} as const
    records = parse(text, {bom: true, columns, ...more})
  } catch (error) {
    if (isOfKind(error, 'config')) throw error
    // The parser's words may end with a cell, perhaps an address.
    throw refuseFile(file)(messageOf(error).replace(/, value is .*/s, ''), error)
  }
  const lines = new Map<string, number>()
  return records.map(({record, info: {lines: line, error: miscounted}}) => {
    const reference = record.external_reference ?? ''
    if (miscounted !== undefined)
      return {line, reference, problem: 'row: expected as many cells as in the header; a comma needs quotes'}
    const earlier = lines.get(reference)
    lines.set(reference, earlier ?? line)
    const {success, data, error} = rowSchema.safeParse(record)
    if (!success) return {line, reference, problem: describeIssues(error).join('; ')}
    if (earlier === undefined) return {line, reference, deal: data}
    return {line, reference, problem: `external_reference: also in line ${earlier}`}
  })
}

const RESULT = ['line', 'external_reference', 'outcome', 'deal_id', 'message', 'request', 'sent_at'] as const
const HEADER = `${RESULT.join(',')}\n`
type ResultLine = Partial<Record<(typeof RESULT)[number], string | number>>

/** Requests are compared by `request`, because a spreadsheet that saves the file never turns that into a number. */
const earlierSchema = z
  .record(z.enum(RESULT), z.string())
  .refine(({outcome, deal_id}) => (outcome === 'created' ? deal_id !== '' : DECISIVE.includes(outcome)))
const DECISIVE = ['sent', 'refused', 'unclear']

const LOST =
  'Restore it as a push wrote it, with commas: with another file every row is sent again, and deals may exist twice.'

/** Refuses, before anything is sent, a file that cannot be used. Cuts off an incomplete line at its end. */
function openResults(path: string) {
  const refuse = refuseFile(path, 'Name another file with --result.')
  /** The last line of each request; a `created` line is never replaced. */
  const earlier = new Map<string, z.output<typeof earlierSchema>>()
  try {
    if (existsSync(path) && !isFile(path)) throw refuse('is not a file')
    appendFileSync(path, '')
    const bytes = readFileSync(path)
    // A spreadsheet may have saved the file.
    const text = bytes.toString().replace(/^\uFEFF|\r(?=\n)/g, '')
    const whole = text.slice(0, text.lastIndexOf('\n') + 1)
    if (!HEADER.startsWith(text.slice(0, HEADER.length)))
      throw refuseFile(
        path,
        LOST,
      )(`holds no results of a push: expected one that begins with ${RESULT.join(',')}`)
    if (whole !== text) truncateSync(path, bytes.lastIndexOf('\n') + 1)
    if (whole === '') {
      appendFileSync(path, HEADER, {flush: true})
      shareWithFolder(path)
      syncToDisk(dirname(path))
    }
    const rows: unknown[] = parse(whole, {columns: true, relax_column_count: true})
    for (const row of rows) {
      const {data} = earlierSchema.safeParse(row)
      if (data && earlier.get(data.request)?.outcome !== 'created') earlier.set(data.request, data)
    }
  } catch (error) {
    if (isOfKind(error, 'config')) throw error
    throw findMachineFault(error) ?? refuse(`cannot be used (${codeOf(error)})`, error)
  }
  const append = (result: ResultLine): void => {
    const cast = {string: (text: string) => text.replace(/[\r\n]+/g, ' ')}
    appendFileSync(path, stringify([result], {columns: [...RESULT], cast}), {flush: true})
  }
  return {earlier, append}
}
