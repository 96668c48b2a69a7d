import {quantity} from '../core/money.ts'
import {type Job, readJobs, requireJob} from '../schedule/job.ts'
import type {Claim} from '../schedule/job-runs.ts'
import {performJob} from '../schedule/run-job.ts'
import {formatLocal, listNextSlots} from '../schedule/slots.ts'
import type {RenderDigest} from '../schedule/tell.ts'
import type {RatesResult} from '../sync/rates.ts'
import {renderClosed} from './books.ts'
import {renderBuild} from './build.ts'
import {does, type Invocation} from './command.ts'
import {renderExported, renderPublished} from './export.ts'
import {renderBackup, renderPruned} from './keep.ts'
import {renderEvents, renderSync} from './sync.ts'
import {apart, type Text} from './table.ts'

export const commands = {
  run: does(
    async ({config, options: {claim}, world}: Invocation<{claim?: Claim}>, name: string) => {
      const render: RenderDigest = async (release, step) => {
        // Loaded late: most jobs send no message.
        const {renderDigest} = await import('../web/report.ts')
        return await renderDigest(release, config, step)
      }
      return await performJob(config, {job: requireJob(config, name), claim, render}, world)
    },
    ({steps}) => renderSteps(steps),
  ),
  'jobs list': does(
    async ({config, world}) => ({
      jobs: readJobs(config).map((job) => describeJob(job, world.clock.now())),
    }),
    ({jobs}) => apart(jobs.map(renderJob)),
  ),
}

type StepResult = Awaited<ReturnType<typeof performJob>>['steps'][number]

export const renderSteps = (steps: readonly StepResult[]): Text => steps.map(renderStep)

function renderStep(step: StepResult): Text {
  if (step.do === 'sync') return renderSync(step.result)
  if (step.do === 'apply_events') return renderEvents(step.result)
  if (step.do === 'backup') return renderBackup(step.result)
  if (step.do === 'prune') return renderPruned(step.result)
  if (step.do === 'restore_drill') {
    const {backup, files, release_id, compared} = step.result
    const like = compared === 'equal' ? ', as it is kept' : ''
    return `Backup ${backup} brings back ${quantity(files, 'file')} and release ${release_id ?? 'none'}${like}.`
  }
  if (step.do === 'close_period') {
    const {result, issued} = step
    if (result.outcome === 'closed') return [renderExported({batches: issued}), renderClosed(result)]
    return `Period ${result.period}: ${result.outcome === 'not_due' ? 'not due today' : 'closed already'}.`
  }
  if (step.do === 'build') return renderBuild(step.result)
  if (step.do === 'ingest_rates') return renderRates(step.result)
  if (step.do === 'digest') {
    const {page, outcome} = step.result
    const said: Partial<Record<typeof outcome, string>> = {
      waits:
        'could not be sent to everybody yet. The log says why; later runs and `loantape serve` try again',
      no_channel: 'not sent, since no channel of alarms is set',
    }
    return `Digest ${page}: ${said[outcome] ?? outcome.replaceAll('_', ' ')}.`
  }
  if (step.do === 'deliver') return renderExported({deliveries: step.result})
  if (step.do === 'publish') return renderPublished(step.result)
  return renderExported({batches: step.result, ...(step.deliveries && {deliveries: step.deliveries})})
}

function renderRates({feeds}: RatesResult): Text {
  if (feeds.length === 0) return 'Rates: no feeds in LOANTAPE_RATES_FILE; nothing was read.'
  return feeds.map(({feed, outcome, rows, appended, known, empty, rejected, problems}) => {
    const counts = `${quantity(rows, 'row')}, ${appended} new, ${known} known, ${empty} without a value, ${rejected} rejected`
    return [`Rates of ${feed}: ${outcome === 'read' ? counts : 'not read'}.`, ...problems].join('\n  ')
  })
}

function describeJob(job: Job, now: number) {
  return {
    name: job.name,
    schedule: job.schedule,
    time_zone: job.timeZone,
    catch_up: job.catchUp,
    grace_minutes: job.graceMinutes,
    timeout_minutes: job.timeoutMinutes,
    enabled: job.enabled,
    fault: job.fault?.problem ?? null,
    steps: job.steps.map((step) => step.do),
    next_slots: (job.enabled ? listNextSlots(job, now, 5) : []).map((instant) => ({
      local: formatLocal(instant, job.timeZone),
      utc: new Date(instant).toISOString(),
    })),
  }
}

function renderJob(job: ReturnType<typeof describeJob>): Text {
  if (job.fault !== null) return `${job.name}: never due. ${job.fault}`
  return [
    `${job.name}: ${job.schedule} (${job.time_zone}), catch up ${job.catch_up}, grace ${job.grace_minutes} minutes, ended after ${job.timeout_minutes}`,
    `  steps: ${job.steps.join(', ')}`,
    job.enabled
      ? job.next_slots.map(({local, utc}) => `  next: ${local}, ${utc}`)
      : `  not enabled: never due; \`loantape run ${job.name}\` runs it once.`,
  ]
}
