import {createHash} from 'node:crypto'
import type {SourceConfig} from '../config.ts'
import type {Stream} from '../contract/stream.ts'
import {ContractError, DeferredError, GuardError, type LoantapeError} from '../errors.ts'
import {certifyWalk} from '../load/certify.ts'
import {
  type Announcement,
  closeListings,
  hasListed,
  listParentsInNeed,
  type StagedListing,
  storeListings,
} from '../load/listings.ts'
import {findOpenWalk, type OpenWalk, resumeWalk, startWalk} from '../load/walk-state.ts'
import {createNormaliser, type Normaliser} from '../normalise/record.ts'
import type {SourceClient} from '../source/client.ts'
import {fetchListings, type ListingAnswer} from '../source/listing.ts'
import {type ChangeCounts, NO_CHANGES, type World} from '../types.ts'
import {endWalk, type SettleTools, settleWalk} from './settle.ts'
import type {Tapes} from './tapes.ts'
import {beginTape} from './walk.ts'
import {dropStepped} from './walk-clock.ts'

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

/** What a child stream is synced with. */
export interface ChildTools extends SettleTools {
  client: SourceClient
  config: SourceConfig
  runId: string
  /** Of hashed fields; streams without need none. */
  hashKey: string | undefined
  /** Deals that webhooks have named. */
  announced: readonly Announcement[]
}

/**
 * Reads, within the budget, the lists of the parents in need, and applies what they say as one walk of the child stream.
 * A list that cannot be read concludes nothing; whatever fails here, the parents have long been applied.
 *
 * @param businessDate of the walk of the parents
 */
export async function syncChildren(
  tools: ChildTools,
  run: {businessDate: string; budgetMs: number},
  world: World,
): Promise<ChildResult> {
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
    await dropStepped(tools, error)
    return refuse(result, error, world)
  }
}

async function readAndSettle(
  tools: ChildTools,
  run: {businessDate: string; budgetMs: number},
  result: ChildResult,
  world: World,
): Promise<ChildResult> {
  const {db, stream, config} = tools
  const left = await findLeft(tools)
  if (left && left.businessDate !== run.businessDate) {
    // Its run died on an earlier day; what it read is still an observation of that day.
    await settleChildren(tools, left, result, world)
  }
  const open = left?.businessDate === run.businessDate ? left : undefined
  const walkId = open?.walkId ?? nameWalk(tools.runId, world)
  const now = BigInt(world.clock.now()) * 1000n
  const limit = Math.ceil((run.budgetMs / 1000) * config.ratePerSecond) + config.rateBurst
  const asked = {walk: {walkId, businessDate: run.businessDate}, now, limit, announced: tools.announced}
  const parents = run.budgetMs > 0 ? await listParentsInNeed(db, stream, asked) : []
  if (open === undefined && parents.length === 0) {
    return run.budgetMs > 0 ? result : {...result, ended: 'budget'}
  }
  if (!open) await beginTape(tools, walkId, run.businessDate)
  const walk = open
    ? await resumeWalk(db, open)
    : await startWalk(db, stream, {
        walkId,
        baseUrl: config.baseUrl,
        pageSize: config.pageSize,
        filter: '',
        businessDate: run.businessDate,
        startedAt: now,
      })
  const read = await readListings(tools, walk, {parents, budgetMs: run.budgetMs}, world)
  return settleChildren(tools, read.walk, {...result, ...read.counts}, world)
}

/** The walk that a run left behind; one without its tape is dropped, and its lists are read again. */
async function findLeft(tools: ChildTools): Promise<OpenWalk | undefined> {
  const left = await findOpenWalk(tools.db, tools.stream)
  if (!left || (await tools.tapes.resume(left.walkId)) !== undefined) return left
  await endWalk(tools, left.walkId, {state: 'abandoned', how: 'its tape is not whole'})
  return undefined
}

function nameWalk(runId: string, world: World): string {
  const attempt = Math.floor(world.random() * 0x1000000)
  return `w_${runId}_${attempt.toString(16).padStart(6, '0')}`
}

/** Reads lists and stores them group by group. */
async function readListings(
  {db, stream, client, config, hashKey, tapes}: ChildTools,
  start: OpenWalk,
  {parents, budgetMs}: {parents: readonly string[]; budgetMs: number},
  world: World,
): Promise<{walk: OpenWalk; counts: Pick<ChildResult, 'listed' | 'failed' | 'ended'>}> {
  const normalise = createNormaliser(stream, hashKey)
  const waitedBefore = client.waitedMs
  let walk = start
  let listed = 0
  let group: StagedListing[] = []
  let groupStartedAt = world.realClock.now()

  async function store(): Promise<void> {
    await tapes.store(walk.walkId)
    walk = await storeListings(db, stream, walk, group)
    listed += group.filter(({outcome}) => outcome === 'listed').length
    group = []
    groupStartedAt = world.realClock.now()
    world.onStep('lists stored')
    world.onProgress({
      step: stream.plural,
      pages: walk.pages,
      records: walk.records,
      expected: null,
      waitedMs: client.stats.waitedMs,
      isWaiting: client.stats.waitingSince !== null,
    })
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
  const answers = fetchListings(parents, request, client, world)
  for (let next = await answers.next(); ; next = await answers.next()) {
    if (next.done) {
      if (group.length > 0) await store()
      const {ended, failed, gone, proven} = next.value
      world.log.info(
        {stream: stream.plural, detail: ended, count: listed, reason: proven ? 'proven' : 'not proven'},
        'lists ended',
      )
      const isComplete = ended === 'done' && failed + gone === 0
      walk = await closeListings(db, walk, {isComplete, waitedMs: client.waitedMs - waitedBefore})
      return {walk, counts: {listed, failed: failed + gone, ended}}
    }
    const listing = toListing(next.value, normalise, world)
    takeListing({tapes, unit: walk.walkId, stream}, next.value, listing)
    group.push(listing)
    const isDue = group.length >= GROUP_LISTS || world.realClock.now() - groupStartedAt >= GROUP_MS
    if (isDue) await store()
  }
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
  {tapes, unit, stream}: {tapes: Tapes; unit: string; stream: Stream},
  answer: ListingAnswer,
  listing: StagedListing,
): void {
  const {parentId: parent, outcome} = listing
  if (answer.outcome !== 'found' || listing.outcome !== 'listed') {
    tapes.take(unit, {frame: 'children', parent, outcome})
    return
  }
  for (const [index, {received}] of answer.pages.entries()) {
    const frame = {frame: 'children' as const, parent, outcome, page: index + 1}
    if (!stream.privacy) {
      tapes.take(unit, frame, received)
      continue
    }
    const stored = JSON.stringify(listing.pages[index], (_, value) =>
      typeof value === 'bigint' ? String(value) : value,
    )
    const digest = createHash('sha256').update(received.body).digest('hex')
    tapes.take(unit, {...frame, received_sha256: digest}, {...received, body: Buffer.from(stored)})
  }
}

/** Applies what was read; a walk that nobody can believe is refused alone, and its lists are read again. */
async function settleChildren(
  tools: ChildTools,
  walk: OpenWalk,
  result: ChildResult,
  world: World,
): Promise<ChildResult> {
  const {db, stream} = tools
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
