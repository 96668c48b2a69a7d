import {createHash} from 'node:crypto'
import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import {formatInstant} from '../core/clock.ts'
import {LoantapeError} from '../core/errors.ts'
import {NO_CHANGES, type World} from '../core/types.ts'
import {createListAsker, type EachSummary, type ListingAnswer} from '../source/ask-each.ts'
import {createSealer} from '../source/record.ts'
import {quoteLiteral} from '../store/database.ts'
import {findDescribedSince} from './details.ts'
import {type Answer, askAndTake, mostRequestsWithin, type WalkIntake, type WalkTools} from './intake.ts'
import {dropWalks, endWalk, settleWalk} from './settle.ts'
import {isSettledSql, ROTATION_DAYS, TONIGHT_HOURS, tablesOf} from './stream-tables.ts'
import {continueWalk, requestOf, startWalk} from './walk.ts'
import {listNamedDeals} from './webhook-events.ts'

/**
 * The parents whose lists to read, in order of need: those with a child that was missed on an earlier day; those never listed,
 * or changed or announced since; then those listed under another `source.json`, or not for longest. Parents whose list could not
 * be read last time come last, so that they hold up no others. `now` is on the business clock, microseconds since the epoch.
 */
async function listParentsInNeed(
  tools: WalkTools,
  asked: {businessDate: string; now: bigint; limit: number},
): Promise<string[]> {
  const {db, stateDb, stream} = tools
  const {parent} = stream
  if (!parent) return []
  return db.column(
    z.string(),
    `with attempt as (
       select
         parent_id,
         max(observed_at) filter (outcome = 'listed') as listed_at,
         max(observed_at) as attempted_at
       from history.raw.listing
       where stream = ${quoteLiteral(stream.name)}
       group by parent_id
     ),
     doubted as (
       select distinct ${parent.column} as id
       from ${tablesOf(stream).head}
       where kind = 'missing' and business_date < cast($2 as date)
     ),
     announced as (
       select deal ->> 'deal_id' as deal_id, cast(deal ->> 'received_at' as timestamp) as announced_at
       from (select unnest(cast($3 as json[])) as deal)
     ),
     needed as (
       select
         parent.*,
         parent.${parent.stream.idColumn} as id,
         listed_at,
         attempted_at,
         row_number() over (order by listed_at nulls last, id) as age_rank,
         ceil(count(*) over () / ${ROTATION_DAYS}.0)
           - count(*) filter (listed_at > $1 - interval ${TONIGHT_HOURS} hour) over () as quota,
         case
           when id in (from doubted) then 0
           when listed_at is null or greatest(observed_at, announced_at) > listed_at then 1
           when listed_at <= $1 - interval ${ROTATION_DAYS} day or age_rank <= quota then 2
           when epoch_us(listed_at) < ${findDescribedSince(tools, asked.now)} then 2
         end as need
       from ${tablesOf(parent.stream).head} as parent
       left join attempt on parent_id = parent.${parent.stream.idColumn}
       left join announced on announced.deal_id = parent.${parent.stream.idColumn}
       where kind = 'seen'
     )
     select id
     from needed
     where need is not null
       and id not in (select parent_id from temp.staged_listing where stream = ${quoteLiteral(stream.name)})
     order by
       coalesce(attempted_at > listed_at, attempted_at is not null),
       need,
       ${isSettledSql(parent.stream)} desc,
       attempted_at nulls first,
       id
     limit ${asked.limit}`,
    [new DuckDBTimestampValue(asked.now), asked.businessDate, JSON.stringify(listNamedDeals(stateDb))],
  )
}

export type ChildResult = ReturnType<typeof createResult>

function createResult({plural}: Stream) {
  return {
    /** `borrowers` */
    stream: plural,
    /** `unchanged`: no list was due; `refused`: nothing was applied. */
    outcome: 'unchanged' as 'applied' | 'unchanged' | 'refused',
    /** Deals whose list was read to its end, and deals whose list could not be read. */
    listed: 0,
    failed: 0,
    ended: 'done' as EachSummary['ended'],
    changes: NO_CHANGES,
    /** Code of the error that refused the stream. */
    reason: null as string | null,
  }
}

/** `businessDate` is that of the parents' walk; `hashKey` is undefined for streams without hashed fields. */
type ChildRun = {businessDate: string; budgetMs: number; hashKey: string | undefined}

/**
 * Reads the lists of the parents in need, within the budget, and applies them as one walk. If a guard refuses it, the source
 * breaks its contract, or the clock steps back, only this stream is refused, since its parents have already been applied; the
 * next run reads its lists again.
 */
export async function syncChildren(tools: WalkTools, run: ChildRun, world: World): Promise<ChildResult> {
  const {stream, walks, config} = tools
  const result = createResult(stream)
  const refuse = (error: unknown) => {
    if (!(error instanceof LoantapeError)) throw error
    const {code, kind, problem} = error
    if (code !== 'CLOCK_STEPPED' && !['guard', 'contract'].includes(kind)) throw error
    world.log.warn({stream: stream.plural, code, reason: problem}, 'not applied')
    Object.assign(result, {outcome: 'refused', reason: code})
  }
  try {
    const left = walks.get(stream.name)
    const isRead = left?.walk.described === requestOf(stream, config).described
    if (left && !isRead) await endWalk(tools, left, {state: 'abandoned', how: 'another source.json'})
    else if (left) {
      await continueWalk(tools, left)
      // Its run died on an earlier day: what it read still belongs to that day, and today's lists do not depend on it.
      if (left.walk.businessDate !== run.businessDate) await settleWalk(tools, left, world).catch(refuse)
    }
    const unit = await readLists(tools, run, result, world)
    if (!unit) return result
    result.changes = await settleWalk(tools, unit, world)
    Object.assign(result, {outcome: 'applied', reason: null})
  } catch (error) {
    refuse(error)
    if (result.reason === 'CLOCK_STEPPED') await dropWalks(tools, 'clock stepped')
  }
  return result
}

/** Undefined if no walk is open and no list is due. */
async function readLists(
  tools: WalkTools,
  {businessDate, budgetMs, hashKey}: ChildRun,
  result: ChildResult,
  world: World,
): Promise<WalkIntake | undefined> {
  const {stream, client, config, walks} = tools
  const open = walks.get(stream.name)
  const now = BigInt(world.clock.now()) * 1000n
  const asked = {businessDate, now, limit: mostRequestsWithin(budgetMs, config)}
  const ids = budgetMs > 0 ? await listParentsInNeed(tools, asked) : []
  if (budgetMs <= 0) result.ended = 'budget'
  if (!open && ids.length === 0) return undefined
  const unit = open ?? (await startWalk(tools, {businessDate, startedAt: now}, world))
  const seal = createSealer(stream, hashKey)
  const waitedBefore = client.waitedMs
  const request = {
    ids,
    ...{step: stream.plural, unit: 'lists'},
    path: stream.listPath,
    ask: createListAsker(config.pageSize),
    concurrency: config.detailConcurrency,
    budgetMs,
  }
  const describe = (answer: ListingAnswer) => describeList(answer, seal, world)
  const summary = await askAndTake(tools, unit, 'lists stored', request, describe, world)
  const {ended, failed, gone, fetched} = summary
  unit.walk.isComplete = ended === 'done' && unit.walk.details.failed === 0
  unit.walk.waitedMs += client.waitedMs - waitedBefore
  Object.assign(result, {listed: fetched, failed: failed + gone, ended})
  return unit
}

/** The records are sealed; a digest of the original is added. */
function describeList(answer: ListingAnswer, seal: (record: unknown) => unknown, {clock}: World): Answer[] {
  const {id: parent, outcome} = answer
  if (outcome !== 'found') {
    const observed_at = formatInstant(BigInt(clock.now()) * 1000n)
    return [{frame: {frame: 'children', parent, outcome, observed_at}}]
  }
  const pages = answer.pages.length
  return answer.pages.map(({records, received}, index) => {
    const shown = {data: records.map(seal), has_more: false}
    const {original, ...told} = received
    const sent = original?.body ?? received.body
    const received_sha256 = createHash('sha256').update(sent).digest('hex')
    const place = {parent, outcome: 'listed', page: index + 1, pages}
    return {
      frame: {frame: 'children', ...place, received_sha256},
      body: shown,
      received: {...told, body: Buffer.from(JSON.stringify(shown))},
    }
  })
}
