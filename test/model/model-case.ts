import {readFileSync} from 'node:fs'
import {basename} from 'node:path'
import {parse} from 'yaml'
import {z} from 'zod'
import {businessDateOf} from '../../src/clock.ts'
import {BUILT_IN_SQL} from '../../src/model/read-models.ts'
import {readSeeds} from '../../src/model/seeds.ts'
import type {BuildPlan} from '../../src/types.ts'
import {quoteName} from '../../src/warehouse/database.ts'
import {writeSqlFolder} from './folder.ts'
import {
  aBorrower,
  aDocument,
  aDrift,
  aListing,
  aQuarantine,
  aRate,
  aVersion,
  aWalk,
  buildRelease,
  type History,
  type Row,
  ZONE,
} from './history.ts'

/** Every scalar is text, so that `100.00` and `2026-03-02` stay as written; the word `null` is a null. */
const scalar = z.string().transform((text) => (text === 'null' ? null : text))
const record = z.record(z.string(), scalar)

type Shown = 'missing' | 'vanished' | 'quarantined' | 'confirmed' | Row

/** By deal, by the child's own id; or that the list could not be read. */
type Lists = Record<string, 'failed' | Record<string, Shown>>

interface Walk {
  /** Columns of `raw.walk`; `none` for what was observed between two walks. */
  certificate: 'none' | Row
  drift: Row[]
  /** Rows of `raw.rate` appended that day. */
  rates: Row[]
  /** What lists of borrowers and documents read in it showed that was new. */
  borrowers: Lists
  documents: Lists
  /** What it showed that was new, by deal. */
  deals: Record<string, Shown>
}

/** Rows in, rows out: what one history makes of one model. */
export interface ModelCase {
  /** The business day; that of the last walk by default. */
  as_of?: string | undefined
  known_at?: string | undefined
  /** CSV text by seed. */
  seeds: Record<string, string>
  /** By their business day or the instant they began at. */
  walks: Record<string, Walk>
  /** A condition on the rows that are looked at. */
  where: string
  /** All rows in the table's order; only the columns named here are looked at. */
  rows: Record<string, string | null>[]
}

const shown = z.union([z.enum(['missing', 'vanished', 'quarantined', 'confirmed']), record])
const lists = z.record(z.string(), z.union([z.literal('failed'), z.record(z.string(), shown)])).default({})

const walk: z.ZodType<Walk> = z
  .object({
    certificate: z.union([z.literal('none'), record]).default({}),
    drift: z.array(record).default([]),
    rates: z.array(record).default([]),
    borrowers: lists,
    documents: lists,
  })
  .catchall(shown)
  .transform(({certificate, drift, rates, borrowers, documents, ...deals}) => ({
    certificate,
    drift,
    rates,
    borrowers,
    documents,
    deals,
  }))

const modelCase = z.strictObject({
  as_of: z.string().optional(),
  known_at: z.string().optional(),
  seeds: z.record(z.string(), z.string()).default({}),
  walks: z.record(z.string(), walk),
  where: z.string().default('true'),
  rows: z.array(record),
})

/** The cases of `<schema>.<table>.yaml` by name. */
export function readModelCases(file: string): {table: string; cases: [string, ModelCase][]} {
  const text = readFileSync(file, 'utf8')
  const cases = z.record(z.string(), modelCase).parse(parse(text, {schema: 'failsafe'}))
  return {table: basename(file, '.yaml'), cases: Object.entries(cases)}
}

/** When a walk began: at an instant, which gives its business date; on a day alone it is 02:00 UTC. */
function startOf(key: string): {day: string; startedAt: number} {
  const startedAt = Date.parse(key.includes('T') ? key : `${key}T02:00:00Z`)
  if (Number.isNaN(startedAt)) throw new Error(`Walk '${key}': expected a day or an instant.`)
  return {day: key.includes('T') ? businessDateOf(startedAt, ZONE) : key, startedAt}
}

const timestamp = (instant: number) => new Date(instant).toISOString().replace('T', ' ').replace('Z', '')
const MINUTE = 60_000

/** The raw rows of a case. A deal seen again keeps what is not said anew, except what its list row leaves out. */
function toHistory({walks}: ModelCase): Required<History> {
  const history: Required<History> = {
    versions: [],
    confirmations: [],
    walks: [],
    quarantine: [],
    drift: [],
    borrowers: [],
    documents: [],
    listings: [],
    rates: [],
  }
  const lastSeen = new Map<string, Row>()
  for (const [key, {certificate, drift, rates, borrowers, documents, deals}] of Object.entries(walks)) {
    const {day, startedAt} = startOf(key)
    const walkId = `walk ${key}`
    const times = {started_at: timestamp(startedAt), ended_at: timestamp(startedAt + 10 * MINUTE)}
    const recorded_at = timestamp(startedAt + 30 * MINUTE)
    const settled_at = certificate === 'none' ? null : {recorded_at, ...certificate}.recorded_at
    if (certificate !== 'none') {
      history.walks.push(aWalk({day, walk_id: walkId, ...times, recorded_at, ...certificate}))
    }
    history.drift.push(
      ...drift.map(({stream = 'deal', ...found}) =>
        aDrift({stream, walk_id: stream === 'deal' ? walkId : childWalkId(day, stream), ...found}),
      ),
    )
    history.rates.push(...rates.map((row) => aRate({day, ...row})))
    const observed_at = timestamp(startedAt + 5 * MINUTE)
    for (const [dealId, shown] of Object.entries(deals)) {
      if (shown === 'quarantined') {
        history.quarantine.push(aQuarantine({day, record_id: dealId, observed_at, recorded_at: settled_at}))
        continue
      }
      if (shown === 'confirmed') {
        history.confirmations.push({deal_id: dealId, observed_at, business_date: day, recorded_at})
        continue
      }
      const row = {...lastSeen.get(dealId), ...(typeof shown === 'string' ? {kind: shown} : shown)}
      history.versions.push(aVersion({day, deal_id: dealId, observed_at, recorded_at, ...row}))
      if (typeof shown !== 'string') lastSeen.set(dealId, pickListed(row))
    }
    addLists(history, {stream: 'borrower', lists: borrowers, day, startedAt})
    addLists(history, {stream: 'document', lists: documents, day, startedAt})
  }
  return history
}

/** The raw rows of the lists that one walk of a child stream read. */
function addLists(
  history: Required<History>,
  read: {stream: 'borrower' | 'document'; lists: Lists; day: string; startedAt: number},
): void {
  const {stream, day, startedAt} = read
  if (Object.keys(read.lists).length === 0) return
  const walk_id = childWalkId(day, stream)
  const [observed_at, recorded_at] = [15, 40].map((minutes) => timestamp(startedAt + minutes * MINUTE))
  const times = {observed_at: observed_at ?? '', recorded_at: recorded_at ?? ''}
  history.walks.push(
    aWalk({
      day,
      walk_id,
      stream,
      records: Object.values(read.lists).reduce((sum, list) => sum + countRecords(list), 0),
      started_at: times.observed_at,
      recorded_at: times.recorded_at,
    }),
  )
  for (const [parent_id, list] of Object.entries(read.lists)) {
    const listing = {day, walk_id, stream, parent_id, observed_at: times.observed_at}
    if (list === 'failed') {
      history.listings.push(aListing({...listing, outcome: 'failed'}))
      continue
    }
    const quarantined = Object.values(list).filter((shown) => shown === 'quarantined').length
    history.listings.push(aListing({...listing, records: countRecords(list), quarantined}))
    for (const [id, shown] of Object.entries(list)) {
      if (shown === 'quarantined') continue
      const fields = typeof shown === 'string' ? {kind: shown} : shown
      const row = {day, walk_id, deal_id: parent_id, ...times, ...fields}
      if (stream === 'borrower') history.borrowers.push(aBorrower({borrower_id: id, ...row}))
      else history.documents.push(aDocument({document_id: id, ...row}))
    }
  }
}

const childWalkId = (day: string, stream: Row[string]) => `walk ${day} ${stream}`

/** The records a list held. */
function countRecords(list: Lists[string]): number {
  const absent: unknown[] = ['missing', 'vanished']
  return list === 'failed' ? 0 : Object.values(list).filter((shown) => !absent.includes(shown)).length
}

const LISTED = ['property_address', 'loan_amount', 'status', 'created_at', 'created_at_precision']

/** What a list row says again when nothing changed. */
function pickListed(row: Row): Row {
  return Object.fromEntries(Object.entries(row).filter(([column]) => LISTED.includes(column)))
}

/** The rows that a model has for a case, as text. */
export async function runModelCase(table: string, tested: ModelCase, plan: BuildPlan): Promise<unknown[]> {
  const history = toHistory(tested)
  const seeds = Object.entries(tested.seeds).map(([name, text]) => [`seeds/${name}.csv`, text])
  using folder = writeSqlFolder(Object.fromEntries(seeds))
  const days = history.walks.map(({business_date}) => String(business_date)).sort()
  const asOf = tested.as_of ?? days.at(-1)
  await using db = await buildRelease(
    history,
    {...(asOf !== undefined && {asOf}), ...(tested.known_at !== undefined && {knownAt: tested.known_at})},
    {
      models: selectModel(plan, table),
      reads: plan.reads,
      columns: plan.columns,
      seeds: readSeeds([BUILT_IN_SQL, folder.path]),
    },
  )
  const columns = [...new Set(tested.rows.flatMap((row) => Object.keys(row)))]
  const shown = columns.length === 0 ? '*' : columns.map(quoteName).join(', ')
  return await db.all(
    z.record(z.string(), z.string().nullable()),
    `select columns(*)::varchar from (select ${shown} from ${table} where ${tested.where})`,
  )
}

/** The model and what it is built from; a model of `work`, which no release keeps, is kept to be looked at. */
function selectModel({models}: BuildPlan, table: string): BuildPlan['models'] {
  const needed = new Set([table])
  for (const {name, sql} of models.toReversed()) {
    if (!needed.has(name)) continue
    for (const other of models)
      if (new RegExp(`\\b(from|join) ${other.name}\\b`).test(sql)) needed.add(other.name)
  }
  return models
    .filter(({name}) => needed.has(name))
    .map((model) => (model.name === table ? {...model, isPublished: true} : model))
}
