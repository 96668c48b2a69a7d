import type {Config} from '../core/config.ts'
import {codeOf} from '../core/errors.ts'
import type {questions} from './history-questions.ts'
import {createHelper} from './reader.ts'

/** An answer is waited for this long: a preview may build the release of a month. */
const TIMEOUT_MS = 60_000

type Questions = typeof questions

/** What is behind the releases of a data folder. */
export interface History {
  /**
   * Asks once.
   *
   * @throws what went wrong; DeferredError `HISTORY_STOPPED`
   */
  ask<Name extends keyof Questions>(
    name: Name,
    ...about: About<Questions[Name]>
  ): Promise<Awaited<ReturnType<Questions[Name]>>>
}

/** What a question is about beside the settings. */
type About<Question> = Question extends (config: never, ...about: infer Rest) => unknown ? Rest : never

/**
 * Reads history, tapes and journals for all pages in a process that the first question starts; disposing ends it. An answer that takes
 * too long ends it, too; what else it was asked is asked once more of the next.
 */
export function readHistory(config: Config): History & Disposable {
  const helper = createHelper<Questions>({
    args: ['history'],
    stopped: ['HISTORY_STOPPED', 'The history was not read to the end'],
  })
  return {
    ask: (name, ...about) =>
      helper.ask(name, [config, ...about] as unknown as Parameters<Questions[typeof name]>, {
        timeoutMs: TIMEOUT_MS,
        tries: 2,
      }),
    [Symbol.dispose]: () => helper[Symbol.dispose](),
  }
}

/** Nothing, where what was asked for is unknown. */
export function noneIfUnknown(error: unknown): undefined {
  if (codeOf(error) !== 'UNKNOWN_NAME') throw error
}
