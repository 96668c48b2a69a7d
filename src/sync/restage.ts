import {z} from 'zod'
import {readPage} from '../contract/list.ts'
import type {Stream} from '../contract/stream.ts'
import {parseInstant} from '../core/clock.ts'
import {messageOf} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import type {World} from '../core/types.ts'
import {readAnswer} from '../source/ask-each.ts'
import {createNormaliser, type Normaliser, parseNormalised} from '../source/record.ts'
import type {Database} from '../store/database.ts'
import type {TapeLine} from '../store/tape-format.ts'
import {writeSetting} from '../store/warehouse.ts'
import {readDetail, type StagedDetail, stageDetails} from './details.ts'
import {type StagedListing, stageListings} from './listings.ts'
import {readStreams} from './mapped-fields.ts'
import {clearStage, createStage} from './stream-tables.ts'
import {textOf} from './tape-units.ts'
import type {Tapes} from './tapes.ts'
import {
  createPageGroup,
  type OpenWalk,
  type OpenWalks,
  type PageGroup,
  startWalk,
  storeWalk,
} from './walk-state.ts'

/** So much of a tape is staged together: pages by the length of their texts, what was said of single records by number. */
const GROUP_LENGTH = 8_000_000
const GROUP_ANSWERS = 200

/**
 * Makes the stage and puts on it what runs that died had read: a walk that has not ended stands where its tape ends. Those that
 * nobody can continue are ended on their tapes.
 */
export async function restageWalks(
  {db, tapes}: {db: Database; tapes: Tapes},
  {log}: Pick<World, 'log'>,
): Promise<OpenWalks> {
  await createStage(db)
  const streams = await readStreams(db)
  const walks: OpenWalks = new Map()
  for (const unit of await tapes.listLeft()) {
    const restager = createRestager(db, {streams, walks})
    if (!(await tapes.reopen(unit, restager.take))) continue
    const {staged, answers, isWalk, problem} = await restager.finish()
    if (staged && answers > 0) {
      walks.set(staged.stream.name, staged.walk)
      continue
    }
    if (problem !== null) log.warn({unit, reason: problem}, 'what a run had read cannot be continued')
    const why = problem ?? 'its run died'
    const tapeHead = await tapes.conclude(unit, {outcome: 'abandoned', why})
    if (staged) await storeWalk(db, staged.stream, staged.walk, {state: 'abandoned', how: why, tapeHead})
    else if (isWalk) await writeSetting(db, 'tape_head', tapeHead)
    await tapes.finish(unit)
  }
  return walks
}

/** An instant as a tape has it, in microseconds since the epoch. */
export const instant = z.string().transform((text, context) => {
  const micros = parseInstant(text)
  if (micros === null) context.addIssue('expected an instant')
  return micros ?? 0n
})
const beginFrame = z.object({
  unit: z.string(),
  stream: z.string(),
  baseUrl: z.string(),
  pageSize: z.number(),
  filter: z.string(),
  businessDate: z.string(),
  startedAt: instant,
  resumed: z.number(),
})
const received = {requested_at: instant, received_at: z.iso.datetime().transform((text) => Date.parse(text))}
const listFrame = z.object({
  ...received,
  envelope: z.string(),
  waited_ms: z.number(),
})
const detailFrame = z.object({
  ...received,
  id: z.string(),
  status: z.number(),
  listed: z.record(z.string(), z.unknown()),
})
const childrenFrame = z.discriminatedUnion('outcome', [
  z.object({outcome: z.enum(['gone', 'failed']), parent: z.string(), observed_at: instant}),
  z.object({
    ...received,
    outcome: z.literal('listed'),
    parent: z.string(),
    page: z.number(),
    pages: z.number(),
    envelope: z.string(),
  }),
])

const outcomeFrame = z.object({is_complete: z.boolean().optional(), waited_ms: z.number().optional()})

/** A walk as its tape has it, on the stage. */
interface Restaged {
  stream: Stream
  walk: OpenWalk
  normalise: Normaliser
}

/** The streams there are, and the walks under way: of a stream there is one at most. */
interface Known {
  streams: readonly Stream[]
  walks: OpenWalks
}

/** Takes in the lines of a tape as the run that wrote them took in what it read. */
export function createRestager(db: Database, known: Known) {
  let staged: Restaged | undefined
  let problem: string | null = null
  let answers = 0
  let isWalk = false
  let pages: PageGroup | undefined
  /** What the next page was asked with: it stands in the page before, and nowhere else. */
  let cursor: string | null = null
  let waitedMs = 0
  let details: StagedDetail[] = []
  let listings: StagedListing[] = []

  async function stage({stream, walk}: Restaged): Promise<void> {
    await pages?.stage(db, waitedMs)
    pages = undefined
    await stageDetails(db, stream, walk, details)
    details = []
    await stageListings(db, stream, walk, listings)
    listings = []
  }

  function takePage({stream, walk, normalise}: Restaged, line: TapeLine): void {
    const {requested_at: observedAt, received_at: receivedAt, ...frame} = listFrame.parse(line.frame)
    const text = textOf(line)
    const page = readPage(parseJson(text), frame.envelope)
    pages ??= createPageGroup(stream, walk)
    pages.add(
      {...frame, ...page, cursor, observedAt, receivedAt, length: text.length},
      normalise(page.records, observedAt),
    )
    cursor = page.nextCursor
    waitedMs = frame.waited_ms
  }

  function takeDetail({normalise}: Restaged, line: TapeLine): void {
    const {id, status, listed: known, requested_at: observedAt} = detailFrame.parse(line.frame)
    const answer = readAnswer(id, {status, body: parseJson(textOf(line)), observedAt})
    const detail = readDetail(normalise, {id, known}, answer)
    if (detail) details.push(detail)
  }

  function takeListing({stream, normalise}: Restaged, line: TapeLine): void {
    const frame = childrenFrame.parse(line.frame)
    const {parent: parentId, outcome} = frame
    if (outcome !== 'listed') {
      listings.push({parentId, outcome, observedAt: frame.observed_at})
      return
    }
    const text = textOf(line)
    const readNow = () => {
      const {records} = readPage(parseJson(text), frame.envelope)
      return normalise(records, frame.requested_at, parentId)
    }
    const page = stream.privacy ? parseNormalised(text) : readNow()
    const before = listings.at(-1)
    if (frame.page > 1 && before?.outcome === 'listed') before.pages.push(page)
    else listings.push({parentId, outcome, observedAt: frame.requested_at, pages: [page]})
  }

  async function read(line: TapeLine): Promise<void> {
    const {frame, kind} = line.frame
    if (frame === 'begin') isWalk = kind === 'walk'
    if (frame === 'begin' && isWalk) staged = begin(line, staged, known)
    if (!staged) return
    const isFull = (pages?.length ?? 0) >= GROUP_LENGTH || details.length + listings.length >= GROUP_ANSWERS
    // The pages of one list are staged together.
    if (isFull && !(Number(line.frame.page) > 1)) await stage(staged)
    if (frame === 'list') takePage(staged, line)
    if (frame === 'detail') takeDetail(staged, line)
    if (frame === 'children') takeListing(staged, line)
    if (frame === 'outcome') takeEnd(staged, line)
    else if (frame !== 'begin') answers += 1
  }

  /** Whatever keeps a tape from being read as a walk, the source can be walked anew. */
  async function attempt(work: () => Promise<void>): Promise<void> {
    if (problem !== null) return
    try {
      await work()
    } catch (error) {
      problem = messageOf(error)
    }
  }

  return {
    take: (line: TapeLine) => attempt(() => read(line)),
    /** The walk where the tape ends, if it is one's, and how many answers it read; or what keeps it from being continued. */
    async finish(): Promise<{
      staged?: Restaged | undefined
      answers: number
      isWalk: boolean
      problem: string | null
    }> {
      await attempt(async () => {
        if (staged) await stage(staged)
      })
      if (!staged || problem === null) return {staged, answers, isWalk, problem}
      await clearStage(db, staged.stream, staged.walk.walkId)
      return {answers, isWalk, problem}
    },
  }
}

function takeEnd({walk}: Restaged, {frame}: TapeLine): void {
  const end = outcomeFrame.parse(frame)
  walk.isComplete = end.is_complete ?? walk.isComplete
  walk.waitedMs = end.waited_ms ?? walk.waitedMs
}

function begin({frame}: TapeLine, before: Restaged | undefined, {streams, walks}: Known): Restaged {
  const {stream: name, unit, resumed, ...asked} = beginFrame.parse(frame)
  if (before) {
    before.walk.resumed = resumed
    return before
  }
  const stream = streams.find((one) => one.name === name)
  if (!stream) throw new Error(`there is no stream '${name}'`)
  if (walks.has(name)) throw new Error(`another walk of the ${stream.plural} is under way`)
  // What is about people was made unreadable before it was taken down.
  const {privacy: _, ...plain} = stream
  return {stream, walk: startWalk({...asked, walkId: unit}), normalise: createNormaliser(plain)}
}
