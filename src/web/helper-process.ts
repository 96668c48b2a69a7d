import {flushCompileCache} from 'node:module'
import {explainError, type Failure} from '../core/errors.ts'

/** What a helper sends back. */
export type Told = {answer: unknown} | {failure: Failure; isLast: boolean}

/**
 * Answers what the parent asks of this process. What a question breaks or uses up ends with it, and it ends with its parent.
 *
 * @param ends `leave` is called before; once `isSpent`, it answers no more
 */
export function answerParent(
  questions: object,
  {leave, isSpent}: {leave?: () => void; isSpent?: () => boolean} = {},
): void {
  // It ends by being killed, so it would keep no compile cache.
  flushCompileCache()
  // As in `main.ts`.
  process.stderr.on('error', () => undefined)
  const answers = questions as Record<string, (...about: unknown[]) => unknown>
  const tell = (told: Told) => process.send?.(told)
  // The parent is gone; an endless question must not outlive it.
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
