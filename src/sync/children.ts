import {createHash} from 'node:crypto'
import {formatInstant} from '../core/clock.ts'
import {burstOf} from '../core/config.ts'
import {ContractError, DeferredError, GuardError, type LoantapeError} from '../core/errors.ts'
import {type ChangeCounts, NO_CHANGES, type World} from '../core/types.ts'
import {fetchListings, type ListingAnswer} from '../source/ask-each.ts'
import {createNormaliser, formatNormalised, type Normaliser} from '../source/record.ts'
import {
  type Announcement,
  hasListed,
  listParentsInNeed,
  type StagedListing,
  stageListings,
} from './listings.ts'
import {dropWalks, settleWalk, type WalkTools} from './settle-walk.ts'
import {beginTape, continueWalk, nameWalk} from './walk.ts'
import {certifyWalk, type OpenWalk, startWalk} from './walk-state.ts'

/** Lists are stored together up to this many, or as many as arrive in this time. */
const GROUP_LISTS = 200
const GROUP_MS = 1000

/** What became of one child stream in a run. */
export interface ChildResult {
  /** `borrowers` */
  stream: string
  /** `unchanged`: no list was due; `refused`: nothing was applied, `reason` says why. */
  outcome: 'applied' | 'unchanged' | 'refused'
  /** Deals whose list was read to its end, and whose could not be. */
  listed: number
  failed: number
  /** Why reading ended: `done`, `budget`, `not_offered`, … */
  ended: string
  changes: ChangeCounts
  /** Code of the error that refused it. */
  reason: string | null
}

/** What the lists of one night are read with. */
interface ChildRun {
  /** Of the walk of the parents. */
  businessDate: string
  budgetMs: number
  /** Of hashed fields; streams without need none. */
  hashKey: string | undefined
  /** Deals that webhooks have named. */
  announced: readonly Announcement[]
}

/**
 * Reads, within the budget, the lists of the parents in need, and applies what they say as one walk of the child stream.
 * A list that cannot be read concludes nothing; whatever fails here, the parents have long been applied.
 */
export async function syncChildren(tools: WalkTools, run: ChildRun, world: World): Promise<ChildResult> {
  const result: ChildResult = {
    stream: tools.stream.plural,
    outcome: 'unchanged',
    listed: 0,
    failed: 0,
    ended: 'done',
    changes: NO_CHANGES,
    reason: null,
  }
  try {
    return await readAndSettle(tools, run, result, world)
  } catch (error) {
    if (!(error instanceof DeferredError) || error.code !== 'CLOCK_STEPPED') throw error
    await dropWalks(tools, 'clock stepped')
    return refuse(result, error, world)
  }
}

async function readAndSettle(
  tools: WalkTools,
  run: ChildRun,
  result: ChildResult,
  world: World,
): Promise<ChildResult> {
  const {db, stream, config, walks} = tools
  const left = walks.get(stream.name)
  if (left && left.businessDate !== run.businessDate) {
    // Its run died on an earlier day; what it read is still an observation of that day.
    await settleChildren(tools, left, result, world)
  }
  const open = walks.get(stream.name)
  const now = BigInt(world.clock.now()) * 1000n
  const limit = Math.ceil((run.budgetMs / 1000) * config.ratePerSecond) + burstOf(config)
  const asked = {businessDate: run.businessDate, now, limit, announced: run.announced}
  const parents = run.budgetMs > 0 ? await listParentsInNeed(db, stream, asked) : []
  if (open === undefined && parents.length === 0) {
    return run.budgetMs > 0 ? result : {...result, ended: 'budget'}
  }
  const walk =
    open ??
    startWalk({
      walkId: nameWalk(tools.runId, world),
      baseUrl: config.baseUrl,
      pageSize: config.pageSize,
      filter: '',
      businessDate: run.businessDate,
      startedAt: now,
    })
  await (open ? continueWalk(tools, walk) : beginTape(tools, walk))
  const counts = await readListings(tools, walk, {...run, parents}, world)
  return settleChildren(tools, walk, {...result, ...counts}, world)
}

/** Reads lists and stores them group by group. */
async function readListings(
  tools: WalkTools,
  walk: OpenWalk,
  {parents, budgetMs, hashKey}: ChildRun & {parents: readonly string[]},
  world: World,
): Promise<Pick<ChildResult, 'listed' | 'failed' | 'ended'>> {
  const {db, stream, client, config, tapes} = tools
  const normalise = createNormaliser(stream, hashKey)
  const waitedBefore = client.waitedMs
  let [done, listed] = [0, 0]
  let group: StagedListing[] = []
  let groupStartedAt = world.realClock.now()

  const report = () =>
    world.onProgress({step: stream.plural, unit: 'lists', done, total: parents.length, source: client})

  async function store(): Promise<void> {
    await tapes.store(walk.walkId)
    await stageListings(db, stream, walk, group)
    listed += group.filter(({outcome}) => outcome === 'listed').length
    group = []
    groupStartedAt = world.realClock.now()
    world.onStep('lists stored')
  }

  const request = {
    path: stream.listPath,
    // Once the path has answered, one deal whose list fails must not end the night for all.
    mode: (await hasListed(db, stream)) ? ('on' as const) : ('auto' as const),
    concurrency: config.detailConcurrency,
    budgetMs: Math.max(1, budgetMs),
    pageSize: config.pageSize,
    idField: stream.idField,
  }
  report()
  const answers = fetchListings(parents, request, client, world)
  return db.closedWhile(async () => {
    for (let next = await answers.next(); ; next = await answers.next()) {
      if (next.done) {
        if (group.length > 0) await store()
        const {ended, failed, gone, proven} = next.value
        world.log.info(
          {stream: stream.plural, detail: ended, count: listed, reason: proven ? 'proven' : 'not proven'},
          'lists ended',
        )
        walk.isComplete = ended === 'done' && failed + gone === 0
        walk.waitedMs += client.waitedMs - waitedBefore
        return {listed, failed: failed + gone, ended}
      }
      done += 1
      report()
      const listing = toListing(next.value, normalise, world)
      takeListing(tools, walk.walkId, next.value, listing)
      group.push(listing)
      const isDue = group.length >= GROUP_LISTS || world.realClock.now() - groupStartedAt >= GROUP_MS
      if (isDue) await store()
    }
  })
}

/** The first page's start stamps a list: a child linked while it was read is not missed. */
function toListing(answer: ListingAnswer, normalise: Normaliser, world: World): StagedListing {
  const {id: parentId, outcome} = answer
  const observedAt = BigInt(world.clock.now()) * 1000n
  if (outcome !== 'found') return {parentId, outcome, observedAt}
  const pages = answer.pages.map((page) => normalise(page.records, page.observedAt, parentId))
  return {parentId, outcome: 'listed', observedAt: answer.pages[0]?.observedAt ?? observedAt, pages}
}

/** Takes down what a list said: as it came or, where it is about people, as it is stored, with the digest of what came. */
function takeListing(
  {tapes, stream}: WalkTools,
  unit: string,
  answer: ListingAnswer,
  listing: StagedListing,
): void {
  const {parentId: parent, outcome, observedAt} = listing
  if (answer.outcome !== 'found' || listing.outcome !== 'listed') {
    tapes.take(unit, {frame: 'children', parent, outcome, observed_at: formatInstant(observedAt)})
    return
  }
  for (const [index, {received, envelope}] of answer.pages.entries()) {
    const place = {page: index + 1, pages: answer.pages.length, envelope}
    const frame = {frame: 'children' as const, parent, outcome, ...place}
    const page = listing.pages[index]
    if (!stream.privacy || !page) {
      tapes.take(unit, frame, received)
      continue
    }
    const digest = createHash('sha256').update(received.body).digest('hex')
    const body = Buffer.from(formatNormalised(page))
    tapes.take(unit, {...frame, received_sha256: digest}, {...received, body})
  }
}

/** Applies what was read; a walk that nobody can believe is refused alone, and its lists are read again. */
async function settleChildren(
  tools: WalkTools,
  walk: OpenWalk,
  result: ChildResult,
  world: World,
): Promise<ChildResult> {
  const {db, stream} = tools
  world.onProgress({step: 'certifying'})
  await certifyWalk(db, stream, walk)
  try {
    const details = {fetched: result.listed, failed: result.failed}
    const changes = await settleWalk(tools, walk, details, world)
    return {...result, outcome: 'applied', changes}
  } catch (error) {
    if (!(error instanceof GuardError) && !(error instanceof ContractError)) throw error
    return refuse(result, error, world)
  }
}

function refuse(result: ChildResult, {code, problem}: LoantapeError, {log}: World): ChildResult {
  log.warn({stream: result.stream, code, reason: problem}, 'not applied')
  return {...result, outcome: 'refused', reason: code}
}
