import {isDeepStrictEqual} from 'node:util'
import {openBooks} from '../accounting/acts.ts'
import {hasOpenings, listBatches, listIssuedLines, listIssuedProfiles} from '../accounting/issued.ts'
import {requireOwnMapping} from '../accounting/mapping.ts'
import {findFirstOpen, listMonths, readPeriodRange} from '../accounting/periods.ts'
import {findJournalProfile} from '../accounting/profiles.ts'
import {readJournal} from '../accounting/read-journal.ts'
import {requireBuilt} from '../build/build.ts'
import type {Config} from '../core/config.ts'
import {addAmounts} from '../core/money.ts'
import type {World} from '../core/types.ts'
import type {BatchResult} from '../export/batch.ts'
import {requireExports} from '../store/data-folder.ts'
import {listLosses, readWentOn} from '../store/recorded.ts'
import {signedBy} from './close-period.ts'
import {handOver} from './issue.ts'
import {composeBatch, describeStale, planTrueUp, readIssueState, requireUnchanged} from './journal-batch.ts'
import {listLost, requireSeenEnd} from './standing.ts'

export type TrueUpResult = Awaited<ReturnType<typeof trueUp>>

/**
 * Brings books and history together after a recovery: hands out, for each profile and deal, the journal minus everything ever
 * issued, dated from the first open month on. From then on the books depend on this history. `lost` is what was
 * made from a history that this one lacks.
 * @throws ConfigError `JOURNAL_HISTORY` if the history is another one, `PERIOD_STATE`, `ACCOUNTING_UNMAPPED`
 */
export async function trueUp(
  config: Config,
  {isIssued, why}: {isIssued: boolean; why: string | null},
  world: World,
) {
  using books = openBooks(config, world)
  const {folder, stateDb, perform} = books
  const mapping = isIssued ? requireOwnMapping(config) : undefined
  const profiles = listIssuedProfiles(stateDb)
  if (isIssued) for (const profile of profiles) requireExports(folder, profile)
  await requireSeenEnd(stateDb, folder, world)
  const lost = await listLost(stateDb, folder, world)
  /** Given up when somebody went on without them, such as `xero/2026-02-5d136da876e4`. */
  const given_up = [...listLosses(stateDb)].filter((what) => what.includes('/'))
  if (isIssued)
    for (const batch of profiles.flatMap((profile) => listBatches(stateDb, {profile, is_handed_over: 0})))
      handOver(stateDb, folder, batch, world)
  const state = readIssueState(stateDb)
  const range = await readPeriodRange(config, world)
  const period = findFirstOpen(stateDb) ?? range.first
  if (lost.length === 0) return {outcome: 'unchanged' as const, period, lost, given_up, profiles: []}
  const release = await requireBuilt(config, {asOf: range.observedUntil}, world)
  const months = listMonths(range.first, range.last)
  const issued = profiles.map((profile) => ({profile, lines: listIssuedLines(stateDb, profile)}))
  const deals = new Set(issued.flatMap(({lines}) => lines.map(({deal_id}) => deal_id)))
  const journal = await readJournal(release, months, {deals})
  const plans = issued.map(({profile, lines}) => ({
    profile,
    plan: planTrueUp(journal, lines, {
      firstOpenDay: `${period}-01`,
      withOpening: hasOpenings(stateDb, profile),
    }),
  }))
  if (!mapping) {
    const profiles = plans.map((plan) => describePlan(plan, null))
    return {outcome: 'dry_run' as const, period, lost, given_up, profiles}
  }
  const target = {mapping, present: mapping, source: {...release.manifest, ...readWentOn(stateDb)}}
  const prepared = plans.map(({profile, plan}) => {
    // A batch belongs to the month of the first line handed out.
    const month = plan.handedOut[0]?.entry_date.slice(0, 7) ?? period
    const known = findJournalProfile(profile)
    const of = known && {...target, profile: known, period: month, isComplete: range.isOver(month)}
    return {profile, plan, batch: of && composeBatch(of, plan)}
  })
  world.onStep('journal planned')
  perform(() => {
    if (!isDeepStrictEqual(readIssueState(stateDb), state)) throw describeStale(period)
    requireUnchanged(config, mapping, period)
    const signed = signedBy(world)
    return {
      act: 'true-up',
      at: signed.at,
      batches: prepared.flatMap(({batch}) => batch ?? []),
      history_id: release.manifest.history_id,
      event: {period, action: 'true-up', ...signed, why},
    }
  })
  const handedOut = prepared.map(({batch, ...plan}) =>
    describePlan(plan, batch && batch.files.length > 0 ? handOver(stateDb, folder, batch, world) : null),
  )
  return {outcome: 'issued' as const, period, lost, given_up, profiles: handedOut}
}

function describePlan(
  {profile, plan: {deals, handedOut}}: {profile: string; plan: ReturnType<typeof planTrueUp>},
  batch: BatchResult | null,
) {
  return {
    profile,
    /** Deals with issued entries that no longer hold. */
    deals: deals.length,
    /** The sum of the debits to hand out. */
    amount: addAmounts(handedOut.map(({debit}) => debit)),
    /** By deal, account and the day from which they differ; either debit or credit is null. */
    differences: handedOut.map(({deal_id, entry_date, account_code, account_name, debit, credit}) => {
      return {deal_id, entry_date, account_code, account_name, debit, credit}
    }),
    /** Null if none was handed out. */
    batch,
  }
}
