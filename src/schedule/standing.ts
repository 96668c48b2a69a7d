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

/** Opens no warehouse. A last sync of up to `maxAgeHours` counts as healthy. */
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
    unclassified_deals,
    is_classified,
    last_success: run_id && ended_at ? {run_id, ended_at, age_hours: Math.round(ageHours * 100) / 100} : null,
    holder: findLockHolder(stateDb, world),
    release,
    damage,
    alarms,
    next,
    next_slots: next.map(({job, slot}) => ({job: job.name, slot: isoOf(slot)})),
  }
}
