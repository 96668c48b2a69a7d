import {setImmediate} from 'node:timers/promises'
import {realClock} from '../../src/core/clock.ts'
import {type Config, parseConfig} from '../../src/core/config.ts'
import type {RunStep, World} from '../../src/core/types.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {createWorld, envOf, FEW_TABLES} from '../support/data.ts'

/** The tables `readPortfolio` reads. */
export const PORTFOLIO_TABLES: string = `${FEW_TABLES} +core.borrower +core.document`

export interface QuickWorld {
  /** The business clock, or the instant at which it is stopped (ISO 8601). */
  now: string | {now(): number}
  onStep?: (step: RunStep) => void
  /** The tables of a release, as `--select` names them: `PORTFOLIO_TABLES` by default, or `all`. */
  tables?: string | undefined
}

/** Creates a world in which waiting takes no time: each wait advances the real clock instead. */
export function createQuickWorld({now, onStep, tables = PORTFOLIO_TABLES}: QuickWorld): World {
  const world = createWorld(typeof now === 'string' ? now : undefined)
  const clock = typeof now === 'string' ? world.clock : now
  const base = typeof now === 'string' ? realClock : now
  let skippedMs = 0
  return {
    ...world,
    clock,
    realClock: {
      now: () => base.now() + skippedMs,
      async sleep(ms, signal) {
        skippedMs += ms
        await setImmediate()
        signal?.throwIfAborted()
      },
    },
    ...(tables !== 'all' && {select: tables}),
    ...(onStep && {onStep}),
  }
}

/** Config for walking a test's source into a folder; own pages are off unless `settings` turns them on. */
export function configOf(url: string, {root}: DataFolder, settings: Record<string, string>): Config {
  return parseConfig({...envOf(url, root), LOANTAPE_DETAIL: 'off', ...settings}, {readFile: () => ''})
}
