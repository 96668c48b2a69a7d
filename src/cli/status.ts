import {existsSync} from 'node:fs'
import type {Config} from '../config.ts'
import {STREAMS} from '../contract/streams.ts'
import {newError} from '../errors.ts'
import {listAlarms} from '../ledger/alarms.ts'
import {type Checking, findLastChecking} from '../ledger/checkings.ts'
import {findLearntRate} from '../ledger/learnt-rate.ts'
import {openLedger} from '../ledger/ledger.ts'
import {findLockHolder} from '../ledger/lock.ts'
import {findLastSuccess, listRuns} from '../ledger/runs.ts'
import {findLastCoverage} from '../ledger/webhook-coverage.ts'
import {type DriftFinding, listLastDrift} from '../load/drift.ts'
import {countWaiting} from '../load/quarantine.ts'
import {groupThousands} from '../money.ts'
import {listNotIssued} from '../pipeline/not-issued.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import {listNextSlots} from '../schedule/cron.ts'
import {isEnabled, type Job, listExportedProfiles, readJobs} from '../schedule/job.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {hasWarehouse} from '../warehouse/warehouse.ts'
import type {Call, CliCommand} from './command.ts'
import {renderNotIssued} from './period.ts'
import {renderTable} from './table.ts'

/** `loantape status`. */
export function addStatus(program: CliCommand): void {
  program
    .command('status')
    .description('last runs, last certificate and current release; exit 1 when the last success is too old')
    .option('--max-age <hours>', 'oldest last success that is still healthy, such as 26h', '26h')
    .does(async ({cli, config, options, world}: Call<{maxAge: string}>) => {
      const status = await readStatus(config, parseHours(options.maxAge), world)
      if (!status.healthy) cli.exitCode = 1
      return status
    }, renderStatus)
}

function listNextOfEach(jobs: readonly Job[], now: number): {job: string; slot: string}[] {
  return jobs
    .filter(isEnabled)
    .flatMap((job) =>
      listNextSlots(job, now, 1).map((slot) => ({job: job.name, slot: new Date(slot).toISOString()})),
    )
    .sort((a, b) => a.slot.localeCompare(b.slot))
}

function parseHours(text: string): number {
  const hours = /^(\d+(?:\.\d+)?)h?$/.exec(text)?.[1]
  if (hours !== undefined) return Number(hours)
  throw newError('USAGE_MAX_AGE', `Value '${text}' in --max-age: expected hours, such as 26h.`)
}

type Status = Awaited<ReturnType<typeof readStatus>>

async function readStatus(config: Config, maxAgeHours: number, world: World) {
  const folder = dataFolderAt(config.dataDir)
  const jobs = await readJobs(config)
  const history = await readHistoryStatus(folder)
  const not_issued = await listNotIssued(folder, listExportedProfiles(jobs))
  using ledger = existsSync(folder.ledger) ? openLedger(folder.ledger) : undefined
  const success = ledger && findLastSuccess(ledger, 'sync')
  const ageHours = success?.ended_at
    ? (world.realClock.now() - Date.parse(success.ended_at)) / 3_600_000
    : null
  return {
    healthy: ageHours !== null && ageHours <= maxAgeHours,
    max_age_hours: maxAgeHours,
    last_success:
      success && ageHours !== null
        ? {run_id: success.run_id, ended_at: success.ended_at, age_hours: Math.round(ageHours * 100) / 100}
        : null,
    running: (ledger && findLockHolder(ledger, world)) ?? null,
    release: findCurrentRelease(folder)?.manifest ?? null,
    /** What the checks of the last build found that was to become current, whether it did or not. */
    checking: (ledger && findLastChecking(ledger)) ?? null,
    ...history,
    /** What webhooks had told of the last walk; null where none are taken, or nothing was compared yet. */
    webhooks: ledger && config.webhookSecret !== undefined ? (findLastCoverage(ledger) ?? null) : null,
    learnt_rate_per_second:
      ledger && config.baseUrl !== undefined ? (findLearntRate(ledger, config.baseUrl, world) ?? null) : null,
    /** Alarms that are raised. */
    alarms: ledger ? listAlarms(ledger) : [],
    runs: ledger ? listRuns(ledger, 5) : [],
    /** The next slot of each job, soonest first, ISO 8601. */
    next_slots: listNextOfEach(jobs, world.realClock.now()),
    /** What of the current release's journal no batch has handed out, by profile and month. */
    not_issued,
  }
}

async function readHistoryStatus(folder: DataFolder): Promise<{
  /** Where the records of the last applied walk were not as the contract has them. */
  drift: DriftFinding[]
  /** Records that wait in quarantine. */
  quarantine_waiting: number
}> {
  if (!hasWarehouse(folder)) return {drift: [], quarantine_waiting: 0}
  await using db = await openHistory(folder)
  const drift: DriftFinding[] = []
  for (const stream of STREAMS) {
    const found = await listLastDrift(db, 'history', stream)
    drift.push(...found.map((one) => (stream.parent ? {...one, path: `${stream.plural}: ${one.path}`} : one)))
  }
  return {drift, quarantine_waiting: await countWaiting(db, 'history')}
}

/** Models that are named with their time. */
const SLOWEST = 3

function renderTimings(models: ReleaseManifest['models']): string {
  const total = models.reduce((sum, {duration_ms}) => sum + duration_ms, 0)
  const slowest = models
    .toSorted((a, b) => b.duration_ms - a.duration_ms)
    .slice(0, SLOWEST)
    .map(({name, duration_ms}) => `${name} ${duration_ms} ms`)
  return `Models: ${models.length} built in ${total} ms; slowest ${slowest.join(', ')}.`
}

/** Ids that are named of each check. */
const NAMED_IDS = 5

function renderChecking(checking: Checking | null): string[] {
  return (checking?.failed ?? []).map(({name, severity, failures, ids}) => {
    const named = `${ids.slice(0, NAMED_IDS).join(', ')}${failures > NAMED_IDS ? ', …' : ''}`
    const rows = failures === 1 ? 'row' : 'rows'
    return `Check '${name}' (${severity}): ${failures} ${rows} in release ${checking?.release_id}: ${named}.`
  })
}

function renderStatus(status: Status): string {
  const {last_success, running, release, runs} = status
  const lines = [
    last_success
      ? `Last success ${last_success.ended_at} (${last_success.age_hours} h ago): ${status.healthy ? 'healthy' : `older than ${status.max_age_hours} h`}.`
      : 'No sync has succeeded here yet.',
  ]
  if (running) {
    lines.push(
      `Running: ${running.command}, pid ${running.pid}, since ${running.started_at}, ${running.progress}.`,
    )
  }
  if (release) {
    const {source, checks} = release
    lines.push(
      `Release ${release.release_id}: as of ${release.as_of}, ${checks.passed} checks passed, ${checks.warned} warned.`,
      `Walk ${source.walk_id}: ${source.records} records, ${source.distinct} distinct, ${source.quarantined} quarantined, amount ${groupThousands(source.amount_total)}; present ${source.present.deals} deals, ${groupThousands(source.present.amount)}.`,
      renderTimings(release.models),
    )
  }
  lines.push(...renderChecking(status.checking))
  const waiting = status.quarantine_waiting
  if (waiting > 0) {
    const words = waiting === 1 ? 'record waits' : 'records wait'
    lines.push(
      `Quarantine: ${waiting} ${words}; \`loantape quarantine list\` shows ${waiting === 1 ? 'it' : 'them'}.`,
    )
  }
  for (const {kind, path, value, records} of status.drift) {
    const what = value === null ? path : `${path} '${value}'`
    lines.push(`Drift: ${kind} ${what} in ${records} ${records === 1 ? 'record' : 'records'}.`)
  }
  if (status.webhooks) {
    const {changes, missed, walk_id} = status.webhooks
    lines.push(`Webhooks: missed ${missed} of the ${changes} changes of walk ${walk_id}.`)
  }
  for (const open of status.not_issued) {
    lines.push(`Not yet issued of ${open.period}: ${renderNotIssued(open)}.`)
  }
  for (const {name, state, since} of status.alarms) lines.push(`Alarm: ${name}, ${state}, since ${since}.`)
  const [next] = status.next_slots
  if (next) lines.push(`Next slot, where \`loantape serve\` runs: ${next.job} at ${next.slot}.`)
  if (status.learnt_rate_per_second !== null) {
    lines.push(`Learnt rate: ${status.learnt_rate_per_second.toFixed(2)} requests a second.`)
  }
  if (runs.length > 0) {
    lines.push(
      '',
      renderTable(
        ['run', 'command', 'started', 'outcome', {number: 'exit'}],
        runs.map((run) => [
          run.run_id,
          run.command,
          run.started_at,
          run.error_code ?? run.outcome ?? (run.run_id === running?.run_id ? 'running' : 'died'),
          run.exit_code === null ? '' : String(run.exit_code),
        ]),
      ),
    )
  }
  return lines.join('\n')
}
