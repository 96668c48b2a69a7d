import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import type {AccountMapping} from '../contract/mapping.ts'
import type {BatchResult} from '../export/batch.ts'
import {describeStale, listSuperseded, requireOwnNames, writeBatch} from '../export/journal-batch.ts'
import {bridgeJournal} from '../export/journal-bridge.ts'
import {describeLost, readStanding, requireKnownBatches} from '../export/journal-origin.ts'
import {findJournalProfile} from '../export/journal-profiles.ts'
import {type Difference, planTrueUp, type TrueUpPlan} from '../export/journal-true-up.ts'
import {
  listAllBatches,
  listIssuedLines,
  listIssuedProfiles,
  listUndelivered,
  storeBatch,
} from '../ledger/issued.ts'
import {inLedgerTransaction, type Ledger, openLedger} from '../ledger/ledger.ts'
import {
  findFirstOpen,
  listClosedPeriods,
  moveStands,
  nextPeriod,
  recordPeriodEvent,
} from '../ledger/periods.ts'
import {addAmounts} from '../money.ts'
import {type Release, requireRelease} from '../release/manifest.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt, requireExports, requireWritable} from '../warehouse/data-folder.ts'
import {readAccountMapping, requireOwnMapping} from './account-mapping.ts'
import {buildRelease} from './build.ts'
import {deliver} from './journal-export.ts'
import {readJournal} from './journal-read.ts'
import {signedBy} from './period.ts'
import {type PeriodRange, readPeriodRange, readPeriodSpan} from './period-span.ts'

/** By how much the books of a profile and the history differ. */
export interface ProfileTrueUp {
  profile: string
  /** Deals of which something was issued that no longer holds. */
  deals: number
  /** Debits of what is handed out. */
  amount: string
  differences: Difference[]
  /** What was handed out; null where nothing was. */
  batch: BatchResult | null
}

/** What a true-up came to. */
export interface TrueUpResult {
  /** `unchanged`: books and history stand together. */
  outcome: 'dry_run' | 'issued' | 'unchanged'
  /** `YYYY-MM`, the first open month: what is handed out is dated on its first day. */
  period: string
  /** What was issued or closed from a history that this one lacks. */
  lost: string[]
  profiles: ProfileTrueUp[]
}

/**
 * Brings books and history together after a recovery: hands out, per profile, what the journal of all months says of a deal
 * less everything ever issued of it, dated in the first open month. From then on the books stand on this history.
 *
 * @throws ConfigError `JOURNAL_HISTORY` when the history is another one, `JOURNAL_UNKNOWN`, `ACCOUNT_UNMAPPED`
 */
export async function trueUp(
  config: Config,
  {isIssued, why}: {isIssued: boolean; why: string | null},
  world: World,
): Promise<TrueUpResult> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  using ledger = openLedger(folder.ledger)
  if (isIssued) requireOwnMapping(config)
  const profiles = listIssuedProfiles(ledger)
  for (const profile of profiles) {
    requireKnownBatches(ledger, folder, {profile})
    if (isIssued) requireExports(folder, profile)
  }
  const {standing, lost, isCertain} = await readStanding(ledger, folder)
  if (standing === 'another') throw describeLost(folder, {standing, lost})
  const state = readState(ledger)
  const range = await readPeriodRange(folder, businessDateOf(world.clock.now(), config))
  const period = findFirstOpen(ledger) ?? range.first
  if (standing === 'whole' && isCertain) return {outcome: 'unchanged', period, lost, profiles: []}
  const books = await readBooks({folder, ledger, config, range, period}, world)
  const plans = profiles.map((profile) => ({profile, plan: planProfile(ledger, books, profile)}))
  if (!isIssued) {
    return {outcome: 'dry_run', period, lost, profiles: plans.map((plan) => describePlan(plan, null))}
  }
  const waiting = profiles.flatMap((profile) => listUndelivered(ledger, profile))
  for (const batch of waiting) deliver(ledger, folder, batch, world)
  const prepared = plans.map(({profile, plan}) => ({
    profile,
    plan,
    batch: prepare(ledger, books, profile, plan),
  }))
  inLedgerTransaction(ledger, () => {
    if (readState(ledger) !== state) throw describeStale(period)
    const {at, who} = signedBy(world)
    for (const {batch} of prepared) if (batch) storeBatch(ledger, {...batch, issued_at: at})
    moveStands(ledger, books.historyId)
    recordPeriodEvent(ledger, {period, action: 'true-up', at, who, why})
  })
  const handedOut = prepared.map(({batch, ...plan}) =>
    describePlan(plan, batch && batch.files.length > 0 ? deliver(ledger, folder, batch, world) : null),
  )
  return {outcome: 'issued', period, lost, profiles: handedOut}
}

/** Today's books: the journal of all months, and where its differences go. */
interface Books {
  release: Release
  historyId: string
  period: string
  isComplete: boolean
  mapping: AccountMapping
  journal: Awaited<ReturnType<typeof readJournal>>
}

async function readBooks(
  books: {folder: DataFolder; ledger: Ledger; config: Config; range: PeriodRange; period: string},
  world: World,
): Promise<Books> {
  const {folder, ledger, config, period} = books
  const {first, last, observedUntil} = books.range
  const built = await buildRelease(config, {asOf: observedUntil}, world)
  const release = requireRelease(folder, built.release_id)
  const months: string[] = []
  for (let month = first; month <= last; month = nextPeriod(month)) months.push(month)
  const deals = new Set(
    listIssuedProfiles(ledger).flatMap((name) => listIssuedLines(ledger, name).map(({deal_id}) => deal_id)),
  )
  const span = months.includes(period) ? await readPeriodSpan(folder, config, period, world) : undefined
  return {
    release,
    historyId: release.manifest.history_id ?? '',
    period,
    isComplete: span?.isComplete ?? false,
    mapping: readAccountMapping(config),
    journal: await readJournal(release, months, {deals}),
  }
}

function planProfile(ledger: Ledger, {journal, period}: Books, profile: string): TrueUpPlan {
  return planTrueUp(journal, listIssuedLines(ledger, profile), {profile, date: `${period}-01`})
}

/** The batch of a plan; undefined where every entry holds. */
function prepare(
  ledger: Ledger,
  {release, period, isComplete, mapping}: Books,
  name: string,
  {lines, entries, journal}: TrueUpPlan,
): ReturnType<typeof writeBatch> | undefined {
  const profile = findJournalProfile(name)
  if (!profile || lines.length === 0) return undefined
  requireOwnNames(profile, {period, isClosed: false, mapping})
  return writeBatch({
    profile,
    target: {period, isComplete, mapping, source: release.manifest},
    lines,
    entries,
    supersedes: listSuperseded(lines, listIssuedLines(ledger, name)),
    bridge: bridgeJournal(journal, [], lines, []),
  })
}

function describePlan(
  {profile, plan}: {profile: string; plan: TrueUpPlan},
  batch: BatchResult | null,
): ProfileTrueUp {
  const {deals, differences} = plan
  const amount = addAmounts(differences.map(({debit}) => debit))
  return {profile, deals: deals.length, amount, differences, batch}
}

function readState(ledger: Ledger): string {
  return JSON.stringify([listAllBatches(ledger, {withoutFiles: true}), listClosedPeriods(ledger)])
}
