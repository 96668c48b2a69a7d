import type {Clock} from '../clock.ts'
import type {Progress} from '../types.ts'

const DRAW_EVERY_MS = 100

/** Seconds as `1:05` or `1:02:05`. */
function formatDuration(ms: number): string {
  const seconds = Math.round(ms / 1000)
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60]
  const tail = `${String(minutes).padStart(hours ? 2 : 1, '0')}:${String(rest).padStart(2, '0')}`
  return hours ? `${hours}:${tail}` : tail
}

/** The words of a progress line; speed and time left count from `startedAt`. */
function renderProgress(progress: Progress, elapsedMs: number): string {
  const {step, pages, records, expected, waitedMs, isWaiting} = progress
  const parts = [step]
  if (pages > 0 || records > 0) {
    const perSecond = elapsedMs > 0 ? (records * 1000) / elapsedMs : 0
    parts.push(`${pages} pages`, `${records} deals`, `${Math.round(perSecond)} deals/s`)
    if (expected !== null && expected > records && perSecond > 0) {
      parts.push(`about ${formatDuration(((expected - records) / perSecond) * 1000)} left`)
    }
  }
  if (isWaiting) parts.push(`waiting for the rate limit (${formatDuration(waitedMs)} so far)`)
  else if (waitedMs > 0) parts.push(`waited ${formatDuration(waitedMs)} for the rate limit`)
  return parts.join(' · ')
}

/** Creates the progress line of a terminal, which is drawn over and over. */
export function createProgressLine(
  terminal: {write: (text: string) => unknown; columns?: number},
  clock: Clock,
) {
  let step = ''
  let startedAt = 0
  let drawnAt = 0
  return {
    draw(progress: Progress): void {
      const now = clock.now()
      if (progress.step !== step) [step, startedAt, drawnAt] = [progress.step, now, 0]
      if (now - drawnAt < DRAW_EVERY_MS) return
      drawnAt = now
      const line = renderProgress(progress, now - startedAt).slice(0, (terminal.columns ?? 80) - 1)
      terminal.write(`\r\x1b[2K${line}`)
    },
    /** Takes the line away, before anything else is printed. */
    clear(): void {
      if (drawnAt > 0) terminal.write('\r\x1b[2K')
      drawnAt = 0
    },
  }
}
