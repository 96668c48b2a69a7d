import {setImmediate} from 'node:timers/promises'
import {fileURLToPath} from 'node:url'
import {createCli} from '../../../src/cli/context.ts'
import {runProgram} from '../../../src/cli/program.ts'
import {dealStream} from '../../../src/contract/deal.ts'
import {createSilentLog} from '../../../src/core/log.ts'
import type {World} from '../../../src/core/types.ts'
import {COMPILED} from '../../support/data.ts'
import {startProcess} from '../../support/lab.ts'
import {readFieldAs} from '../../support/schema.ts'
import {READABLE, UNREADABLE} from './source.ts'

/** The outcome of a command. */
export interface Ended {
  code: number
  /** The error's stable code; empty without one. */
  error: string
  stdout: string
  stderr: string
}

/** How a command is run: under which clock, and who hears of its steps. */
export interface Steering {
  env: Record<string, string>
  /** Business clock at its start, ISO 8601. */
  at: string
  clock?: {now(): number}
  onStep?: (step: string) => void
  /** How long to wait for an answer of the source; 5 by default. */
  requestTimeoutSeconds?: number
}

const KILLED_COMMAND = fileURLToPath(new URL('./killed-command.ts', import.meta.url))

/** Constants of stories: builds are incremental and failures come soon. */
const FIXED_IN_STORIES = {build: 'incremental', retries: 2, requestTimeoutSeconds: 5} as const

const codeIn = (stderr: string) => /\[([A-Z\d_]+)\]\s*$/.exec(stderr)?.[1] ?? ''

/** The commands running in this process, of any story. */
const underWay = new Set<Promise<Ended>>()

/** The last command that was run with a fixed schema. */
let mended: Promise<unknown> = Promise.resolve()

/** Runs one command line to its end in this process; waiting takes no time. */
export async function runHere(args: readonly string[], steering: Steering): Promise<Ended> {
  for (let seen: unknown; seen !== mended; ) {
    seen = mended
    await mended
  }
  const ended = run(args, steering)
  underWay.add(ended)
  try {
    return await ended
  } finally {
    underWay.delete(ended)
  }
}

/** The same with a schema that reads the unreadable, which all stories in this process share: no other command may run. */
export function runMended(args: readonly string[], steering: Steering): Promise<Ended> {
  const ended = Promise.allSettled([mended, ...underWay]).then(async () => {
    using _mended = readFieldAs(dealStream, 'loan_amount', UNREADABLE, READABLE)
    return await run(args, steering)
  })
  mended = Promise.allSettled([ended])
  return ended
}

async function run(args: readonly string[], steering: Steering): Promise<Ended> {
  const {at, clock = {now: () => Date.parse(at)}, onStep = () => undefined} = steering
  const {requestTimeoutSeconds = FIXED_IN_STORIES.requestTimeoutSeconds} = steering
  let [stdout, stderr] = ['', '']
  const surroundings = createCli({
    env: {...steering.env, LOANTAPE_NOW: at},
    fixed: {...FIXED_IN_STORIES, requestTimeoutSeconds},
    stdout: {
      write(text) {
        stdout += text
      },
    },
    stderr: {
      write(text) {
        stderr += text
      },
    },
    onStop: () => undefined,
  })
  let skippedMs = 0
  const cli = Object.assign(surroundings, {
    createWorld: (): World => ({
      clock,
      realClock: {
        now: () => clock.now() + skippedMs,
        async sleep(ms: number, signal?: AbortSignal) {
          skippedMs += ms
          await setImmediate()
          signal?.throwIfAborted()
        },
      },
      random: Math.random,
      log: createSilentLog(),
      signal: new AbortController().signal,
      plans: COMPILED,
      onProgress: () => undefined,
      onStep,
    }),
  })
  const code = await runProgram(cli, args)
  return {code, error: codeIn(stderr), stdout, stderr}
}

/** A step that a separate process reached, by the machine's clock. */
export interface Reached {
  step: string
  at: number
}

/** How a separate process may end early. */
export interface Trouble {
  kill?: {step: string; nth: number} | undefined
  /** The disk takes no file longer than this many KiB. */
  diskKib?: number | undefined
}

/** Runs one command line in a separate process that kills itself the `nth` time it reaches a step; its clock stands still. */
export async function runThere(
  args: readonly string[],
  {env, at}: Steering,
  {kill, diskKib}: Trouble = {},
): Promise<Ended & {isKilled: boolean; reached: Reached[]}> {
  const settings = {
    ...env,
    LOANTAPE_NOW: at,
    LOANTAPE_LOG_LEVEL: 'silent',
    FIXED: JSON.stringify(FIXED_IN_STORIES),
    ...(kill && {KILL_STEP: kill.step, KILL_NTH: String(kill.nth)}),
    // Node would write it at the end, beyond the disk's limit.
    ...(diskKib !== undefined && {NODE_COMPILE_CACHE: ''}),
  }
  const command = [process.execPath, KILLED_COMMAND, ...args]
  const onSmallDisk = `trap '' XFSZ; ulimit -f ${(diskKib ?? 0) * 2}; exec "$0" "$@"`
  using started = startProcess(
    diskKib === undefined ? command : ['sh', '-c', onSmallDisk, ...command],
    settings,
  )
  const {code, signal, stdout, stderr} = await started.ended
  const reached = [...stdout.matchAll(/^reached (\d+\.?\d*) (.+)$/gm)].map(([, time, step = '']) => ({
    step,
    at: Number(time),
  }))
  return {code: code ?? 137, error: codeIn(stderr), stdout, stderr, isKilled: signal === 'SIGKILL', reached}
}
