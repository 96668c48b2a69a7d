import {userInfo} from 'node:os'
import type {Config} from '../config.ts'
import {hasSameReceivables} from '../contract/mapping.ts'
import {newError} from '../errors.ts'
import {requireSameHistory} from '../export/journal-origin.ts'
import {findMovedDeals, splitOpening} from '../export/journal-plan.ts'
import type {JournalLine} from '../journal-line.ts'
import {listAllBatches, listIssuedLines} from '../ledger/issued.ts'
import {inLedgerTransaction, type Ledger, openLedger} from '../ledger/ledger.ts'
import {
  dropClosedPeriod,
  findFirstOpen,
  listClosedPeriods,
  listMappingVersions,
  nextPeriod,
  recordPeriodEvent,
  storeClosedPeriod,
  storeRemap,
} from '../ledger/periods.ts'
import {addAmounts} from '../money.ts'
import type {World} from '../types.ts'
import {dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import {readAccountMapping, requireOwnMapping} from './account-mapping.ts'
import {requireBuilt} from './build.ts'
import {readJournal, readRegister} from './journal-read.ts'
import {lastDayOf, readPeriodSpan, requirePeriodName} from './period-span.ts'

/** What closing, reopening or remapping came to. */
export interface PeriodResult {
  outcome: 'closed' | 'reopened' | 'remapped' | 'unchanged'
  period: string
}

/**
 * Closes a month: from now on its journal and register are what they are, whatever becomes known later. Periods are
 * closed one after the other.
 *
 * @throws ConfigError `PERIOD_…`, `ACCOUNT_UNMAPPED`: nothing was closed
 */
export async function closePeriod(
  config: Config,
  {period, why = null}: {period: string; why?: string | null},
  world: World,
): Promise<PeriodResult & {release_id: string; entries: number; loans: number; amount: string}> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const span = await readPeriodSpan(config, period, world)
  using ledger = openLedger(folder.ledger)
  requireNext(ledger, period, span.first)
  if (!span.isComplete) {
    throw newError(
      'PERIOD_UNFINISHED',
      `Period '${period}' is not finished: it ends on ${lastDayOf(period)}, today is ${span.today}, and the last walk counts for ${span.observedUntil}.`,
    )
  }
  await requireSameHistory(ledger, folder)
  const mapping = requireOwnMapping(config)
  const release = await requireBuilt(config, {asOf: span.asOf}, world)
  const lines = await readJournal(release, period)
  requireHeld(ledger, period, lines)
  const register = await readRegister(release)
  inLedgerTransaction(ledger, () => {
    requireNext(ledger, period, span.first)
    storeClosedPeriod(ledger, {
      period,
      release: release.manifest,
      mapping,
      lines,
      register,
    })
    recordPeriodEvent(ledger, {period, action: 'close', ...signedBy(world), why})
  })
  return {
    outcome: 'closed',
    period,
    release_id: release.manifest.release_id,
    entries: new Set(lines.filter(({event}) => event !== 'opening').map(({entry_id}) => entry_id)).size,
    loans: register.length,
    amount: addAmounts(register.map(({loan_amount}) => loan_amount)),
  }
}

/**
 * A month is not closed over what batches of an earlier version book and its journal no longer holds: they do not say from
 * which history they are.
 */
function requireHeld(ledger: Ledger, period: string, journal: readonly JournalLine[]): void {
  const old = listAllBatches(ledger).filter(({history_id}) => history_id === null)
  for (const profile of new Set(old.map((batch) => batch.profile))) {
    const issued = listIssuedLines(ledger, profile, {period})
    const moved = findMovedDeals(splitOpening(journal, issued, false).wanted, issued)
    if (moved.size === 0) continue
    throw newError(
      'PERIOD_ISSUED',
      `Batches of ${period} for ${profile} book ${moved.size} deals otherwise than its journal does now: ${[...moved].slice(0, 5).join(', ')}${moved.size > 5 ? ', …' : ''}.`,
      {
        next: `Run \`loantape export ${profile} --period ${period}\`, which hands out the difference, then close it.`,
      },
    )
  }
}

function requireNext(ledger: Ledger, period: string, first: string): void {
  if (listClosedPeriods(ledger).includes(period)) {
    throw newError('PERIOD_CLOSED', `Period '${period}' is closed already.`)
  }
  const next = findFirstOpen(ledger) ?? first
  if (period === next) return
  throw newError(
    'PERIOD_ORDER',
    `Period '${period}' cannot be closed yet: expected ${next}, the first open one.`,
    {next: `Close ${next} first: periods are closed one after the other.`},
  )
}

/**
 * Opens the period that was closed last.
 *
 * @throws ConfigError `PERIOD_OPEN`, `PERIOD_ORDER`, `PERIOD_WHY`
 */
export function reopenPeriod(
  config: Config,
  {period, why}: {period: string; why: string},
  world: World,
): PeriodResult {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  requirePeriodName(period)
  if (why.trim() === '') {
    throw newError('PERIOD_WHY', "Reason '' in --why: expected why the period is reopened.")
  }
  using ledger = openLedger(folder.ledger)
  inLedgerTransaction(ledger, () => {
    const closed = listClosedPeriods(ledger)
    if (!closed.includes(period)) {
      throw newError('PERIOD_OPEN', `Period '${period}' is not closed.`)
    }
    const last = closed.at(-1) ?? period
    if (period !== last) {
      throw newError('PERIOD_ORDER', `Period '${period}' cannot be reopened while ${last} is closed.`, {
        next: `Reopen ${last} first: periods are reopened one after the other, the last one first.`,
      })
    }
    dropClosedPeriod(ledger, period)
    recordPeriodEvent(ledger, {period, action: 'reopen', ...signedBy(world), why: why.trim()})
  })
  return {outcome: 'reopened', period}
}

/**
 * Lets the journal of the first open period move what closed periods booked to the receivable accounts of the mapping
 * that holds now.
 *
 * @throws ConfigError `REMAP_NOTHING` when no period is closed, or all was booked to those accounts
 */
export function remapPeriods(config: Config, {why}: {why: string | null}, world: World): PeriodResult {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const mapping = readAccountMapping(config)
  using ledger = openLedger(folder.ledger)
  return inLedgerTransaction(ledger, () => {
    const last = listClosedPeriods(ledger).at(-1)
    if (last === undefined) {
      throw newError('REMAP_NOTHING', 'No period is closed: the mapping holds for every period already.', {
        next: 'Export again: the difference to what was issued is booked.',
      })
    }
    const period = nextPeriod(last)
    const versions = listMappingVersions(ledger, mapping, period)
    const moved = versions.findLastIndex(({movesBalances}) => movesBalances)
    if (versions[moved]?.since === period) return {outcome: 'unchanged', period}
    const standing = versions.slice(Math.max(0, moved))
    if (standing.every((version) => hasSameReceivables(version.mapping, mapping))) {
      throw newError(
        'REMAP_NOTHING',
        `The receivable accounts of accounting.json are those that everything up to ${last} was booked to: nothing to move.`,
        {next: 'Change accounting.json first.'},
      )
    }
    storeRemap(ledger, period)
    recordPeriodEvent(ledger, {period, action: 'remap', ...signedBy(world), why})
    return {outcome: 'remapped', period}
  })
}

/** Who does something to the periods, and when. */
export function signedBy({realClock}: World): {at: string; who: string} {
  return {at: new Date(realClock.now()).toISOString(), who: nameOfUser()}
}

/** The user of the operating system; a container's may have a number only. */
function nameOfUser(): string {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`
  }
}
