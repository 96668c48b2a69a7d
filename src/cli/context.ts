import {createBusinessClock, realClock} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {messageOf, newError} from '../core/errors.ts'
import {createLog, type Log} from '../core/log.ts'
import {groupThousands, quantity} from '../core/money.ts'
import type {Fixed} from '../core/settings.ts'
import {countOf, type Progress, type RunStep, type World} from '../core/types.ts'
import {escapeControls, layOut, type Text} from './table.ts'

/** Without new progress, a step is shown again this often, with its new duration. */
const SHOWN_EVERY_MS = 500
const DRAWN_EVERY_MS = 100
const LOGGED_EVERY_MS = 5000
/** A rate is measured over the last ten seconds, and shown after the first. */
const RATE_OVER_MS = 10_000
const RATE_FROM_MS = 1000
/** Shorter waits are not shown: the line would flicker. */
const WAITING_FROM_MS = 2000

const isHeldUp = (source: Progress['source']) =>
  source?.waitingSince != null && realClock.now() - source.waitingSince >= WAITING_FROM_MS

/** Shows one line of a terminal, or logs. The last report is shown again and again until the end. */
function createDisplay(stderr: Surroundings['stderr'], log: Log) {
  let last: Progress | undefined
  let timer: NodeJS.Timeout | undefined
  let step = ''
  // By a clock that nobody sets.
  let [startedAt, shownAt] = [0, Number.NEGATIVE_INFINITY]
  /** The counts of the last {@link RATE_OVER_MS}. */
  let past: {at: number; done: number}[] = []

  function draw(progress: Progress): void {
    const now = performance.now()
    const {done = 0, total, pages, source} = progress
    const isNew = progress.step !== step || done < (past.at(-1)?.done ?? 0)
    if (isNew) [step, startedAt, past] = [progress.step, now, []]
    else if (now - shownAt < DRAWN_EVERY_MS) return
    shownAt = now
    const isWaiting = isHeldUp(source)
    // The rate is measured anew after a wait.
    past = [...past.filter(({at}) => !isWaiting && now - at <= RATE_OVER_MS), {at: now, done}]
    const [first = {at: now, done}] = past
    const ms = now - first.at
    const perSecond = ms < RATE_FROM_MS ? 0 : ((done - first.done) * 1000) / ms
    const leftMs = perSecond > 0 && typeof total === 'number' ? ((total - done) / perSecond) * 1000 : 0
    // Ordered by importance, since the terminal cuts off the end.
    const words = [
      step.padEnd(10),
      formatDuration(now - startedAt).padStart(5),
      isWaiting && 'waiting: rate limit',
      countOf(progress),
      leftMs > 0 && `${formatDuration(leftMs)} left`,
      perSecond > 0 && `${groupThousands(perSecond.toFixed(perSecond < 9.95 ? 1 : 0))}/s`,
      pages !== undefined && quantity(pages, 'page'),
    ]
    const line = words.filter((word) => typeof word === 'string' && word !== '').join('  ')
    stderr.write(`\r${line.slice(0, (stderr.columns || 80) - 1)}\x1b[K`)
  }

  function logProgress({source, ...progress}: Progress): void {
    const now = performance.now()
    if (now - shownAt < LOGGED_EVERY_MS) return
    shownAt = now
    const reason = isHeldUp(source) && {reason: 'waiting: rate limit'}
    log.info({...progress, ...(source && {waited_ms: source.waitedMs}), ...reason}, 'progress')
  }

  const show = stderr.isTTY ? draw : logProgress
  /** Clears the line before something else is printed. */
  function hide(): void {
    if (!stderr.isTTY || shownAt < 0) return
    stderr.write('\r\x1b[K')
    shownAt = Number.NEGATIVE_INFINITY
  }
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

/** `1:05` or `1:02:05` */
function formatDuration(ms: number): string {
  const seconds = Math.floor(ms / 1000)
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60]
  const tail = `${String(minutes).padStart(hours ? 2 : 1, '0')}:${String(rest).padStart(2, '0')}`
  return hours ? `${hours}:${tail}` : tail
}

/** From `main.ts`, once per process. */
interface Surroundings {
  env: Record<string, string | undefined>
  /** The environment overrides its settings. */
  envFile?: string
  stdout: {write: (text: string) => unknown; columns?: number}
  stderr: {write: (text: string) => unknown; isTTY?: boolean; columns?: number}
  /** Overrides constants, for tests. */
  fixed?: Partial<Fixed>
  onStop: (stop: (signal: string) => void) => void
}

export interface CommonOptions {
  data?: string
  json?: boolean
  who?: string
}

export type Cli = ReturnType<typeof createCli>

export function createCli(surroundings: Surroundings) {
  const {stdout, stderr, onStop} = surroundings
  let progress: ReturnType<typeof createDisplay> | undefined
  const print = (text: string) => {
    progress?.end()
    const shown = stdout.columns === undefined ? text : escapeControls(text)
    stdout.write(shown.endsWith('\n') ? shown : `${shown}\n`)
  }
  const besideProgress = (text: string) => {
    progress?.hide()
    stderr.write(text)
  }
  const printJson = (value: unknown) => print(JSON.stringify(value))
  // A terminal that does not know its size has 0 columns.
  const printText = (text: Text) =>
    print(escapeControls(layOut(text, stdout.columns || Number.POSITIVE_INFINITY)))
  return {
    /** The exit code if no error is thrown; set by commands that find something wrong. */
    exitCode: 0,
    complain(text: string): void {
      progress?.end()
      stderr.write(`${escapeControls(text)}\n`)
    },
    env: surroundings.env,
    envFile: surroundings.envFile,
    fixed: surroundings.fixed,
    createWorld(config: Config): World {
      const level = config.logLevel ?? (stderr.isTTY ? 'warn' : 'info')
      const log = createLog({level, source: config.source}, {write: besideProgress})
      progress = createDisplay(stderr, log)
      const stopping = new AbortController()
      onStop((signal) => {
        if (stderr.isTTY) besideProgress('Stopping soon. Ctrl-C again ends at once.\n')
        else log.warn({reason: signal}, 'asked to stop')
        stopping.abort(new Error(`stopped by ${signal}`))
      })
      return {
        clock: createBusinessClock(config.now),
        realClock,
        random: Math.random,
        log,
        signal: stopping.signal,
        onProgress: progress.report,
        onStep: (step) => {
          log.debug({step}, 'reached')
          if (stopping.signal.aborted && MAY_END_AFTER.has(step))
            throw newError(
              'INTERRUPTED',
              `The run was ${messageOf(stopping.signal.reason)} after: ${step}.`,
              {
                kept: 'What it had stored is kept; the current release stays.',
                next: 'Run it again: it continues from there.',
                cause: stopping.signal.reason,
              },
            )
        },
      }
    },
    /** Unchanged into a file or pipe; on a terminal with control characters escaped, which keeps JSON valid. */
    print,
    printJson,
    printText,
    printResult<T>(options: CommonOptions, value: T, render: (value: T) => Text): void {
      if (options.json) printJson(value)
      else printText(render(value))
    },
  }
}

/** Their work is stored, and the next run continues from there. */
const MAY_END_AFTER = new Set<RunStep>([
  'details stored',
  'history copied',
  'models compiled',
  'models built',
  'checks passed',
  'tables written',
])
