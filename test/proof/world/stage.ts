import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {envOf} from '../../support/data.ts'
import {openBooks, writeMapping} from './books.ts'
import {type Ended, FIXED_IN_STORIES, runHere, type Steering} from './command.ts'
import type {Source} from './source.ts'
import {Finding, type Story} from './story.ts'
import {createTruth, type Known} from './truth.ts'

/** A field the source adds to the contract becomes a column. */
const FIELDS = {note_rate: {path: 'terms.note_rate', type: 'decimal(9,6)'}}

/** The name of the accounts file, beside the data folder. */
export const ACCOUNTS = 'accounting.json'

/** A story in progress. */
export type Stage = ReturnType<typeof setStage>

/** Sets the stage for a story in an empty folder, which holds the data folder and what is beside it. */
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
    books: openBooks(),
    /** Hears what is to be counted. */
    note: (_: string): void => undefined,
    /** Hears its events, as comments between the commands that a person would have typed. */
    tell: (_: string): void => undefined,
    /** The warehouse's content when it was saved. */
    saved: undefined as Known | undefined,
    /** Whether the warehouse is still what its tapes say: nothing was restored from before or made readable by hand. */
    isOfTapes: true,
    /** Whether records were made readable by hand, which no rebuild repeats. */
    isMended: false,
    /** Whether no tape was given up or left behind. */
    areTapesWhole: true,
    /** Batches issued when the state database was saved. */
    batchesSaved: 0,
    /** What was known when the whole folder was copied; undefined without a copy of this past. */
    copied: undefined as Known | undefined,
  }
}

/** Runs one command line in this process. */
export function command(
  stage: Stage,
  args: readonly string[],
  at: string,
  steering: Partial<Steering> = {},
): Promise<Ended> {
  stage.tell(`LOANTAPE_NOW=${at} loantape ${args.join(' ')}`)
  return runHere(args, {env: stage.env, at, ...steering})
}

/** The same for a command that must succeed. */
export async function succeed(...request: Parameters<typeof command>): Promise<Ended> {
  const ended = await command(...request)
  const [, [name = '']] = request
  if (ended.code !== 0) throw new Finding(`${name}: expected success, seen ${ended.stdout}${ended.stderr}`)
  return ended
}
