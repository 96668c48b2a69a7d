import {setImmediate} from 'node:timers/promises'
import {realClock} from '../../src/core/clock.ts'
import {createSilentLog} from '../../src/core/log.ts'
import type {RunStep, World} from '../../src/core/types.ts'
import {COMPILED, FEW_TABLES} from '../support/data.ts'

/** Thrown at the step where a run was to end. */
export class Stopped extends Error {}

/** The tables `readPortfolio` reads. */
export const PORTFOLIO_TABLES: string = `${FEW_TABLES} +core.borrower +core.document`

/** A world for runs in this process. */
export interface QuickWorld {
  /** The business clock: an instant, ISO 8601, or ms that advance by 10 with each reading. */
  now: string | {from: number}
  /** The run ends here, with {@link Stopped}, to save the rest, such as the release. */
  stopAt?: RunStep | undefined
  /** The tables of a release, as `--select` names them: `PORTFOLIO_TABLES` by default, or `all`. */
  tables?: string | undefined
}

/** Creates a world in which waiting takes no time: a wait is added to the real clock instead. */
export function createQuickWorld({now, stopAt, tables = PORTFOLIO_TABLES}: QuickWorld): World {
  let skippedMs = 0
  let instant = typeof now === 'string' ? Date.parse(now) : now.from
  const stepMs = typeof now === 'string' ? 0 : 10
  const tick = () => {
    instant += stepMs
    return instant
  }
  return {
    clock: {now: tick},
    realClock: {
      now: () => realClock.now() + skippedMs,
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
