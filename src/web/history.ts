import type {Config} from '../config.ts'
import {codeOf, newError, UnexpectedError} from '../errors.ts'
import {createChild} from './child.ts'
import type {Answers, Questions, Told} from './history-process.ts'

/** An answer is waited for this long: a preview may build the release of a month. */
const TIMEOUT_MS = 60_000

/** What is behind the releases of a data folder. */
export interface History {
  /**
   * Asks once.
   *
   * @throws DeferredError `HISTORY_STOPPED`; UnexpectedError with the code and words of what went wrong
   */
  ask<Name extends keyof Questions>(name: Name, ...about: About<Questions[Name]>): Promise<Answers[Name]>
}

/** What a question is about beside settings and world. */
type About<Question> = Question extends (config: never, world: never, ...about: infer Rest) => unknown
  ? Rest
  : never

/**
 * Starts a process that reads history, tapes and journals for all pages; disposing it ends it. An answer that takes too long ends it,
 * too; what else it was asked is asked once more of the next.
 */
export function readHistory(config: Config): History & Disposable {
  const child = createChild<Told>('history-process', {
    stopped: (reason) => newError('HISTORY_STOPPED', `The history was not read to the end: ${reason}.`),
  })
  child.start()
  return {
    async ask(name, ...about) {
      const told = await child.ask({name, about, config}, {timeoutMs: TIMEOUT_MS, tries: 2})
      if ('failure' in told) throw new UnexpectedError(told.failure)
      return told.answer
    },
    [Symbol.dispose]: () => child[Symbol.dispose](),
  }
}

/** Nothing, where what was asked for is unknown. */
export function noneIfUnknown(error: unknown): undefined {
  if (!['QUARANTINE_UNKNOWN', 'TRACE_DEAL'].includes(codeOf(error))) throw error
}
