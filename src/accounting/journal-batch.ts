import {hash} from 'node:crypto'
import {type LoantapeError, newError} from '../errors.ts'
import {type BatchFile, formatManifest} from '../export/batch-manifest.ts'
import {addAmounts} from '../money.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import {inStateTransaction, type StateDb} from '../state/state-db.ts'
import type {TiedTerm, World} from '../types.ts'
import {
  type BatchAct,
  type BatchContent,
  describeBatch,
  type IssuedBatch,
  listAllBatches,
  listBatches,
  listIssuedLines,
} from './issued.ts'
import type {JournalProfile} from './journal.ts'
import {bridgeJournal, isReversal, type JournalBridge} from './journal-bridge.ts'
import {type JournalFile, writeJournalFiles} from './journal-file.ts'
import type {IssuedLine, JournalLine} from './journal-line.ts'
import {type DateOf, findMovedDeals, planIssue, sortLines, splitOpening} from './journal-plan.ts'
import {proveJournalFiles} from './journal-proof.ts'
import {type AccountMapping, findSharedNames} from './mapping.ts'
import {createDating, listClosedPeriods} from './periods.ts'
import {bookOpenings} from './tie-out.ts'

/** The journal of a period that everything issued must add up to. */
export interface JournalTarget {
  /** `YYYY-MM` */
  period: string
  isComplete: boolean
  isClosed: boolean
  /** The closed months when the journal was read. */
  closedPeriods: readonly string[]
  /** The batches of the month when the journal was read. */
  batchIds: ReadonlySet<string>
  /** Opening balances among them. */
  lines: readonly JournalLine[]
  /** The terms of the month's roll-forward, opening balances not booked. */
  terms: readonly TiedTerm[]
  /** Whether opening balances are asked for. */
  withOpening: boolean
  mapping: AccountMapping
  source: ReleaseManifest
  dateOf: DateOf
  elsewhere: OtherMonths
}

/** Today's journal of the other months that were ever issued to a profile, of some deals. */
export interface OtherMonths {
  deals: ReadonlySet<string>
  /** Opening balances among them. */
  lines: readonly JournalLine[]
}

/**
 * Issues what is new between a journal and what was issued of it, in one transaction of the state database that holds lines and
 * files: from then on it is issued, whatever happens to the process. `handOver` puts the files into their place.
 * The files are written and proved before, so that nobody waits for the state database meanwhile; where another export or a
 * closing was faster, all of it is done again.
 *
 * @returns undefined when there is nothing to issue
 * @throws CheckError `JOURNAL_FILE`; ConfigError `JOURNAL_STALE`: nothing was issued
 */
export function issueJournal(
  stateDb: StateDb,
  {perform, ...issue}: {profile: JournalProfile; target: JournalTarget; perform: PerformIssue},
  world: World,
): IssuedBatch | undefined {
  for (;;) {
    const state = readIssueState(stateDb)
    const batch = prepareBatch(stateDb, issue)
    if (!batch) return undefined
    world.onStep('journal planned')
    const isStored = inStateTransaction(stateDb, () => {
      if (readIssueState(stateDb) !== state) return false
      perform({
        act: 'batch issued',
        at: new Date(world.realClock.now()).toISOString(),
        batches: [describeBatch(batch)],
      })
      return true
    })
    if (!isStored) continue
    world.onStep('journal issued')
    return batch
  }
}

/** Issues batches for good: see {@link issueJournal}. */
export type PerformIssue = (act: {act: 'batch issued'; at: string; batches: BatchAct[]}) => void

/** What batches are made from beside the journal: where it is another one, a batch may be another. */
export function readIssueState(stateDb: StateDb): string {
  return JSON.stringify([listAllBatches(stateDb, {withoutFiles: true}), listClosedPeriods(stateDb)])
}

/** A batch that is ready to be stored. */
export type PreparedBatch = IssuedBatch & {lines: readonly IssuedLine[]; files: readonly BatchContent[]}

function prepareBatch(
  stateDb: StateDb,
  {profile, target}: {profile: JournalProfile; target: JournalTarget},
): PreparedBatch | undefined {
  const {period, closedPeriods, batchIds, source} = target
  const isStale = JSON.stringify(listClosedPeriods(stateDb)) !== JSON.stringify(closedPeriods)
  if (isStale) throw describeStale(period)
  requireOwnNames(profile, target)
  // Another process may have issued meanwhile from what is known later.
  const isLater = ({batch_id, known_at}: IssuedBatch) => !batchIds.has(batch_id) && known_at > source.known_at
  if (listBatches(stateDb, profile.name, period).some(isLater)) throw describeStale(period)
  const {wanted, leftOut, lines: own, before} = planMonth(stateDb, profile, target)
  const other = planElsewhere(stateDb, profile, target, own)
  const lines = sortLines([...own, ...other.lines])
  if (lines.length === 0) return undefined
  const supersedes = listSuperseded(lines, [...before, ...other.before])
  const terms = leftOut.length === 0 ? bookOpenings(target.terms) : target.terms
  const bridge = bridgeJournal(wanted, leftOut, own, {elsewhere: other.lines, terms})
  return writeBatch({profile, target, lines, handedOut: lines, supersedes, bridge})
}

/** What the month's own journal asks for. */
export function planMonth(
  stateDb: StateDb,
  profile: JournalProfile,
  target: Pick<JournalTarget, 'period' | 'lines' | 'withOpening' | 'dateOf'>,
) {
  const before = listIssuedLines(stateDb, profile.name, {period: target.period})
  const {wanted, leftOut} = splitOpening(target.lines, before, target.withOpening)
  return {wanted, leftOut, lines: planIssue(wanted, before, target), before}
}

/**
 * What other months ask for of the same deals: where what was issued of one of them no longer holds there, it may be what
 * this month books now.
 */
function planElsewhere(
  stateDb: StateDb,
  profile: JournalProfile,
  {period, elsewhere, closedPeriods}: JournalTarget,
  own: readonly IssuedLine[],
) {
  const deals = new Set(own.map(({deal_id}) => deal_id))
  const issued = listIssuedLines(stateDb, profile.name, {deals}).filter((line) => line.period !== period)
  if (issued.some(({deal_id}) => !elsewhere.deals.has(deal_id))) throw describeStale(period)
  const {wanted} = splitOpening(elsewhere.lines, issued, false)
  const moved = findMovedDeals(wanted, issued)
  const isMoved = ({deal_id}: JournalLine) => moved.has(deal_id)
  const before = issued.filter(isMoved)
  return {lines: planIssue(wanted.filter(isMoved), before, {dateOf: createDating(closedPeriods)}), before}
}

/**
 * A batch with its files, which are proved.
 *
 * @param batch `lines` are what the state database notes, `handedOut` what the files hold; without any there are no files
 * @throws CheckError `JOURNAL_FILE`
 */
export function writeBatch(batch: {
  profile: JournalProfile
  target: Pick<JournalTarget, 'period' | 'isComplete' | 'mapping' | 'source'>
  lines: readonly IssuedLine[]
  handedOut: readonly IssuedLine[]
  supersedes: string[]
  bridge: JournalBridge
}): PreparedBatch {
  const {profile, target, lines, handedOut} = batch
  const {period, source} = target
  const numbers = [...new Set(lines.map(({journal_no}) => journal_no))].sort()
  const digest = hash('sha256', [profile.name, period, ...numbers].join('\n')).slice(0, 12)
  const {known_at, history_id} = source
  const named = {profile: profile.name, batch_id: `${period}-${digest}`, period, known_at, history_id, lines}
  if (handedOut.length === 0) return {...named, files: []}
  const files = writeJournalFiles(profile, handedOut, {batchId: named.batch_id, mapping: target.mapping})
  proveJournalFiles(profile, files)
  const manifest = formatManifest(source, {
    batch_id: named.batch_id,
    profile: profile.name,
    period,
    period_complete: target.isComplete,
    files: files.map((file) => describeFile(profile, file)),
    supersedes: batch.supersedes,
    bridge: batch.bridge,
  })
  const texts = [...files, {name: 'manifest.json', text: manifest}]
  return {...named, files: texts.map(({name, text}) => ({name, content: Buffer.from(text)}))}
}

/** Somebody else was faster. */
export function describeStale(period: string): LoantapeError {
  return newError(
    'JOURNAL_STALE',
    `Journal of ${period}: another command issued, closed or reopened while it was read.`,
  )
}

/**
 * Makes sure that an importer which looks accounts up by name can tell them apart.
 *
 * @throws ConfigError `ACCOUNTING_MAPPING`
 */
export function requireOwnNames(
  {name, looksUpBy}: JournalProfile,
  {period, isClosed, mapping}: Pick<JournalTarget, 'period' | 'isClosed' | 'mapping'>,
): void {
  const shared = looksUpBy === 'name' ? findSharedNames(mapping) : []
  if (shared.length === 0) return
  const reopen = isClosed ? `Reopen ${period}, which keeps the accounts it was closed with: give` : 'Give'
  throw newError(
    'ACCOUNTING_MAPPING',
    `Account names that stand for two codes in accounting.json: ${shared.join('; ')}. ${name} looks accounts up by name.`,
    {next: `${reopen} each account the name it has in ${name}, a sub-account as Parent:Sub.`},
  )
}

/** The batches that entries now reversed were issued in. */
export function listSuperseded(
  lines: readonly IssuedLine[],
  issued: readonly (IssuedLine & {batch_id: string})[],
): string[] {
  const reversed = new Set(lines.filter(isReversal).map(({entry_id}) => entry_id))
  return [...new Set(issued.filter(({entry_id}) => reversed.has(entry_id)).map(({batch_id}) => batch_id))]
}

function describeFile({columns}: JournalProfile, {name, text, lines}: JournalFile): BatchFile {
  const content = Buffer.from(text)
  return {
    name,
    bytes: content.length,
    sha256: hash('sha256', content),
    rows: lines.length,
    columns: Object.keys(columns),
    sum_amount: null,
    sum_debit: addAmounts(lines.map(({debit}) => debit)),
    sum_credit: addAmounts(lines.map(({credit}) => credit)),
  }
}
