import type {Clock} from '../clock.ts'
import type {Log} from '../log.ts'
import {groupThousands, quantity} from '../money.ts'
import {countOf, type Progress} from '../progress.ts'

/** What shows how a run gets on. */
interface Display {
  show(progress: Progress): void
  /** Takes away what is shown, before anything else is printed. */
  hide(): void
}

/** A step that stands still is shown as often: its time goes on. */
const SHOWN_EVERY_MS = 500

/** Shows each report, and the last of them again and again until the end. */
export function repeatProgress({show, hide}: Display) {
  let last: Progress | undefined
  let timer: NodeJS.Timeout | undefined
  return {
    report(progress: Progress): void {
      last = progress
      show(progress)
      timer ??= setInterval(() => last && show(last), SHOWN_EVERY_MS).unref()
    },
    hide,
    end(): void {
      clearInterval(timer)
      timer = undefined
      hide()
    },
  }
}

const DRAWN_EVERY_MS = 100
/** The time that a rate is taken over, and the least that gives one. */
const RATE_OVER_MS = 10_000
const RATE_FROM_MS = 1000
/** A shorter wait would only flicker. */
const WAITING_FROM_MS = 2000

/** Creates the progress line of a terminal, which is drawn over and over. */
export function createProgressLine(
  terminal: {write: (text: string) => unknown; columns?: number},
  clock: Clock,
): Display {
  let step = ''
  let startedAt = 0
  let drawnAt = 0
  /** What was done when, in the last seconds. */
  let past: {at: number; done: number}[] = []
  return {
    show(progress) {
      const now = clock.now()
      const done = progress.done ?? 0
      const isNew = progress.step !== step || done < (past.at(-1)?.done ?? 0)
      if (isNew) [step, startedAt, past] = [progress.step, now, []]
      else if (now - drawnAt < DRAWN_EVERY_MS) return
      drawnAt = now
      const waitingSince = progress.source?.waitingSince ?? now
      const isWaiting = now - waitingSince >= WAITING_FROM_MS
      // What was not asked for in that time says nothing of the rate after it.
      past = [...past.filter(({at}) => !isWaiting && now - at <= RATE_OVER_MS), {at: now, done}]
      const [first = {at: now, done}] = past
      const ms = now - first.at
      const perSecond = ms < RATE_FROM_MS ? 0 : ((done - first.done) * 1000) / ms
      const pace = {elapsedMs: now - startedAt, perSecond, isWaiting}
      terminal.write(`\r${renderProgress(progress, pace, (terminal.columns ?? 80) - 1)}\x1b[K`)
    },
    hide() {
      if (drawnAt > 0) terminal.write('\r\x1b[K')
      drawnAt = 0
    },
  }
}

/** The words of a progress line; where they are more than `width`, those that matter least are left out. */
function renderProgress(
  progress: Progress,
  {elapsedMs, perSecond, isWaiting}: {elapsedMs: number; perSecond: number; isWaiting: boolean},
  width: number,
): string {
  const {step, done = 0, total, pages} = progress
  const count = countOf(progress).padStart(countOf({...progress, done: Math.max(done, total ?? 0)}).length)
  const isEnding = typeof total === 'number' && total > done && perSecond > 0
  const words: [rank: number, text: string | false][] = [
    [0, step.padEnd(10)],
    [3, count],
    [6, pages !== undefined && quantity(pages, 'page').padStart(9)],
    [2, formatDuration(elapsedMs).padStart(5)],
    [5, perSecond > 0 && formatRate(perSecond).padStart(6)],
    [4, isEnding && `${formatDuration(Math.ceil((total - done) / perSecond) * 1000)} left`],
    [1, isWaiting && 'waiting: rate limit'],
  ]
  const lines = words.map((_, most) =>
    words.flatMap(([rank, text]) => (rank <= words.length - 1 - most && text ? text : [])).join('  '),
  )
  return lines.find((line) => line.length <= width) ?? step.slice(0, width)
}

/** `250/s`, and of few `4.8/s`. */
function formatRate(perSecond: number): string {
  return `${perSecond < 9.95 ? perSecond.toFixed(1) : groupThousands(Math.round(perSecond))}/s`
}

/** Milliseconds as `1:05` or `1:02:05`. */
function formatDuration(ms: number): string {
  const seconds = Math.floor(ms / 1000)
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60]
  const tail = `${String(minutes).padStart(hours ? 2 : 1, '0')}:${String(rest).padStart(2, '0')}`
  return hours ? `${hours}:${tail}` : tail
}

const LOGGED_EVERY_MS = 5000

/** Creates what stands in the log instead, off a terminal. */
export function createProgressLog(log: Log, clock: Clock): Display {
  let loggedAt = 0
  return {
    show({source, ...progress}) {
      const now = clock.now()
      if (now - loggedAt < LOGGED_EVERY_MS) return
      loggedAt = now
      log.info({...progress, ...(source && {waited_ms: source.waitedMs})}, 'progress')
    },
    hide: () => undefined,
  }
}
