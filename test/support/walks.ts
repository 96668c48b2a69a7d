import {z} from 'zod'
import {dealStream} from '../../src/contract/deal.ts'
import type {Stream} from '../../src/contract/stream.ts'
import {parseInstant} from '../../src/core/clock.ts'
import type {Certificate, NormalisedPage, Page, WireRecord} from '../../src/core/types.ts'
import {createNormaliser} from '../../src/source/record.ts'
import type {Database} from '../../src/store/database.ts'
import {applyObservations} from '../../src/sync/apply.ts'
import {type StagedDetail, stageDetails} from '../../src/sync/details.ts'
import {type ChangePlan, planChanges} from '../../src/sync/plan-changes.ts'
import {createStage} from '../../src/sync/stream-tables.ts'
import {
  certifyWalk,
  createPageGroup,
  type OpenWalk,
  type PageGroup,
  startWalk,
} from '../../src/sync/walk-state.ts'
import {anyRow} from './data.ts'

export const stream: Stream = dealStream
const normalise = createNormaliser(stream)

/** ISO 8601 as microseconds since the epoch. */
export function micros(instant: string): bigint {
  const parsed = parseInstant(instant)
  if (parsed === null) throw new Error(`no instant: ${instant}`)
  return parsed
}

/** What one deal's own page says: its record, `gone`, or a record that cannot be read. */
export interface DetailSpec {
  id: string
  /** ISO 8601 */
  at: string
  record: WireRecord | 'gone'
}

/** A walk as a test describes it. */
export interface WalkSpec {
  /** Start, ISO 8601; each page is a second later than the one before. */
  at: string
  /** Wire records, page by page. */
  pages: unknown[][]
  details?: DetailSpec[]
  /** Empty for a walk of every deal. */
  filter?: string
  /** The date of `at` by default. */
  businessDate?: string
  /** Business clock of the apply; `at` by default. */
  appliedAt?: string
}

let walks = 0
const withStage = new WeakSet<Database>()

/** Empties a warehouse and its stage, in less time than another is made. */
export async function forgetAll(db: Database): Promise<void> {
  const tables = await db.all(
    z.object({name: z.string()}),
    `select table_name as name from duckdb_tables() where database_name = 'warehouse' and schema_name = 'raw' and table_name <> 'setting'`,
  )
  await db.run(tables.map(({name}) => `delete from warehouse.raw.${name};`).join(' '))
  withStage.delete(db)
}

/** Begins a walk, nothing of it stored yet. */
export async function beginWalk(db: Database, spec: Omit<WalkSpec, 'pages'>): Promise<OpenWalk> {
  if (!withStage.has(db)) await createStage(db)
  withStage.add(db)
  walks += 1
  return startWalk({
    walkId: `w_${String(walks).padStart(6, '0')}`,
    baseUrl: 'http://localhost/v1',
    pageSize: 100,
    filter: spec.filter ?? '',
    businessDate: spec.businessDate ?? spec.at.slice(0, 10),
    startedAt: micros(spec.at),
  })
}

/** One page with what became of its records. */
export interface ReadPage {
  page: Page
  normalised: NormalisedPage
}

/** Pages as they come from the source, cursors `c1`, `c2`, …; `isLast` ends the walk. */
export function pagesOf(spec: Pick<WalkSpec, 'at' | 'pages'>, first = 1, isLast = true): ReadPage[] {
  return spec.pages.map((records, index) => {
    const number = first + index
    const observedAt = micros(spec.at) + BigInt(number - 1) * 1_000_000n
    const page = {
      cursor: number === 1 ? null : `c${number - 1}`,
      records,
      nextCursor: isLast && index === spec.pages.length - 1 ? null : `c${number}`,
      envelope: 'top level',
      observedAt,
      receivedAt: Number(observedAt / 1000n),
      length: 1000,
      received: {
        path: '/deals',
        query: {},
        status: 200,
        headers: {},
        requestedAt: observedAt,
        receivedAt: Number(observedAt / 1000n),
        body: Buffer.alloc(0),
      },
    }
    return {page, normalised: normalise(records, observedAt)}
  })
}

/** The pages as one group that follows what is stored of the walk. */
export function groupPages(walk: OpenWalk, pages: readonly ReadPage[]): PageGroup {
  const group = createPageGroup(stream, walk)
  for (const {page, normalised} of pages) group.add(page, normalised)
  return group
}

/** What was staged of a walk, and what applying it would do. */
export interface StagedWalk {
  walk: OpenWalk
  certificate: Certificate
  plan: ChangePlan
}

/** Stages a walk whole, certifies it and plans its changes. */
export async function stageWalk(db: Database, spec: WalkSpec): Promise<StagedWalk> {
  const walk = await beginWalk(db, spec)
  await groupPages(walk, pagesOf(spec)).stage(db, 0)
  const certificate = await certifyWalk(db, stream, walk)
  if (spec.details) await stageDetails(db, stream, walk, spec.details.map(toStagedDetail))
  return {walk, certificate, plan: await planChanges(db, stream, walk)}
}

function toStagedDetail({id, at, record}: DetailSpec): StagedDetail {
  const candidate = {id, known: {}}
  const observedAt = micros(at)
  if (record === 'gone') return {candidate, gone: {id, observedAt}}
  const {observations, quarantined} = normalise([record], observedAt)
  if (observations[0]) return {candidate, observation: observations[0]}
  return {candidate, rejected: quarantined[0]!}
}

/** What is stored without a tape stands nowhere. */
export const noTape = async () => ''

/** Stages and applies a walk. */
export async function walk(db: Database, spec: WalkSpec): Promise<StagedWalk & {recordedAt: bigint}> {
  const staged = await stageWalk(db, spec)
  const recordedAt = await applyObservations(db, stream, staged.walk, {
    plan: staged.plan,
    now: micros(spec.appliedAt ?? spec.at),
    details: {fetched: 0, failed: 0},
    conclude: noTape,
  })
  return {...staged, recordedAt}
}

/** The latest state of each deal, by id. */
export async function readHeads(db: Database): Promise<Record<string, Record<string, unknown>>> {
  const rows = await db.all(anyRow, 'from warehouse.raw.deal_head order by deal_id')
  return Object.fromEntries(rows.map((row) => [String(row.deal_id), row]))
}

/** The versions in the order they were stored. */
export function readVersions(db: Database, columns: string): Promise<Record<string, unknown>[]> {
  return db.all(anyRow, `select ${columns} from warehouse.raw.deal_version order by seq`)
}

/** The certificate of a walk as it is stored. */
export function readWalk(db: Database, walkId: string): Promise<Record<string, unknown>> {
  return db.one(anyRow, 'from warehouse.raw.walk where walk_id = $1', [walkId])
}
