import type {Config} from '../core/config.ts'
import {codeOf} from '../core/errors.ts'
import type {questions} from './history-questions.ts'
import {createHelper} from './reader.ts'

/** How long to wait for an answer: a preview may build the release of a month. */
const TIMEOUT_MS = 60_000

type Questions = typeof questions

/** Answers questions about history, tapes and journals. */
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

/** The parameters of a question besides the settings. */
type About<Question> = Question extends (config: never, ...about: infer Rest) => unknown ? Rest : never

/**
 * Answers for all pages in a process that the first question starts; disposing ends it. A question that takes too long ends it too;
 * its other questions are asked again of the next process.
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

/** Turns `UNKNOWN_NAME` into undefined. */
export function noneIfUnknown(error: unknown): undefined {
  if (codeOf(error) !== 'UNKNOWN_NAME') throw error
}
