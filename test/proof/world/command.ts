import {AsyncLocalStorage} from 'node:async_hooks'
import {fileURLToPath} from 'node:url'
import {dealStream} from '../../../src/contract/deal.ts'
import {runCommand} from '../../support/command.ts'
import {type Ended as EndedProcess, startProcess} from '../../support/lab.ts'
import {readFieldAs} from '../../support/schema.ts'
import {createQuickWorld} from '../quick-world.ts'
import {READABLE, UNREADABLE} from './source.ts'

/** The outcome of a command, and its error's stable code; empty without one. */
export type Ended = EndedProcess & {error: string}

/** How a command is run: under which clock, and who hears of its steps. */
export interface Steering {
  env: Record<string, string>
  /** Business clock at its start, ISO 8601. */
  at: string
  clock?: {now(): number}
  onStep?: (step: string) => void
  /** How long to wait for an answer of the source; 5 by default. */
  requestTimeoutSeconds?: number
  /** With a schema that reads the unreadable. */
  isMended?: boolean
}

const KILLED_RUN = fileURLToPath(new URL('../killed-run.ts', import.meta.url))

/** Constants of stories: builds are incremental and failures come soon. */
const FIXED_IN_STORIES = {build: 'incremental', retries: 2, requestTimeoutSeconds: 5} as const

const codeIn = (stderr: string) => /\[([A-Z\d_]+)\]\s*$/.exec(stderr)?.[1] ?? ''

/** Whether the running command has a fixed schema; stories in this process share the stream. */
const mending = new AsyncLocalStorage<boolean>()
readFieldAs(dealStream, 'loan_amount', UNREADABLE, READABLE, () => mending.getStore() === true)

/** Runs one command line to its end in this process; waiting takes no time. */
export async function runHere(args: readonly string[], steering: Steering): Promise<Ended> {
  const {env, at, clock = {now: () => Date.parse(at)}, onStep, isMended = false} = steering
  const {requestTimeoutSeconds = FIXED_IN_STORIES.requestTimeoutSeconds} = steering
  const options = {
    fixed: {...FIXED_IN_STORIES, requestTimeoutSeconds},
    createWorld: () => createQuickWorld({now: clock, tables: 'all', ...(onStep && {onStep})}),
  }
  const run = () => runCommand(args, {...env, LOANTAPE_NOW: at}, options)
  const ended = await mending.run(isMended, run)
  return {...ended, error: codeIn(ended.stderr)}
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
  const command = [process.execPath, KILLED_RUN, ...args]
  const onSmallDisk = `trap '' XFSZ; ulimit -f ${(diskKib ?? 0) * 2}; exec "$0" "$@"`
  using started = startProcess(
    diskKib === undefined ? command : ['sh', '-c', onSmallDisk, ...command],
    settings,
  )
  const ended = await started.ended
  const steps = ended.stdout.matchAll(/^reached (\d+\.?\d*) (.+)$/gm)
  const reached = [...steps].map(([, time, step = '']) => ({step, at: Number(time)}))
  return {...ended, error: codeIn(ended.stderr), isKilled: ended.signal === 'SIGKILL', reached}
}
