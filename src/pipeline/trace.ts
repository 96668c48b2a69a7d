import {setImmediate as nextTurn} from 'node:timers/promises'
import {z} from 'zod'
import type {Config} from '../config.ts'
import {dealStream} from '../contract/deal.ts'
import {findRecords} from '../contract/envelope.ts'
import {newError} from '../errors.ts'
import {isObject, parseJson, sliceJson} from '../json.ts'
import {expectOneOf} from '../nearest.ts'
import {openStateDb} from '../state/state-db.ts'
import {type TapeLine, targetOf} from '../tape/line.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {requireReadKey} from './tape-key.ts'
import {listReadableTapes, type ReadableTape, textOf} from './tape-units.ts'

/** How one version of a deal came to be known. */
export interface Trace {
  /** ISO 8601, UTC: start of the request that showed it, and when it was stored. */
  observed_at: string
  recorded_at: string
  business_date: string
  /** `seen`, `missing` or `vanished`. */
  kind: string
  /** `list`, `detail`, `webhook` or `replay`. */
  source: string
  /** Of the field that was asked for, as it is stored; null where the record left it out. */
  value?: string | null
  /** Where the answer stands: file below the data folder, line from 1; null where that tape is not kept. */
  tape: string | null
  line: number | null
  /** `/deals?limit=100` */
  request: string | null
  /** Of the answer's body. */
  sha256: string | null
  /** The text of the record as it stands in the answer, byte for byte; null of an absence. */
  record: string | null
  /** Where the deal's own page left out what its list row holds: that row, the same way. */
  list_row: string | null
}

const instant = (value: string, name: string) => `strftime(${value}, '%Y-%m-%dT%H:%M:%S.%fZ') as ${name}`

type Version = z.output<typeof versionRow>
const versionRow = z.object({
  observed_at: z.string(),
  recorded_at: z.string(),
  business_date: z.string(),
  kind: z.string(),
  source: z.string(),
  /** What kind of line told it. */
  told_by: z.enum(['list', 'detail', 'webhook']),
  walk_id: z.string().nullable(),
  value: z.string().nullable(),
})

/**
 * Every version of a deal with the record it was made of, as the source sent it, oldest first.
 *
 * @param asked a column of the history, and the last business date that counts
 * @throws ConfigError `UNKNOWN_NAME`, `TAPE_KEY_LOST`; UnexpectedError `HISTORY_MISSING`, `TAPE_DAMAGED`
 */
export async function traceDeal(
  config: Config,
  dealId: string,
  asked: {field?: string | undefined; asOf?: string | undefined},
): Promise<Trace[]> {
  const folder = dataFolderAt(config.dataDir)
  const versions = await readVersions(config, dealId, asked)
  const key = requireReadKey(config, folder)
  using stateDb = openStateDb(folder.stateDb)
  const tapes = listReadableTapes(folder, stateDb, key)
  const traces = versions.map(({walk_id, told_by, value, ...version}) => {
    const isHolding = (tape: ReadableTape) => mayHold(tape, walk_id, version.recorded_at)
    const nowhere = {tape: null, line: null, request: null, sha256: null, record: null, list_row: null}
    const trace: Trace = {...version, ...(asked.field !== undefined && {value}), ...nowhere}
    return {trace, told_by, held: new Set(tapes.filter(isHolding)), isPartial: false}
  })
  for (const tape of tapes) {
    const wanted = traces.filter(({held}) => held.has(tape))
    if (wanted.length === 0) continue
    // A tape is read at a stretch: whoever else waits for this process gets its turn between two.
    await nextTurn()
    let number = 0
    for (const line of tape.lines()) {
      number += 1
      for (const one of wanted) {
        const {trace} = one
        const found = findRecord(line, dealId, {...trace, told_by: one.told_by})
        if (!found) continue
        // Of what was read twice at one instant the later counts.
        Object.assign(trace, {tape: tape.path, line: number, sha256: line.sha256 ?? null, ...found})
        one.isPartial = leavesOut(found.record, line.frame.listed)
      }
    }
    const partial = wanted.filter(({trace, isPartial}) => isPartial && trace.tape === tape.path)
    for (const line of partial.length > 0 ? tape.lines() : [])
      for (const {trace} of partial)
        if (String(line.frame.requested_at) <= trace.observed_at)
          trace.list_row = findListed(line, dealId) ?? trace.list_row
  }
  return traces.map(({trace}) => trace)
}

/** Whether a deal's own page says nothing of a field that is known from its list row. */
function leavesOut(record: string | null, listed: unknown): boolean {
  if (record === null || !isObject(listed)) return false
  const said = Object(parseJson(record))
  return Object.keys(listed).some((name) => !Object.hasOwn(said, name))
}

async function readVersions(
  {dataDir}: Config,
  dealId: string,
  {field, asOf}: {field?: string | undefined; asOf?: string | undefined},
): Promise<Version[]> {
  const names = dealStream.columns.map(({name}) => name)
  if (field !== undefined && !names.includes(field)) {
    throw newError('UNKNOWN_NAME', `Field '${field}' in --field: ${expectOneOf(field, names)}.`)
  }
  await using db = await openHistory(dataFolderAt(dataDir))
  // A replayed record stands where the walk that could not read it met it.
  const versions = await db.all(
    versionRow,
    `select
       ${instant('version.observed_at', 'observed_at')},
       ${instant('recorded_at', 'recorded_at')},
       business_date,
       kind,
       version.source,
       coalesce(replayed.source, version.source) as told_by,
       coalesce(version.walk_id, replayed.walk_id) as walk_id,
       cast(${field ?? 'null'} as varchar) as value
     from history.raw.deal_version as version
     left join (
       select observed_at, min(source) as source, any_value(walk_id) as walk_id
       from history.raw.quarantine
       where stream = 'deal' and record_id = $1
       group by observed_at
     ) as replayed on version.source = 'replay' and replayed.observed_at = version.observed_at
     where deal_id = $1 and business_date <= cast($2 as date)
     order by version.observed_at, seq`,
    [dealId, asOf ?? '9999-12-31'],
  )
  if (versions.length > 0) return versions
  throw newError(
    'UNKNOWN_NAME',
    `Deal '${dealId}'${asOf === undefined ? '' : ` up to ${asOf}`}: the history knows none of this id.`,
    {next: "`loantape query 'select deal_id from core.deal'` lists the deals."},
  )
}

/** A walk has a tape of its own; a look stands on that of its day, which the cut-off may set back. */
function mayHold({unit}: ReadableTape, walkId: string | null, recordedAt: string): boolean {
  if (walkId !== null) return unit === walkId
  const daysApart = (Date.parse(unit.slice(0, 10)) - Date.parse(recordedAt)) / 86_400_000
  return Math.abs(daysApart) < 3
}

/** The frame in which each kind of line stands on a tape. */
const FRAMES = {list: 'list', detail: 'detail', webhook: 'look'}

/** What a line tells of a version: the record its request showed, or of an absence how the walk ended. */
function findRecord(
  line: TapeLine,
  dealId: string,
  {observed_at, kind, told_by, tape}: Trace & Pick<Version, 'told_by'>,
): Pick<Trace, 'request' | 'record'> | undefined {
  const {frame} = line
  if (kind !== 'seen' && frame.frame === 'outcome')
    return tape === null ? {request: null, record: null} : undefined
  if (frame.requested_at !== observed_at) return undefined
  const isOwnPage = (frame.frame === 'detail' || frame.frame === 'look') && frame.id === dealId
  if (kind === 'vanished') return isOwnPage ? {request: targetOf(frame), record: null} : undefined
  if (kind !== 'seen' || frame.frame !== FRAMES[told_by]) return undefined
  const record = isOwnPage ? sliceJson(textOf(line), ['data']) : findListed(line, dealId)
  return record === undefined ? undefined : {request: targetOf(frame), record}
}

/** The text of a deal's record on a page of the list. */
function findListed(line: TapeLine, dealId: string): string | undefined {
  if (line.frame.frame !== 'list') return undefined
  const text = textOf(line)
  const {path, items} = findRecords(z.record(z.string(), z.unknown()).parse(parseJson(text)))
  const position = items.findLastIndex((item) => isObject(item) && item.id === dealId)
  return position === -1 ? undefined : sliceJson(text, [...path, position])
}
