import {hash} from 'node:crypto'
import {isDeepStrictEqual} from 'node:util'
import {z} from 'zod'
import type {BatchAct} from '../accounting/acts.ts'
import {type BatchLine, listIssuedLines, listTruedUpLines} from '../accounting/issued.ts'
import {type AccountMapping, findSharedNames, nameAccounts, requireOwnMapping} from '../accounting/mapping.ts'
import {type ClosedPeriod, findFirstOpenDay} from '../accounting/periods.ts'
import {
  bookOpenings,
  type IssuedLine,
  type JournalLine,
  type JournalProfile,
  type TiedTerm,
} from '../accounting/profiles.ts'
import type {Config} from '../core/config.ts'
import {type LoantapeError, newError} from '../core/errors.ts'
import {addAmounts, centsOf, formatCents} from '../core/money.ts'
import {formatManifest} from '../export/batch.ts'
import type {ReleaseManifest} from '../store/release.ts'
import type {StateDb} from '../store/state-db.ts'
import {formatJournalFiles, proveJournalFiles} from './journal-files.ts'

interface BatchTarget {
  profile: JournalProfile
  /** `YYYY-MM` */
  period: string
  isComplete: boolean
  /** It fills the cells besides those of lines. */
  mapping: AccountMapping
  /** It names the accounts even of old lines. */
  present: AccountMapping
  source: ReleaseManifest
}

/** Everything issued to a profile for the month must add up to it. */
export interface JournalTarget extends BatchTarget {
  /** Includes opening balances. */
  lines: readonly JournalLine[]
  /** Terms of the month's roll-forward, without opening balances booked. */
  terms: readonly TiedTerm[]
  /** Opening balances are booked, in this month and all others. */
  withOpening: boolean
  /** The month as it was closed, if `lines` are those. */
  closed?: ClosedPeriod
  /** No entry is dated before this day: `YYYY-MM-DD`. */
  firstOpenDay: string
}

interface BatchPlan {
  /** Lines for the state database, entry by entry; none if everything still holds. */
  lines: readonly IssuedLine[]
  /** Lines for the files; without any, there are no files. */
  handedOut: readonly IssuedLine[]
  /** Lines issued earlier that may now be reversed. */
  before: readonly BatchLine[]
  bridge: ReturnType<typeof bridgeJournal>
}

/**
 * The batch that turns what was already issued into the target's journal, with its files proved; undefined if there is nothing
 * to issue.
 * @throws CheckError `JOURNAL_FILE`; ConfigError `ACCOUNTING_MAPPING`
 */
export function prepareBatch(stateDb: StateDb, target: JournalTarget): BatchAct | undefined {
  const {profile, period, closed, withOpening, firstOpenDay} = target
  const before = listIssuedLines(stateDb, profile.name, {period})
  const wanted = target.lines.filter(({event}) => withOpening || event !== 'opening')
  const corrected = closed ? listCorrected(stateDb, closed, profile.name) : new Set()
  const isLeft = ({deal_id}: JournalLine) => !corrected.has(deal_id)
  const planned = planIssue(wanted.filter(isLeft), before.filter(isLeft), firstOpenDay)
  const truedUp = listTruedUpLines(stateDb, profile.name)
  const lines = bringForward(planned, truedUp, findFirstOpenDay(stateDb))
  const terms = withOpening ? bookOpenings(target.terms) : target.terms
  const bridge = bridgeJournal(target.lines, wanted, lines, terms)
  return composeBatch(target, {lines, handedOut: lines, before: [...before, ...truedUp], bridge})
}

/** The deals of which anything was issued since a month was closed, such as a true-up: of these it is no longer as it was closed. */
const listCorrected = (stateDb: StateDb, {period, after_batch}: ClosedPeriod, profile: string) =>
  new Set(
    stateDb.column(
      z.string(),
      `select deal_id from issued_line join journal_batch using (batch_no)
       where profile = ? and issued_line.period = ? and batch_no > ?`,
      [profile, period, after_batch],
    ),
  )

/** Undefined if there is nothing to issue. @throws what {@link prepareBatch} throws */
export function composeBatch(target: BatchTarget, plan: BatchPlan): BatchAct | undefined {
  const {profile, period, isComplete, mapping, present, source} = target
  const {before, bridge} = plan
  const [lines, handedOut] = [nameAccounts(plan.lines, present), nameAccounts(plan.handedOut, present)]
  if (lines.length === 0) return undefined
  requireOwnNames(target)
  const numbers = [...new Set(lines.map(({journal_no}) => journal_no))].sort()
  const digest = hash('sha256', [profile.name, period, ...numbers].join('\n')).slice(0, 12)
  const {known_at, history_id} = source
  const batch_id = `${period}-${digest}`
  const named = {profile: profile.name, batch_id, period, known_at, history_id, lines}
  if (handedOut.length === 0) return {...named, files: []}
  const files = formatJournalFiles(profile, handedOut, {batchId: batch_id, mapping})
  proveJournalFiles(profile, files)
  const reversed = new Set(lines.filter(isReversal).map(({entry_id}) => entry_id))
  const last = new Map(before.map((line) => [line.entry_id, line.issue_no]))
  // From the last booking on.
  const superseded = before.filter(
    ({entry_id: id, issue_no}) => reversed.has(id) && issue_no >= ((last.get(id) ?? 0) & ~1),
  )
  const manifest = formatManifest(source, {
    batch_id,
    profile: profile.name,
    period,
    period_complete: isComplete,
    files: files.map(({text: _text, lines: _lines, ...file}) => file),
    supersedes: [...new Set(superseded.map(({batch_id}) => batch_id))],
    bridge,
  })
  const texts = [...files, {name: 'manifest.json', text: manifest}]
  return {...named, files: texts.map(({name, text}) => ({name, sha256: hash('sha256', text), content: text}))}
}

/** If a count changes, a batch under way may be out of date. */
export function readIssueState(stateDb: StateDb) {
  return stateDb.one(
    z.object({events: z.number(), batches: z.number()}),
    'select (select count(*) from period_event) as events, (select count(*) from journal_batch) as batches',
  )
}

export function describeStale(period: string): LoantapeError {
  return newError(
    'JOURNAL_STALE',
    `Journal of ${period}: another command issued, closed or reopened, or accounting.json was changed, while it was read.`,
  )
}

/** Lines have the accounts that a build read, later than the mapping. @throws LockedError `JOURNAL_STALE` */
export function requireUnchanged(config: Config, mapping: AccountMapping, period: string): void {
  if (!isDeepStrictEqual(requireOwnMapping(config), mapping)) throw describeStale(period)
}

/** An importer that looks accounts up by name needs unique names. @throws ConfigError `ACCOUNTING_MAPPING` */
function requireOwnNames({profile: {name, looks_up_by}, present}: BatchTarget): void {
  const shared = looks_up_by === 'name' ? findSharedNames(present) : []
  if (shared.length === 0) return
  throw newError(
    'ACCOUNTING_MAPPING',
    `Account names that stand for two codes in accounting.json: ${shared.join('; ')}. ${name} looks accounts up by name.`,
    {
      next: `Give each account the name it has in ${name}; docs/accounting.md says how it names a sub-account.`,
    },
  )
}

/**
 * What to issue so that everything issued adds up to a journal on every day from `firstOpenDay` (`YYYY-MM-DD`) on; nothing is
 * dated before it. Two entries are the same if they have the same `entry_id`. `issued` is in the order of issue.
 */
export function planIssue(
  journal: readonly JournalLine[],
  issued: readonly IssuedLine[],
  firstOpenDay: string,
): IssuedLine[] {
  const wanted = Map.groupBy(journal, ({entry_id}) => entry_id)
  const known = Map.groupBy(issued, ({entry_id}) => entry_id)
  const ids = [...new Set([...wanted.keys(), ...known.keys()])].filter(
    (id) => wanted.has(id) || known.get(id)?.at(-1)?.event !== DEFERRED,
  )
  return sortLines(ids.flatMap((id) => planEntry(wanted.get(id) ?? [], known.get(id) ?? [], firstOpenDay)))
}

/**
 * Of one entry. What was dated after its month, because that was closed then, comes back into it once it is open again: with each
 * booking or reversal on its new day goes the opposite on the former one.
 */
function planEntry(
  wanted: readonly JournalLine[],
  issued: readonly IssuedLine[],
  firstOpenDay: string,
): IssuedLine[] {
  /** By day, how many bookings are lacking; reversals if negative. */
  const lacking = new Map<string, number>()
  const count = ({entry_date}: JournalLine, times: number) => {
    const day = latest(entry_date, firstOpenDay)
    lacking.set(day, (lacking.get(day) ?? 0) + times)
  }
  for (const line of wanted) if (line.line_no === 1) count(line, 1)
  for (const line of issued) if (line.line_no === 1) count(line, isReversal(line) ? 1 : -1)
  const days = (sign: 1 | -1) =>
    [...lacking].sort().flatMap(([day, times]) => Array<string>(Math.max(0, times * sign)).fill(day))
  const [bookings, reversals] = [days(1), days(-1)]
  const last = issued.reduce((no, line) => Math.max(no, line.issue_no), -1)
  const booked = issued.filter(({issue_no}) => issue_no === last - (last % 2))
  const plan: IssuedLine[] = []
  for (let no = last + 1; bookings.length + reversals.length > 0; no += 1) {
    if (no % 2 === 1) plan.push(...reverseEntry(booked, no, reversals.shift() ?? ''))
    else plan.push(...bookEntry(wanted.length > 0 ? wanted : booked, no, bookings.shift() ?? ''))
  }
  return plan
}

function sortLines(lines: readonly IssuedLine[]): IssuedLine[] {
  return [...lines].sort(
    (a, b) =>
      compare(a.entry_date, b.entry_date) ||
      compare(a.deal_id, b.deal_id) ||
      compare(a.journal_no, b.journal_no) ||
      a.line_no - b.line_no,
  )
}

/** The memo of a booking that was dated on another day than its own. */
const MOVED = /^(.*), of (\d{4}-\d\d-\d\d)(?:, in a true-up)?$/s

function bookEntry(lines: readonly (JournalLine | IssuedLine)[], issueNo: number, day: string): IssuedLine[] {
  return lines.map((line) => {
    const [, memo = line.memo, ownDay = line.entry_date] = MOVED.exec(line.memo) ?? []
    return {
      ...line,
      period: 'period' in line ? line.period : line.entry_date.slice(0, 7),
      entry_date: day,
      memo: day === ownDay ? memo : `${memo}, of ${ownDay}`,
      journal_no: numberOf(line.entry_id, issueNo),
      issue_no: issueNo,
    }
  })
}

function reverseEntry(lines: readonly IssuedLine[], issueNo: number, day: string): IssuedLine[] {
  const inOrder = lines.toSorted((a, b) => b.line_no - a.line_no)
  return inOrder.map((line, index) => ({
    ...line,
    line_no: index + 1,
    entry_date: day,
    debit: line.credit,
    credit: line.debit,
    memo: `Reverses ${line.journal_no}: ${line.memo}`,
    journal_no: numberOf(line.entry_id, issueNo),
    issue_no: issueNo,
  }))
}

/** An entry issued again gets a new number, because importers refuse a known one. */
function numberOf(entryId: string, issueNo: number): string {
  if (issueNo === 0) return entryId
  return `${entryId.slice(0, -12)}${hash('sha256', `${entryId} ${issueNo}`).slice(0, 12)}`
}

const compare = (a: string, b: string) => Number(a > b) - Number(a < b)

/**
 * How a batch ties out to the journal of its month: `journal` = `issued_before` + `booked` + `left_out`; and the journal to the
 * month's roll-forward by its `terms`, none in a true-up. `wanted` is the journal without opening balances that nobody asked
 * for.
 */
function bridgeJournal(
  journal: readonly JournalLine[],
  wanted: readonly JournalLine[],
  issued: readonly IssuedLine[],
  terms: readonly TiedTerm[] = [],
) {
  const held = new Set(wanted)
  const now = new Set(issued.flatMap((line) => (isReversal(line) ? [] : line.entry_id)))
  return {
    journal: totalOf(journal),
    issued_before: totalOf(wanted.filter(({entry_id}) => !now.has(entry_id))),
    booked: totalOf(wanted.filter(({entry_id}) => now.has(entry_id))),
    left_out: {opening: totalOf(journal.filter((line) => !held.has(line)))},
    reversed: totalOf(issued.filter(isReversal)),
    terms,
  }
}

const isReversal = ({issue_no}: IssuedLine) => issue_no % 2 === 1

function totalOf(lines: readonly JournalLine[]) {
  return {
    entries: new Set(lines.map(({entry_id}) => entry_id)).size,
    amount: addAmounts(lines.map(({debit}) => debit)),
  }
}

/**
 * What to hand out so that everything issued for a deal adds up to the journal from the first month issued on, for the deals with
 * a standing entry that no longer holds; others are left to exports. A reversal is dated on the latest of three days: that of its booking,
 * `firstOpenDay` (`YYYY-MM-DD`), and the day on which the journal first books the deal again. `journal` is of all months, with
 * opening balances; `issued` is in the order of issue.
 */
export function planTrueUp(
  journal: readonly JournalLine[],
  issued: readonly BatchLine[],
  {firstOpenDay, withOpening}: {firstOpenDay: string; withOpening: boolean},
): BatchPlan & {deals: string[]} {
  const [first = ''] = issued.map(({period}) => period).sort()
  const wanted = journal.filter(
    ({event, entry_date}) => entry_date >= first && (withOpening || event !== 'opening'),
  )
  const held = new Set(wanted.map(({entry_id}) => entry_id))
  const last = new Map(issued.map((line) => [line.entry_id, line]))
  const gone = [...last.values()].filter((line) => !isReversal(line) && !held.has(line.entry_id))
  const deals = new Set(gone.map(({deal_id}) => deal_id))
  const isOfDeals = ({deal_id}: JournalLine) => deals.has(deal_id)
  const mine = wanted.filter(isOfDeals)
  const planned = deferReversals(planIssue(mine, issued.filter(isOfDeals), firstOpenDay))
  const lines = bringForward(planned, issued, firstOpenDay)
  return {
    // Their numbers are in no file, but for those that a netted entry names: whatever reverses one says where it is.
    lines: lines.map((line) => ({...line, memo: `${line.memo}, in a true-up`})),
    /** One entry for each deal and day with a balance, by account. */
    handedOut: sortLines(netLines(lines)),
    before: issued,
    bridge: bridgeJournal(mine, mine, lines),
    /** The deals that differ, if not in amounts then in entries. */
    deals: [...deals].sort(),
  }
}

const latest = (one: string, other: string) => (one > other ? one : other)

/** The event of a reversal that a true-up dates later than it would be otherwise. It stays there, but see {@link bringForward}. */
const DEFERRED = 'true-up'

/**
 * If a deal is booked again, its earlier bookings stand until that day and are reversed on it, so that earlier months end as they
 * were booked and later ones as the journal says. `lines` are in the order of days.
 */
function deferReversals(lines: readonly IssuedLine[]): IssuedLine[] {
  const booked = lines.filter((line) => !isReversal(line)).toReversed()
  const seenOn = new Map(booked.map(({deal_id, entry_date}) => [deal_id, entry_date]))
  return lines.map((line) => {
    const day = latest(line.entry_date, seenOn.get(line.deal_id) ?? '')
    return day === line.entry_date ? line : {...line, entry_date: day, event: DEFERRED}
  })
}

/**
 * Adds to a plan the deferred reversals of its deals that are dated after what it changes, in whatever month: they come forward to
 * that day, from which on the books are as the journal says, and not half as they were booked. `issued` has all lines of entries
 * with a deferred reversal, in the order of issue.
 */
function bringForward(
  plan: readonly IssuedLine[],
  issued: readonly IssuedLine[],
  firstOpenDay: string,
): IssuedLine[] {
  const planned = new Set(plan.map(({entry_id}) => entry_id))
  const changedOn = new Map(
    sortLines(plan)
      .toReversed()
      .map((line) => [line.deal_id, line.entry_date]),
  )
  const others = issued.filter(({entry_id}) => !planned.has(entry_id))
  const moved = [...Map.groupBy(others, ({entry_id}) => entry_id).values()].flatMap((own) => {
    const last = own.at(-1)
    const day = last?.event === DEFERRED && changedOn.get(last.deal_id)
    return day ? planEntry([], own, latest(day, firstOpenDay)) : []
  })
  return sortLines([...plan, ...moved.map((line) => (isReversal(line) ? {...line, event: DEFERRED} : line))])
}

/**
 * Nets lines by deal, day and account, debits first, without zero balances. The number is one of those netted: what is found by
 * it has the others beside it.
 */
function netLines(lines: readonly IssuedLine[]): IssuedLine[] {
  return [...Map.groupBy(lines, ({deal_id}) => deal_id)].flatMap(([dealId, own]) => {
    const days = Map.groupBy(own, ({entry_date}) => entry_date)
    return [...days].flatMap(([date, ofDay]) => {
      const number = (ofDay.find((line) => !isReversal(line)) ?? ofDay[0])?.journal_no ?? ''
      const told = ofDay.map((line) =>
        isReversal(line) ? line.memo.split(':', 1)[0] : `books ${line.journal_no}`,
      )
      return [...Map.groupBy(ofDay, ({account_code}) => account_code)]
        .map(([code, those]) => ({
          account_code: code,
          account_name: own.findLast(({account_code}) => account_code === code)?.account_name ?? '',
          cents: those.reduce(
            (sum, {debit, credit}) => sum + centsOf(debit ?? '') - centsOf(credit ?? ''),
            0n,
          ),
        }))
        .filter(({cents}) => cents !== 0n)
        .sort((a, b) => Number(a.cents < 0n) - Number(b.cents < 0n))
        .map(({cents, ...account}, index) => ({
          entry_id: number,
          journal_no: number,
          issue_no: 0,
          line_no: index + 1,
          period: date.slice(0, 7),
          entry_date: date,
          event: 'true-up',
          ...account,
          debit: cents > 0n ? formatCents(cents) : null,
          credit: cents < 0n ? formatCents(-cents) : null,
          memo: `True-up ${dealId}, after a recovery of history. ${[...new Set(told)].sort().join(', ')}`,
          deal_id: dealId,
          loan_program: null,
        }))
    })
  })
}
