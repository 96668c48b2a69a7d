import type {StateDb} from './books.ts'
import {type Ended, runHere, type Steering} from './command.ts'
import {Finding} from './finding.ts'
import type {Source} from './source.ts'
import type {Story} from './story.ts'
import type {Known, Truth} from './truth.ts'

/** Hears how a story goes: what to count, and its events as comments between the commands that a person would have typed. */
export interface Listener {
  note(name: string): void
  tell(line: string): void
}

/** A story in progress. */
export interface Stage {
  story: Story
  /** Holds the data folder and what is beside it. */
  root: string
  data: string
  source: Source
  truth: Truth
  books: StateDb
  env: Record<string, string>
  listener: Listener
  /** The warehouse's content when it was saved. */
  saved: Known | undefined
  /** Whether the warehouse is still what its tapes say: nothing was restored from before or made readable by hand. */
  isOfTapes: boolean
  /** Whether records were made readable by hand, which no rebuild repeats. */
  isMended: boolean
  /** Whether no tape was given up or left behind. */
  areTapesWhole: boolean
  /** Batches issued when the state database was saved. */
  batchesSaved: number
  /** What was known when the whole folder was copied; undefined without a copy of this past. */
  copied: Known | undefined
}

/** The name of the accounts file, beside the data folder. */
export const ACCOUNTS = 'accounting.json'

/** Runs one command line in this process. */
export function command(
  stage: Stage,
  args: readonly string[],
  at: string,
  steering: Partial<Steering> = {},
): Promise<Ended> {
  stage.listener.tell(`LOANTAPE_NOW=${at} loantape ${args.join(' ')}`)
  return runHere(args, {env: stage.env, at, ...steering})
}

/** The same for a command that must succeed. */
export async function succeed(...request: Parameters<typeof command>): Promise<Ended> {
  const ended = await command(...request)
  const [, [name = '']] = request
  if (ended.code !== 0) throw new Finding(`${name}: expected success, seen ${ended.stdout}${ended.stderr}`)
  return ended
}
