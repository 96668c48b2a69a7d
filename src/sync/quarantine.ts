import {z} from 'zod'
import {readPage} from '../contract/list.ts'
import {businessDateOf, formatInstant} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import type {World} from '../core/types.ts'
import {createRecordReader, formatRecord} from '../source/described.ts'
import {createNormaliser} from '../source/record.ts'
import {type DataFolder, dataFolderAt} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import type {CurrentRun} from '../store/runs.ts'
import {openStateDb} from '../store/state-db.ts'
import {type Frame, type NumberedLine, sliceRecord, type TapeLine, textOf} from '../store/tape.ts'
import {findReadKey} from '../store/tape-key.ts'
import {hasWarehouse, openHistory} from '../store/warehouse.ts'
import {readDescription, requireClock} from './at-source.ts'
import {openToSettle} from './catch-up.ts'
import {settleBeside} from './settle.ts'
import {instant, listReadableTapes, type ReadableTape} from './tapes.ts'

type QuarantineEntry = z.output<typeof entryRow>
const entryRow = z.object({
  quarantine_id: z.string(),
  stream: z.string(),
  walk_id: z.string(),
  /** `list` or `detail`. */
  source: z.string(),
  record_id: z.string().nullable(),
  /** The path of the fault in the record, as zod gives it. */
  path: z.string(),
  reason: z.string(),
  /** `YYYY-MM-DD` */
  business_date: z.string(),
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC. */
  observed_at: z.string(),
  replayed_at: z.string().nullable(),
  /** When its walk was settled; null for a refused walk. */
  recorded_at: z.string().nullable(),
  /** The record's place on the tape of its walk; null once that tape is pruned. */
  place: z.string().nullable(),
})

/** Not read so far. One of a refused walk matters only until a later walk is applied. */
const IS_UNREAD = `replayed_at is null and (
  recorded_at is not null
  or not exists (
    from history.raw.walk as later
    where later.state = 'applied' and later.stream = quarantine.stream and later.started_at > observed_at
  )
)`

/** Unread, and on a tape. */
const WAITS = `${IS_UNREAD} and place is not null`

export function listWaiting(db: Database): Promise<QuarantineEntry[]> {
  return db.all(
    entryRow,
    `from history.raw.quarantine where ${WAITS} order by observed_at, walk_id, quarantine_id`,
  )
}

/** Tells one record from another, however often it was met. */
const RECORD = `concat(stream, ' ', coalesce(record_id, quarantine_id))`

/** Counts records. The `pruned` can no longer be replayed: wherever they were met, that tape is gone. */
export function countUnreplayed(db: Database) {
  return db.one(
    z.object({waiting: z.coerce.number(), pruned: z.coerce.number()}),
    `select count(distinct ${RECORD}) filter (place is not null) as waiting, count(distinct ${RECORD}) - waiting as pruned
     from history.raw.quarantine where ${IS_UNREAD}`,
  )
}

const ON_TAPES = `place is not null and walk_id in (select unnest(from_json($1, '["varchar"]')))`

export function countPlaced(db: Database, tapes: readonly string[]): Promise<number> {
  const sql = `select count(distinct ${RECORD}) from history.raw.quarantine where ${ON_TAPES}`
  return db.value(z.coerce.number(), sql, [JSON.stringify(tapes)])
}

/** No row is ever removed: releases of past dates read them. */
export function clearPlaces(db: Database, tapes: readonly string[]): Promise<void> {
  return db.run(`update history.raw.quarantine set place = null where ${ON_TAPES}`, [JSON.stringify(tapes)])
}

/** A record as its source sent it; personal data is sealed. */
type FoundRecord = ReturnType<typeof read>

/** Finds records by id. Skips tapes that are not readable. @throws `TAPE_DAMAGED` */
function findQuarantinedRecords(
  entries: readonly QuarantineEntry[],
  tapes: readonly ReadableTape[],
): Map<string, FoundRecord> {
  const found = new Map<string, FoundRecord>()
  for (const [walkId, ofWalk] of Map.groupBy(entries, ({walk_id}) => walk_id)) {
    const tape = tapes.find(({name}) => name === walkId)
    const byAnswer = Map.groupBy(ofWalk, ({source, place}) =>
      source === 'list' ? `list ${place?.replace(/\/\d+$/, '')}` : `${source} ${place}`,
    )
    let pages = 0
    for (const line of tape?.lines() ?? []) {
      if (line.frame.frame === 'list') pages += 1
      for (const {quarantine_id, place} of byAnswer.get(answerOf(line, pages)) ?? [])
        found.set(quarantine_id, read(line, Number(place?.split('/').at(-1))))
    }
  }
  return found
}

export const NOT_AT_HAND = 'not at hand: pruned, or on a tape that is missing or sealed with another key'

/**
 * `record` is the text as sent, null if it is not at hand; `read` is its translation, if it has one.
 * @throws ConfigError `UNKNOWN_NAME`, `RELEASE_NONE`; UnexpectedError `TAPE_DAMAGED`
 */
export async function showQuarantined(
  config: Config,
  quarantineId: string,
  world: World,
): Promise<QuarantineEntry & {record: string | null; read?: string | undefined}> {
  const folder = dataFolderAt(config.dataDir)
  await using db = await openHistory(folder, world)
  const entry = await db.first(entryRow, 'from history.raw.quarantine where quarantine_id = $1', [
    quarantineId,
  ])
  if (!entry)
    throw newError('UNKNOWN_NAME', `Record '${quarantineId}' is not in quarantine.`, {
      next: '`loantape quarantine list` shows those that wait.',
    })
  using stateDb = openStateDb(folder.stateDb)
  const tapes = listReadableTapes(folder, stateDb, findReadKey(config, folder))
  const found = findQuarantinedRecords([entry], tapes)
  const {record, read} = found.get(quarantineId)?.texts() ?? {}
  return {...entry, record: record ?? null, read}
}

/** Records with a path and a reason, or all. Pages count from 1. */
export interface ReasonsRequest {
  path?: string | null
  reason?: string | null
  page: number
}

const seen = {times: z.coerce.number(), since: z.string(), until: z.string()}

/** `records` counts distinct records. */
const reasonRow = z.object({path: z.string(), reason: z.string(), records: z.coerce.number(), ...seen})

/** The id and the walk are those of the last time it was seen. */
const waitingRow = entryRow
  .pick({quarantine_id: true, walk_id: true, stream: true, record_id: true, path: true, reason: true})
  .extend(seen)

const MOST_REASONS = 100
const PER_PAGE = 50

/** Reasons with most records first, waiting records latest first. */
export async function readReasons(
  {dataDir}: Config,
  {path = null, reason = null, page}: ReasonsRequest,
  world: World,
) {
  const folder = dataFolderAt(dataDir)
  if (!hasWarehouse(folder)) return {reasons: [], records: [], per_page: PER_PAGE, pruned: 0}
  await using db = await openHistory(folder, world)
  const reasons = await db.all(
    reasonRow,
    `select path, reason, count(distinct ${RECORD}) as records,
       count(*) as times, min(observed_at) as since, max(observed_at) as until
     from history.raw.quarantine where ${WAITS}
     group by path, reason order by records desc, path, reason limit ${MOST_REASONS}`,
  )
  // A page beyond the last shows the last.
  const records = await db.all(
    waitingRow,
    `with waiting as (
       select arg_max(quarantine_id, observed_at) as quarantine_id, arg_max(walk_id, observed_at) as walk_id,
         stream, record_id, path, reason, count(*) as times, min(observed_at) as since, max(observed_at) as until
       from history.raw.quarantine
       where ${WAITS} and path = coalesce($1, path) and reason = coalesce($2, reason)
       group by stream, record_id, coalesce(record_id, quarantine_id), path, reason
     )
     from waiting order by until desc, stream, record_id, quarantine_id
     limit ${PER_PAGE} offset (select least(${page - 1}, greatest(count(*) - 1, 0) // ${PER_PAGE}) * ${PER_PAGE} from waiting)`,
    [path, reason],
  )
  return {reasons, records, per_page: PER_PAGE, pruned: (await countUnreplayed(db)).pruned}
}

/** Names the answer of a line as places do; empty for lines without records. */
function answerOf({frame, body}: TapeLine, pages: number): string {
  if (body === undefined) return ''
  if (frame.frame === 'list') return `list ${pages}`
  if (frame.frame === 'children') return `list ${frame.parent}/${frame.page}`
  return frame.frame === 'detail' ? `detail ${frame.id}` : ''
}

function read(line: NumberedLine, position: number) {
  const {frame, listed, parent} = line.frame
  const list = frame === 'detail' ? undefined : readPage(parseJson(textOf(line)))
  return {
    /** The parent in whose list a child was. */
    parent: frame === 'children' ? String(parent) : undefined,
    /** The list row, which has the fields that an own page leaves out. */
    listed: list ? undefined : (Object(listed) satisfies object),
    texts: () => sliceRecord(line, list ? [...list.path, position] : ['data']),
  }
}

/**
 * Reads the records in quarantine again, after a fix of schema, code or `source.json`. Stores those that are now readable, with
 * their original instant and business date, but none of a refused walk.
 * @throws ConfigError `SOURCE_FILE`
 */
export async function replayRecords(
  folder: DataFolder,
  config: Config,
  {stateDb, world}: Pick<CurrentRun, 'stateDb' | 'world'>,
) {
  const description = readDescription(folder, true)
  await using opened = await openToSettle(config, {folder, stateDb}, world)
  const {db, tapes, walks, streams} = opened
  await requireClock(db, config, world.clock.now())
  const waiting = (await listWaiting(db)).filter(({recorded_at}) => recorded_at !== null)
  const found = findQuarantinedRecords(waiting, listReadableTapes(folder, stateDb, tapes.key))
  const replayed = new Set<string>()
  let appended = 0
  for (const stream of streams) {
    const entries = waiting.filter((entry) => entry.stream === stream.name)
    const normalise = createNormaliser(stream)
    const translate = description && createRecordReader(stream, description)
    const lines = entries.flatMap((entry) => {
      const {texts, ...place} = found.get(entry.quarantine_id) ?? {}
      const {record, read} = texts?.() ?? {}
      const isAgain = translate && record !== undefined && read !== undefined
      const text = isAgain ? formatRecord(translate(parseJson(record))) : (read ?? record)
      return text === undefined ? [] : describeReplay(entry, {...place, text}, normalise)
    })
    for (const {record} of lines) replayed.add(`${stream.name} ${record}`)
    // Walk by walk, oldest first, since each is compared with the one before.
    for (const ofWalk of Map.groupBy(lines, ({walk_id}) => walk_id).values()) {
      const businessDate = ofWalk[0]?.business_date
      const said = {kind: 'replay', stream: stream.name, businessDate, isWalkOpen: walks.has(stream.name)}
      const today = businessDateOf(world.clock.now(), config)
      appended += (await settleBeside({db, tapes}, today, {said, lines: ofWalk}, world)).appended
    }
  }
  // A record that says nothing new appends no version.
  return {replayed: replayed.size, ...(await countUnreplayed(db)), appended}
}

/** None if the record still cannot be read. */
function describeReplay(
  entry: QuarantineEntry,
  {text, parent, listed}: Partial<Omit<FoundRecord, 'texts'>> & {text: string},
  normalise: ReturnType<typeof createNormaliser>,
) {
  const json = parseJson(text)
  const observedAt = instant.parse(`${entry.observed_at}Z`)
  const record = listed ? {...listed, ...Object(json)} : json
  if (normalise([record], observedAt, parent).observations.length === 0) return []
  const {quarantine_id, walk_id, business_date, record_id} = entry
  const said = {quarantine_id, observed_at: formatInstant(observedAt), parent, listed}
  const frame: Frame = {frame: 'replay', ...said}
  const line = {frame, body: json, received: {body: Buffer.from(text)}}
  return [{record: record_id ?? quarantine_id, walk_id, business_date, ...line}]
}
