import {explainError} from '../errors.ts'
import {scrubSecrets} from '../log.ts'
import {groupThousands} from '../money.ts'
import {listUnderWay} from '../state/job-runs.ts'
import type {StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {type SourceRow, sortSources, stateOf} from '../web/fleet-page.ts'
import type {Source} from './fleet-source.ts'
import {readStanding} from './status.ts'
import {joinLines, renderTable} from './table.ts'

/**
 * Reads how a source is doing; its warehouse is not opened.
 *
 * @param maxAgeHours of its last success; by default what it raises an alarm after
 */
export function readRow(
  name: string,
  {config, folder, jobs}: Source,
  {stateDb, maxAgeHours}: {stateDb: StateDb | undefined; maxAgeHours?: number | undefined},
  world: World,
): SourceRow {
  const standing = readStanding(
    folder,
    {config, stateDb, jobs, maxAgeHours: maxAgeHours ?? config.alarmMaxAgeHours},
    world,
  )
  const {running: holder, release, last_success} = standing
  const [run] = stateDb ? listUnderWay(stateDb, world.realClock.now()) : []
  const running = [run?.job ?? holder?.command, holder?.progress].filter((part) => part !== undefined)
  return {
    source: name,
    healthy: standing.healthy,
    is_classified: standing.is_classified,
    error: null,
    last_success: last_success && {ended_at: last_success.ended_at, age_hours: last_success.age_hours},
    release: release && {
      as_of: release.as_of,
      known_at: release.known_at,
      deals: release.source.present.deals,
      amount: release.source.present.amount,
    },
    running: running.length > 0 ? running.join(': ') : null,
    alarms: standing.alarms,
    next_slot: standing.next_slots[0] ?? null,
  }
}

/** The row of a source that cannot be read. */
export function brokenRow(name: string, error: unknown): SourceRow {
  const {code, message} = explainError(error)
  return {
    source: name,
    healthy: false,
    is_classified: true,
    error: {code, message: scrubSecrets(message)},
    last_success: null,
    release: null,
    running: null,
    alarms: [],
    next_slot: null,
  }
}

/** The rows as a table, and below it the words of what is broken. */
export function renderRows(rows: readonly SourceRow[]): string {
  const sorted = sortSources(rows)
  const lines = sorted.map((row) => {
    const {source, last_success, release, running, alarms, next_slot: next} = row
    return [
      source,
      stateOf(row),
      last_success ? `${last_success.age_hours} h ago` : '',
      release?.as_of ?? '',
      release ? groupThousands(release.deals) : '',
      release ? groupThousands(release.amount) : '',
      running ?? '',
      row.error?.code ?? alarms.map(({name, state}) => `${name}: ${state}`).join(', '),
      next ? `${next.job} ${next.slot}` : '',
    ]
  })
  return joinLines([
    renderTable(
      [
        'source',
        'state',
        'last success',
        'as of',
        {number: 'deals'},
        {number: 'amount'},
        'running',
        'wrong',
        'next slot',
      ],
      lines,
    ),
    ...sorted.map(({source, error}) => error && `\n${source}: ${error.message} [${error.code}]`),
  ])
}
