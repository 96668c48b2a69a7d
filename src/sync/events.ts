import {type Config, requireSource} from '../core/config.ts'
import type {World} from '../core/types.ts'
import {type DetailAnswer, fetchDetails} from '../source/ask-each.ts'
import {dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {withRun} from '../store/runs.ts'
import {openStateDb} from '../store/state-db.ts'
import {atSource} from './at-source.ts'
import {DETAIL_PATH, listLastKnown} from './details.ts'
import {guardChanges} from './guard.ts'
import type {Answer, WalkTools} from './intake.ts'
import {measureMovement} from './movement.ts'
import {settleBeside} from './settle.ts'
import {findBusinessDate} from './walk.ts'
import {listWaitingEvents} from './webhook-events.ts'

/** The result of applying the waiting events. */
export interface EventsResult {
  /** `walked`: only a walk could show what the events were about. */
  outcome: 'applied' | 'walked' | 'unchanged'
  events: number
  deals: number
  /** Versions appended; an unchanged deal appends none. */
  appended: number
}

/** The result of looking at the deals that webhooks named. */
interface Looked {
  eventIds: string[]
  /** Deals they name, and versions appended for them. */
  deals: number
  appended: number
  /** Whether every deal's own page was read. */
  isComplete: boolean
}

/** Looks at the deals that waiting events name, and appends what is new. */
export async function lookAgain(config: Config, world: World): Promise<Looked> {
  const source = requireSource(config)
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  using stateDb = openStateDb(folder.stateDb)
  const events = listWaitingEvents(stateDb)
  const ids = [...new Set(events.map(({deal_id}) => deal_id))]
  const looked = {eventIds: events.map(({event_id}) => event_id), deals: ids.length, appended: 0}
  if (ids.length === 0 || source.detail === 'off') return {...looked, isComplete: false}
  return withRun(folder.stateDb, 'events', world, (run) =>
    atSource(source, {folder, run, accepted: new Set()}, async (tools, steady) => {
      const counts = await look(tools, ids, steady)
      return {...looked, ...counts, outcome: 'applied'}
    }),
  )
}

async function look(
  {db, stream: deals, tapes, walks, client, config}: WalkTools,
  ids: readonly string[],
  world: World,
): Promise<Pick<Looked, 'appended' | 'isComplete'>> {
  const answers: DetailAnswer[] = []
  const request = {
    path: DETAIL_PATH,
    mode: 'on' as const,
    concurrency: config.detailConcurrency,
    budgetMs: config.detailBudgetMinutes * 60_000,
  }
  await db.closedWhile(async () => {
    const report = () => {
      const [done, total] = [answers.length, ids.length]
      world.onProgress({step: 'details', unit: 'details', done, total, source: client})
    }
    report()
    for await (const answer of fetchDetails(ids, request, client, world).answers) {
      answers.push(answer)
      report()
    }
  })
  const businessDate = await findBusinessDate(db, deals, config, world.clock.now())
  const found = answers.filter((answer) => answer.outcome === 'found')
  const foundIds = found.map(({id}) => id)
  const known = await listLastKnown(db, deals, foundIds)
  const lines = found.map(({id, record, received}): Answer => {
    return {frame: {frame: 'look', id, known: known.get(id)}, body: {data: record}, received}
  })
  const said = {kind: 'look', stream: deals.name, businessDate, isWalkOpen: walks.has(deals.name)}
  const {appended, read} = await settleBeside(
    {db, tapes},
    businessDate,
    {said, lines},
    {
      now: BigInt(world.clock.now()) * 1000n,
      judge: async (plan) =>
        guardChanges({...plan, moved: await measureMovement(db, deals)}, config, new Set(), deals),
    },
  )
  return {appended, isComplete: read === ids.length}
}
