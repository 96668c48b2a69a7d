import type {Ledger} from './books.ts'
import {type Ended, runHere, type Steering} from './command.ts'
import type {Source} from './source.ts'
import type {Story} from './story.ts'
import type {Known, Truth} from './truth.ts'

/** Is told what a story comes to, and which commands a person would have typed. */
export interface Listener {
  note(name: string): void
  command(words: string): void
}

/** A story under way. */
export interface Stage {
  story: Story
  /** Holds the data folder and what lies beside it. */
  root: string
  data: string
  source: Source
  truth: Truth
  books: Ledger
  env: Record<string, string>
  listener: Listener
  /** What the copies of the warehouse hold: history.duckdb, the one before, and a backup. */
  copies: {history?: Known; previous?: Known; backup?: Known}
  /** Batches handed out when the ledger was saved. */
  batchesSaved: number
}

/** The name of the file of accounts, beside the data folder. */
export const ACCOUNTS = 'accounting.json'

/** Runs one command line in this process. */
export function command(
  stage: Stage,
  args: readonly string[],
  at: string,
  steering: Partial<Steering> = {},
): Promise<Ended> {
  stage.listener.command(`LOANTAPE_NOW=${at} loantape ${args.join(' ')}`)
  return runHere(args, {env: stage.env, at, ...steering})
}

/** history.duckdb is brought up to the warehouse; the first time in a run the copy before is kept. */
export function noteRefresh({copies, truth}: Stage, isFirst: boolean): void {
  if (isFirst && copies.history) copies.previous = copies.history
  else if (isFirst) delete copies.previous
  copies.history = truth.save()
}
