import {flushCompileCache} from 'node:module'
import {explainError, type Failure} from '../core/errors.ts'

export type Told = {answer: unknown} | {failure: Failure; isLast: boolean}

/** Ends with the parent process. `leave` is called before; once `isSpent` is true, the parent ends this process. */
export function answerParent(
  questions: object,
  {leave, isSpent}: {leave?: () => void; isSpent?: () => boolean} = {},
): void {
  // It is killed in the end, which would lose the compile cache.
  flushCompileCache()
  // As in `main.ts`.
  process.stderr.on('error', () => undefined)
  const answers = questions as Record<string, (...about: unknown[]) => unknown>
  const tell = (told: Told) => process.send?.(told)
  // A terminal sends Ctrl-C, and its end, to all its processes; the parent says what becomes of a question.
  for (const signal of ['SIGINT', 'SIGHUP']) process.on(signal, () => undefined)
  // The parent is gone; a long question must not outlive it.
  process.on('disconnect', () => {
    leave?.()
    process.kill(process.pid, 'SIGKILL')
  })
  process.on('message', async ({name, about}: {name: string; about: unknown[]}) => {
    try {
      tell({answer: await answers[name]?.(...about)})
    } catch (error) {
      const {code, problem, kept, next} = explainError(error)
      tell({failure: {code, problem, kept, next}, isLast: isSpent?.() ?? false})
    }
  })
}
