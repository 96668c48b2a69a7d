import {hash} from 'node:crypto'
import {formatCents, parseCents} from '../money.ts'
import {isReversal} from './journal-bridge.ts'
import type {IssuedLine, JournalLine} from './journal-line.ts'
import {findStanding, planIssue, sortLines, splitOpening} from './journal-plan.ts'

/** By how much books and history differ for a deal in an account, from a day on; one of debit and credit is null. */
export type Difference = Pick<
  IssuedLine,
  'deal_id' | 'entry_date' | 'account_code' | 'account_name' | 'debit' | 'credit'
>

/** What brings a profile's books to a journal. */
export interface TrueUpPlan {
  /** Entry by entry, for the state database: what no longer holds is taken back, what the journal holds of the same deals is booked. */
  lines: IssuedLine[]
  /** The same by deal, day and account, for the books: one entry for each deal and day that come to anything. */
  net: IssuedLine[]
  differences: Difference[]
  /** The deals that differ, by entries if not by amounts. */
  deals: string[]
  /** Their journal now, opening balances among it where those were issued. */
  journal: JournalLine[]
}

/**
 * What has to be handed out so that everything issued of a deal, over all months, comes to what the journal of all months
 * says; of the deals of which something stands that no longer holds. Deals nothing was issued of are left to exports.
 * What is taken back is dated on the day it was booked on, or on `firstOpenDay` where that is later, less what the journal
 * books of the deal anew: the latest entries stand for that first, so that months before them end as they should. What
 * is booked beyond it is dated as the earliest entry taken back.
 *
 * @param journal of all months, opening balances among it
 * @param issued everything issued to the profile, in the order of issue
 * @param firstOpenDay of the first open month, `YYYY-MM-DD`
 */
export function planTrueUp(
  journal: readonly JournalLine[],
  issued: readonly IssuedLine[],
  {profile, firstOpenDay}: {profile: string; firstOpenDay: string},
): TrueUpPlan {
  const {wanted} = splitOpening(journal, issued, false)
  const held = new Set(wanted.map(({entry_id}) => entry_id))
  const gone = [...findStanding(issued)].filter(([id, {isBooked}]) => isBooked && !held.has(id))
  const deals = [...new Set(gone.flatMap(([, {lines}]) => lines.map(({deal_id}) => deal_id)))].sort()
  const wantedOf = Map.groupBy(wanted, ({deal_id}) => deal_id)
  const issuedOf = Map.groupBy(issued, ({deal_id}) => deal_id)
  const mine = deals.flatMap((deal) => wantedOf.get(deal) ?? [])
  const dateOf = (date: string) => (date > firstOpenDay ? date : firstOpenDay)
  const lines = deals.flatMap((deal) =>
    planIssue(wantedOf.get(deal) ?? [], issuedOf.get(deal) ?? [], {dateOf}),
  )
  const net = sortLines(netLines(lines, profile))
  return {
    lines: sortLines(lines),
    net,
    differences: net.map(({deal_id, entry_date, account_code, account_name, debit, credit}) => ({
      deal_id,
      entry_date,
      account_code,
      account_name,
      debit,
      credit,
    })),
    deals,
    journal: mine,
  }
}

/** Lines by deal, day and account, debits first; what comes to nothing is left out. */
function netLines(lines: readonly IssuedLine[], profile: string): IssuedLine[] {
  return [...Map.groupBy(lines, ({deal_id}) => deal_id)].flatMap(([dealId, own]) => {
    const numbers = [...new Set(own.map(({journal_no}) => journal_no))].sort()
    const names = new Map(own.map(({account_code, account_name}) => [account_code, account_name]))
    return [...netByDay(own)].flatMap(([date, balances]) => {
      const digest = hash('sha256', ['true-up', profile, dealId, date, ...numbers].join('\n')).slice(0, 12)
      const number = `LT${date.slice(2, 4)}${date.slice(5, 7)}-${digest}`
      return [...balances]
        .filter(([, cents]) => cents !== 0n)
        .sort(([, a], [, b]) => Number(a < 0n) - Number(b < 0n))
        .map(([code, cents], index) => ({
          entry_id: number,
          journal_no: number,
          issue_no: 0,
          line_no: index + 1,
          period: date.slice(0, 7),
          entry_date: date,
          event: 'true-up',
          account_code: code,
          account_name: names.get(code) ?? '',
          debit: cents > 0n ? formatCents(cents) : null,
          credit: cents < 0n ? formatCents(-cents) : null,
          memo: `True-up ${dealId}, after a recovery of history`,
          deal_id: dealId,
          loan_program: null,
        }))
    })
  })
}

/** Cents by account of a deal's lines, day by day: what is booked anew stands for what is taken back, the latest first. */
function netByDay(lines: readonly IssuedLine[]): Map<string, Map<string, bigint>> {
  const anew = sumByAccount(lines.filter((line) => !isReversal(line)))
  const taken = Map.groupBy(sortLines(lines.filter(isReversal)), ({journal_no}) => journal_no)
  const days = new Map<string, Map<string, bigint>>()
  let day = new Map<string, bigint>()
  for (const entry of [...taken.values()].reverse()) {
    const date = entry[0]?.entry_date ?? ''
    day = days.get(date) ?? new Map()
    days.set(date, day)
    const sums = [...sumByAccount(entry)]
    const part = leastOf(sums.map(([code, cents]) => opposed(anew.get(code) ?? 0n, cents)))
    for (const [code, cents] of sums) {
      const stands = cents > 0n ? part : -part
      add(anew, code, stands)
      add(day, code, cents - stands)
    }
  }
  for (const [code, cents] of anew) add(day, code, cents)
  return days
}

/** How much of an amount another one of the opposite sign takes away. */
function opposed(amount: bigint, by: bigint): bigint {
  return amount > 0n === by > 0n ? 0n : leastOf([amount, by].map((cents) => (cents < 0n ? -cents : cents)))
}

function leastOf(amounts: readonly bigint[]): bigint {
  return amounts.toSorted((a, b) => (a < b ? -1 : 1))[0] ?? 0n
}

function sumByAccount(lines: readonly IssuedLine[]): Map<string, bigint> {
  const sums = new Map<string, bigint>()
  for (const line of lines) add(sums, line.account_code, centsOf(line))
  return sums
}

function add(sums: Map<string, bigint>, code: string, cents: bigint): void {
  sums.set(code, (sums.get(code) ?? 0n) + cents)
}

function centsOf({debit, credit}: JournalLine): bigint {
  const cents = parseCents(debit ?? credit)
  if (typeof cents === 'string') throw new Error(`amount '${debit ?? credit}': ${cents}`)
  return debit === null ? -cents : cents
}
