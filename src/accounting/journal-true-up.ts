import {hash} from 'node:crypto'
import {formatCents, parseCents} from '../money.ts'
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
  /** The same by deal and account, for the books: one entry for each deal that comes to anything. */
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
 * A deal's entry is dated on `firstOpenDay`, or on the day of the earliest entry it takes back where that is later: before
 * that day the books are as they should be.
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
  const gone = [...findStanding(issued)]
    .filter(([id, {isBooked}]) => isBooked && !held.has(id))
    .flatMap(([, {lines}]) => lines)
  const dates = new Map<string, string>()
  for (const {deal_id, entry_date} of sortLines(gone)) {
    if (!dates.has(deal_id)) dates.set(deal_id, entry_date > firstOpenDay ? entry_date : firstOpenDay)
  }
  const wantedOf = Map.groupBy(wanted, ({deal_id}) => deal_id)
  const issuedOf = Map.groupBy(issued, ({deal_id}) => deal_id)
  const deals = [...dates.keys()].sort()
  const mine = deals.flatMap((deal) => wantedOf.get(deal) ?? [])
  const lines = deals.flatMap((deal) => {
    const date = dates.get(deal) ?? firstOpenDay
    return planIssue(wantedOf.get(deal) ?? [], issuedOf.get(deal) ?? [], {dateOf: () => date})
  })
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

/** Lines by deal and account, debits first; accounts and deals that come to nothing are left out. */
function netLines(lines: readonly IssuedLine[], profile: string): IssuedLine[] {
  return [...Map.groupBy(lines, ({deal_id}) => deal_id)].flatMap(([dealId, own]) => {
    const date = own[0]?.entry_date ?? ''
    const numbers = [...new Set(own.map(({journal_no}) => journal_no))].sort()
    const digest = hash('sha256', ['true-up', profile, dealId, ...numbers].join('\n')).slice(0, 12)
    const number = `LT${date.slice(2, 4)}${date.slice(5, 7)}-${digest}`
    return [...Map.groupBy(own, ({account_code}) => account_code)]
      .map(([, those]) => ({those, cents: those.reduce((sum, line) => sum + centsOf(line), 0n)}))
      .filter(({cents}) => cents !== 0n)
      .sort((a, b) => Number(a.cents < 0n) - Number(b.cents < 0n))
      .map(({those, cents}, index) => ({
        entry_id: number,
        journal_no: number,
        issue_no: 0,
        line_no: index + 1,
        period: date.slice(0, 7),
        entry_date: date,
        event: 'true-up',
        account_code: those[0]?.account_code ?? '',
        account_name: those.at(-1)?.account_name ?? '',
        debit: cents > 0n ? formatCents(cents) : null,
        credit: cents < 0n ? formatCents(-cents) : null,
        memo: `True-up ${dealId}, after a recovery of history`,
        deal_id: dealId,
        loan_program: null,
      }))
  })
}

function centsOf({debit, credit}: JournalLine): bigint {
  const cents = parseCents(debit ?? credit)
  if (typeof cents === 'string') throw new Error(`amount '${debit ?? credit}': ${cents}`)
  return debit === null ? -cents : cents
}
