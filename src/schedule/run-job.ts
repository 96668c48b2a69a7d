import {listIssuedMonths} from '../accounting/issued.ts'
import {findFirstOpen, listPeriodEvents} from '../accounting/periods.ts'
import {findJournalProfile} from '../accounting/profiles.ts'
import {closePeriod} from '../books/close-period.ts'
import {buildRelease} from '../build/build.ts'
import {compareBuildsWhereDue} from '../build/compare-builds.ts'
import {addDays, businessDateOf, dateOfWallTime, wallTimeOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {explainError, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import type {World} from '../core/types.ts'
import type {BatchResult} from '../export/batch.ts'
import {publishRelease} from '../export/publish.ts'
import {createBackupSender, deliverBatches, exportRelease, failAfter} from '../outputs.ts'
import {applyEvents, syncDeals} from '../pipeline.ts'
import {backUpDated, rehearseRestore} from '../record/backup.ts'
import {pruneData} from '../record/prune.ts'
import {dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {examineCurrent} from '../store/release.ts'
import {recordFailure} from '../store/runs.ts'
import {openStateDb, requireThere, type StateDb} from '../store/state-db.ts'
import {ingestRates} from '../sync/rates.ts'
import {type Job, readJobs, type Step} from './job.ts'
import {adoptRun, beginRun, type Claim, describeTimeout, endRun, isOverdue, readRun} from './job-runs.ts'
import {decideRetry} from './scheduler.ts'
import {findBusinessDay} from './slots.ts'
import {pingDeadMan, type RenderDigest, sendDigest, tellPeople} from './tell.ts'

/**
 * Runs a job, records how it ended and whether it is tried again, and tells people. Without a claim somebody started it by hand.
 * @throws ConfigError `RUN_TAKEN` if another process has the claim; whatever its steps throw
 */
export async function performJob(
  config: Config,
  asked: {job: Job; claim?: Claim | undefined; render?: RenderDigest},
  world: World,
) {
  const {job, claim, render} = asked
  const folder = dataFolderAt(config.dataDir)
  const jobs = readJobs(config)
  const hasStep = (name: Step['do']) => job.steps.some((step) => step.do === name)
  // The server that claimed it has one: without it, the folder was moved since.
  if (claim) requireThere(folder.stateDb)
  requireWritable(folder)
  using stateDb = openStateDb(folder.stateDb)
  const begunAt = world.realClock.now()
  const run = claim ? adoptRun(stateDb, claim, begunAt) : beginRun(stateDb, job.name, begunAt)
  if (!run)
    throw newError(
      'RUN_TAKEN',
      `Run '${claim?.job_run_id}', attempt ${claim?.attempt}: another process has taken it over.`,
    )
  await using telling = new AsyncDisposableStack()
  if (hasStep('notify'))
    telling.defer(() => tellPeople(stateDb, config, () => ({...examineCurrent(folder), jobs}), world))
  try {
    const slot = run.slot === null ? undefined : Date.parse(run.slot)
    const result = await runJob(config, {job, slot, render}, world)
    endRun(stateDb, run, {exit_code: 0, summary: JSON.stringify(result)}, world.realClock.now())
    if (hasStep('sync')) await pingDeadMan(config, world)
    return result
  } catch (error) {
    const now = world.realClock.now()
    const wasEnded = world.signal.aborted && isOverdue(job, readRun(stateDb, run.job_run_id), now)
    const {code: error_code, exitCode: exit_code, message} = explainError(error)
    const not_before = decideRetry(job, run, {exit_code, error_code}, now)
    const end = {exit_code, error_code, error: scrubSecrets(message), not_before}
    recordFailure(() => endRun(stateDb, run, wasEnded ? describeTimeout(job) : end, now), world)
    throw error
  }
}

/** `slot` is ms since the epoch; without one, somebody started the job by hand. */
interface JobRequest {
  job: Job
  slot?: number | undefined
  render?: RenderDigest | undefined
}

/** Stops at the first step that fails, or says `not_due`. Returns what `run --json` prints. */
export async function runJob(config: Config, request: JobRequest, world: World) {
  const job = request.job.name
  const steps: Awaited<ReturnType<typeof runStep>>[] = []
  for (const step of request.job.steps) {
    if (step.do === 'notify') continue
    world.log.info({job, step: step.do}, 'step begins')
    world.onProgress({step: step.do})
    if (steps.length > 0) requireThere(dataFolderAt(config.dataDir).stateDb)
    const batches = steps.flatMap((done) =>
      done.do === 'export' ? done.result : done.do === 'close_period' ? done.issued : [],
    )
    const done = await runStep(config, {step, batches}, request, world)
    steps.push(done)
    if (done.do === 'sync' || done.do === 'build') await compareBuildsWhereDue(config, world)
    if (done.do === 'close_period' && done.result.outcome === 'not_due')
      return {job, outcome: 'not_due' as const, steps}
  }
  return {job, outcome: 'done' as const, steps}
}

async function runStep(
  config: Config,
  {step, batches}: {step: Exclude<Step, {do: 'notify'}>; batches: readonly BatchResult[]},
  {job, slot, render}: JobRequest,
  world: World,
) {
  const instant = slot ?? world.clock.now()
  switch (step.do) {
    case 'sync':
      return {do: step.do, result: await syncDeals(config, {}, world)}
    case 'apply_events':
      return {do: step.do, result: await applyEvents(config, world)}
    case 'build':
      return {do: step.do, result: await buildRelease(config, {}, world)}
    case 'ingest_rates':
      return {do: step.do, result: await ingestRates(config, world)}
    case 'close_period':
      return {do: step.do, ...(await closePreviousMonth(config, {job, step, instant}, world))}
    case 'backup': {
      const send = createBackupSender(config, step.deliver ?? [], world)
      return {do: step.do, result: await backUpDated(config, step, world, send)}
    }
    case 'prune':
      return {do: step.do, result: await pruneData(config, {isDryRun: false}, world)}
    case 'restore_drill':
      return {do: step.do, result: await rehearseRestore(config, step, world)}
    case 'publish':
      return {do: step.do, result: await publishRelease(config, {to: step.to}, world)}
    case 'digest':
      return {do: step.do, result: await sendDigest(config, {job: job.name, step, render}, world)}
    case 'deliver':
      return {do: step.do, result: await deliverBatches(config, {batches, targets: step.targets}, world)}
    case 'export': {
      const {profiles, tables, dialect, period, deliver: targets} = step
      const today = businessDateOf(world.clock.now(), config)
      const day = businessDateOf(instant, config)
      // When catching up, files are as of the day of the slot.
      const asOf = day < today ? day : undefined
      const previous = previousMonthOf(dayOf(instant, job))
      const journals = profiles.filter(findJournalProfile)
      const request = {profiles: journals, period: period && previous, deliver: receiversIn(job, [step])}
      const result = await exportRelease(config, request, world)
      // Tables go with the journals of this run, which may be of months that earlier runs left out, or of the one under way.
      const months = [...[...batches, ...result].flatMap((batch) => batch.period ?? []), previous]
      const over = new Set(months.filter((month) => month <= previous))
      const moments = period ? [...over].map((month) => ({period: month})) : [{asOf}]
      const others = profiles.filter((name) => !journals.includes(name))
      for (const moment of moments) {
        const work = exportRelease(config, {profiles: others, tables, dialect, ...moment}, world)
        result.push(...(await work.catch((error: unknown) => failAfter(result, error))))
      }
      const deliveries = targets && (await deliverBatches(config, {batches: result, targets}, world))
      return {do: step.do, result, ...(deliveries && {deliveries})}
    }
  }
}

type ExportStep = Extract<Step, {do: 'export'}>

/** The targets that get what these steps export in a profile: their own, and those of delivering steps after them. */
const receiversIn = (job: Job, exporting: readonly ExportStep[]) => (profile: string) =>
  exporting
    .filter(({profiles}) => profiles.includes(profile))
    .flatMap((step) => {
      const later = job.steps.slice(job.steps.indexOf(step))
      return [...(step.deliver ?? []), ...later.flatMap((one) => (one.do === 'deliver' ? one.targets : []))]
    })

const dayOf = (instant: number, {timeZone}: Job) => dateOfWallTime(wallTimeOf(instant, timeZone))

const previousMonthOf = (day: string) => addDays(`${day.slice(0, 7)}-01`, -1).slice(0, 7)

/**
 * Tries again on later days if its business day failed. It is `not_due` before that day, before the first walk, and after a
 * person reopened the month, who then closes it. `issued` is what {@link issueEarlier} wrote.
 */
async function closePreviousMonth(
  config: Config,
  {job, step, instant}: {job: Job; step: Extract<Step, {do: 'close_period'}>; instant: number},
  world: World,
) {
  const day = dayOf(instant, job)
  const period = previousMonthOf(day)
  const without = (outcome: 'unchanged' | 'not_due') => ({result: {outcome, period}, issued: []})
  const dueOn = findBusinessDay(day.slice(0, 7), step.businessDay, step.holidays)
  using stateDb = openStateDb(dataFolderAt(config.dataDir).stateDb)
  const ofMonth = listPeriodEvents(stateDb).filter((act) => act.period === period)
  const last = ofMonth.findLast(({action}) => action === 'close' || action === 'reopen')
  if (day < dueOn || last?.action === 'reopen') return without('not_due')
  try {
    const issued =
      findFirstOpen(stateDb) === period ? await issueEarlier(config, stateDb, {job, period}, world) : []
    const closing = closePeriod(config, {period, why: `job ${job.name}`}, world)
    return {result: await closing.catch((error: unknown) => failAfter(issued, error)), issued}
  } catch (error) {
    const {code} = explainError(error)
    if (code === 'PERIOD_CLOSED') return without('unchanged')
    if (code === 'PERIOD_RANGE') return without('not_due')
    throw error
  }
}

/** What earlier months lack in the journals of a job is dated in the first open month, so it is issued before that is closed. */
async function issueEarlier(
  config: Config,
  stateDb: StateDb,
  {job, period}: {job: Job; period: string},
  world: World,
): Promise<BatchResult[]> {
  const exporting = job.steps.filter((step) => step.do === 'export')
  const hasEarlier = (name: string) => (listIssuedMonths(stateDb, name)[0] ?? period) < period
  const profiles = exporting
    .flatMap((step) => step.profiles)
    .filter((name) => findJournalProfile(name) && hasEarlier(name))
  const deliver = receiversIn(job, exporting)
  const request = {profiles, period: previousMonthOf(period), through: period, deliver}
  const batches = await exportRelease(config, request, world)
  return batches.filter(({outcome}) => outcome === 'written')
}
