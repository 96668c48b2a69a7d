import {hash} from 'node:crypto'
import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import {type Column, optionalColumnsOf, type Stream} from '../contract/stream.ts'
import {parseChildStreams} from '../contract/streams.ts'
import {HOUR_MS} from '../core/clock.ts'
import type {SourceConfig} from '../core/config.ts'
import {isObject} from '../core/json.ts'
import {shorten} from '../core/text.ts'
import type {WireRecord, World} from '../core/types.ts'
import {askEach, askOwnPage, type DetailAnswer} from '../source/ask-each.ts'
import {hasOtherStatus, walkPages} from '../source/walk-pages.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import {readFact, writeFact} from '../store/recorded.ts'
import {judgePlan} from './guard.ts'
import {type Answer, askAndTake, mostRequestsWithin, type WalkIntake, type WalkTools} from './intake.ts'
import {buildSameSql, type ChangePlan, findAbsences} from './plan-changes.ts'
import {settleBeside} from './settle.ts'
import {isSettledSql, ROTATION_DAYS, TONIGHT_HOURS, tablesOf} from './stream-tables.ts'
import {findBusinessDate, findPast} from './walk.ts'

/**
 * Chooses the records whose own page to fetch, in the order of need of {@link buildCandidatesSql}. Of the pages never read, only
 * a day's share comes before those that lists contradict, which may fill the budget every night. The first record is listed and,
 * if any has, has shown its page before, so that its answer proves the path. Reads the temporary tables of `findAbsences`. `now`
 * is on the business clock, microseconds since the epoch; `known` are wire fields of this walk's list row, or of the last state.
 */
export async function listDetailCandidates(
  db: Database,
  stream: Stream,
  asked: {now: bigint; limit: number; mode: 'auto' | 'on'; describedSince: bigint},
): Promise<z.output<typeof candidateRow>[]> {
  const whole = optionalColumnsOf(stream).map(({name}) => `${name}_present`)
  const isWhole =
    asked.mode === 'auto' && (await namesMappedFields(db, stream)) ? whole.join(' and ') : 'false'
  const {head} = tablesOf(stream)
  // Pages that always fail must not come together, or they would end all asking.
  const turn = 'if(need in (2, 4), hash(id || cast($1 as varchar)), 0)'
  const inNeed = `need, (need <> 4 and ${isSettledSql(stream)}) desc, if(need = 4, null, detail_at) nulls first, ${turn}, id`
  return await db.all(
    candidateRow,
    `with candidate as materialized (
       from (${buildCandidatesSql(stream, isWhole, asked.describedSince)})
       where id not in (
         select record_id from temp.staged_quarantine
         where stream = ${quoteLiteral(stream.name)} and source = 'detail'
       )
     ),
     due as materialized (
       select id from candidate where need in (2, 3)
       qualify detail_at <= $1 - interval ${ROTATION_DAYS} day
         or row_number() over (partition by need order by need = 2 and ${isSettledSql(stream)} desc, ${turn}, detail_at, id) <= (
           select ceil(count(*) / ${ROTATION_DAYS}.0) - count(*) filter (
             detail_at > $1 - interval ${TONIGHT_HOURS} hour and ${stream.idColumn} not in (select id from candidate where need = 5)
           )
           from ${head} where kind = 'seen'
         )
     ),
     witness as materialized (
       select id from candidate
       where need in (1, 2, 5) or id in (select id from due) or (need not in (0, 4) and exists (from absence))
       order by detail_at desc nulls last, need desc, ${inNeed}
       limit 1
     )
     select id, need = 5 as is_contradicted, ${buildWireSql(stream.columns)} as known
     from candidate
     where need in (0, 1, 2, 4, 5) or id in (select id from due) or id in (select id from witness)
     order by id is distinct from (select id from witness), need = 2 and id not in (select id from due), ${inNeed}
     limit ${asked.limit}`,
    [new DuckDBTimestampValue(asked.now)],
  )
}

/** If the list shows every mapped field, a row without one has no value for it. */
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
 * SQL of the records with their need: absent (0), new or changed (1), page never read by this `source.json` (2), unchanged (3),
 * out of the filter since an earlier walk (4), unlike what own pages said (5), nothing missing (6). Optional fields of unlisted
 * records are not filled in from the last state: they are carried forward anyway, and would look as if they were on the page.
 */
function buildCandidatesSql(stream: Stream, isWhole: string, describedSince: bigint): string {
  const {idColumn} = stream
  return `
    select
      i.*,
      i.${idColumn} as id,
      h.detail_at,
      case
        when i.list_hash = h.list_hash and not (${buildSameSql(stream)}) then 5
        when ${isWhole} then 6
        when h.list_hash is null or i.list_hash <> h.list_hash then 1
        when h.detail_at is null or epoch_us(h.detail_at) < ${describedSince} then 2
        else 3
      end as need
    from incoming i
    left join ${tablesOf(stream).head} h on h.${idColumn} = i.${idColumn}
    where i.source = 'list'
    union all by name
    select
      * replace (if(is_followed, detail_at, null) as detail_at),
      ${idColumn} as id,
      if(is_followed, 4, 0) as need
    from (select *, head_kind = 'seen' and not is_news as is_followed from absence)
    where ${idColumn} not in (select ${idColumn} from incoming)`
}

const knownRow = z.object({
  id: z.string(),
  known: z.string().transform((text): WireRecord => JSON.parse(text)),
})
const candidateRow = knownRow.extend({is_contradicted: z.boolean()})

/** A row as wire fields: a JSON object of texts and nulls, without optional fields that are left out. */
function buildWireSql(columns: readonly Column[]): string {
  const precisions = columns.map(({precisionColumn}) => precisionColumn)
  const fields = columns
    .filter(({name}) => !precisions.includes(name))
    .map(({name, precisionColumn}) => {
      const text = `cast(${name} as varchar)`
      const date = `cast(cast(${name} as date) as varchar)`
      return `'${name}', ${precisionColumn ? `if(${precisionColumn} = 'date', ${date}, ${text})` : text}`
    })
  // Merging a null removes a name.
  const leftOut = columns
    .filter(({mayBeAbsent}) => mayBeAbsent)
    .map(({name}) => `if(${name}_present, '{}', '{"${name}": null}')`)
  return `json_merge_patch(${[`json_object(${fields.join(', ')})`, `'{}'`, ...leftOut].join(', ')})`
}

/** The last known wire fields by id, without optional ones: they fill in what a page leaves out. */
export async function listLastKnown(
  db: Database,
  stream: Stream,
  ids: readonly string[],
): Promise<Map<string, WireRecord>> {
  const rows = await db.all(
    knownRow,
    `select ${stream.idColumn} as id, ${buildWireSql(stream.columns.filter(({mayBeAbsent}) => !mayBeAbsent))} as known
     from ${tablesOf(stream).head}
     where ${stream.idColumn} in (select unnest(from_json($1, '["varchar"]')))`,
    [JSON.stringify(ids)],
  )
  return new Map(rows.map(({id, known}) => [id, known]))
}

const requestOwnPages = (ids: readonly string[], config: SourceConfig) => ({
  ids,
  step: 'details',
  unit: 'details',
  path: '/deals/{id}',
  ask: askOwnPage,
  concurrency: config.detailConcurrency,
  budgetMs: config.detailBudgetMinutes * 60_000,
})

/** Left to child streams once only pages remain that lists may contradict every night. */
const CHILD_SHARE = 1 / 6

/**
 * Since when `source.json` reads records as it does now, microseconds since the epoch: `now` if it has changed; 0 if there was
 * never one. Own pages and lists of deals read before are asked for again.
 */
export function findDescribedSince({stateDb, config: {description}}: WalkTools, now: bigint): bigint {
  const {deals, borrowers, documents} = description ?? {}
  const said = [deals?.record, deals?.fields, borrowers?.fields, documents?.fields]
  const described = description ? hash('sha256', JSON.stringify(said)) : 'none'
  const [known = 'none', since = '0'] = readFact(stateDb, 'described_since')?.split(' ') ?? []
  // A later instant is of a clock that was ahead.
  if (known === described && BigInt(since) <= now) return BigInt(since)
  writeFact(stateDb, 'described_since', `${described} ${now}`)
  return now
}

/**
 * Fetches the own pages that hold more than the list, within the budget. If the path fails or does not exist, only their fields
 * are missing: a page that is gone counts only for a deal that the list lacks.
 */
export async function fetchMissingDetails(tools: WalkTools, unit: WalkIntake, world: World): Promise<void> {
  const {db, stream, config} = tools
  if (config.detail === 'off') return
  await findAbsences(db, stream, unit.walk)
  const budgetMs = config.detailBudgetMinutes * 60_000
  const endsAt = world.realClock.now() + budgetMs
  const now = BigInt(world.clock.now()) * 1000n
  const candidates = await listDetailCandidates(db, stream, {
    now,
    limit: mostRequestsWithin(budgetMs, config),
    mode: config.detail,
    describedSince: findDescribedSince(tools, now),
  })
  const known = new Map(candidates.map(({id, known}) => [id, known]))
  const absent = new Set(await db.column(z.string(), `select ${stream.idColumn} from absence`))
  let unread = 0
  const ask = async (ids: readonly string[], keptMs: number) => {
    const request = {...requestOwnPages(ids, config), budgetMs: endsAt - world.realClock.now() - keptMs}
    const describe = (answer: DetailAnswer): Answer[] => {
      if (answer.outcome === 'failed') return []
      const {id, outcome, received} = answer
      if (outcome === 'gone' && !absent.has(id)) {
        const reason = `status 404 or 410 of a deal that is listed, '${shorten(id)}'`
        if (unread === 0) world.log.warn({path: '/deals/{id}', reason}, 'a detail could not be fetched')
        unread += 1
        return []
      }
      const body = answer.outcome === 'found' ? {data: answer.record} : undefined
      return [{frame: {frame: 'detail', id, outcome, listed: known.get(id)}, body, received}]
    }
    const {failed, ended} = await askAndTake(tools, unit, 'details stored', request, describe, world)
    unread += failed
    return ended
  }
  const ids = [...known.keys()]
  // The first may be there only to prove the path.
  const endless = candidates.findIndex(({is_contradicted}, index) => is_contradicted && index > 0)
  const split = endless === -1 ? ids.length : endless
  const ended = split > 0 ? await ask(ids.slice(0, split), 0) : 'done'
  const kept = parseChildStreams(config.streams).length > 0 ? budgetMs * CHILD_SHARE : 0
  if (ended === 'done' && split < ids.length) await ask(ids.slice(split), kept)
  // A failed page is on no tape, so a later run asks for it again.
  unit.walk.details.failed += unread
}

/** Reading this many own pages takes longer than a walk. Running out of the details budget leads to that walk. */
const MOST_HINTS = 100_000

/** The deals that the source, if it can, names as changed since the last walk began. These lists are on no tape. */
export async function listChanged({db, stream, client, config}: WalkTools): Promise<string[]> {
  const {startedAt} = await findPast(db, stream)
  if (config.description?.deals.changedSince === undefined || startedAt === null) return []
  // The source's clock may be an hour behind.
  const changed_since = new Date(Number(startedAt / 1000n) - HOUR_MS).toISOString()
  const request = {path: stream.listPath, pageSize: config.pageSize, filter: {changed_since}}
  const ids: string[] = []
  let read = 0
  await db.closedWhile(async () => {
    for await (const {records} of walkPages(request, client)) {
      for (const record of records) if (isObject(record) && typeof record.id === 'string') ids.push(record.id)
      read += records.length
      if (read >= MOST_HINTS) return
    }
  })
  return ids
}

/**
 * Looks at deals on their own pages, unless these are off, and appends what is new. Does nothing before the first walk, whose
 * guards would compare it with these deals. Leaves out deals that were never in the stage that is walked: no walk would have
 * them. `isComplete` says that every page was read.
 */
export async function lookAt(
  {db, stream: deals, tapes, walks, client, config}: WalkTools,
  ids: readonly string[],
  world: World,
): Promise<{appended: number; isComplete: boolean}> {
  if (ids.length === 0) return {appended: 0, isComplete: true}
  const {startedAt} = await findPast(db, deals)
  if (startedAt === null || config.detail === 'off') return {appended: 0, isComplete: false}
  const businessDate = await findBusinessDate(db, deals, config, world.clock.now())
  const answers: DetailAnswer[] = []
  const take = (answer: DetailAnswer) => void answers.push(answer)
  await db.closedWhile(() => askEach(requestOwnPages(ids, config), client, take, world))
  const found = answers.filter((answer) => answer.outcome === 'found')
  const foundIds = found.map(({id}) => id)
  const known = await listLastKnown(db, deals, foundIds)
  const own = found.filter(({id, record}) => known.has(id) || !hasOtherStatus(config.stage, record))
  const lines = own.map(({id, record, received}): Answer => {
    return {frame: {frame: 'look', id, known: known.get(id)}, body: {data: record}, received}
  })
  const said = {kind: 'look', stream: deals.name, businessDate, isWalkOpen: walks.has(deals.name)}
  const judge = (plan: ChangePlan) => judgePlan(db, {stream: deals}, plan, config)
  const {appended, read} = await settleBeside({db, tapes}, businessDate, {said, lines, judge}, world)
  const outside = found.length - own.length
  return {appended, isComplete: read + outside === ids.length}
}
