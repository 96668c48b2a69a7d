import {z} from 'zod'
import {readStatuses} from '../../src/build/sources.ts'
import {dealStream} from '../../src/contract/deal.ts'
import type {Stream} from '../../src/contract/stream.ts'
import {formatInstant, parseInstant} from '../../src/core/clock.ts'
import type {WireRecord} from '../../src/core/types.ts'
import type {Database} from '../../src/store/database.ts'
import type {Frame} from '../../src/store/tape.ts'
import {applyObservations} from '../../src/sync/apply.ts'
import {openWalk, type WalkIntake} from '../../src/sync/intake.ts'
import {planChanges} from '../../src/sync/plan-changes.ts'
import {certificateOf, settle} from '../../src/sync/settle.ts'
import {createStage, setStatuses} from '../../src/sync/stream-tables.ts'
import {anyRow} from './data.ts'

export const stream: Stream = dealStream

export function micros(instant: string): bigint {
  const parsed = parseInstant(instant)
  if (parsed === null) throw new Error(`not an instant: ${instant}`)
  return parsed
}

/** What one deal's own page shows: its record, `gone`, or an unreadable record. */
export interface DetailSpec {
  id: string
  /** ISO 8601 */
  at: string
  record: WireRecord | 'gone'
}

export interface WalkSpec {
  /** Start, ISO 8601; each page is a second later than the one before. */
  at: string
  pages: unknown[][]
  details?: DetailSpec[]
  /** Empty for a walk of every deal. */
  filter?: string
  /** The date of `at` by default. */
  businessDate?: string
  /** Business clock of the apply; `at` by default. */
  appliedAt?: string
}

/** SQL for applied walks whose numbers do not explain their records or the present deals to the cent. */
export const UNTIED_WALKS = `
  select * from history.raw.walk
  where state = 'applied' and (
    records <> created + updated + restored + unchanged + duplicates + quarantined
    or present_deals is distinct from
      distinct_records + kept_quarantined_deals + kept_missing_deals + adjusted_deals
    or present_amount is distinct from
      amount_total + kept_quarantined_amount + kept_missing_amount + adjusted_amount
  )`

let walks = 0
const withStage = new WeakSet<Database>()

/** Empties a warehouse and its stage, which is faster than creating a new one. */
export async function forgetAll(db: Database): Promise<void> {
  const tables = await db.all(
    z.object({name: z.string()}),
    `select table_name as name from duckdb_tables() where database_name = 'history' and schema_name = 'raw' and table_name <> 'setting'`,
  )
  await db.run(tables.map(({name}) => `delete from history.raw.${name};`).join(' '))
  withStage.delete(db)
  walks = 0
}

async function beginWalk(db: Database, spec: Omit<WalkSpec, 'pages'>): Promise<WalkIntake> {
  if (!withStage.has(db)) {
    await createStage(db)
    await setStatuses(db, readStatuses({}))
  }
  withStage.add(db)
  walks += 1
  return openWalk(db, stream, {
    frame: 'begin',
    kind: 'walk',
    stream: stream.name,
    tape: `w_${String(walks).padStart(6, '0')}`,
    baseUrl: 'http://localhost/v1',
    pageSize: 100,
    filter: spec.filter ?? '',
    businessDate: spec.businessDate ?? spec.at.slice(0, 10),
    startedAt: formatInstant(micros(spec.at)),
    resumed: 0,
    accepted: null,
  })
}

type Lines = readonly {frame: Frame; body?: unknown}[]

const received = (observedAt: bigint) => ({
  requested_at: formatInstant(observedAt),
  received_at: new Date(Number(observedAt / 1000n)).toISOString(),
})

/** Renders pages as the source sends them, with cursors `c1`, `c2`, … */
function pagesOf({at, pages}: WalkSpec): Lines {
  return pages.map((records, index) => {
    const isEnd = index === pages.length - 1
    const observedAt = micros(at) + BigInt(index) * 1_000_000n
    const json = {data: records, has_more: !isEnd, next_cursor: isEnd ? null : `c${index + 1}`}
    const frame = {frame: 'list' as const, envelope: 'data | top level', waited_ms: 250}
    return {frame: {...frame, ...received(observedAt)}, body: json}
  })
}

export type StagedWalk = Awaited<ReturnType<typeof stageWalk>>

export async function stageWalk(db: Database, spec: WalkSpec) {
  const unit = await beginWalk(db, spec)
  const {walk} = unit
  for (const {frame, body} of [...pagesOf(spec), ...(spec.details ?? []).map(toLine)]) unit.take(frame, body)
  await unit.stage()
  const plan = await planChanges(db, stream, walk)
  return {unit, walk, certificate: certificateOf(walk), plan}
}

function toLine({id, at, record}: DetailSpec): Lines[number] {
  const outcome = record === 'gone' ? record : 'found'
  const frame = {frame: 'detail' as const, id, outcome, listed: {}, ...received(micros(at))}
  return record === 'gone' ? {frame} : {frame, body: {data: record}}
}

/** Without a tape there is no tape head. */
const noTape = () => ''

export async function walk(db: Database, spec: WalkSpec): Promise<StagedWalk & {recordedAt: bigint}> {
  const staged = await stageWalk(db, spec)
  return {...staged, recordedAt: await applyStaged(db, staged, spec.appliedAt ?? spec.at)}
}

export function applyStaged(
  db: Database,
  {walk, plan}: StagedWalk,
  at: string,
  conclude = noTape,
): Promise<bigint> {
  return settle(db, {kind: 'walk', walkId: walk.walkId, now: micros(at)}, async (recorded) => {
    await applyObservations(db, stream, walk, {plan, recorded})
    return conclude()
  })
}

export async function readHeads(db: Database): Promise<Record<string, Record<string, unknown>>> {
  const rows = await db.all(anyRow, 'from history.raw.deal_head order by deal_id')
  return Object.fromEntries(rows.map((row) => [String(row.deal_id), row]))
}

export function readVersions(db: Database, columns: string): Promise<Record<string, unknown>[]> {
  return db.all(anyRow, `select ${columns} from history.raw.deal_version order by seq`)
}

export function readWalk(db: Database, walkId: string): Promise<Record<string, unknown>> {
  return db.one(anyRow, 'from history.raw.walk where walk_id = $1', [walkId])
}
