import {AsyncLocalStorage} from 'node:async_hooks'
import {dealStream} from '../../../src/contract/deal.ts'
import {runCommand} from '../../support/command.ts'
import type {Ended as EndedProcess} from '../../support/lab.ts'
import {readFieldAs} from '../../support/schema.ts'
import {createQuickWorld} from '../quick-world.ts'
import {codeIn} from '../separate-run.ts'
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

/** Constants of stories: builds are incremental and failures come soon. */
export const FIXED_IN_STORIES = {build: 'incremental', retries: 2, requestTimeoutSeconds: 5} as const

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
