import {chmodSync, existsSync, rmSync, statSync, truncateSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {formatInstant, parseInstant} from '../core/clock.ts'
import {isOfKind, newError} from '../core/errors.ts'
import {temporaryBeside, VERSION} from '../core/process.ts'
import {tellForeign} from '../core/text.ts'
import type {Received, World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {copyIntoPlace, digestFileNow, listFilesBelow, syncToDisk} from '../store/files.ts'
import {
  changeTape,
  findHead,
  findRecorded,
  findTape,
  listTapes,
  noteTape,
  noteUnit,
  requireFolderId,
  type TapeRow,
} from '../store/recorded.ts'
import {requireThere, type StateDb} from '../store/state-db.ts'
import {
  createTape,
  type Frame,
  type NumberedLine,
  openTape,
  readEnd,
  readLines,
  resumeTape,
  type TapeEnd,
  type TapeLine,
  type TapeWriter,
} from '../store/tape.ts'
import {type KeyConfig, requireTapeKey, type TapeKey} from '../store/tape-key.ts'

type TapeOutcome = {outcome: 'settled' | 'refused' | 'abandoned' | 'dry run'; [said: string]: unknown}

/** Each walk goes to a tape of its own, everything else to the tape of its day. */
export type Tapes = ReturnType<typeof openTapes>

/** A path below the data folder. */
export function pathOfTape(name: string, date: string): string {
  return join('tape', date.slice(0, 4), date.slice(5, 7), `${name}.jsonl.zst`)
}

interface OpenTape {
  writer: TapeWriter
  /** The kind of the current unit. */
  kind: string
}

/** @throws as {@link requireTapeKey} does */
export function openTapes(
  config: KeyConfig,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  {realClock, onStep}: Pick<World, 'realClock' | 'onStep'>,
) {
  const key = requireTapeKey(config, folder, stateDb, {realClock})
  const open = new Map<string, OpenTape>()
  const now = () => new Date(realClock.now()).toISOString()
  const tapeOf = (name: string): OpenTape => {
    const tape = open.get(name)
    if (!tape) throw new Error(`Tape '${name}' is not open.`)
    return tape
  }

  async function resume(row: TapeRow, end: TapeEnd, kind: string): Promise<void> {
    const path = join(folder.root, row.path)
    // A writer that was wrongly taken for dead keeps writing to the old file.
    if (isBeingWritten(row)) await copyIntoPlace(path, temporaryBeside(path), path, true)
    chmodSync(path, 0o600)
    open.set(row.name, {writer: resumeTape(path, key, end), kind})
  }

  /** Returns the name of a day's tape, opened if it exists; if that is damaged, of a further tape. */
  async function openOfDay(date: string): Promise<string> {
    for (let number = 1; ; number += 1) {
      const name = number === 1 ? date : `${date}.${number}`
      const row = findTape(stateDb, name)
      if (!row) return name
      // Given up or pruned: its file is not to be written on, even if it came back.
      if (row.removed_at !== null) continue
      const {end, kind} = await readThrough(folder, row, key)
      if (!end || end.problem !== null) continue
      // One that was lost, and is whole again, is read again.
      changeTape(stateDb, name, {ended_at: null, outcome: null})
      await resume(row, end, kind)
      return name
    }
  }

  const tapes = {
    key,
    /** Writes the first line of a unit, or that another run continues it. Creates the tape if needed. */
    begin(name: string, date: string, said: Record<string, unknown>): Frame {
      if (!open.has(name)) {
        const row = {name, path: pathOfTape(name, date)}
        noteTape(stateDb, {...row, fingerprint: key.fingerprint, begun_at: now()})
        // Without it, the folder was moved away: a tape would begin another one there.
        requireThere(folder.stateDb)
        const writer = createTape(join(folder.root, row.path), key, requireFolderId(stateDb))
        open.set(name, {writer, kind: ''})
      }
      const begin = tapes.take(name, {frame: 'begin', tape: name, version: VERSION, begun_at: now(), ...said})
      tapes.store(name)
      stateDb.run('update tape set bytes = 0 where name = ? and bytes is null', [name])
      return begin
    },
    /** `settle` writes the rest of the unit and calls `conclude` last. */
    async settleOfDay<T>(
      date: string,
      said: Record<string, unknown>,
      settle: (unit: {name: string; begin: Frame; conclude: (at: bigint) => string}) => Promise<T> | T,
    ): Promise<T> {
      const name = await openOfDay(date)
      const begin = tapes.begin(name, date, said)
      const conclude = (at: bigint) => tapes.conclude(name, {outcome: 'settled'}, at)
      try {
        return await settle({name, begin, conclude})
      } catch (error) {
        if (isOfKind(error, 'guard')) tapes.conclude(name, {outcome: 'refused', why: error.code})
        throw error
      } finally {
        tapes.finish(name)
      }
    },
    /** Ends the tapes that dead runs had concluded. Returns those that they left unfinished, oldest first. */
    listLeft(): TapeRow[] {
      for (const {row, bytes} of stateDb.transaction(() => adoptEnded(folder, stateDb, key))) {
        const path = join(folder.root, row.path)
        chmodSync(path, 0o600)
        truncateSync(path, bytes)
        syncToDisk(path)
        chmodSync(path, 0o400)
        changeTape(stateDb, row.name, {ended_at: now(), bytes, sha256: digestFileNow(path)})
      }
      return listTapes(stateDb).filter(isBeingWritten)
    },
    /** Reads a tape that a dead run left and continues it after its last whole line. If unreadable, marks it lost and returns false. */
    async reopen(row: TapeRow, take: (line: TapeLine) => Promise<void>): Promise<boolean> {
      const {name} = row
      const {end, kind} = await readThrough(folder, row, key, take)
      if (end) {
        await resume(row, end, kind)
        return true
      }
      if (row.bytes === null) {
        rmSync(join(folder.root, row.path), {force: true})
        stateDb.run('delete from tape where name = ?', [name])
      } else {
        changeTape(stateDb, name, {ended_at: now(), outcome: 'lost', bytes: 0, sha256: ''})
      }
      return false
    },
    /** Adds a line, which is on the disk after `store`. */
    take(name: string, frame: Frame, received?: Received | {body: Buffer; original?: undefined}): Frame {
      const line = received && 'path' in received ? {...frame, ...describeReceived(received)} : frame
      const tape = tapeOf(name)
      if (frame.frame === 'begin') tape.kind = String(frame.kind)
      const original = received?.original
      if (original)
        tape.writer.add({frame: 'received', at: original.at, ...describeReceived(original)}, original.body)
      tape.writer.add(line, received?.body)
      return line
    },
    store: (name: string): void => tapeOf(name).writer.store(),
    /** Writes the outcome of a unit before it takes effect at `recordedAt`; returns the chain of that line. */
    conclude(name: string, outcome: TapeOutcome, recordedAt?: bigint): string {
      const {writer, kind} = tapeOf(name)
      writer.store()
      return stateDb.transaction(() => {
        adoptEnded(folder, stateDb, key, name)
        const {no, chain: previous} = findHead(stateDb)
        const when = recordedAt === undefined ? {} : {recorded_at: formatInstant(recordedAt)}
        writer.add({frame: 'outcome', kind, ...outcome, ...when, no: no + 1, previous})
        writer.store()
        if (outcome.outcome === 'settled') onStep('outcome written')
        const recorded = {no: no + 1, tape: name, kind, chain: writer.chain}
        noteUnit(stateDb, recorded, isHistory(kind, outcome.outcome))
        return writer.chain
      })
    },
    finish(name: string): void {
      const writer = open.get(name)?.writer
      if (!writer) return
      const finished = writer.finish()
      open.delete(name)
      writer[Symbol.dispose]()
      changeTape(stateDb, name, {ended_at: now(), ...finished})
    },
    [Symbol.dispose](): void {
      for (const {writer} of open.values()) writer[Symbol.dispose]()
    },
  }
  return tapes
}

function describeReceived(received: Omit<Received, 'body' | 'original'>) {
  const {path, query, status, headers, requestedAt, receivedAt} = received
  return {
    request: {path, ...query, ...(query.cursor && {cursor: tellForeign(String(query.cursor))})},
    status,
    headers,
    requested_at: formatInstant(requestedAt),
    received_at: new Date(receivedAt).toISOString(),
  }
}

/** Or was left by a dead run. */
export const isBeingWritten = ({ended_at, removed_at}: TapeRow) => ended_at === null && removed_at === null

/** Whether the warehouse contains a unit. It contains refused walks too. */
export function isHistory(kind: string, outcome: string): boolean {
  return kind === 'walk' || (outcome === 'settled' && ['look', 'rates', 'replay', 'without'].includes(kind))
}

/** Microseconds since the epoch. */
export const instant = z.string().transform((text, context) => {
  const micros = parseInstant(text)
  if (micros === null) context.addIssue('expected an instant')
  return micros ?? 0n
})

const outcomeSchema = z.object({
  no: z.number(),
  previous: z.string().nullable(),
  kind: z.string(),
  outcome: z.string(),
  why: z.string().optional(),
  recorded_at: instant.optional(),
  is_complete: z.boolean().optional(),
  is_certified: z.boolean().optional(),
  waited_ms: z.number().optional(),
  details: z.object({fetched: z.number(), failed: z.number()}).optional(),
})

export const parseOutcome = ({frame}: Pick<TapeLine, 'frame'>) => outcomeSchema.parse(frame)

/**
 * Adds to the record the outcomes that dead runs wrote to their tapes but not to the state database; `own` is the tape that the
 * caller is writing. Call it in a transaction, before anything else is added to the record. Returns the tapes that were never
 * closed and end with an outcome; `bytes` is where their whole lines stop.
 * @throws ConfigError `STORES_DISAGREE` if another command wrote a tape and died before recording it in the state database
 */
export function adoptEnded(
  folder: DataFolder,
  stateDb: StateDb,
  key: TapeKey,
  own?: string,
): {row: TapeRow; bytes: number}[] {
  const rows = listTapes(stateDb)
  const known = new Set(rows.map(({path}) => path))
  const unknown = listTapeFiles(folder)
    .keys()
    .find((path) => !known.has(path))
  if (unknown !== undefined)
    throw newError(
      'STORES_DISAGREE',
      `Data folder '${folder.root}', state.sqlite: it does not know ${unknown}: another command wrote that tape and died before recording it.`,
      {next: 'Run the command again: it reads that tape first.'},
    )
  const left = rows.filter((row) => isBeingWritten(row) && row.name !== own)
  return left.flatMap((row) => {
    const {last: end, bytes} = readEndOf(folder, row, key)
    if (end?.frame.frame !== 'outcome') return []
    const {no, kind, outcome} = parseOutcome(end)
    if (!findRecorded(stateDb, end.chain))
      noteUnit(stateDb, {no, tape: row.name, kind, chain: end.chain}, isHistory(kind, outcome))
    return [{row, bytes}]
  })
}

/** The last whole line of a tape, if it is readable, and where its whole lines stop. */
export function readEndOf({root}: DataFolder, {path}: {path: string}, key: TapeKey) {
  const file = join(root, path)
  return existsSync(file) ? readEnd(file, key) : {last: undefined, bytes: 0}
}

/**
 * `end` is where the whole lines stop; `kind` is that of the last unit. `end` is undefined if none can be read, or fewer than were
 * finished once: a damaged tape stays as it is, since somebody may repair it.
 */
async function readThrough(
  folder: DataFolder,
  row: TapeRow,
  key: TapeKey,
  take?: (line: TapeLine) => Promise<void>,
): Promise<{end?: TapeEnd; kind: string}> {
  const path = join(folder.root, row.path)
  let kind = ''
  if (row.fingerprint !== key.fingerprint || !existsSync(path)) return {kind}
  const {lines, end} = openTape(path, key)
  for (const line of lines) {
    const {frame, tape, kind: named} = line.frame
    if (frame === 'begin' && tape !== row.name) return {kind}
    if (frame === 'begin') kind = String(named)
    await take?.(line)
  }
  return end.groups === 0 || end.bytes < (row.bytes ?? 0) ? {kind} : {end, kind}
}

/** Sizes of tape files, by path below the data folder. */
export function listTapeFiles({root, tapes}: DataFolder): Map<string, number> {
  const paths = listFilesBelow(tapes).filter((path) => path.endsWith('.jsonl.zst'))
  return new Map(paths.map((path) => [path.slice(root.length + 1), statSync(path).size]))
}

/** Its file exists and was sealed with the present key. */
export interface ReadableTape extends TapeRow {
  file: string
  /** @throws UnexpectedError `TAPE_DAMAGED` */
  lines(): Generator<NumberedLine>
}

/** Oldest first; none without a key. */
export function listReadableTapes(
  {root}: DataFolder,
  stateDb: StateDb,
  key: TapeKey | undefined,
): ReadableTape[] {
  return listTapes(stateDb).flatMap((row) => {
    const file = join(root, row.path)
    const isKept = row.removed_at === null && row.outcome !== 'lost' && existsSync(file)
    return key && isKept && row.fingerprint === key.fingerprint
      ? {...row, file, lines: () => readLines(file, key, isBeingWritten(row))}
      : []
  })
}
