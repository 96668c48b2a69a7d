import {findRefusal, listNotIssued} from '../books/standing.ts'
import {type Checking, findLastChecking} from '../build/checks.ts'
import {readStatuses} from '../build/sources.ts'
import {STREAMS} from '../contract/streams.ts'
import type {Config} from '../core/config.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {escapeLineEnds, shorten} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {listDisagreements} from '../record/record-compare.ts'
import {listExportedProfiles, readJobs} from '../schedule/job.ts'
import {readStanding} from '../schedule/standing.ts'
import {type DataFolder, dataFolderAt} from '../store/data-folder.ts'
import {listLosses} from '../store/recorded.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {listRuns} from '../store/runs.ts'
import {hasStateDb, openStateDb} from '../store/state-db.ts'
import {hasWarehouse, openHistory} from '../store/warehouse.ts'
import {type DriftFinding, listLastDrift} from '../sync/apply.ts'
import {findLearnt} from '../sync/at-source.ts'
import {listKnownFields} from '../sync/mapped-fields.ts'
import {countUnreplayed} from '../sync/quarantine.ts'
import {findLastCoverage} from '../sync/webhook-events.ts'
import {renderNotIssued, warnOfQuarantine} from './books.ts'
import {renderWarnings} from './build.ts'
import {does, type Invocation} from './command.ts'
import {type Text, tableOf} from './table.ts'

export const commands = {
  status: does(
    ({config, options, world}: Invocation<{maxAge?: number}>) =>
      readStatus(config, options.maxAge ?? config.alarmMaxAgeHours, world),
    renderStatus,
    ({healthy}) => (healthy ? 0 : 1),
  ),
}

type Status = Awaited<ReturnType<typeof readStatus>>

async function readStatus(config: Config, maxAgeHours: number, world: World) {
  const folder = dataFolderAt(config.dataDir)
  const jobs = readJobs(config)
  const disagreements = await listDisagreements(config, world)
  const statuses = Object.values(readStatuses(config)).flat()
  const history = await readHistoryStatus(
    folder,
    new Set(statuses.map((status) => status.toLowerCase())),
    world,
  )
  const isStored = hasStateDb(folder)
  using stateDb = openStateDb(isStored ? folder.stateDb : ':memory:')
  const standing = readStanding({config, folder, jobs}, stateDb, world, maxAgeHours)
  const {now: _now, next: _next, holder, release, damage, ...shown} = standing
  return {
    folder: folder.root,
    ...shown,
    healthy: shown.healthy && disagreements.length === 0,
    max_age_hours: maxAgeHours,
    running: holder ?? null,
    release: release ?? null,
    damage: damage?.message ?? null,
    disagreements: disagreements.map(({store, problem}) => ({store, problem})),
    /** Units and batches, by `loantape tape go-on`. */
    given_up: listLosses(stateDb).size,
    /** The checks of the last build that was meant to become current. */
    checking: findLastChecking(stateDb) ?? null,
    ...history,
    /** Null without webhooks, or if nothing was compared. */
    webhooks: config.webhookSecret !== undefined ? (findLastCoverage(stateDb) ?? null) : null,
    learnt_rate_per_second:
      config.baseUrl !== undefined ? (findLearnt(stateDb, config.baseUrl, world)?.learntRate ?? null) : null,
    runs: listRuns(stateDb, 5),
    /** Why no journal can be issued and no month closed; null if both can. */
    refused: isStored && hasWarehouse(folder) ? await findRefusal(stateDb, folder, world) : null,
    /** Entries of the current release, by profile and month. */
    not_issued: release ? await listNotIssued(config, listExportedProfiles(jobs)) : [],
  }
}

/** Drift is what the last walk met and the contract, `fields.json` and `seed.status` do not know. */
async function readHistoryStatus(folder: DataFolder, statuses: ReadonlySet<string>, world: World) {
  const drift: DriftFinding[] = []
  if (!hasWarehouse(folder)) return {drift, quarantine_waiting: 0}
  await using db = await openHistory(folder, world)
  const mapped = (await listKnownFields(db)).map(({path}) => path.join('.'))
  const isKnown = ({kind, path, value}: DriftFinding) =>
    kind === 'new_field'
      ? mapped.some((field) => field === path || field.startsWith(`${path}.`))
      : path === 'status' && statuses.has(value ?? '')
  for (const stream of STREAMS) {
    const all = await listLastDrift(db, stream)
    const found = stream.parent ? all : all.filter((one) => !isKnown(one))
    drift.push(...found.map((one) => (stream.parent ? {...one, path: `${stream.plural}: ${one.path}`} : one)))
  }
  return {drift, quarantine_waiting: (await countUnreplayed(db)).waiting}
}

const SLOWEST = 3

function renderRelease({release_id, as_of, checks, source, models}: ReleaseManifest): Text {
  const {distinct, quarantined, present} = source
  const total = models.reduce((sum, {duration_ms}) => sum + duration_ms, 0)
  const slowest = models
    .toSorted((a, b) => b.duration_ms - a.duration_ms)
    .slice(0, SLOWEST)
    .map(({name, duration_ms}) => `${name} ${duration_ms} ms`)
  return [
    `Release ${release_id}: as of ${as_of}, ${quantity(checks.passed, 'check')} passed, ${checks.warned} warned.`,
    `Walk ${source.walk_id}: ${quantity(source.records, 'record')}, ${groupThousands(distinct)} distinct, ${groupThousands(quarantined)} quarantined, amount ${groupThousands(source.amount_total)}; present ${quantity(present.deals, 'deal')}, ${groupThousands(present.amount)}.`,
    `Models: ${models.length} built in ${total} ms; slowest ${slowest.join(', ')}.`,
  ]
}

const NAMED_IDS = 5

function renderChecking({release_id, failed}: Checking): string[] {
  return failed.map(({name, severity, failures, ids}) => {
    const named = `${ids.slice(0, NAMED_IDS).join(', ')}${failures > NAMED_IDS ? ', …' : ''}`
    return `Check '${name}' (${severity}): ${quantity(failures, 'row')} in release ${release_id}: ${named}.`
  })
}

function renderDrift({kind, path, value, records}: DriftFinding): string {
  const what = value === null ? path : `${path} '${escapeLineEnds(shorten(value))}'`
  return `Drift: ${kind} ${what} in ${quantity(records, 'record')}.`
}

function renderRuns({runs, running}: Status): Text {
  return tableOf(
    runs.map(({run_id: run, command, started_at: started, error_code, outcome, exit_code: exit}) => {
      const end = error_code ?? outcome ?? (run === running?.run_id ? 'running' : 'died')
      return {run, command, started, outcome: end, exit}
    }),
  )
}

function describeHealth(status: Status): string {
  if (status.healthy)
    return status.alarms.length === 0
      ? 'healthy'
      : `healthy but for ${quantity(status.alarms.length, 'alarm')}`
  if (status.disagreements.length > 0) return 'not healthy, stores disagree'
  if (status.state === 'clock ahead') return 'not healthy, the clock was ahead then'
  if (status.damage !== null) return 'not healthy, the current release is damaged'
  if (status.state === 'no release') return 'not healthy, no release is current; `loantape build` makes one'
  if (status.state === 'too old') return `older than ${status.max_age_hours} h`
  const all = groupThousands(status.release?.source.present.deals ?? 0)
  return `not healthy, ${quantity(status.unclassified_deals, 'deal')} of ${all} in no class`
}

function renderStatus(status: Status): Text {
  const {last_success, running, webhooks, learnt_rate_per_second: rate} = status
  const [next] = status.next_slots
  return [
    `Data folder ${status.folder}.`,
    last_success
      ? `Last success ${last_success.ended_at} (${last_success.age_hours} h ago): ${describeHealth(status)}.`
      : 'No sync has succeeded here yet.',
    running &&
      `Running: ${running.command}, pid ${running.pid}, since ${running.started_at}, ${running.progress}.`,
    status.release && renderRelease(status.release),
    status.release && renderWarnings(status.release.checks),
    status.checking &&
      status.checking.release_id !== status.release?.release_id &&
      renderChecking(status.checking),
    status.disagreements.map(({store, problem}) => `${store}: ${problem}`),
    status.given_up > 0 &&
      `Units and batches given up by \`loantape tape go-on\`: ${groupThousands(status.given_up)}.`,
    warnOfQuarantine(status.quarantine_waiting),
    status.drift.map(renderDrift),
    webhooks &&
      `Webhooks: missed ${groupThousands(webhooks.missed)} of ${quantity(webhooks.changes, 'change')} of walk ${webhooks.walk_id}.`,
    status.refused,
    status.not_issued.map((open) => `Not yet issued of ${open.period}: ${renderNotIssued(open)}.`),
    status.alarms.map(({title, words, since}) => `Alarm since ${since}: ${title}. ${words}`),
    next && `Next slot, if \`loantape serve\` runs: ${next.job} at ${next.slot}.`,
    rate !== null && `Learnt rate: ${rate.toFixed(2)} requests a second.`,
    status.runs.length > 0 && ['', renderRuns(status)],
  ]
}
