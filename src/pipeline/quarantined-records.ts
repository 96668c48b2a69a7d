import type {Config} from '../config.ts'
import {findRecords} from '../contract/envelope.ts'
import {newError} from '../errors.ts'
import {findQuarantined, type QuarantineEntry} from '../load/quarantine.ts'
import {parseNormalised} from '../normalise/page-text.ts'
import {openStateDb} from '../state/state-db.ts'
import type {TapeLine} from '../tape/line.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {findReadKey} from './tape-key.ts'
import {listReadableTapes, type ReadableTape, textOf} from './tape-units.ts'

/** A record in quarantine as its source sent it; one of people as it was made unreadable. */
export interface FoundRecord {
  record: unknown
  /** Of a child: in whose list it stood. */
  parentId: string | undefined
  /** The same to be printed, its numbers to the last digit. */
  print(): unknown
}

/**
 * Finds records in quarantine on the tapes of their walks; those stored before there were tapes are in the warehouse. What stands on a
 * tape that cannot be read is left out.
 *
 * @returns them by their quarantine ids
 * @throws UnexpectedError `TAPE_DAMAGED`
 */
export function findQuarantinedRecords(
  entries: readonly QuarantineEntry[],
  tapes: readonly ReadableTape[],
): Map<string, FoundRecord> {
  const found = new Map<string, FoundRecord>()
  for (const {quarantine_id, record: text} of entries) {
    if (text !== null) found.set(quarantine_id, describe(text))
  }
  const onTape = entries.filter(({record}) => record === null)
  for (const [walkId, ofWalk] of Map.groupBy(onTape, ({walk_id}) => walk_id)) {
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

/**
 * A record in quarantine with what it holds, null where that is not at hand.
 *
 * @throws ConfigError `QUARANTINE_UNKNOWN`; UnexpectedError `HISTORY_MISSING`, `TAPE_DAMAGED`
 */
export async function showQuarantined(
  config: Config,
  quarantineId: string,
): Promise<Omit<QuarantineEntry, 'record'> & {record: unknown}> {
  const folder = dataFolderAt(config.dataDir)
  const entry = await findEntry(folder, quarantineId)
  using stateDb = openStateDb(folder.stateDb)
  const tapes = listReadableTapes(folder, stateDb, findReadKey(config, folder))
  const found = findQuarantinedRecords([entry], tapes)
  return {...entry, record: found.get(quarantineId)?.print() ?? null}
}

async function findEntry(folder: DataFolder, quarantineId: string): Promise<QuarantineEntry> {
  await using db = await openHistory(folder)
  const entry = await findQuarantined(db, 'history', quarantineId)
  if (entry) return entry
  throw newError('QUARANTINE_UNKNOWN', `Record '${quarantineId}' is not in quarantine.`)
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
  if (frame === 'detail') {
    return describe(text, (body) => ({...(listed as object), ...(body as {data: object}).data}))
  }
  const parentId = frame === 'children' ? String(parent) : undefined
  if (isSealed === undefined) {
    return describe(text, (body) => findRecords(body as Record<string, unknown>).items[position], parentId)
  }
  const sealed = parseNormalised(text).quarantined.find((one) => one.position === position)
  return {...describe(JSON.stringify(sealed?.record ?? null)), parentId}
}

function describe(
  text: string,
  pick = (body: unknown): unknown => body,
  parentId: string | undefined = undefined,
): FoundRecord {
  return {record: pick(JSON.parse(text)), parentId, print: () => print(text, pick)}
}

/** What nests deeper than can be printed is cut below this level. */
const DEEPEST_LEVEL = 100

function print(text: string, pick: (body: unknown) => unknown): unknown {
  try {
    const exact = pick(parseExact(text))
    JSON.stringify(exact)
    return exact
  } catch (error) {
    if (error instanceof RangeError) return cutBelow(pick(JSON.parse(text)), DEEPEST_LEVEL)
    throw error
  }
}

function cutBelow(value: unknown, levels: number): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (levels === 0) return '(nested too deep)'
  if (Array.isArray(value)) return value.map((item) => cutBelow(item, levels - 1))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, cutBelow(item, levels - 1)]))
}

declare global {
  interface JSON {
    rawJSON(text: string): unknown
  }
}

/** A JSON text with its numbers as they are written: no number of a program holds all their digits. */
function parseExact(text: string): unknown {
  return JSON.parse(text, (_name, value: unknown, context?: {source?: string}) =>
    typeof value === 'number' && context?.source !== undefined ? JSON.rawJSON(context.source) : value,
  )
}
