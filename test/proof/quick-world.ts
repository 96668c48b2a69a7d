import {setImmediate} from 'node:timers/promises'
import {realClock} from '../../src/core/clock.ts'
import {type Config, parseConfig} from '../../src/core/config.ts'
import type {RunStep, World} from '../../src/core/types.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {createWorld, envOf, FEW_TABLES} from '../support/data.ts'

/** Thrown at the step where a run was to end. */
class Stopped extends Error {}

/** The tables `readPortfolio` reads. */
export const PORTFOLIO_TABLES: string = `${FEW_TABLES} +core.borrower +core.document`

/** A world for runs in this process. */
export interface QuickWorld {
  /** The business clock, or the instant at which it stands, ISO 8601. */
  now: string | {now(): number}
  /** The run ends here, with {@link Stopped}, to save the rest, such as the release. */
  stopAt?: RunStep | undefined
  onStep?: (step: RunStep) => void
  /** The tables of a release, as `--select` names them: `PORTFOLIO_TABLES` by default, or `all`. */
  tables?: string | undefined
}

/** Creates a world in which waiting takes no time: a wait is added to the real clock instead. */
export function createQuickWorld({now, stopAt, onStep, tables = PORTFOLIO_TABLES}: QuickWorld): World {
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
    onStep(step) {
      onStep?.(step)
      if (step === stopAt) throw new Stopped(step)
    },
  }
}

/** Waits for a run that may end at its stop step. */
export async function untilStopped(run: Promise<unknown>): Promise<void> {
  try {
    await run
  } catch (error) {
    if (!(error instanceof Stopped)) throw error
  }
}

/** How to walk a source of a test into a folder, without deals' own pages unless `settings` turns them on. */
export function configOf(url: string, {root}: DataFolder, settings: Record<string, string>): Config {
  return parseConfig({...envOf(url, root), LOANTAPE_DETAIL: 'off', ...settings}, {readFile: () => ''})
}
