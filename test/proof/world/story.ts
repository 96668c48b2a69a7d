import {addDays} from '../../../src/core/clock.ts'
import type {Loss} from './lose.ts'

export interface Deal {
  property_address: string | null
  loan_amount: number | string
  property_value: number | string | null
  loan_program: string | null
  status: string
  created_at: string
}

/** A fault of the source. The first kind fails the answer of a page, counted from 1 within one run, `times` times in a row. */
export type Fault =
  | {is: '500' | '429' | 'reset' | 'truncated' | 'silent'; page: number; times: number}
  | {is: 'bytes'; page: number}
  /** Deals change after this page is fixed and before it is sent. */
  | {is: 'moving'; page: number; changes: Change[]}
  /** The page shows the deals as they were when the previous run began. */
  | {is: 'stale'; page: number}
  /** From this page on, the cursor leads back to the same page: `stuck` with the same cursor, `endless` with a new one each time. */
  | {is: 'stuck' | 'endless'; page: number}
  | {is: 'spelling'; how: 'title' | 'upper' | 'padded'}
  /** Every deal has this status; or, with `replaced`, another address, value and program. */
  | {is: 'mass'; status: string}
  | {is: 'replaced'}
  /** Records of these deals are unreadable: their amount is not an amount. */
  | {is: 'unreadable'; ids: string[]}
  /** No deal has an own page; or only the own pages of these are missing, or fail. */
  | {is: 'no pages'}
  | {is: 'no page' | 'page fails'; ids: string[]}

export type Change =
  | {do: 'put'; id: string; deal: Deal}
  | {do: 'set'; id: string; fields: Partial<Deal>}
  | {do: 'remove'; id: string}

export interface Sync {
  do: 'sync'
  /** The business clock at its start, UTC. */
  at: string
  accept?: string[]
  faults?: Fault[]
  /** The clock is ahead by this many hours while this page is requested; with `forGood`, it stays so. */
  ahead?: {page: number; hours: number; forGood?: boolean}
  /** The run dies the `nth` time it reaches a step; if `isReal`, in a separate process. */
  kill?: {step: string; nth: number; isReal?: boolean}
  diskKib?: number
  secondAt?: number
}

/** One event: plain data, valid whatever happened before it. */
export type Event =
  | Change
  | Sync
  | {do: 'sweep'; at: string; profiles: string[]}
  | {do: 'replay'; at: string}
  | {do: 'look back'; days: number; at: string}
  | {do: 'close' | 'reopen'; at: string}
  /** Writes `accounting.json`: the number of the receivable account by program. With `isMoved`, remaps the months. */
  | {do: 'map'; receivable: Record<string, string>; isMoved: boolean; at: string}
  | Seeding
  /** Saves a part of a backup: the history, the books (exports and state database), or a copy of the whole folder. */
  | {do: 'save'; part: 'history' | 'books' | 'folder'}
  /** Loses the warehouse and rebuilds it from the tapes, or loses the data folder and restores what was saved. */
  | {do: 'recover'; from: 'tapes' | 'backup'; at: string}
  | Lose

export interface Lose {
  do: 'lose'
  at: string
  loss: Loss
  first: 'sync' | 'export' | 'build' | 'period list'
  /** The answer to a refusal: restore everything, or follow its message. */
  remedy: 'bring back' | 'go on'
  profile: string
}

export interface Seeding {
  do: 'seed'
  fundedOn?: Record<string, string>
  statuses?: Reference['statuses']
}

export interface Story {
  pageSize: number
  booksEnded: boolean
  events: Event[]
}

const TIME_ZONE = 'America/New_York'
const CUTOFF = '06:00'

const localText = new Intl.DateTimeFormat('sv-SE', {
  timeZone: TIME_ZONE,
  dateStyle: 'short',
  timeStyle: 'short',
})

/** Returns local date and time of an instant (ms since the epoch), as `YYYY-MM-DD` and `HH:MM`. */
export function localTime(instant: number): {date: string; time: string} {
  const [date = '', time = ''] = localText.format(instant).split(' ')
  return {date, time}
}

/** Returns the instant at which the zone's clocks show this date and time: the first of two, or, in a gap, by the offset before it. */
export function instantOf(date: string, time: string): number {
  const guess = Date.parse(`${date}T${time}:00Z`)
  const instants = [4, 5, 3].map((offset) => guess + offset * 3_600_000)
  const isShown = (instant: number) => `${date} ${time}` === localText.format(instant)
  return instants.find(isShown) ?? guess + 5 * 3_600_000
}

export function businessDate(instant: number): string {
  const {date, time} = localTime(instant)
  return time < CUTOFF ? addDays(date, -1) : date
}

/** A violation; the words before the first colon say where. */
export class Finding extends Error {}

export type Class = 'pipeline' | 'funded' | 'ended_funded' | 'ended_unfunded' | 'unclassified'

export interface Reference {
  /** By status: its class, its order, and how it ends a loan. */
  statuses: Record<string, [Class, number, string?]>
  fundedOn: Record<string, string>
}

export const SHIPPED_STATUSES: Reference['statuses'] = {
  draft: ['pipeline', 10],
  underwriting: ['pipeline', 40],
  approved: ['pipeline', 60],
  funded: ['funded', 90],
  servicing: ['funded', 100],
  paid_off: ['ended_funded', 110, 'paid_off'],
  withdrawn: ['ended_unfunded', 160],
}
