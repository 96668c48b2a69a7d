import {listPeriodEvents} from '../accounting/periods.ts'
import {addDays, dateOfWallTime, wallTimeOf} from '../clock.ts'
import type {Config} from '../config.ts'
import {ConfigError} from '../errors.ts'
import {closePeriod} from '../pipeline/period.ts'
import {openStateDb} from '../state/state-db.ts'
import type {TiedTerm, World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {findBusinessDay} from './business-day.ts'
import type {Job, Step} from './job.ts'

/** The month before the local day of an instant, `YYYY-MM`. */
export function previousMonthOf(instant: number, {timeZone}: Job): string {
  const day = dateOfWallTime(wallTimeOf(instant, timeZone))
  return addDays(`${day.slice(0, 7)}-01`, -1).slice(0, 7)
}

/**
 * Closes the month before when the local day of `instant` is the business day for it, or a later one: what failed on its
 * day is made good. A closed month stays closed; one that somebody reopened is theirs to close.
 *
 * @returns the month, `YYYY-MM`, and the terms of its roll-forward where it is closed now; `not_due` before its day, for a month that was reopened, and for one before the first walk
 */
export async function closePreviousMonth(
  config: Config,
  {job, step, instant}: {job: Job; step: Extract<Step, {do: 'close_period'}>; instant: number},
  world: World,
): Promise<{outcome: 'closed' | 'unchanged' | 'not_due'; period: string; terms?: readonly TiedTerm[]}> {
  const period = previousMonthOf(instant, job)
  const day = dateOfWallTime(wallTimeOf(instant, job.timeZone))
  const dueOn = findBusinessDay(day.slice(0, 7), step.businessDay, step.holidays)
  if (day < dueOn || (day > dueOn && isReopened(config, period))) return {outcome: 'not_due', period}
  try {
    const {terms} = await closePeriod(config, {period, why: `job ${job.name}`}, world)
    return {outcome: 'closed', period, terms}
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    if (error.code === 'PERIOD_CLOSED') return {outcome: 'unchanged', period}
    if (error.code === 'PERIOD_RANGE') return {outcome: 'not_due', period}
    throw error
  }
}

function isReopened(config: Config, period: string): boolean {
  using stateDb = openStateDb(dataFolderAt(config.dataDir).stateDb)
  const events = listPeriodEvents(stateDb).filter(
    (event) => event.period === period && event.action !== 'remap',
  )
  return events.at(-1)?.action === 'reopen'
}
