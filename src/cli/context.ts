import {createBusinessClock, realClock} from '../clock.ts'
import type {Config} from '../config.ts'
import {messageOf, newError} from '../errors.ts'
import {createLog} from '../log.ts'
import type {RunStep} from '../run-steps.ts'
import type {Fixed} from '../settings.ts'
import type {World} from '../types.ts'
import {createProgressLine, createProgressLog, repeatProgress} from './progress.ts'
import {showControls} from './table.ts'

/** Where a command's words go, and what they depend on; made once, in `main.ts`. */
export interface Surroundings {
  env: Record<string, string | undefined>
  /** A file of more settings; the environment goes before it. */
  envFile?: string
  stdout: {write: (text: string) => unknown; columns?: number}
  stderr: {write: (text: string) => unknown; isTTY?: boolean; columns?: number}
  /** Other constants than those of every lender: for tests. */
  fixed?: Partial<Fixed>
  /** Registers what happens when the process is asked to stop. */
  onStop: (stop: (signal: string) => void) => void
}

/** The options every command has. */
export interface CommonOptions {
  data?: string
  json?: boolean
}

/** What commands are given. */
export type Cli = ReturnType<typeof createCli>

/** Creates what commands are given. */
export function createCli(surroundings: Surroundings) {
  const {stdout, stderr, onStop} = surroundings
  let progress: ReturnType<typeof repeatProgress> | undefined
  const print = (text: string) => {
    progress?.end()
    stdout.write(text.endsWith('\n') ? text : `${text}\n`)
  }
  const besideProgress = (text: string) => {
    progress?.hide()
    stderr.write(text)
  }
  const printJson = (value: unknown) => print(JSON.stringify(value))
  return {
    /** What the process ends with when no error is thrown; a command that found something wrong sets it. */
    exitCode: 0,
    /** Columns of the terminal that stdout is; undefined where it is none. */
    width: stdout.columns,
    /** Writes to stderr what went wrong. */
    complain(text: string): void {
      progress?.end()
      stderr.write(`${showControls(text)}\n`)
    },
    /** What settings are read from. */
    env: surroundings.env,
    envFile: surroundings.envFile,
    fixed: surroundings.fixed,
    createWorld(config: Config): World {
      const level = config.logLevel ?? (stderr.isTTY ? 'warn' : 'info')
      const log = createLog({level, source: config.source}, {write: besideProgress})
      progress = repeatProgress(
        stderr.isTTY ? createProgressLine(stderr, realClock) : createProgressLog(log, realClock),
      )
      const stopping = new AbortController()
      onStop((signal) => {
        if (stderr.isTTY)
          besideProgress('Stopping: the page under way is finished first. Ctrl-C again ends at once.\n')
        else log.warn({reason: signal}, 'asked to stop: finishing the page, then ending')
        stopping.abort(new Error(`stopped by ${signal}`))
      })
      return {
        clock: createBusinessClock(config.now),
        realClock,
        random: Math.random,
        log,
        signal: stopping.signal,
        plans: new Map(),
        onProgress: progress.report,
        onStep: (step) => {
          log.debug({step}, 'reached')
          if (stopping.signal.aborted && MAY_END_AFTER.has(step))
            throw newError(
              'INTERRUPTED',
              `The run was ${messageOf(stopping.signal.reason)} after: ${step}.`,
              {
                kept: 'What it had stored is kept; the current release stays.',
                next: 'Run again: it goes on from there.',
                cause: stopping.signal.reason,
              },
            )
        },
      }
    },
    /** Writes lines for people to stdout. */
    print,
    /** Writes the one JSON object of `--json`. */
    printJson,
    /** Writes a result as JSON or, without `--json`, as `render` words it. */
    printResult<T>(options: CommonOptions, value: T, render: (value: T) => string): void {
      if (options.json) printJson(value)
      else print(showControls(render(value)))
    },
  }
}

/** What is done by then is stored, and the next run begins after it. */
const MAY_END_AFTER = new Set<RunStep>([
  'details stored',
  'history copied',
  'models compiled',
  'models built',
  'checks passed',
  'tables written',
])
