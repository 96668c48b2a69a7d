import {DuckDBTimestampValue, type DuckDBValue} from '@duckdb/node-api'
import {z} from 'zod'
import {type Column, optionalColumnsOf, type Stream} from '../contract/stream.ts'
import {HOUR_MS} from '../core/clock.ts'
import type {SourceConfig} from '../core/config.ts'
import {isObject} from '../core/json.ts'
import type {WireRecord, World} from '../core/types.ts'
import {askOwnPage, type DetailAnswer} from '../source/ask-each.ts'
import {walkPages} from '../source/walk-pages.ts'
import type {Database} from '../store/database.ts'
import {judgePlan} from './guard.ts'
import {type Answer, askAndTake, askInTurn, mostWithin, type WalkIntake, type WalkTools} from './intake.ts'
import {type ChangePlan, findAbsences} from './plan-changes.ts'
import {settleBeside} from './settle.ts'
import {isSettledSql, tablesOf} from './stream-tables.ts'
import {findBusinessDate, findPast} from './walk.ts'

/** Each record is looked at again within about this many days. */
const ROTATION_DAYS = 30

/**
 * The records whose own page to fetch, in order of need: absent ones (gone or only overlooked?), new and changed ones, then those
 * not looked at for longest. Left out are records this walk has already fetched and, in mode `auto`, those whose list rows lack
 * nothing. The first was listed, so that its answer proves the path.
 *
 * Reads the temporary tables of `findAbsences`.
 *
 * @param asked `now` on the business clock, microseconds since the epoch; at most `limit` records
 * @returns by id the wire fields known from the list row of this walk, or from the last state
 */
export async function listDetailCandidates(
  db: Database,
  stream: Stream,
  asked: {now: bigint; limit: number; mode: 'auto' | 'on'},
): Promise<Map<string, WireRecord>> {
  const isWhole =
    asked.mode === 'auto' && (await namesMappedFields(db, stream)) ? buildWholeSql(stream) : 'false'
  const {head} = tablesOf(stream)
  const inNeed = `need, ${isSettledSql(stream)} desc, detail_at nulls first, id`
  return readWireFields(
    db,
    stream,
    `with candidate as materialized (${buildCandidatesSql(stream, isWhole)}),
     quota as (
       select greatest(
         (select least(1, count(*)) from absence),
         ceil(count(*) / ${ROTATION_DAYS}.0) - count(*) filter (detail_at > $1 - interval 1 day)
       ) as records
       from ${head} where kind = 'seen'
     ),
     needed as (
       from candidate where need < 2
       union all
       from candidate where need = 2
       qualify detail_at <= $1 - interval ${ROTATION_DAYS} day
         or row_number() over (order by detail_at, id) <= (select records from quota)
       union all
       from candidate where need = 3
       qualify row_number() over (order by id) <= (select least(1, count(*)) from absence)
     )
     select id, ${listWireFields(stream)}
     from needed
     order by row_number() over (order by need = 0, ${inNeed}) <> 1, ${inNeed}
     limit ${asked.limit}`,
    [new DuckDBTimestampValue(asked.now)],
  )
}

/** Reads rows of wire fields by their `id`, without what is null. */
async function readWireFields(
  db: Database,
  {wireFields}: Stream,
  sql: string,
  params: DuckDBValue[],
): Promise<Map<string, WireRecord>> {
  const rows = await db.all(z.record(z.string(), z.string().nullable()), sql, params)
  const isKept = ([name, value]: [string, unknown]) => wireFields.includes(name) && value !== null
  return new Map(
    rows.map(({id, ...row}) => [id ?? '', Object.fromEntries(Object.entries(row).filter(isKept))]),
  )
}

/** SQL condition: a list row has every field of the contract. */
function buildWholeSql(stream: Stream): string {
  return ['true', ...optionalColumnsOf(stream).map(({name}) => `${name}_present`)].join(' and ')
}

/** Whether the list shows each mapped field; if so, a row without one has no value for it. */
async function namesMappedFields(db: Database, {mapped = []}: Stream): Promise<boolean> {
  if (mapped.length === 0) return true
  const named = await db.value(
    z.coerce.number(),
    `select count(distinct said.name)
     from (select unnest(from_json(mapped, '[{"name":"varchar"}]')) as said from incoming where source = 'list')`,
  )
  return named === mapped.length
}

/**
 * SQL of the records by need: absent (0), new or changed (1), unchanged (2), nothing missing (3). Optional fields of absent ones
 * are not filled in from the last state: they are carried forward anyway, and would look as if they were on the page.
 */
function buildCandidatesSql(stream: Stream, isWhole: string): string {
  const {idColumn} = stream
  return `
    select
      i.*,
      i.${idColumn} as id,
      h.detail_at,
      case
        when ${isWhole} then 3
        when h.list_hash is null or i.list_hash <> h.list_hash or h.detail_at is null then 1
        else 2
      end as need
    from incoming i
    left join ${tablesOf(stream).head} h on h.${idColumn} = i.${idColumn}
    where i.source = 'list'
    union all by name
    select * replace (null::timestamp as detail_at), ${idColumn} as id, 0 as need
    from absence
    where ${idColumn} not in (select ${idColumn} from incoming)`
}

/** The columns as wire fields in text; null if the row leaves them out. */
function listWireFields({columns}: Stream): string {
  const precisions = columns.map(({precisionColumn}) => precisionColumn)
  return columns
    .filter(({name}) => !precisions.includes(name))
    .map((column) => {
      const text = buildWireText(column)
      return `${column.mayBeAbsent ? `case when ${column.name}_present then ${text} end` : text} as ${column.name}`
    })
    .join(', ')
}

function buildWireText({name, type, precisionColumn}: Column): string {
  if (type !== 'TIMESTAMP') return `cast(${name} as varchar)`
  const instant = `strftime(${name}, '%Y-%m-%dT%H:%M:%S.%fZ')`
  if (precisionColumn === undefined) return instant
  return `case ${precisionColumn} when 'date' then strftime(${name}, '%Y-%m-%d') else ${instant} end`
}

/** The last known wire fields of these records, by id, without optional ones; they fill in what a page leaves out. */
export function listLastKnown(
  db: Database,
  stream: Stream,
  ids: readonly string[],
): Promise<Map<string, WireRecord>> {
  const flags = optionalColumnsOf(stream).map(({name}) => `, false as ${name}_present`)
  return readWireFields(
    db,
    stream,
    `select ${stream.idColumn} as id, ${listWireFields(stream)}
     from (select *${flags.join('')} from ${tablesOf(stream).head})
     where ${stream.idColumn} in (select unnest(from_json($1, '["varchar"]')))`,
    [JSON.stringify(ids)],
  )
}

const PROGRESS = {step: 'details', unit: 'details'}

/** How own pages are asked for. */
const requestOf = (ids: readonly string[], mode: 'auto' | 'on', config: SourceConfig) => ({
  ids,
  path: '/deals/{id}',
  ask: askOwnPage,
  mode,
  concurrency: config.detailConcurrency,
  budgetMs: config.detailBudgetMinutes * 60_000,
})

/**
 * Fetches, within the budget, the own pages that hold more than the list, and takes them in. If the path fails or does not
 * exist, only their fields are missing.
 */
export async function fetchMissingDetails(
  tools: WalkTools,
  unit: WalkIntake,
  world: World,
): Promise<{fetched: number; failed: number}> {
  const {db, stream, config} = tools
  const nothing = {fetched: 0, failed: 0}
  if (config.detail === 'off') return nothing
  await findAbsences(db, stream, unit.walk)
  const known = await listDetailCandidates(db, stream, {
    now: BigInt(world.clock.now()) * 1000n,
    limit: mostWithin(config.detailBudgetMinutes * 60_000, config),
    mode: config.detail,
  })
  if (known.size === 0) return nothing
  return askAndTake(
    tools,
    unit,
    {stored: 'details stored', ...PROGRESS},
    requestOf([...known.keys()], config.detail, config),
    (answer) => {
      if (answer.outcome === 'failed') return []
      const {id, outcome, received} = answer
      const body = answer.outcome === 'found' ? {data: answer.record} : undefined
      return [{frame: {frame: 'detail', id, outcome, listed: known.get(id)}, body, received}]
    },
    world,
  )
}

/** So many own pages take longer than a walk, which the budget of details then brings about. */
const MOST_HINTS = 100_000

/** The ids of the deals that a source, if it can, lists as changed since the last walk began; those lists are kept nowhere. */
export async function listChanged({db, stream, client, config}: WalkTools, world: World): Promise<string[]> {
  const {startedAt} = await findPast(db, stream)
  if (config.description?.deals.changedSince === undefined || startedAt === null) return []
  // The source's clock may be an hour behind.
  const since = new Date(Number(startedAt / 1000n) - HOUR_MS)
  const filter = {changed_since: since.toISOString()}
  const request = {path: stream.listPath, pageSize: config.pageSize, filter}
  const ids: string[] = []
  await db.closedWhile(async () => {
    for await (const {records} of walkPages(request, client, world)) {
      for (const record of records) if (isObject(record) && typeof record.id === 'string') ids.push(record.id)
      if (ids.length >= MOST_HINTS) return
    }
  })
  return ids
}

/**
 * Looks at deals on their own pages and appends what is new.
 *
 * @returns how many versions were appended, and whether every page could be read
 */
export async function lookAt(
  {db, stream: deals, tapes, walks, client, config}: WalkTools,
  ids: readonly string[],
  world: World,
): Promise<{appended: number; isComplete: boolean}> {
  if (ids.length === 0) return {appended: 0, isComplete: true}
  const answers: DetailAnswer[] = []
  const take = (answer: DetailAnswer) => void answers.push(answer)
  await db.closedWhile(() => askInTurn(client, PROGRESS, requestOf(ids, 'on', config), take, world))
  const businessDate = await findBusinessDate(db, deals, config, world.clock.now())
  const found = answers.filter((answer) => answer.outcome === 'found')
  const foundIds = found.map(({id}) => id)
  const known = await listLastKnown(db, deals, foundIds)
  const lines = found.map(({id, record, received}): Answer => {
    return {frame: {frame: 'look', id, known: known.get(id)}, body: {data: record}, received}
  })
  const said = {kind: 'look', stream: deals.name, businessDate, isWalkOpen: walks.has(deals.name)}
  const judge = (plan: ChangePlan) => judgePlan(db, deals, plan, config, new Set())
  const {appended, read} = await settleBeside({db, tapes}, businessDate, {said, lines, judge}, world)
  return {appended, isComplete: read === ids.length}
}
