import {chmodSync, mkdtempDisposableSync, readdirSync, readFileSync, statSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join, relative} from 'node:path'
import {z} from 'zod'
import {realClock} from '../../src/core/clock.ts'
import {createSilentLog} from '../../src/core/log.ts'
import type {World} from '../../src/core/types.ts'
import {dataFolderAt, requireWritable} from '../../src/store/data-folder.ts'
import {openDatabase} from '../../src/store/database.ts'

/** The minimum a release needs: most tests read only its manifest. */
export const LEAST_TABLES = '+core.deal_history +mart.run'

/** That minimum and the other tables that most tests read: building the other thirty models takes most of a small night. */
export const FEW_TABLES = '+core.deal +core.deal_history +mart.portfolio_summary +mart.run'

export type TestFolder = ReturnType<typeof createFolder>

export function createFolder() {
  const root = mkdtempDisposableSync(join(tmpdir(), 'loantape-'))
  const folder = dataFolderAt(join(root.path, 'data'))
  requireWritable(folder)
  return {folder, [Symbol.dispose]: root.remove}
}

/** Reads every file in and below a folder, by relative path; each byte becomes a character. */
export function readFiles(root: string): Record<string, string> {
  const entries = readdirSync(root, {recursive: true, withFileTypes: true}).filter((entry) => entry.isFile())
  const paths = entries.map(({parentPath, name}) => join(parentPath, name))
  return Object.fromEntries(paths.map((path) => [relative(root, path), readFileSync(path, 'latin1')]))
}

/** Flips one bit of a file, by default in its middle. @returns its new bytes */
export function flipBit(path: string, at?: number): Buffer {
  const bytes = readFileSync(path)
  bytes[at ?? bytes.length >> 1]! ^= 1
  chmodSync(path, 0o600)
  writeFileSync(path, bytes)
  return bytes
}

/** Changes a byte of each block that the engine does not read when it opens a database file. */
export async function changeBlocks(path: string): Promise<void> {
  const [header, block] = [3 * 4096, 65_536]
  chmodSync(path, 0o600)
  for (let at = header + block / 2; at < statSync(path).size; at += block) {
    const bytes = readFileSync(path)
    flipBit(path, at)
    const opened = openDatabase({attach: [{path, alias: 'changed', readOnly: true}]})
    const isOpened = await opened.then(
      (db) => db[Symbol.asyncDispose]().then(() => true),
      () => false,
    )
    if (!isOpened) writeFileSync(path, bytes)
  }
}

export const readManifest = (dir: string) => JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8'))

export const readLines = (text: string) =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))

/** A row of a query's result, values as DuckDB prints them: counts and decimals are text. */
export const anyRow: z.ZodType<Record<string, unknown>> = z.record(z.string(), z.unknown())

/** Environment for reading the source at this address into a data folder, practically without a rate limit. */
export const envOf = (url: string, dataDir: string): Record<string, string> => ({
  LOANTAPE_BASE_URL: url,
  LOANTAPE_API_KEY: 'sk_test',
  LOANTAPE_DATA_DIR: dataDir,
  LOANTAPE_RATE_PER_SECOND: '5000',
})

/** Creates a world of this machine; `now` (ISO 8601) stops its business clock. */
export const createWorld = (now?: string): World => ({
  clock: now === undefined ? realClock : {now: () => Date.parse(now)},
  realClock,
  random: Math.random,
  log: createSilentLog(),
  signal: new AbortController().signal,
  onProgress: () => undefined,
  onStep: () => undefined,
})

/** Creates a world with both clocks stopped at an instant (ISO 8601), and without chance. */
export function createWorldAt(now: string): World {
  const world = createWorld(now)
  return {...world, realClock: {...realClock, ...world.clock}, random: () => 0.5}
}

/** Creates a world with both clocks as `now` says (ms since the epoch), in which waiting takes no time. */
export function createWorldBy(now: () => number): World {
  return {...createWorld(), clock: {now}, realClock: {now, sleep: () => Promise.resolve()}}
}
