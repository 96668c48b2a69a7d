import {businessDateOf, formatInstant} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {parseJson} from '../core/json.ts'
import {createRecordReader, formatAnswer} from '../source/described.ts'
import {createNormaliser} from '../source/record.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {CurrentRun} from '../store/runs.ts'
import type {Frame} from '../store/tape.ts'
import {readDescription, requireClock} from './at-source.ts'
import {openToSettle} from './catch-up.ts'
import {
  countUnreplayed,
  type FoundRecord,
  findQuarantinedRecords,
  listWaiting,
  type QuarantineEntry,
} from './quarantine.ts'
import {settleBeside} from './settle.ts'
import {instant, listReadableTapes} from './tapes.ts'

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
  const waiting = await listWaiting(db)
  const found = findQuarantinedRecords(waiting, listReadableTapes(folder, stateDb, tapes.key))
  const replayed = new Set<string>()
  let appended = 0
  for (const stream of streams) {
    const entries = waiting.filter((entry) => entry.stream === stream.name)
    const normalise = createNormaliser(stream)
    const translate = description && createRecordReader(stream, description)
    const lines = entries.flatMap((entry) => {
      if (entry.recorded_at === null) return []
      const {texts, ...place} = found.get(entry.quarantine_id) ?? {}
      const {record, read} = texts?.() ?? {}
      const isAgain = translate && record !== undefined && read !== undefined
      const text = isAgain ? formatAnswer(translate(parseJson(record))) : (read ?? record)
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
  return [
    {
      record: record_id ?? quarantine_id,
      walk_id,
      business_date,
      frame,
      body: json,
      received: {body: Buffer.from(text)},
    },
  ]
}
