import {z} from 'zod'
import type {Config} from '../config.ts'
import {dealStream} from '../contract/deal.ts'
import {readPage} from '../contract/envelope.ts'
import {newError} from '../errors.ts'
import {parseJson} from '../json.ts'
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
  /** The record as it was received; null of an absence. */
  record: unknown
}

const instant = (column: string) => `strftime(${column}, '%Y-%m-%dT%H:%M:%S.%fZ') as ${column}`

type Version = z.output<typeof versionRow>
const versionRow = z.object({
  observed_at: z.string(),
  recorded_at: z.string(),
  business_date: z.string(),
  kind: z.string(),
  source: z.string(),
  walk_id: z.string().nullable(),
  value: z.string().nullable(),
})

/**
 * Every version of a deal with the record it was made of, as the source sent it, oldest first.
 *
 * @param asked a column of the history, and the last business date that counts
 * @throws ConfigError `TRACE_DEAL`, `TRACE_FIELD`, `TAPE_KEY_LOST`; UnexpectedError `HISTORY_MISSING`, `TAPE_DAMAGED`
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
  const traces = versions.map(({walk_id, value, ...version}) => {
    const isHolding = (tape: ReadableTape) => mayHold(tape, walk_id, version.recorded_at)
    const nowhere = {tape: null, line: null, request: null, sha256: null, record: null}
    const trace: Trace = {...version, ...(asked.field !== undefined && {value}), ...nowhere}
    return {trace, held: new Set(tapes.filter(isHolding))}
  })
  for (const tape of tapes) {
    const wanted = traces.filter(({held}) => held.has(tape))
    if (wanted.length === 0) continue
    let number = 0
    for (const line of tape.lines()) {
      number += 1
      for (const {trace} of wanted) {
        const found = trace.tape === null ? findRecord(line, dealId, trace) : undefined
        if (found)
          Object.assign(trace, {tape: tape.path, line: number, sha256: line.sha256 ?? null, ...found})
      }
    }
  }
  return traces.map(({trace}) => trace)
}

async function readVersions(
  {dataDir}: Config,
  dealId: string,
  {field, asOf}: {field?: string | undefined; asOf?: string | undefined},
): Promise<Version[]> {
  const names = dealStream.columns.map(({name}) => name)
  if (field !== undefined && !names.includes(field)) {
    throw newError('TRACE_FIELD', `Field '${field}' in --field: ${expectOneOf(field, names)}.`)
  }
  await using db = await openHistory(dataFolderAt(dataDir))
  // Of a record in quarantine the tape is that of the walk which could not read it.
  const versions = await db.all(
    versionRow,
    `select
       ${instant('observed_at')},
       ${instant('recorded_at')},
       business_date,
       kind,
       source,
       coalesce(walk_id, (
         select any_value(q.walk_id) from history.raw.quarantine q
         where version.source = 'replay' and q.record_id = deal_id and q.observed_at = version.observed_at
       )) as walk_id,
       cast(${field ?? 'null'} as varchar) as value
     from history.raw.deal_version as version
     where deal_id = $1 and business_date <= cast($2 as date)
     order by version.observed_at, seq`,
    [dealId, asOf ?? '9999-12-31'],
  )
  if (versions.length > 0) return versions
  throw newError(
    'TRACE_DEAL',
    `Deal '${dealId}'${asOf === undefined ? '' : ` up to ${asOf}`}: the history knows none of this id.`,
  )
}

/** A walk has a tape of its own; a look stands on that of its day, which the cut-off may set back. */
function mayHold({unit}: ReadableTape, walkId: string | null, recordedAt: string): boolean {
  if (walkId !== null) return unit === walkId
  const daysApart = (Date.parse(unit.slice(0, 10)) - Date.parse(recordedAt)) / 86_400_000
  return Math.abs(daysApart) < 3
}

/** What a line tells of a version: the record its request showed, or of an absence how the walk ended. */
function findRecord(
  line: TapeLine,
  dealId: string,
  {observed_at, kind}: Trace,
): {request: string | null; record: unknown} | undefined {
  const {frame} = line
  if (kind === 'missing' && frame.frame === 'outcome') return {request: null, record: null}
  if (frame.requested_at !== observed_at) {
    return kind === 'vanished' && frame.frame === 'outcome' ? {request: null, record: null} : undefined
  }
  const request = targetOf(frame)
  if (frame.frame === 'detail' || frame.frame === 'look') {
    if (frame.id !== dealId) return undefined
    const body = z.object({data: z.unknown()}).safeParse(parseJson(textOf(line)))
    return {request, record: kind === 'seen' ? body.data?.data : null}
  }
  if (frame.frame !== 'list' || kind !== 'seen') return undefined
  const {records} = readPage(parseJson(textOf(line)), String(frame.envelope))
  const record = records.findLast((one) => z.object({id: z.literal(dealId)}).safeParse(one).success)
  return record === undefined ? undefined : {request, record}
}
