import {setImmediate} from 'node:timers/promises'
import type {RealClock} from '../../src/core/clock.ts'
import type {World} from '../../src/core/types.ts'
import type {ClientConfig} from '../../src/source/client.ts'
import {createWorldAt} from '../support/data.ts'

/** A clock on which sleeping takes no time and moves the clock ahead. */
interface TestClock extends RealClock {
  readonly sleeps: number[]
}

/** The instant at which the real clock of a test world starts. */
export const START: number = Date.parse('2026-01-31T12:00:00Z')

export interface TestWorld extends World {
  realClock: TestClock
  abort: () => void
}

/** Creates a world whose waits are instant and whose jitter is always half the maximum. */
export function createTestWorld(): TestWorld {
  const stop = new AbortController()
  let instant = START
  const sleeps: number[] = []
  const realClock: TestClock = {
    sleeps,
    now: () => instant,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted()
      sleeps.push(ms)
      instant += ms
      await setImmediate()
      signal?.throwIfAborted()
    },
  }
  return {
    ...createWorldAt('2026-01-31T23:00:00Z'),
    signal: stop.signal,
    realClock,
    abort: () => stop.abort(),
  }
}

export const TEST_KEY = 'sk_test_source'

/** Returns the config of a client that does not give up early and is never slow by itself. */
export function aClientConfig(changes: Partial<ClientConfig>): ClientConfig {
  return {
    baseUrl: 'http://127.0.0.1:1/v1',
    apiKey: TEST_KEY,
    ratePerSecond: 1000,
    maxWaitMinutes: 60,
    requestTimeoutSeconds: 5,
    retries: 3,
    maxAnswerMb: 32,
    ...changes,
  }
}
