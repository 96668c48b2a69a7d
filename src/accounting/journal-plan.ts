import {hash} from 'node:crypto'
import type {IssuedLine, JournalLine} from './journal-line.ts'

/** The date that an entry, or the reversal of one, gets: both `YYYY-MM-DD`. */
export type DateOf = (date: string) => string

/**
 * What has to be issued so that what was issued adds up to a journal: the entries that are new, and reversals of those
 * that no longer hold. An entry is the same as another when its `entry_id` is.
 *
 * @param journal the journal as it is now, any order
 * @param issued everything issued before, in the order of issue
 * @returns lines by date, deal and number; empty when nothing has changed
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
 * Parts what is to be booked of a journal from opening balances that are not: those are booked when they are asked for,
 * and from then on belong to the journal.
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
 * The deals of which something stands that was issued and that the journal of its month no longer holds, not even under
 * other accounts or another number: what was booked there has to be compared with what is booked now.
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

/** How an entry stands that was ever issued. */
interface Standing {
  issueNo: number
  isBooked: boolean
  /** As they were issued last. */
  lines: IssuedLine[]
}

/** How every entry stands that was ever issued, by its id. */
export function findStanding(issued: readonly IssuedLine[]): Map<string, Standing> {
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

/** Importers refuse a number they have met: what is issued again after the first time gets one of its own. */
function numberOf(entryId: string, issueNo: number): string {
  if (issueNo === 0) return entryId
  return `${entryId.slice(0, -12)}${hash('sha256', `${entryId} ${issueNo}`).slice(0, 12)}`
}

function compare(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}
