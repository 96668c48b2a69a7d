import {isDeepStrictEqual} from 'node:util'
import {z} from 'zod'
import {addUpLoans, openBooks} from '../accounting/acts.ts'
import {hasOpenings, listAsClosed, listBatches, listIssuedProfiles} from '../accounting/issued.ts'
import {hasSameReceivables, requireOwnMapping} from '../accounting/mapping.ts'
import {
  findClosedPeriod,
  findFirstOpen,
  lastDayOf,
  listClosedPeriods,
  listClosings,
  listMappingVersions,
  listMonths,
  listPeriodEvents,
  nextPeriod,
  readPeriodRange,
  readPeriodSpan,
  requirePeriodName,
} from '../accounting/periods.ts'
import {bookOpenings} from '../accounting/profiles.ts'
import {readClosing} from '../accounting/read-journal.ts'
import {requireBuilt} from '../build/build.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {nameOfUser} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {openRelease, type Release} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {openHistory} from '../store/warehouse.ts'
import {countUnreplayed} from '../sync/quarantine.ts'
import {requireUnchanged} from './journal-batch.ts'
import {findRefusal, listNotIssued, type NotIssued, requireSameHistory} from './standing.ts'

/**
 * Closes the first open month: its journal and register stay as they are, whatever becomes known later.
 * @throws ConfigError `PERIOD_…`, `ACCOUNTING_…`, LockedError `JOURNAL_STALE`: nothing was closed
 */
export async function closePeriod(
  config: Config,
  {period, why = null}: {period: string; why?: string | null},
  world: World,
) {
  using books = openBooks(config, world)
  const {folder, stateDb, perform} = books
  const span = await readPeriodSpan(config, period, world)
  requireNext(stateDb, period, span.first)
  if (!span.isComplete) {
    throw newError(
      'PERIOD_STATE',
      `Period '${period}' is not finished: it ends on ${lastDayOf(period)}, today counts as ${span.today}, and the last complete walk counts for ${span.walkedUntil ?? 'no day'}.`,
      {next: 'Close it when the month is over and a sync has seen its last day or a later one.'},
    )
  }
  await requireSameHistory(stateDb, folder, world)
  const mapping = requireOwnMapping(config)
  const release = await requireBuilt(config, {asOf: span.asOf}, world)
  const closing = await readClosing(release, period)
  const {lines, terms, register} = closing
  const profiles = listIssuedProfiles(stateDb)
  await using history = await openHistory(folder, world)
  const {waiting} = await countUnreplayed(history)
  const not_issued: NotIssued[] = []
  for (const open of await listNotIssued(config, [], release))
    if (open.period < period && (await hasLaterKnowledge(stateDb, release, open))) not_issued.push(open)
  const haveOpenings = profiles.length > 0 && profiles.every((name) => hasOpenings(stateDb, name))
  perform(() => {
    requireNext(stateDb, period, span.first)
    requireUnchanged(config, mapping, period)
    return {
      act: 'period closed',
      closed: {period, release: release.manifest, mapping, ...closing},
      event: {period, action: 'close', ...signedBy(world), why},
    }
  })
  return {
    outcome: 'closed' as const,
    period,
    release_id: release.manifest.release_id,
    entries: new Set(lines.filter(({event}) => event !== 'opening').map(({entry_id}) => entry_id)).size,
    ...addUpLoans(register),
    /** Opening balances count as booked if every profile has booked them. */
    terms: haveOpenings ? bookOpenings(terms) : terms,
    /** When the last complete walk of the month's last day began; null if only a later walk saw the end of the month. */
    last_day_walked_at: span.lastDayWalks.get(period) ?? null,
    /** Unreadable records: what they tell of the month is booked in the first open one once they are replayed. */
    quarantine_waiting: waiting,
    /** Of earlier months, all closed: what became known since is dated after this one from now on. */
    not_issued,
  }
}

/** False for a closed month of which only what it was closed with is still to be issued: that keeps its dates. */
async function hasLaterKnowledge(stateDb: StateDb, release: Release, {profile, period}: NotIssued) {
  const closed = findClosedPeriod(stateDb, period)
  if (!closed || listAsClosed(stateDb, profile, {first: period, last: period}).length === 0) return true
  await using db = await openRelease(release)
  const entry = z.object({entry_id: z.string()})
  const lines = await db.all(entry, readQuery('journal_of_months'), [JSON.stringify([period]), null])
  const idsOf = (journal: typeof lines) => journal.map(({entry_id}) => entry_id).sort()
  return !isDeepStrictEqual(idsOf(lines), idsOf(closed.lines))
}

function requireNext(stateDb: StateDb, period: string, first: string): void {
  if (listClosedPeriods(stateDb).includes(period)) {
    throw newError('PERIOD_CLOSED', `Period '${period}' is closed already.`)
  }
  const next = findFirstOpen(stateDb) ?? first
  if (period === next) return
  throw newError(
    'PERIOD_STATE',
    `Period '${period}' cannot be closed yet: expected ${next}, the first open one.`,
    {next: `Close ${next} first: periods are closed in order.`},
  )
}

/** Only the period that was closed last. @throws ConfigError `PERIOD_STATE`, `USAGE` */
export function reopenPeriod(
  config: Config,
  {period, why}: {period: string; why: string},
  world: World,
): {outcome: 'reopened'; period: string} {
  requirePeriodName(period)
  if (why.trim() === '') {
    throw newError('USAGE', "Reason '' in --why: expected why the period is reopened.", {next: 'Give one.'})
  }
  using books = openBooks(config, world)
  books.perform(() => {
    const closed = listClosedPeriods(books.stateDb)
    if (!closed.includes(period)) {
      throw newError('PERIOD_STATE', `Period '${period}' is not closed.`)
    }
    const last = closed.at(-1)
    if (period !== last) {
      throw newError('PERIOD_STATE', `Period '${period}' cannot be reopened while ${last} is closed.`, {
        next: `Reopen ${last} first: periods are reopened in order, the last one first.`,
      })
    }
    return {
      act: 'period reopened',
      event: {period, action: 'reopen', ...signedBy(world), why: why.trim()},
    }
  })
  return {outcome: 'reopened', period}
}

/**
 * Makes the journal of the first open period move what closed ones booked to the receivable accounts of the present mapping.
 * @throws ConfigError `ACCOUNTING_…`; `PERIOD_STATE` if no period is closed, or all was booked to those accounts
 */
export function remapPeriods(
  config: Config,
  {why}: {why: string | null},
  world: World,
): {outcome: 'remapped' | 'unchanged'; period: string} {
  const mapping = requireOwnMapping(config)
  using books = openBooks(config, world)
  const {stateDb} = books
  let period = ''
  const act = books.perform(() => {
    const last = listClosedPeriods(stateDb).at(-1)
    if (last === undefined) {
      throw newError('PERIOD_STATE', 'No period is closed: the mapping holds for every period already.', {
        next: 'Export again: the difference to what was issued is booked.',
      })
    }
    period = nextPeriod(last)
    const versions = listMappingVersions(stateDb, mapping, period)
    const moved = versions.findLastIndex(({movesBalances}) => movesBalances)
    if (versions[moved]?.since === period) return undefined
    const standing = versions.slice(Math.max(0, moved))
    if (standing.every((version) => hasSameReceivables(version.mapping, mapping))) {
      throw newError(
        'PERIOD_STATE',
        `The receivable accounts of accounting.json are those that everything up to ${last} was booked to: nothing to move.`,
        {next: 'Change accounting.json first.'},
      )
    }
    return {
      act: 'periods remapped',
      mapping,
      event: {period, action: 'remap', ...signedBy(world), why},
    }
  })
  return {outcome: act ? 'remapped' : 'unchanged', period}
}

export function signedBy({realClock, who = nameOfUser()}: World): {at: string; who: string} {
  return {at: new Date(realClock.now()).toISOString(), who}
}

/**
 * Every month from the first walk to the last, and all that was done to them, oldest first. Jobs export to the profiles
 * `exported`.
 */
export async function listPeriods(config: Config, world: World, exported: readonly string[] = []) {
  const folder = dataFolderAt(config.dataDir)
  const range = await readPeriodRange(config, world)
  using stateDb = openStateDb(folder.stateDb)
  const events = listPeriodEvents(stateDb)
  const batches = listBatches(stateDb)
  const notIssued = await listNotIssued(config, exported)
  const closings = new Map(listClosings(stateDb).map(({period, ...closed}) => [period, closed]))
  const periods = listMonths(range.first, range.last).map((period) => {
    const closed = closings.get(period) ?? null
    const isOfPeriod = (one: {period: string}) => one.period === period
    return {
      period,
      state: closed ? ('closed' as const) : ('open' as const),
      /** The month is over, so that it can be closed. */
      is_complete: range.isOver(period),
      closed,
      last_day_walked_at: range.lastDayWalks.get(period) ?? null,
      batches: batches.filter(isOfPeriod).map(({profile, batch_id}) => ({profile, batch_id})),
      /** Entries of the current release. */
      not_issued: notIssued
        .filter((one) => one.entries === null || isOfPeriod(one))
        .map(({profile, entries, amount}) => ({profile, entries, amount})),
    }
  })
  /** Profiles that have opening balances in their journal. */
  const opened = listIssuedProfiles(stateDb).filter((name) => hasOpenings(stateDb, name))
  return {periods, events, opened, refused: await findRefusal(stateDb, folder, world)}
}
