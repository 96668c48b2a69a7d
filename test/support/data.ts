import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {createFrozenClock, realClock} from '../../src/core/clock.ts'
import {createSilentLog} from '../../src/core/log.ts'
import type {World} from '../../src/core/types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../../src/store/data-folder.ts'

/** What was compiled in this process: it serves every world of a test. */
export const COMPILED: World['plans'] = new Map()

/** What a release needs to be one: what most tests read of it is its manifest. */
export const LEAST_TABLES = '+core.deal_history +mart.run'

/** What most tests read of a release beside that: building the other thirty models takes most of a night of a few deals. */
export const FEW_TABLES = '+core.deal +core.deal_history +mart.portfolio_summary +mart.run'

/** A data folder of its own; disposing it removes it. */
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

/** A row of a query's result, values as DuckDB prints them: counts and decimals are text. */
export const anyRow: z.ZodType<Record<string, unknown>> = z.record(z.string(), z.unknown())

/** A world both of whose clocks stand at an instant (ISO 8601). */
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
