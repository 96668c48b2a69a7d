import {mkdtempSync, readdirSync, readFileSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join, relative} from 'node:path'
import {z} from 'zod'
import {createFrozenClock, realClock} from '../../src/core/clock.ts'
import {createSilentLog} from '../../src/core/log.ts'
import type {World} from '../../src/core/types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../../src/store/data-folder.ts'

/** Plans compiled in this process, shared by every world of a test. */
export const COMPILED: World['plans'] = new Map()

/** The minimum a release needs: most tests read only its manifest. */
export const LEAST_TABLES = '+core.deal_history +mart.run'

/** What most tests read of a release besides that: building the other thirty models takes most of a small night. */
export const FEW_TABLES = '+core.deal +core.deal_history +mart.portfolio_summary +mart.run'

/** A separate data folder; disposing it removes it. */
export interface TestFolder extends Disposable {
  folder: DataFolder
}

/** Creates an empty data folder. */
export function createFolder(): TestFolder {
  const root = mkdtempSync(join(tmpdir(), 'loantape-'))
  const folder = dataFolderAt(join(root, 'data'))
  requireWritable(folder)
  return {folder, [Symbol.dispose]: () => rmSync(root, {recursive: true, force: true})}
}

/** Every file in a folder and below it, by its path there; each byte is a character. */
export function readFiles(root: string): Record<string, string> {
  const entries = readdirSync(root, {recursive: true, withFileTypes: true}).filter((entry) => entry.isFile())
  const paths = entries.map(({parentPath, name}) => join(parentPath, name))
  return Object.fromEntries(paths.map((path) => [relative(root, path), readFileSync(path, 'latin1')]))
}

/** The manifest of a release, a batch or a backup. */
export const readManifest = (dir: string) => JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8'))

/** A row of a query's result, values as DuckDB prints them: counts and decimals are text. */
export const anyRow: z.ZodType<Record<string, unknown>> = z.record(z.string(), z.unknown())

/** A world with both clocks at one instant (ISO 8601). */
export function createWorldAt(now: string): World {
  const clock = createFrozenClock(Date.parse(now))
  return {
    clock,
    realClock: {...realClock, ...clock},
    random: () => 0.5,
    log: createSilentLog(),
    signal: new AbortController().signal,
    plans: COMPILED,
    onProgress: () => undefined,
    onStep: () => undefined,
  }
}
