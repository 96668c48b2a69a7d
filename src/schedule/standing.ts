import {HOUR_MS} from '../core/clock.ts'
import type {World} from '../core/types.ts'
import {examineCurrent} from '../store/release.ts'
import {findLastSuccess, findLockHolder} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {listAlarms, wasClockAhead} from './alarms.ts'
import {isoOf} from './job-runs.ts'
import {listNextOfEach} from './slots.ts'
import type {Source} from './supervisor.ts'

/** Above this share of unclassified deals, the figures by class do not describe the portfolio. */
const TOLERATED_UNCLASSIFIED_PCT = 10

/**
 * Reads how a data folder stands from its state database, current release and jobs, without opening the warehouse.
 *
 * @param maxAgeHours the greatest age of the last sync at which it counts as healthy
 */
export function readStanding(
  {config, folder, jobs}: Omit<Source, 'environment'>,
  stateDb: StateDb,
  world: World,
  maxAgeHours = config.alarmMaxAgeHours,
) {
  const now = world.realClock.now()
  const {release, damage} = examineCurrent(folder)
  const alarms = listAlarms(stateDb, {config, release, damage, jobs}, now)
  const {run_id, ended_at} = findLastSuccess(stateDb, 'sync') ?? {}
  const ageHours = (now - Date.parse(ended_at ?? '')) / HOUR_MS
  const unclassified_deals =
    release?.checks.results.find(({name}) => name === 'status_is_classified')?.deals ?? 0
  const is_classified =
    unclassified_deals * 100 <= (release?.source.present.deals ?? 0) * TOLERATED_UNCLASSIFIED_PCT
  const next = listNextOfEach(jobs, now)
  return {
    now,
    healthy: release !== undefined && is_classified && ageHours <= maxAgeHours && !wasClockAhead({alarms}),
    /** Deals whose status has no class. */
    unclassified_deals,
    is_classified,
    last_success: run_id && ended_at ? {run_id, ended_at, age_hours: Math.round(ageHours * 100) / 100} : null,
    /** The run that holds the warehouse. */
    holder: findLockHolder(stateDb, world),
    release,
    /** What is wrong with the current release. */
    damage,
    /** What is wrong now, and since when. */
    alarms,
    /** The next slot of each job, soonest first; `next_slots` for people and programs. */
    next,
    next_slots: next.map(({job, slot}) => ({job: job.name, slot: isoOf(slot)})),
  }
}
