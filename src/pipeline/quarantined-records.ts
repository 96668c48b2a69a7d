import {parseInstant} from '../clock.ts'
import type {Config} from '../config.ts'
import {findRecords} from '../contract/envelope.ts'
import type {Stream} from '../contract/stream.ts'
import {newError} from '../errors.ts'
import {isObject, parseJson, sliceJson} from '../json.ts'
import type {Replay} from '../load/apply-replay.ts'
import {
  countPruned,
  findQuarantined,
  listReasons,
  listWaitingRecords,
  type QuarantineEntry,
} from '../load/quarantine.ts'
import {parseNormalised} from '../normalise/page-text.ts'
import {createNormaliser} from '../normalise/record.ts'
import {openStateDb} from '../state/state-db.ts'
import type {TapeLine} from '../tape/line.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {hasWarehouse} from '../warehouse/warehouse.ts'
import {findReadKey} from './tape-key.ts'
import {listReadableTapes, type ReadableTape, textOf} from './tape-units.ts'

/** A record in quarantine as its source sent it; one of people as it was made unreadable. */
export interface FoundRecord {
  record: unknown
  /** Of a child: in whose list it stood. */
  parentId: string | undefined
  /** The text of the record as it stands in the answer; of a deal's own page without what its list row added. */
  text(): string | undefined
}

/**
 * Finds records in quarantine on the tapes of their walks. What stands on a tape that cannot be read is left out.
 *
 * @returns them by their quarantine ids
 * @throws UnexpectedError `TAPE_DAMAGED`
 */
export function findQuarantinedRecords(
  entries: readonly QuarantineEntry[],
  tapes: readonly ReadableTape[],
): Map<string, FoundRecord> {
  const found = new Map<string, FoundRecord>()
  for (const [walkId, ofWalk] of Map.groupBy(entries, ({walk_id}) => walk_id)) {
    const tape = tapes.find(({unit}) => unit === walkId)
    let pages = 0
    for (const line of tape?.lines() ?? []) {
      if (line.frame.frame === 'list') pages += 1
      const start = placeOf(line, pages)
      if (start === undefined) continue
      for (const {source, place, quarantine_id} of ofWalk) {
        const whole = `${source} ${place}`
        if (whole.startsWith(start)) found.set(quarantine_id, read(line, Number(whole.slice(start.length))))
      }
    }
  }
  return found
}

/** What stands for a record that is gone. */
export const NOT_AT_HAND = 'not at hand: pruned, or on a tape that is missing or sealed with another key'

/**
 * A record in quarantine with its text, as its source sent it; null where that is not at hand.
 *
 * @throws ConfigError `UNKNOWN_NAME`; UnexpectedError `HISTORY_MISSING`, `TAPE_DAMAGED`
 */
export async function showQuarantined(
  config: Config,
  quarantineId: string,
): Promise<QuarantineEntry & {record: string | null}> {
  const folder = dataFolderAt(config.dataDir)
  const entry = await findEntry(folder, quarantineId)
  using stateDb = openStateDb(folder.stateDb)
  const tapes = listReadableTapes(folder, stateDb, findReadKey(config, folder))
  const found = findQuarantinedRecords([entry], tapes)
  return {...entry, record: found.get(quarantineId)?.text() ?? null}
}

/** Which records in quarantine are asked for: of a field and a reason, or all; pages count from 1. */
export interface ReasonsRequest {
  path?: string
  reason?: string
  page: number
}

const PER_PAGE = 50

/** Why records wait in quarantine, and a page of them; what was pruned is counted. */
export async function readReasons({dataDir}: Config, {path, reason, page}: ReasonsRequest) {
  const folder = dataFolderAt(dataDir)
  if (!hasWarehouse(folder)) return {reasons: [], records: [], per_page: PER_PAGE, pruned: 0}
  await using db = await openHistory(folder)
  const asked = {path, reason, limit: PER_PAGE, offset: Math.max(0, page - 1) * PER_PAGE}
  return {
    reasons: await listReasons(db, 'history'),
    records: await listWaitingRecords(db, 'history', asked),
    per_page: PER_PAGE,
    pruned: await countPruned(db, 'history'),
  }
}

async function findEntry(folder: DataFolder, quarantineId: string): Promise<QuarantineEntry> {
  await using db = await openHistory(folder)
  const entry = await findQuarantined(db, 'history', quarantineId)
  if (entry) return entry
  throw newError('UNKNOWN_NAME', `Record '${quarantineId}' is not in quarantine.`, {
    next: '`loantape quarantine list` shows those that wait.',
  })
}

/** How the quarantine names the places of a line's records: the whole of it, or all but their position; undefined where it holds none. */
function placeOf({frame, body}: TapeLine, pages: number): string | undefined {
  if (body === undefined) return undefined
  if (frame.frame === 'list') return `list ${pages}/`
  if (frame.frame === 'children') return `list ${frame.parent}/${frame.page}/`
  return frame.frame === 'detail' ? `detail ${frame.id}` : undefined
}

function read(line: TapeLine, position: number): FoundRecord {
  const {frame, listed, parent, received_sha256: isSealed} = line.frame
  const text = textOf(line)
  const parsed = parseJson(text)
  const body = isObject(parsed) ? parsed : {}
  if (frame === 'detail')
    return {
      record: {...(listed as object), ...(body.data as object)},
      parentId: undefined,
      text: () => sliceJson(text, ['data']),
    }
  const parentId = frame === 'children' ? String(parent) : undefined
  if (isSealed === undefined) {
    const {path, items} = findRecords(body)
    return {record: items[position], parentId, text: () => sliceJson(text, [...path, position])}
  }
  const {quarantined} = parseNormalised(text)
  const sealed = quarantined.findIndex((one) => one.position === position)
  const path = ['quarantined', sealed, 'record']
  return {record: quarantined[sealed]?.record ?? null, parentId, text: () => sliceJson(text, path)}
}

/**
 * Reads records in quarantine once more: none, or the one that can be read now.
 *
 * @param found what they hold, by their ids
 */
export function createReader(
  {privacy: _, ...stream}: Stream,
  found: ReadonlyMap<string, FoundRecord>,
): (entry: QuarantineEntry) => Replay['records'] {
  // What is about people was made unreadable before it was taken down.
  const normalise = createNormaliser(stream)
  return (entry) => {
    const observedAt = parseInstant(`${entry.observed_at}Z`)
    const said = found.get(entry.quarantine_id)
    if (observedAt === null || said === undefined) return []
    const [observation] = normalise([said.record], observedAt, said.parentId).observations
    return observation ? [{entry, observation}] : []
  }
}
