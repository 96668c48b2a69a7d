import {closeSync, fstatSync, openSync, readSync} from 'node:fs'
import {newError} from '../errors.ts'
import type {TapeKey} from './key.ts'
import {CHAIN_START, parseLine, readLineAlone, type TapeLine} from './line.ts'
import {
  folderOf,
  HEADER_BYTES,
  LENGTH_BYTES,
  openGroup,
  parseGroupLength,
  parseHeader,
} from './sealed-group.ts'

/** How far a tape could be read. */
export interface TapeEnd {
  /** Of the tape; empty where its header cannot be read. */
  tapeId: string
  groups: number
  lines: number
  /** Where its last whole group ends. */
  bytes: number
  /** Of its last whole line. */
  chain: string
  /** What is wrong with what follows; null where nothing does. */
  problem: string | null
}

/**
 * Reads a tape group by group, so that its length costs no memory.
 *
 * @returns how far it could be read, as the generator's return value
 * @throws UnexpectedError `TAPE_KEY_WRONG` when it is sealed with another key
 */
export function* readGroups(path: string, key: TapeKey): Generator<TapeLine[], TapeEnd, undefined> {
  const file = openSync(path, 'r')
  try {
    const stats = fstatSync(file)
    const {size} = stats
    const read = (from: number, length: number) => {
      const bytes = Buffer.alloc(Math.min(length, size - from))
      readSync(file, bytes, 0, bytes.length, from)
      return bytes
    }
    const end: TapeEnd = {tapeId: '', groups: 0, lines: 0, bytes: 0, chain: CHAIN_START, problem: null}
    if (!stats.isFile()) return {...end, problem: 'what lies in its place is no file'}
    const header = parseHeader(read(0, HEADER_BYTES))
    if (header === null) return {...end, problem: 'it does not begin as a tape'}
    const {fingerprint, tapeId} = header
    if (fingerprint !== key.fingerprint)
      throw newError(
        'TAPE_KEY_WRONG',
        `Tape '${path}' is sealed with key ${fingerprint}: the key at hand is ${key.fingerprint}.`,
      )
    end.tapeId = tapeId
    end.bytes = HEADER_BYTES
    while (end.bytes < size) {
      const from = end.bytes + LENGTH_BYTES
      const length = from <= size ? parseGroupLength(read(end.bytes, LENGTH_BYTES)) : null
      if (length === null || from + length > size) return {...end, problem: 'it is cut off'}
      const text = openGroup(read(from, length), {tapeId, number: end.groups}, key)
      if (text === null) return {...end, problem: 'its bytes are not those that were written'}
      const lines: TapeLine[] = []
      let {chain} = end
      for (const line of text.split('\n').slice(0, -1)) {
        const parsed = parseLine(line, chain)
        if ('problem' in parsed) return {...end, problem: parsed.problem}
        ;({chain} = parsed)
        lines.push(parsed)
      }
      end.bytes = from + length
      end.chain = chain
      end.groups += 1
      end.lines += lines.length
      yield lines
    }
    return end
  } finally {
    closeSync(file)
  }
}

/** What the first line of a tape's file says; undefined where it is no tape. */
export function readTapeHeader(path: string): {fingerprint: string; folderId: string} | undefined {
  const file = openSync(path, 'r')
  try {
    const head = Buffer.alloc(HEADER_BYTES)
    readSync(file, head, 0, HEADER_BYTES, 0)
    const header = parseHeader(head)
    return header ? {fingerprint: header.fingerprint, folderId: folderOf(header.tapeId)} : undefined
  } finally {
    closeSync(file)
  }
}

/**
 * The lines of a tape's first group and of its last whole one, without what is between: where it ends is found by the lengths of
 * its groups. Chains are not compared.
 */
export function readEnds(path: string, key: TapeKey): {first: TapeLine[]; last: TapeLine[]} {
  const file = openSync(path, 'r')
  try {
    const {size} = fstatSync(file)
    const read = (from: number, length: number) => {
      const bytes = Buffer.alloc(length)
      readSync(file, bytes, 0, length, from)
      return bytes
    }
    const header = size < HEADER_BYTES ? null : parseHeader(read(0, HEADER_BYTES))
    const groups: {from: number; length: number}[] = []
    for (let at = HEADER_BYTES; header && at + LENGTH_BYTES <= size; ) {
      const length = parseGroupLength(read(at, LENGTH_BYTES))
      const from = at + LENGTH_BYTES
      if (length === null || from + length > size) break
      groups.push({from, length})
      at = from + length
    }
    const linesOf = (number: number): TapeLine[] => {
      const group = groups.at(number)
      if (!header || !group || header.fingerprint !== key.fingerprint) return []
      const place = {tapeId: header.tapeId, number: (number + groups.length) % groups.length}
      const text = openGroup(read(group.from, group.length), place, key) ?? ''
      return text
        .split('\n')
        .slice(0, -1)
        .flatMap((line) => readLineAlone(line) ?? [])
    }
    return {first: linesOf(0), last: linesOf(-1)}
  } finally {
    closeSync(file)
  }
}

/**
 * Reads every line of a tape that is whole.
 *
 * @throws UnexpectedError `TAPE_DAMAGED`, `TAPE_KEY_WRONG`
 */
export function* readLines(path: string, key: TapeKey): Generator<TapeLine, TapeEnd, undefined> {
  const groups = readGroups(path, key)
  for (let next = groups.next(); ; next = groups.next()) {
    if (!next.done) {
      yield* next.value
      continue
    }
    const {lines, problem} = next.value
    if (problem === null) return next.value
    throw newError('TAPE_DAMAGED', `Tape '${path}' after line ${lines}: ${problem}.`)
  }
}
