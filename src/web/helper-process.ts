import {flushCompileCache} from 'node:module'
import {explainError} from '../core/errors.ts'
import type {Told} from './reader.ts'

// A process of its own: what a question breaks or uses up ends with it.

/** What a module of questions can export: the questions, what ends them, and whether the process answers no more. */
interface Asking {
  questions: object
  leave?: () => void
  isSpent?: () => boolean
}
const {questions, leave, isSpent}: Asking =
  process.argv[2] === 'history'
    ? await import('./history-questions.ts')
    : await import('./release-questions.ts')

// It ends by being killed, so it would keep no compile cache.
flushCompileCache()

const answers = questions as unknown as Record<string, (...about: unknown[]) => unknown>
const tell = (told: Told) => process.send?.(told)

// The parent is gone; an endless question must not outlive it.
process.on('disconnect', () => {
  leave?.()
  process.kill(process.pid, 'SIGKILL')
})
process.on('message', async ({id, name, about}: {id: number; name: string; about: unknown[]}) => {
  try {
    tell({id, answer: await answers[name]?.(...about)})
  } catch (error) {
    const {code, problem, kept, next} = explainError(error)
    tell({id, failure: {code, problem, kept, next}, isLast: isSpent?.() ?? false})
  }
})
