import {HOUR_MS} from '../core/clock.ts'
import type {World} from '../core/types.ts'
import {examineCurrent} from '../store/release.ts'
import {findLastSuccess, findLockHolder} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {listAlarms, type Watched} from './alarms.ts'
import {isoOf} from './job-runs.ts'
import {listNextSlots} from './slots.ts'
import type {Source} from './supervisor.ts'

/** Above this share of unclassified deals, the figures by class do not describe the portfolio. */
const TOLERATED_UNCLASSIFIED_PCT = 10

/** Opens no warehouse. A last sync of up to `maxAgeHours` counts as healthy. */
export function readStanding(
  {config, folder, jobs, fault}: Omit<Source, 'environment'> & Pick<Watched, 'fault'>,
  stateDb: StateDb,
  world: World,
  maxAgeHours = config.alarmMaxAgeHours,
) {
  const now = world.realClock.now()
  const {release, damage} = examineCurrent(folder)
  const alarms = listAlarms(stateDb, {config, release, damage, jobs, fault}, now)
  const {run_id, ended_at} = findLastSuccess(stateDb, 'sync') ?? {}
  const ageHours = (now - Date.parse(ended_at ?? '')) / HOUR_MS
  const unclassified_deals =
    release?.checks.results.find(({name}) => name === 'status_is_classified')?.deals ?? 0
  const is_classified =
    unclassified_deals * 100 <= (release?.source.present.deals ?? 0) * TOLERATED_UNCLASSIFIED_PCT
  /** Why a lender is not healthy; the first that holds is shown. */
  const reasons = [
    ['clock ahead', alarms.some(({state}) => state === 'clock ahead')],
    ['no success', ended_at == null],
    ['no release', release === undefined],
    ['too old', ageHours > maxAgeHours],
    ['unclassified', !is_classified],
  ] as const
  const [unhealthy] = reasons.find(([, holds]) => holds) ?? []
  const calm = alarms.length > 0 ? ('alarm' as const) : ('healthy' as const)
  const next = jobs
    .filter(({enabled}) => enabled)
    .flatMap((job) => listNextSlots(job, now, 1).map((slot) => ({job, slot})))
    .sort((a, b) => a.slot - b.slot)
  return {
    now,
    healthy: unhealthy === undefined,
    state: unhealthy ?? calm,
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
