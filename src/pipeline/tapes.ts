import {chmodSync, existsSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {formatInstant} from '../clock.ts'
import {GuardError} from '../errors.ts'
import {NONE, tellForeign} from '../foreign.ts'
import type {Conclude} from '../load/settle.ts'
import type {StateDb} from '../state/state-db.ts'
import {
  findLastHead,
  findTape,
  forgetTape,
  listTapes,
  noteTapeBegun,
  noteTapeEnded,
  noteTapeStored,
  type TapeRow,
} from '../state/tape-rows.ts'
import type {TapeKey} from '../tape/key.ts'
import type {Frame, TapeLine} from '../tape/line.ts'
import {readGroups, type TapeEnd} from '../tape/read-tape.ts'
import {createTape, resumeTape, type TapeWriter} from '../tape/write-tape.ts'
import type {Received, World} from '../types.ts'
import {VERSION} from '../version.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {type KeyConfig, requireTapeKey} from './tape-key.ts'

/** How a unit ended: what was taken down became history, or did not. */
export interface TapeOutcome {
  outcome: 'settled' | 'refused' | 'abandoned' | 'dry run'
  why?: string
  /** Of what was settled: microseconds since the epoch. */
  recordedAt?: bigint
  /** Of all else: what was settled last before it. */
  after?: bigint | null
  [certificate: string]: unknown
}

/** Takes down what one run receives: each walk on a tape of its own, what else a day brings on the day's. */
export interface Tapes extends AsyncDisposable {
  /** Begins the tape of a walk, or says that another run continues it. */
  begin(unit: string, date: string, said: Record<string, unknown>): Promise<void>
  /**
   * Takes down on the tape of its day what was received beside the walks, then has it stored.
   *
   * @param store gets what it has to do last, in its transaction
   */
  settleOfDay<T>(
    date: string,
    unit: {said: Record<string, unknown>; lines: readonly [Frame, Received][]},
    store: (conclude: Conclude) => Promise<T>,
  ): Promise<T>
  /** The units that runs left when they died, oldest first. */
  listLeft(): string[]
  /**
   * Reads a tape that was left and continues it after its last whole line; one that cannot be read any more is lost, and its
   * unit with it.
   *
   * @param take gets its lines, one after the other; null where the unit has ended, so that nothing of it may be cut off
   * @returns its last line; undefined where it is lost
   */
  reopen(unit: string, take: ((line: TapeLine) => Promise<void>) | null): Promise<Frame | undefined>
  /** Adds an answer; it is on the disk once stored. */
  take(unit: string, frame: Frame, received?: Received): void
  store(unit: string): Promise<void>
  /** Stores how a unit ended, before it ends so; returns the chain of that line. */
  conclude(unit: string, outcome: TapeOutcome): Promise<string>
  /** Nobody writes this tape any more. */
  finish(unit: string): Promise<void>
}

/** Where a tape lies below the data folder. */
function pathOf(unit: string, date: string): string {
  return join('tape', date.slice(0, 4), date.slice(5, 7), `${unit}.jsonl.zst`)
}

interface OpenTape {
  writer: TapeWriter
  /** Of the unit concluded last; empty before. */
  outcome: string
}

/**
 * Opens the tapes of a run.
 *
 * @throws as {@link requireTapeKey} does
 */
export function openTapes(
  config: KeyConfig,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  {realClock}: Pick<World, 'realClock'>,
): Tapes {
  const key = requireTapeKey(config, folder, stateDb, {realClock})
  const open = new Map<string, OpenTape>()
  const now = () => new Date(realClock.now()).toISOString()
  const tapeOf = (unit: string): OpenTape => {
    const tape = open.get(unit)
    if (!tape) throw new Error(`Tape '${unit}' is not open.`)
    return tape
  }

  async function create(unit: string, date: string, said: Record<string, unknown>): Promise<void> {
    const row = {unit, path: pathOf(unit, date)}
    const before = findLastHead(stateDb)
    noteTapeBegun(stateDb, {...row, fingerprint: key.fingerprint, begun_at: now()})
    const writer = await createTape(join(folder.root, row.path), key)
    open.set(unit, {writer, outcome: ''})
    writer.add({frame: 'begin', unit, version: VERSION, begun_at: now(), before, ...said})
    await writer.store()
    noteTapeStored(stateDb, unit, 0)
  }

  /** Continues the tape of a day, or the next one where it is damaged; returns what names it. */
  async function beginOfDay(date: string, said: Record<string, unknown>): Promise<string> {
    for (let number = 1; ; number += 1) {
      const unit = number === 1 ? date : `${date}.${number}`
      const row = findTape(stateDb, unit)
      // A file that the state database does not know belongs to a later one than this.
      if (!row && existsSync(join(folder.root, pathOf(unit, date)))) continue
      if (!row) {
        await create(unit, date, said)
        return unit
      }
      const {end} = await readThrough(folder, row, key)
      // One that is damaged stays as it is, for whoever brings it back.
      if (!end || end.problem !== null || end.bytes < (row.bytes ?? 0)) continue
      const before = findLastHead(stateDb)
      noteTapeBegun(stateDb, row)
      await goOn(row, end)
      tapes.take(unit, {frame: 'begin', unit, version: VERSION, begun_at: now(), before, ...said})
      return unit
    }
  }

  async function goOn(row: TapeRow, end: TapeEnd, last?: Frame): Promise<void> {
    const path = join(folder.root, row.path)
    chmodSync(path, 0o600)
    const outcome = last?.frame === 'outcome' ? String(last.outcome) : ''
    open.set(row.unit, {writer: await resumeTape(path, key, end), outcome})
  }

  const tapes: Tapes = {
    async begin(unit, date, said) {
      if (!open.has(unit)) return create(unit, date, said)
      tapes.take(unit, {frame: 'begin', unit, version: VERSION, begun_at: now(), ...said})
      await tapes.store(unit)
    },
    async settleOfDay(date, {said, lines}, store) {
      const unit = await beginOfDay(date, said)
      for (const [frame, received] of lines) tapes.take(unit, frame, received)
      await tapes.store(unit)
      try {
        return await store((recordedAt) => tapes.conclude(unit, {outcome: 'settled', recordedAt}))
      } catch (error) {
        if (error instanceof GuardError) await tapes.conclude(unit, {outcome: 'refused', why: error.code})
        throw error
      } finally {
        await tapes.finish(unit)
      }
    },
    listLeft: () =>
      listTapes(stateDb)
        .filter(({ended_at, removed_at}) => ended_at === null && removed_at === null)
        .map(({unit}) => unit),
    async reopen(unit, take) {
      const row = findTape(stateDb, unit)
      if (!row) return undefined
      const {end, last} = await readThrough(folder, row, key, take ?? undefined)
      const isCut = end && end.problem !== null && take === null
      if (end && last && !isCut) {
        await goOn(row, end, last)
        return last
      }
      if (row.bytes === null) {
        rmSync(join(folder.root, row.path), {force: true})
        forgetTape(stateDb, unit)
      } else {
        noteTapeEnded(stateDb, unit, {ended_at: now(), outcome: 'lost', head: '', bytes: 0, sha256: ''})
      }
      return undefined
    },
    take(unit, frame, received) {
      const {writer} = tapeOf(unit)
      if (!received) return writer.add(frame)
      const {body, requestedAt, receivedAt, path, query, status, headers} = received
      writer.add(
        {
          ...frame,
          request: {path, ...query, ...(query.cursor && {cursor: tellForeign(String(query.cursor), NONE)})},
          status,
          headers,
          requested_at: formatInstant(requestedAt),
          received_at: new Date(receivedAt).toISOString(),
        },
        body,
      )
    },
    store: (unit) => tapeOf(unit).writer.store(),
    async conclude(unit, {recordedAt, after, ...outcome}) {
      const tape = tapeOf(unit)
      const when =
        recordedAt === undefined
          ? {after: after ? formatInstant(after) : null}
          : {recorded_at: formatInstant(recordedAt)}
      tape.writer.add({frame: 'outcome', ...outcome, ...when})
      tape.outcome = outcome.outcome
      await tape.writer.store()
      return tape.writer.chain
    },
    async finish(unit) {
      const tape = open.get(unit)
      if (!tape) return
      const {writer, outcome} = tape
      const {sha256, bytes} = await writer.finish()
      open.delete(unit)
      await writer[Symbol.asyncDispose]()
      noteTapeEnded(stateDb, unit, {ended_at: now(), outcome, head: writer.chain, bytes, sha256})
    },
    async [Symbol.asyncDispose]() {
      for (const {writer} of open.values()) await writer[Symbol.asyncDispose]()
    },
  }
  return tapes
}

/** Reads the whole lines of a tape: where they end, if there are any, and the last of them. */
async function readThrough(
  folder: DataFolder,
  row: Pick<TapeRow, 'path' | 'fingerprint'>,
  key: TapeKey,
  take?: (line: TapeLine) => Promise<void>,
): Promise<{end?: TapeEnd; last?: Frame | undefined}> {
  const path = join(folder.root, row.path)
  // What is sealed with a key that was lost is no longer to be had.
  if (row.fingerprint !== key.fingerprint || !existsSync(path)) return {}
  let last: Frame | undefined
  const groups = readGroups(path, key)
  for (let next = groups.next(); ; next = groups.next()) {
    if (next.done) return next.value.groups === 0 ? {} : {end: next.value, last}
    for (const line of next.value) {
      await take?.(line)
      last = line.frame
    }
  }
}
