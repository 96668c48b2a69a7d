import {addAmounts} from '../money.ts'
import type {TiedTerm} from '../types.ts'
import type {IssuedLine, JournalLine} from './journal-line.ts'

/** Entries and the sum of their debits. */
export interface EntryTotals {
  entries: number
  amount: string
}

/**
 * How a batch ties out to the journal of its month: `journal` = `issued_before` + `booked` + `left_out`; and the journal to the
 * month's roll-forward.
 */
export interface JournalBridge {
  /** The journal of the month as it is now, opening balances among it. */
  journal: EntryTotals
  /** Of it, what batches before have booked and still holds. */
  issued_before: EntryTotals
  /** Of it, what this batch books. */
  booked: EntryTotals
  /** Of it, what is not booked, by reason: opening balances that nobody has asked for. */
  left_out: {opening: EntryTotals}
  /** What this batch takes back: booked before, and no part of the journal any more. */
  reversed: EntryTotals
  /** What this batch books and takes back of other months, where what was issued of the same deals no longer holds. */
  other_months: {booked: EntryTotals; reversed: EntryTotals}
  /** The terms of the month's roll-forward: what of each the journal books, and by name what it does not; none in a true-up. */
  terms: readonly TiedTerm[]
}

/** Ties what a batch issues out to the journal. */
export function bridgeJournal(
  journal: readonly JournalLine[],
  leftOut: readonly JournalLine[],
  issued: readonly IssuedLine[],
  {elsewhere = [], terms = []}: {elsewhere?: readonly IssuedLine[]; terms?: readonly TiedTerm[]} = {},
): JournalBridge {
  const booked = issued.filter((line) => !isReversal(line))
  const now = new Set(booked.map(({entry_id}) => entry_id))
  return {
    journal: totalOf([...journal, ...leftOut]),
    issued_before: totalOf(journal.filter(({entry_id}) => !now.has(entry_id))),
    booked: totalOf(booked),
    left_out: {opening: totalOf(leftOut)},
    reversed: totalOf(issued.filter(isReversal)),
    other_months: {
      booked: totalOf(elsewhere.filter((line) => !isReversal(line))),
      reversed: totalOf(elsewhere.filter(isReversal)),
    },
    terms,
  }
}

/** Whether a line takes back what was issued before. */
export const isReversal = ({issue_no}: IssuedLine) => issue_no % 2 === 1

function totalOf(lines: readonly JournalLine[]): EntryTotals {
  return {
    entries: new Set(lines.map(({entry_id}) => entry_id)).size,
    amount: addAmounts(lines.map(({debit}) => debit)),
  }
}
