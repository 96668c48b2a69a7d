import {AsyncLocalStorage} from 'node:async_hooks'
import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {dealStream} from '../../../src/contract/deal.ts'
import {runCommand} from '../../support/command.ts'
import {envOf} from '../../support/data.ts'
import type {Ended as EndedProcess} from '../../support/lab.ts'
import {readFieldAs} from '../../support/schema.ts'
import {createQuickWorld} from '../quick-world.ts'
import {codeIn} from '../separate-run.ts'
import {openLedger, writeMapping} from './books.ts'
import {READABLE, type Source, UNREADABLE} from './source.ts'
import {Finding, type Story} from './story.ts'
import {createTruth, type Known} from './truth.ts'

/** A field that the source adds to the contract and that becomes a column. */
const FIELDS = {note_rate: {path: 'terms.note_rate', type: 'decimal(9,6)'}}

/** Constants of stories: builds are incremental, and failures come soon. */
const FIXED_IN_STORIES = {build: 'incremental', retries: 2, requestTimeoutSeconds: 5} as const

export const ACCOUNTS = 'accounting.json'

export type Stage = ReturnType<typeof setStage>

/** Sets up a story in an empty folder, which will hold the data folder and what is beside it. */
export function setStage(story: Story, source: Source, root: string) {
  const data = join(root, 'data')
  const env = {
    ...envOf(source.url, data),
    LOANTAPE_PAGE_SIZE: String(story.pageSize),
    LOANTAPE_SQL_DIR: join(root, 'sql'),
    LOANTAPE_ACCOUNTING_FILE: join(root, ACCOUNTS),
    LOANTAPE_TAPE_KEY_FILE: join(root, 'tape.key'),
    FIXED: JSON.stringify(FIXED_IN_STORIES),
  }
  mkdirSync(join(root, 'sql/seeds'), {recursive: true})
  mkdirSync(data, {mode: 0o700})
  writeFileSync(join(data, 'fields.json'), JSON.stringify(FIELDS))
  writeFileSync(env.LOANTAPE_ACCOUNTING_FILE, writeMapping({'*': '1200'}, story.booksEnded))
  return {
    story,
    root,
    data,
    source,
    env,
    truth: createTruth(),
    books: openLedger(),
    note: (_: string): void => undefined,
    /** Called with events, as comments, and with the commands that a person would have typed. */
    tell: (_: string): void => undefined,
    saved: undefined as Known | undefined,
    /** Whether the warehouse is still what its tapes say: nothing was given up, restored from a backup or made readable by hand. */
    isOfTapes: true,
    /** Whether records were made readable by hand, which no rebuild repeats. */
    isMended: false,
    areTapesWhole: true,
    batchesSaved: 0,
    /** What was known when the whole folder was copied; undefined if there is no valid copy. */
    copied: undefined as Known | undefined,
  }
}

export type Ended = EndedProcess & {error: string}

interface Steering {
  /** Stopped by default. */
  clock?: {now(): number}
  onStep?: (step: string) => void
  requestTimeoutSeconds?: number
  isMended?: boolean
}

/** Whether the running command has the fixed schema: all stories in this process share the stream. */
const mending = new AsyncLocalStorage<boolean>()
readFieldAs(dealStream, 'loan_amount', UNREADABLE, READABLE, () => mending.getStore() === true)

/** Runs one command line to its end in this process, at an instant (ISO 8601); waiting takes no time. */
export async function command(
  {env, tell}: Stage,
  args: readonly string[],
  at: string,
  {clock = {now: () => Date.parse(at)}, onStep, isMended = false, ...fixed}: Steering = {},
): Promise<Ended> {
  tell(`LOANTAPE_NOW=${at} loantape ${args.join(' ')}`)
  const options = {
    fixed: {...FIXED_IN_STORIES, ...fixed},
    createWorld: () => createQuickWorld({now: clock, tables: 'all', ...(onStep && {onStep})}),
  }
  const run = () => runCommand(args, {...env, LOANTAPE_NOW: at}, options)
  const ended = await mending.run(isMended, run)
  return {...ended, error: codeIn(ended.stderr)}
}

export async function succeed(...request: Parameters<typeof command>): Promise<Ended> {
  const ended = await command(...request)
  const [, [name = '']] = request
  if (ended.code !== 0) throw new Finding(`${name}: expected success, seen ${ended.stdout}${ended.stderr}`)
  return ended
}
