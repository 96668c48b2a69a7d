import {setImmediate} from 'node:timers/promises'
import {realClock} from '../../src/core/clock.ts'
import {type Config, parseConfig} from '../../src/core/config.ts'
import {createSilentLog} from '../../src/core/log.ts'
import type {RunStep, World} from '../../src/core/types.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {COMPILED, FEW_TABLES} from '../support/data.ts'

/** Thrown at the step where a run was to end. */
export class Stopped extends Error {}

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
  let skippedMs = 0
  const clock = typeof now === 'string' ? {now: () => Date.parse(now)} : now
  const base = typeof now === 'string' ? realClock : clock
  return {
    clock,
    realClock: {
      now: () => base.now() + skippedMs,
      async sleep(ms, signal) {
        skippedMs += ms
        await setImmediate()
        signal?.throwIfAborted()
      },
    },
    random: Math.random,
    log: createSilentLog(),
    signal: new AbortController().signal,
    plans: COMPILED,
    ...(tables !== 'all' && {select: tables}),
    onProgress: () => undefined,
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
  const env = {
    LOANTAPE_BASE_URL: url,
    LOANTAPE_API_KEY: 'sk_test_proof',
    LOANTAPE_DATA_DIR: root,
    LOANTAPE_RATE_PER_SECOND: '5000',
    LOANTAPE_DETAIL: 'off',
    ...settings,
  }
  return parseConfig(env, {readFile: () => ''})
}
