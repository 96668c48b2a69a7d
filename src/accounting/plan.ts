import {hash} from 'node:crypto'
import {addAmounts, formatCents, parseCents} from '../core/money.ts'
import type {TiedTerm} from '../core/types.ts'
import type {IssuedLine, JournalLine} from './profiles.ts'

/** The date of an entry, or of the reversal of one: both `YYYY-MM-DD`. */
export type DateOf = (date: string) => string

/**
 * What to issue so that everything issued adds up to a journal: the entries that are new, and reversals of those
 * that no longer hold. Two entries are the same if they have the same `entry_id`.
 *
 * @param journal the journal as it is now, any order
 * @param issued everything issued before, in the order of issue
 * @returns lines by date, deal and number; empty if nothing has changed
 */
export function planIssue(
  journal: readonly JournalLine[],
  issued: readonly IssuedLine[],
  {dateOf}: {dateOf: DateOf},
): IssuedLine[] {
  const wanted = Map.groupBy(journal, ({entry_id}) => entry_id)
  const standing = findStanding(issued)
  const booked = [...wanted]
    .filter(([id]) => !standing.get(id)?.isBooked)
    .map(([id, lines]) => bookEntry(lines, (standing.get(id)?.issueNo ?? -1) + 1, dateOf))
  const reversed = [...standing]
    .filter(([id, {isBooked}]) => isBooked && !wanted.has(id))
    .map(([, {lines, issueNo}]) => reverseEntry(lines, issueNo + 1, dateOf))
  return sortLines([...booked, ...reversed].flat())
}

/** Lines by date, deal and number. */
export function sortLines(lines: readonly IssuedLine[]): IssuedLine[] {
  return [...lines].sort(
    (a, b) =>
      compare(a.entry_date, b.entry_date) ||
      compare(a.deal_id, b.deal_id) ||
      compare(a.journal_no, b.journal_no) ||
      a.line_no - b.line_no,
  )
}

/**
 * Separates what to book of a journal from the opening balances to leave out. Those are booked once they are asked for,
 * and belong to the journal from then on.
 */
export function splitOpening(
  journal: readonly JournalLine[],
  issued: readonly IssuedLine[],
  withOpening: boolean,
): {wanted: JournalLine[]; leftOut: JournalLine[]} {
  const isBooked = withOpening || issued.some(({event}) => event === 'opening')
  const {wanted = [], leftOut = []} = Object.groupBy(journal, ({event}) =>
    event === 'opening' && !isBooked ? 'leftOut' : 'wanted',
  )
  return {wanted, leftOut}
}

/**
 * The deals with an issued entry that still stands although the journal of its month no longer holds it, not even under
 * other accounts or another number: their bookings have to be compared with what is booked now.
 */
export function findMovedDeals(journal: readonly JournalLine[], issued: readonly IssuedLine[]): Set<string> {
  const kindOf = ({deal_id, event, debit, credit}: JournalLine, period: string) =>
    JSON.stringify([deal_id, period, event, debit ?? credit])
  const held = new Map<string, number>()
  for (const line of journal) {
    if (line.line_no !== 1) continue
    const kind = kindOf(line, line.entry_date.slice(0, 7))
    held.set(kind, (held.get(kind) ?? 0) + 1)
  }
  const moved = new Set<string>()
  for (const {isBooked, lines} of findStanding(issued).values()) {
    const [line] = lines
    if (!isBooked || !line) continue
    const kind = kindOf(line, line.period)
    const left = held.get(kind) ?? 0
    if (left === 0) moved.add(line.deal_id)
    held.set(kind, left - 1)
  }
  return moved
}

/** The state of an entry that was issued. */
interface Standing {
  issueNo: number
  isBooked: boolean
  /** As last issued. */
  lines: IssuedLine[]
}

/** The state of every issued entry, by its id. */
function findStanding(issued: readonly IssuedLine[]): Map<string, Standing> {
  const entries = [...Map.groupBy(issued, ({entry_id}) => entry_id)]
  return new Map(
    entries.map(([id, lines]) => {
      const issueNo = Math.max(...lines.map(({issue_no}) => issue_no))
      const last = lines.filter(({issue_no}) => issue_no === issueNo)
      return [id, {issueNo, isBooked: issueNo % 2 === 0, lines: last}]
    }),
  )
}

function bookEntry(lines: readonly JournalLine[], issueNo: number, dateOf: DateOf): IssuedLine[] {
  const inOrder = lines.toSorted((a, b) => a.line_no - b.line_no)
  return inOrder.map((line) => {
    const date = dateOf(line.entry_date)
    return {
      ...line,
      period: line.entry_date.slice(0, 7),
      entry_date: date,
      memo: date === line.entry_date ? line.memo : `${line.memo}, of ${line.entry_date}`,
      journal_no: numberOf(line.entry_id, issueNo),
      issue_no: issueNo,
    }
  })
}

function reverseEntry(lines: readonly IssuedLine[], issueNo: number, dateOf: DateOf): IssuedLine[] {
  const inOrder = lines.toSorted((a, b) => b.line_no - a.line_no)
  return inOrder.map((line, index) => ({
    ...line,
    line_no: index + 1,
    entry_date: dateOf(line.entry_date),
    debit: line.credit,
    credit: line.debit,
    memo: `Reverses ${line.journal_no}: ${line.memo}`,
    journal_no: numberOf(line.entry_id, issueNo),
    issue_no: issueNo,
  }))
}

/** Importers refuse a known number, so an entry that is issued again gets a new one. */
function numberOf(entryId: string, issueNo: number): string {
  if (issueNo === 0) return entryId
  return `${entryId.slice(0, -12)}${hash('sha256', `${entryId} ${issueNo}`).slice(0, 12)}`
}

function compare(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}

/** Entries and the sum of their debits. */
interface EntryTotals {
  entries: number
  amount: string
}

/**
 * How a batch ties out to the journal of its month: `journal` = `issued_before` + `booked` + `left_out`; and the journal to the
 * month's roll-forward.
 */
export interface JournalBridge {
  /** The present journal of the month, with opening balances. */
  journal: EntryTotals
  /** The part that earlier batches booked and that still holds. */
  issued_before: EntryTotals
  /** The part that this batch books. */
  booked: EntryTotals
  /** The part that is not booked, by reason: opening balances that nobody asked for. */
  left_out: {opening: EntryTotals}
  /** What this batch takes back: booked before and no longer in the journal. */
  reversed: EntryTotals
  /** What this batch books and takes back in other months, whose entries of the same deals no longer hold. */
  other_months: {booked: EntryTotals; reversed: EntryTotals}
  /**
   * The terms of the month's roll-forward: how much of each the journal books, and why it does not book the rest; none in a
   * true-up.
   */
  terms: readonly TiedTerm[]
}

/** Ties out a batch to the journal. */
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

/** Whether a line reverses an issued one. */
export const isReversal = ({issue_no}: IssuedLine) => issue_no % 2 === 1

function totalOf(lines: readonly JournalLine[]): EntryTotals {
  return {
    entries: new Set(lines.map(({entry_id}) => entry_id)).size,
    amount: addAmounts(lines.map(({debit}) => debit)),
  }
}

/** By how much books and history differ for a deal in an account, from a day on; one of debit and credit is null. */
export type Difference = Pick<
  IssuedLine,
  'deal_id' | 'entry_date' | 'account_code' | 'account_name' | 'debit' | 'credit'
>

/** The lines that correct a profile's books to a journal. */
export interface TrueUpPlan {
  /**
   * Entry by entry, for the state database: entries that no longer hold are reversed, those of the journal for the same deals
   * booked.
   */
  lines: IssuedLine[]
  /** The same by deal, day and account, for the books: one entry for each deal and day with a balance. */
  net: IssuedLine[]
  differences: Difference[]
  /** The deals that differ, by entries if not by amounts. */
  deals: string[]
  /** Their present journal, with opening balances if those were issued. */
  journal: JournalLine[]
}

/**
 * What to hand out so that everything issued for a deal, over all months, adds up to the journal of all months. It covers the
 * deals with a standing entry that no longer holds; deals for which nothing was issued are left to exports. A reversal is dated
 * on the latest of three days: that of its booking, `firstOpenDay`, and the day on which the journal first books the deal again.
 *
 * @param journal of all months, with opening balances
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

/** Lines by deal, day and account, debits first; zero balances are left out. */
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

/**
 * Cents by account of a deal's lines, day by day. If a deal is booked again, what was booked before stands until that day and is
 * taken back on it: earlier months end as they were booked, later ones as the journal says.
 */
function netByDay(lines: readonly IssuedLine[]): Map<string, Map<string, bigint>> {
  const anew = lines.filter((line) => !isReversal(line)).map(({entry_date}) => entry_date)
  const [seenOn = ''] = anew.sort()
  const dateOf = ({entry_date}: IssuedLine) => (entry_date > seenOn ? entry_date : seenOn)
  return new Map([...Map.groupBy(lines, dateOf)].map(([day, own]) => [day, sumByAccount(own)]))
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
