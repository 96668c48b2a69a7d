import {z} from 'zod'
import type {SourceDescription} from '../contract/description.ts'
import {readPage} from '../contract/list.ts'
import type {Stream} from '../contract/stream.ts'
import {burstOf, type SourceConfig} from '../core/config.ts'
import {isObject, parseJson} from '../core/json.ts'
import type {ColumnValue, NormalisedPage, RateObservation, Received, RunStep, World} from '../core/types.ts'
import {askEach, type EachAnswer, type EachRequest, type EachSummary} from '../source/ask-each.ts'
import type {SourceClient} from '../source/client.ts'
import {createNormaliser} from '../source/record.ts'
import {readAhead} from '../source/walk-pages.ts'
import type {Database} from '../store/database.ts'
import type {StateDb} from '../store/state-db.ts'
import {type Frame, type TapeLine, textOf} from '../store/tape.ts'
import type {Warehouse} from '../store/warehouse.ts'
import type {Acceptance} from './guard.ts'
import {createWalk, type ReadBeside, walkBegin} from './plan-changes.ts'
import {feedParser, parseRates, stageRates} from './rate-feed.ts'
import {
  BESIDE,
  createStaged,
  createStagedRows,
  type RejectedRecord,
  stageLists,
  stageQuarantined,
} from './stream-tables.ts'
import {instant, parseOutcome, type Tapes} from './tapes.ts'

/*
 * Every answer is interpreted here and nowhere else. A run hands over each line as it writes it to the tape, with the body
 * already parsed; reading a tape back hands over the same lines in the same order. What they hold waits on the stage.
 */

export type WalkIntake = ReturnType<typeof openWalk>

/** The intake of a look or a replay. */
export type BesideIntake = ReturnType<typeof openBeside>

/** Takes in one unit of a tape. */
export type Intake = WalkIntake | BesideIntake | ReturnType<typeof openRates>

/** Walks by stream name. */
export type OpenWalks = Map<string, WalkIntake>

const anyRecord = z.record(z.string(), z.unknown())
const received = {requested_at: instant, received_at: z.iso.datetime().transform((text) => Date.parse(text))}

const besideBegin = z.object({
  kind: z.enum(['look', 'replay']),
  stream: z.string(),
  businessDate: z.string(),
  isWalkOpen: z.boolean(),
})
const ratesBegin = z.object({
  kind: z.literal('rates'),
  feed: feedParser,
  businessDate: z.string(),
  startedAt: instant,
  timeZone: z.string(),
})
const beginFrame = z.discriminatedUnion('kind', [walkBegin, besideBegin, ratesBegin])

const listFrame = z.object({...received, envelope: z.string(), waited_ms: z.number()})
const detailFrame = z.object({
  requested_at: instant,
  id: z.string(),
  outcome: z.enum(['found', 'gone']),
  listed: anyRecord,
})
const childrenFrame = z.discriminatedUnion('outcome', [
  z.object({outcome: z.enum(['gone', 'failed']), parent: z.string(), observed_at: instant}),
  z.object({
    outcome: z.literal('listed'),
    requested_at: instant,
    parent: z.string(),
    page: z.number(),
    pages: z.number(),
  }),
])
const lookFrame = z.object({requested_at: instant, id: z.string(), known: anyRecord.optional()})
const replayFrame = z.object({
  quarantine_id: z.string(),
  observed_at: instant,
  parent: z.string().optional(),
  listed: anyRecord.optional(),
})

/** Undefined for units without answers. */
export function openIntake(db: Database, streams: readonly Stream[], begin: Frame): Intake | undefined {
  if (!['walk', 'look', 'replay', 'rates'].includes(String(begin.kind))) return undefined
  const said = beginFrame.parse(begin)
  if (said.kind === 'rates') return openRates(db, said)
  const stream = streams.find(({name}) => name === said.stream)
  if (!stream) throw new Error(`there is no stream '${said.stream}'`)
  return said.kind === 'walk' ? openWalk(db, stream, begin) : openBeside(db, stream, said)
}

const NOTHING_READ = {pages: 0, records: 0, quarantined: 0, unreadableIds: 0}

export function openWalk(db: Database, stream: Stream, begin: Frame) {
  const walk = createWalk(begin)
  const normalise = createNormaliser(stream)
  let rows = createStagedRows(stream)
  let rejected: RejectedRecord[] = []
  let lists: ColumnValue[][] = []
  let list = {...NOTHING_READ, observedAt: 0n}

  function takeRecords(
    {observations, quarantined}: NormalisedPage,
    {pageNo, place}: {pageNo: number; place: string},
    ...counters: (typeof NOTHING_READ)[]
  ): void {
    observations.forEach((observation, position) => {
      rows.push(observation, {source: 'list', pageNo, position})
    })
    for (const record of quarantined)
      rejected.push({...record, source: 'list', place: `${place}/${record.position}`})
    for (const counter of counters) {
      counter.pages += 1
      counter.records += observations.length + quarantined.length
      counter.quarantined += quarantined.length
      counter.unreadableIds += quarantined.filter(({id}) => id === null).length
    }
  }

  function noteAsked(observedAt: bigint): void {
    if (walk.endedAt === null || observedAt > walk.endedAt) walk.endedAt = observedAt
  }

  function takePage(frame: Frame, body: unknown): void {
    const {requested_at: observedAt, received_at: receivedAt, envelope, waited_ms} = listFrame.parse(frame)
    const {records, nextCursor} = readPage(body, envelope)
    const pageNo = walk.pages + 1
    takeRecords(normalise(records, observedAt), {pageNo, place: `${pageNo}`}, walk)
    noteAsked(observedAt)
    walk.cursors.push(walk.nextCursor ?? '')
    walk.nextCursor = nextCursor
    walk.cursorReceivedAt = BigInt(receivedAt) * 1000n
    walk.envelope = envelope
    walk.isComplete = nextCursor === null
    walk.waitedMs = waited_ms
  }

  function takeDetail(frame: Frame, body: unknown): void {
    const {requested_at: observedAt, id, outcome, listed} = detailFrame.parse(frame)
    if (outcome === 'gone') {
      const gone = {id, fields: {}, unknownFields: null, observedAt}
      rows.push(gone, {source: 'gone', pageNo: 0, position: 0})
      return
    }
    const {observations, quarantined} = normalise([{...listed, ...recordOf(body)}], observedAt)
    walk.details[quarantined.length > 0 ? 'failed' : 'fetched'] += 1
    for (const observation of observations) rows.push(observation, {source: 'detail', pageNo: 0, position: 0})
    for (const record of quarantined) rejected.push({...record, id, source: 'detail', place: id})
  }

  function takeChildren(line: Frame, body: unknown): void {
    const frame = childrenFrame.parse(line)
    const {parent, outcome} = frame
    if (outcome !== 'listed') {
      walk.details.failed += 1
      noteAsked(frame.observed_at)
      lists.push([walk.walkId, stream.name, parent, outcome, frame.observed_at, 0n, 0n, 0n, 0n])
      return
    }
    const {requested_at: observedAt, page, pages} = frame
    const {records} = readPage(body)
    // The start of the first page dates a list, so a child linked while it was read does not count as missed.
    if (page === 1) list = {...NOTHING_READ, observedAt}
    const place = {pageNo: page, place: `${parent}/${page}`}
    takeRecords(normalise(records, observedAt, parent), place, walk, list)
    noteAsked(list.observedAt)
    if (page < pages) return
    walk.details.fetched += 1
    const counts = [list.pages, list.records, list.quarantined, list.unreadableIds].map(BigInt)
    lists.push([walk.walkId, stream.name, parent, outcome, list.observedAt, ...counts])
  }

  function takeEnd(frame: Frame): void {
    const {is_complete, waited_ms, details} = parseOutcome({frame})
    walk.isComplete = is_complete ?? walk.isComplete
    walk.waitedMs = waited_ms ?? walk.waitedMs
    walk.details = details ?? walk.details
  }

  return {
    kind: 'walk' as const,
    stream,
    walk,
    /** `body` is what {@link parseBody} returns. */
    take(frame: Frame, body?: unknown): void {
      if (frame.frame === 'begin') {
        const {resumed, accepted} = walkBegin.parse(frame)
        Object.assign(walk, {resumed, accepted})
      }
      if (frame.frame === 'list') takePage(frame, body)
      if (frame.frame === 'detail') takeDetail(frame, body)
      if (frame.frame === 'children') takeChildren(frame, body)
      if (frame.frame === 'outcome') takeEnd(frame)
    },
    async stage(): Promise<void> {
      const [readRows, readRejected, readLists] = [rows, rejected, lists]
      ;[rows, rejected, lists] = [createStagedRows(stream), [], []]
      await readRows.append(db)
      await stageQuarantined(db, stream, walk, readRejected)
      await stageLists(db, readLists)
    },
  }
}

function openBeside(
  db: Database,
  stream: Stream,
  {kind, businessDate, isWalkOpen}: z.output<typeof besideBegin>,
) {
  const normalise = createNormaliser(stream)
  const rows = createStagedRows(stream)
  const entries: string[] = []

  function push(id: string, {observations: [observation]}: NormalisedPage, pageNo: number): void {
    if (!observation) return
    rows.push(observation, {source: kind === 'look' ? 'webhook' : kind, pageNo, position: entries.length})
    entries.push(id)
  }

  function takeLook(frame: Frame, body: unknown): void {
    const {requested_at: observedAt, id, known} = lookFrame.parse(frame)
    push(id, normalise([{...known, ...recordOf(body)}], observedAt), 0)
  }

  function takeReplay(frame: Frame, body: unknown): void {
    const {quarantine_id, observed_at, parent, listed} = replayFrame.parse(frame)
    const record = listed ? {...listed, ...Object(body)} : body
    push(quarantine_id, normalise([record], observed_at, parent), listed ? 0 : 1)
  }

  return {
    kind,
    stream,
    batch: {walkId: null, businessDate, isWalkOpen} satisfies ReadBeside,
    /** Ids of the readable records, in order: deal ids of a look, quarantine ids of a replay. */
    entries,
    take(frame: Frame, body?: unknown): void {
      if (frame.frame === 'look') takeLook(frame, body)
      if (frame.frame === 'replay') takeReplay(frame, body)
    },
    async stage(): Promise<void> {
      await createStaged(db, stream, BESIDE)
      await rows.append(db, BESIDE)
    },
  }
}

function openRates(
  db: Database,
  {kind, feed, businessDate, startedAt, timeZone}: z.output<typeof ratesBegin>,
) {
  const rows: RateObservation[] = []
  return {
    kind,
    reading: {feed: feed.name, observedAt: startedAt, businessDate},
    take(frame: Frame, body?: unknown): void {
      if (frame.frame !== 'rates') return
      for (const row of parseRates(feed, String(body), timeZone))
        if (row !== null && typeof row !== 'string') rows.push(row)
    },
    stage: () => stageRates(db, rows),
  }
}

export function parseBody(line: TapeLine): unknown {
  if (line.body === undefined) return undefined
  return line.frame.frame === 'rates' ? textOf(line) : parseJson(textOf(line))
}

const recordOf = (body: unknown): object => (isObject(body) ? Object(body.data) : {})

export interface WalkTools {
  runId: string
  db: Warehouse
  stateDb: StateDb
  tapes: Tapes
  walks: OpenWalks
  /** The deals have their mapped fields. */
  stream: Stream
  client: SourceClient
  config: SourceConfig & {description?: SourceDescription | undefined}
  accepted: ReadonlySet<Acceptance>
  /** Why it is accepted, and by whom. */
  why?: string | undefined
  who?: string | undefined
}

export interface Answer {
  frame: Frame
  body?: unknown
  received?: Received | {body: Buffer; original?: undefined} | undefined
}

/** Lines are stored in groups, which end after this many lines, bytes of bodies, or milliseconds. */
const GROUP_LINES = 50
const GROUP_BYTES = 8_000_000
const GROUP_MS = 1000

/**
 * Writes the answers that `work` reads to the tape and takes them in. The warehouse is closed meanwhile. Answers that belong
 * together must come in one call.
 */
export async function takeDown<T>(
  {db, tapes}: Pick<WalkTools, 'db' | 'tapes'>,
  unit: WalkIntake,
  step: RunStep,
  {realClock, onStep}: Pick<World, 'realClock' | 'onStep'>,
  work: (take: (lines: readonly Answer[]) => Promise<void>) => Promise<T>,
): Promise<T> {
  const {walkId} = unit.walk
  let [lines, bytes, since] = [0, 0, realClock.now()]
  let storing = Promise.resolve()

  async function store(): Promise<void> {
    tapes.store(walkId)
    await unit.stage()
    onStep(step)
  }

  async function beginStoring(): Promise<void> {
    await storing
    if (lines === 0) return
    ;[lines, bytes, since] = [0, 0, realClock.now()]
    storing = readAhead(store())
  }

  return db.closedWhile(async () => {
    try {
      return await work(async (answers) => {
        for (const {frame, body, received} of answers) {
          unit.take(tapes.take(walkId, frame, received), body)
          lines += 1
          bytes += (received?.body.length ?? 0) + (received?.original?.body?.length ?? 0)
        }
        const isDue = lines >= GROUP_LINES || bytes >= GROUP_BYTES || realClock.now() - since >= GROUP_MS
        if (isDue) await beginStoring()
      })
    } finally {
      await beginStoring()
      await storing
    }
  })
}

export const mostRequestsWithin = (budgetMs: number, config: SourceConfig) =>
  Math.ceil((budgetMs / 1000) * config.ratePerSecond) + burstOf(config)

export async function askAndTake<Found>(
  tools: WalkTools,
  unit: WalkIntake,
  stored: RunStep,
  request: EachRequest<Found>,
  describe: (answer: EachAnswer<Found>) => readonly Answer[],
  world: World,
): Promise<EachSummary> {
  const {client, stream} = tools
  const summary = await takeDown(tools, unit, stored, world, (take) =>
    askEach(request, client, (answer) => take(describe(answer)), world),
  )
  const {ended, fetched, proven} = summary
  const told = {detail: ended, count: fetched, reason: proven ? 'proven' : 'not proven'}
  world.log.info({stream: stream.plural, ...told}, `${request.unit} ended`)
  return summary
}
