import {setImmediate as nextTurn} from 'node:timers/promises'
import {z} from 'zod'
import {dealStream} from '../contract/deal.ts'
import {readPage} from '../contract/list.ts'
import {DAY_MS} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {isObject, parseJson} from '../core/json.ts'
import {expectOneOf} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {openRelease, requireRelease} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {openStateDb} from '../store/state-db.ts'
import {type NumberedLine, sliceRecord, targetOf, textOf} from '../store/tape.ts'
import {requireReadKey} from '../store/tape-key.ts'
import {openHistory} from '../store/warehouse.ts'
import {listReadableTapes, type ReadableTape} from '../sync/tapes.ts'

export type FigureTrace = Awaited<ReturnType<typeof traceFigure>>

const dealRow = z.object({
  deal_id: z.string(),
  status: z.string(),
  loan_amount: z.string(),
  property_value: z.string().nullable(),
  last_changed_at: z.string(),
  ltv: z.coerce.number().nullable(),
})

const TABLE = 'mart.portfolio_summary'

export const isFigure = (name: string) => name.startsWith(`${TABLE}.`)

/**
 * Lists the largest deals first. For an average LTV these are the deals with an LTV of at most 1.5; for the median amount, the
 * deals in the middle.
 * @throws ConfigError `UNKNOWN_NAME`; what {@link requireRelease} throws
 */
export async function traceFigure(config: Config, name: string) {
  const figure = name.slice(TABLE.length + 1)
  const [, part = '', measure = ''] = /^(open_|ended_|pipeline_|funded_|)(\w+)$/.exec(figure) ?? []
  const release = requireRelease(dataFolderAt(config.dataDir))
  await using db = await openRelease(release)
  const names = await db.column(
    z.string(),
    `select column_name from (describe ${TABLE}) where column_name <> 'as_of'`,
  )
  if (!names.includes(figure)) {
    throw newError('UNKNOWN_NAME', `Figure '${figure}' of ${TABLE}: ${expectOneOf(figure, names)}.`)
  }
  const {value, as_of} = await db.one(
    z.object({as_of: z.string(), value: z.string().nullable()}),
    `select cast(${figure} as varchar) as value, as_of from ${TABLE}`,
  )
  const deals = await db.all(dealRow, readQuery('behind_figure'), [part, measure])
  return {figure: name, value, as_of, release_id: release.manifest.release_id, deals}
}

export interface Trace extends Omit<Version, 'told_by' | 'walk_id' | 'value'> {
  /** The stored value of the requested field; null if the record left it out. */
  value?: string | null
  /** The tape of the answer, below the data folder, and the line, from 1; null if the tape cannot be read. */
  tape: string | null
  line: number | null
  /** `/deals?limit=100` */
  request: string | null
  /** The sha256 of the answer's body. */
  sha256: string | null
  /** The record's text in the answer, byte for byte; null for an absence, or if the answer is not at hand. */
  record: string | null
  /** The record of a source described by `source.json`, as the walk read it; null for a replay, which read it anew. */
  read: string | null
  /** The text of the deal's list row, if it has fields that the deal's own page lacks. */
  list_row: string | null
}

type Version = z.output<typeof versionRow>
const versionRow = z.object({
  /** ISO 8601, UTC: the start of the request that showed it; `recorded_at` is when it was stored. */
  observed_at: z.string(),
  recorded_at: z.string(),
  business_date: z.string(),
  /** `seen`, `missing` or `vanished`. */
  kind: z.string(),
  /** `list`, `detail`, `webhook` or `replay`. */
  source: z.string(),
  /** The kind of answer that it came from. */
  told_by: z.enum(['list', 'detail', 'webhook']),
  walk_id: z.string().nullable(),
  value: z.string().nullable(),
})

interface Asked {
  /** A column whose stored value to show, too. */
  field?: string | undefined
  /** Only versions up to this business date. */
  asOf?: string | undefined
}

/**
 * Leads every version to its record as the source sent it, oldest first.
 * @throws ConfigError `UNKNOWN_NAME`, `TAPE_KEY_LOST`, `RELEASE_NONE`; UnexpectedError `TAPE_DAMAGED`
 */
export async function traceDeal(config: Config, dealId: string, asked: Asked, world: World) {
  const folder = dataFolderAt(config.dataDir)
  const versions = await readVersions(config, dealId, asked, world)
  const key = requireReadKey(config, folder)
  using stateDb = openStateDb(folder.stateDb)
  const tapes = listReadableTapes(folder, stateDb, key)
  const traces = versions.map(({walk_id, told_by, value, ...version}) => {
    const nowhere = {tape: null, line: null, request: null, sha256: null, record: null, read: null}
    const trace: Trace = {...version, ...(asked.field !== undefined && {value}), ...nowhere, list_row: null}
    return {trace, told_by, walk_id}
  })
  for (const tape of tapes) {
    const wanted = traces.filter(({trace, walk_id}) => mayHold(tape, walk_id, trace.recorded_at))
    if (wanted.length === 0) continue
    // Reading a tape blocks the process, so other work gets a turn between two tapes.
    await nextTurn()
    let listed: string | null = null
    for (const line of tape.lines()) {
      listed = findListed(line, dealId)?.record ?? listed
      for (const {trace, told_by} of wanted) {
        const found = findRecord(line, dealId, {...trace, told_by})
        if (!found) continue
        // If two reads have the same instant, the later one counts.
        const {frame, number, sha256 = null} = line.original ?? line
        const {record = null} = found
        const read = (trace.source !== 'replay' && found.read) || null
        const list_row = leavesOut(read ?? record, line.frame.listed) ? listed : null
        const request = frame.request === undefined ? null : targetOf(frame)
        Object.assign(trace, {tape: tape.path, line: number, sha256, request, record, read, list_row})
      }
    }
  }
  return traces.map(({trace}) => trace)
}

function leavesOut(record: string | null, listed: unknown): boolean {
  if (record === null || !isObject(listed)) return false
  const said = Object(parseJson(record))
  return Object.keys(listed).some((name) => !Object.hasOwn(said, name))
}

async function readVersions({dataDir}: Config, dealId: string, {field, asOf}: Asked, world: World) {
  const names = dealStream.columns.map(({name}) => name)
  if (field !== undefined && !names.includes(field)) {
    throw newError('UNKNOWN_NAME', `Field '${field}' in --field: ${expectOneOf(field, names)}.`)
  }
  await using db = await openHistory(dataFolderAt(dataDir), world)
  const sql = readQuery('versions_of_deal', {field: field ?? 'null'})
  const versions = await db.all(versionRow, sql, [dealId, asOf ?? '9999-12-31'])
  if (versions.length > 0) return versions
  throw newError(
    'UNKNOWN_NAME',
    `Deal '${dealId}'${asOf === undefined ? '' : ` up to ${asOf}`}: the history has no deal with this id.`,
    {
      next: "`loantape query 'select deal_id from core.deal'` lists the deals; figures are those of mart.portfolio_summary, such as mart.portfolio_summary.open_amount.",
    },
  )
}

/** A walk has a tape of its own; a look is on the tape of its day, which the day cut-off may shift. */
function mayHold({name}: ReadableTape, walkId: string | null, recordedAt: string): boolean {
  if (walkId !== null) return name === walkId
  return Math.abs(Date.parse(name.slice(0, 10)) - Date.parse(recordedAt)) < 3 * DAY_MS
}

/** The record of a version; for an absence, the line that proves it. */
function findRecord(
  line: NumberedLine,
  dealId: string,
  {observed_at, kind, told_by, tape}: Trace & Pick<Version, 'told_by'>,
): Partial<ReturnType<typeof sliceRecord>> | undefined {
  const {frame} = line
  if (kind !== 'seen' && frame.frame === 'outcome') return tape === null ? {} : undefined
  if (frame.requested_at !== observed_at) return undefined
  const isOwnPage = (frame.frame === 'detail' || frame.frame === 'look') && frame.id === dealId
  if (kind === 'vanished') return isOwnPage ? {} : undefined
  if (kind !== 'seen' || frame.frame !== (told_by === 'webhook' ? 'look' : told_by)) return undefined
  return isOwnPage ? sliceRecord(line, ['data']) : findListed(line, dealId)
}

function findListed(line: NumberedLine, dealId: string) {
  if (line.frame.frame !== 'list') return undefined
  const text = textOf(line)
  // Skips most pages without parsing, which takes most of the time; an id may be written with escapes.
  if (!text.includes(dealId) && !text.includes('\\')) return undefined
  const {path, records} = readPage(parseJson(text))
  const position = records.findLastIndex((item) => isObject(item) && item.id === dealId)
  return position === -1 ? undefined : sliceRecord(line, [...path, position])
}
