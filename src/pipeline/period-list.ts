import {z} from 'zod'
import {listAllBatches} from '../accounting/issued.ts'
import {
  type ClosedPeriod,
  findClosedPeriod,
  listPeriodEvents,
  nextPeriod,
  type PeriodEvent,
} from '../accounting/periods.ts'
import type {Config} from '../config.ts'
import {addAmounts} from '../money.ts'
import {openStateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {openHistory} from '../warehouse/history.ts'
import {listNotIssued, type NotIssued} from './not-issued.ts'
import {lastDayOf, readPeriodRange} from './period-span.ts'

/** A period, for `period list`. */
export interface PeriodState {
  period: string
  state: 'open' | 'closed'
  /** Of a closed one: when, by whom, from which release, and what its register came to. */
  closed: {
    at: string
    who: string
    release_id: string
    known_at: string
    loans: number
    amount: string
    /** Observations that count for the period or an earlier one and were stored after it was closed. */
    late: number
  } | null
  batches: {profile: string; batch_id: string}[]
  /** What of its journal, as the current release has it, has not been handed out. */
  not_issued: Omit<NotIssued, 'period'>[]
}

/**
 * Every month from the first walk to the last, and everything that was done to them, oldest first.
 *
 * @param exported the profiles that jobs export
 */
export async function listPeriods(
  config: Config,
  world: World,
  exported: readonly string[] = [],
): Promise<{periods: PeriodState[]; events: PeriodEvent[]}> {
  const folder = dataFolderAt(config.dataDir)
  const {first, last} = await readPeriodRange(config, world)
  using stateDb = openStateDb(folder.stateDb)
  const events = listPeriodEvents(stateDb)
  const batches = listAllBatches(stateDb)
  const notIssued = await listNotIssued(folder, exported)
  const periods: PeriodState[] = []
  await using db = await openHistory(folder)
  for (let period = first; period <= last; period = nextPeriod(period)) {
    const closed = findClosedPeriod(stateDb, period)
    const closing = events.findLast((event) => event.period === period && event.action === 'close')
    periods.push({
      period,
      state: closed ? 'closed' : 'open',
      closed: closed && closing ? await describeClosing(db, closed, closing) : null,
      batches: batches
        .filter((batch) => batch.period === period)
        .map(({profile, batch_id}) => ({profile, batch_id})),
      not_issued: notIssued
        .filter((open) => open.period === period)
        .map(({profile, entries, amount}) => ({profile, entries, amount})),
    })
  }
  return {periods, events}
}

async function describeClosing(
  db: Database,
  {period, release, register}: ClosedPeriod,
  {at, who}: PeriodEvent,
): Promise<PeriodState['closed']> {
  return {
    at,
    who,
    release_id: release.release_id,
    known_at: release.known_at,
    loans: register.length,
    amount: addAmounts(register.map(({loan_amount}) => loan_amount)),
    late: await countLate(db, period, release.known_at),
  }
}

async function countLate(db: Database, period: string, knownAt: string): Promise<number> {
  const {late} = await db.one(
    z.object({late: z.coerce.number()}),
    `select count(*) as late from history.raw.deal_version
     where business_date <= cast($1 as date) and recorded_at > cast($2 as timestamp)`,
    [lastDayOf(period), knownAt.replace('Z', '')],
  )
  return late
}
