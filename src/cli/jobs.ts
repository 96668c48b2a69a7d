import {describeClockChanges, formatLocal, listNextSlots} from '../schedule/cron.ts'
import {isEnabled, type Job, readJobs} from '../schedule/job.ts'
import {timeoutMinutesOf} from '../schedule/scheduler.ts'
import type {CliCommand} from './command.ts'
import {renderTable} from './table.ts'

/** `loantape jobs`. */
export default function addJobs(command: CliCommand): void {
  command
    .command('list')
    .example('jobs list')
    .description('every job with its next five slots, and what daylight saving will do to it')
    .examines()
    .does(
      async ({config, world}) => ({
        jobs: (await readJobs(config)).map((job) => describeJob(job, world.clock.now())),
      }),
      ({jobs}) => jobs.map(renderJob).join('\n\n'),
    )
}

function describeJob(job: Job, now: number) {
  return {
    name: job.name,
    schedule: job.schedule,
    time_zone: job.timeZone,
    catch_up: job.catchUp,
    grace_minutes: job.graceMinutes,
    timeout_minutes: timeoutMinutesOf(job),
    /** Whether its slots come due; one that is not enabled is still run by `loantape run`. */
    enabled: isEnabled(job),
    steps: job.steps.map((step) => step.do),
    /** The next five: the wall clock of the job's time zone, and UTC. */
    next_slots: (isEnabled(job) ? listNextSlots(job, now, 5) : []).map((instant) => ({
      local: formatLocal(instant, job.timeZone),
      utc: new Date(instant).toISOString(),
    })),
    /** What changes of the clock will do to it within a year. */
    clock_changes: describeClockChanges(job, now),
  }
}

function renderJob(job: ReturnType<typeof describeJob>): string {
  return [
    `${job.name}: ${job.schedule} (${job.time_zone}), catch up ${job.catch_up}, grace ${job.grace_minutes} minutes, ended after ${job.timeout_minutes}`,
    `  steps: ${job.steps.join(', ')}`,
    job.enabled
      ? renderTable(
          ['  next, local', 'UTC'],
          job.next_slots.map(({local, utc}) => [`  ${local}`, utc]),
        )
      : `  not enabled: never due; \`loantape run ${job.name}\` runs it once.`,
    ...job.clock_changes.map((words) => `  Daylight saving, ${words}.`),
  ].join('\n')
}
