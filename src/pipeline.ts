import {type Config, requireSource, type SourceConfig} from './config.ts'
import {dealStream} from './contract/deal.ts'
import {parseChildStreams} from './contract/streams.ts'
import {ConfigError} from './errors.ts'
import {type BatchResult, requireProfile} from './export/batch.ts'
import {findJournalProfile} from './export/journal-profiles.ts'
import type {ExportOptions} from './export/profile.ts'
import {findLearntRate, storeLearntRate} from './ledger/learnt-rate.ts'
import {type CurrentRun, withRun} from './ledger/runs.ts'
import {addSourceAnswers} from './ledger/source-answers.ts'
import {listNamedDeals} from './ledger/webhook-events.ts'
import {certifyWalk} from './load/certify.ts'
import type {Acceptance} from './load/guard.ts'
import {type BuildRequest, type BuildResult, buildRelease} from './pipeline/build.ts'
import {type ChildResult, syncChildren} from './pipeline/children.ts'
import {fetchMissingDetails} from './pipeline/detail.ts'
import {exportJournal} from './pipeline/journal-export.ts'
import {restageWalks} from './pipeline/restage.ts'
import {previewWalk, settleWalk} from './pipeline/settle.ts'
import {exportTables} from './pipeline/table-export.ts'
import {openTapes} from './pipeline/tapes.ts'
import {readToEnd, requireOwnSource} from './pipeline/walk.ts'
import {createWalkClock, dropStepped} from './pipeline/walk-clock.ts'
import {createWebhookWatch} from './pipeline/webhook-watch.ts'
import {createClient} from './source/client.ts'
import type {Certificate, ChangeCounts, World} from './types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from './warehouse/data-folder.ts'
import {requireHashKey} from './warehouse/hash-key.ts'
import {openWarehouse} from './warehouse/warehouse.ts'

/** How a sync is asked for. */
export interface SyncRequest {
  accept?: readonly Acceptance[]
  /** Walk and compare, but store nothing but the walk itself. */
  isDryRun?: boolean
}

/** What a sync came to; `sync --json` prints it. */
export interface SyncResult {
  run_id: string
  outcome: 'released' | 'unchanged' | 'dry_run'
  walk: {
    walk_id: string
    business_date: string
    pages: number
    records: number
    distinct: number
    duplicates: number
    quarantined: number
    resumed: number
  }
  changes: ChangeCounts
  /** What became of the streams beside the deals, in the order they were read. */
  streams: ChildResult[]
  release_id: string | null
  checks: {passed: number; warned: number}
  duration_ms: number
  waited_ms: number
}

/**
 * One run, from the source to a release: walk every page, prove it complete, guard it, append what changed, and build
 * the portfolio tables. Whatever stops it, what was stored stays, and the next run goes on from there.
 *
 * @throws one of the errors of src/errors.ts, each with its exit code
 */
export async function syncDeals(config: Config, request: SyncRequest, world: World): Promise<SyncResult> {
  const source = requireSource(config)
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const startedAt = world.realClock.now()
  return withRun(folder.ledger, 'sync', world, async (run) => {
    const walked = await walkAndApply(folder, source, request, watchRun(run, world))
    const build = request.isDryRun ? undefined : await buildRelease(folder, config, {}, world)
    const {certificate} = walked
    return {
      run_id: run.runId,
      outcome: build === undefined ? 'dry_run' : build.outcome,
      walk: {
        walk_id: certificate.walkId,
        business_date: certificate.businessDate,
        pages: certificate.pages,
        records: certificate.records,
        distinct: certificate.distinct,
        duplicates: certificate.duplicates,
        quarantined: certificate.quarantined,
        resumed: certificate.resumed,
      },
      changes: walked.changes,
      streams: walked.streams,
      release_id: build?.release_id ?? null,
      checks: build?.checks ?? {passed: 0, warned: 0},
      duration_ms: world.realClock.now() - startedAt,
      waited_ms: walked.waitedMs,
    }
  })
}

/** What the part of a run before its release came to. */
export interface Walked {
  certificate: Certificate
  changes: ChangeCounts
  /** What became of the streams beside the deals, in the order they were read. */
  streams: ChildResult[]
  waitedMs: number
}

/** The part of a run that writes the warehouse; it is closed again before the release is built. */
export async function walkAndApply(
  folder: DataFolder,
  config: SourceConfig,
  request: SyncRequest,
  {run, world: outside}: {run: CurrentRun; world: World},
): Promise<Walked> {
  const stream = dealStream
  const children = parseChildStreams(config.streams)
  const accepted = new Set(request.accept)
  await using db = await openWarehouse(folder, outside, config.memoryMb)
  outside.onStep('warehouse opened')
  await using tapes = openTapes(config, {folder, ledger: run.ledger}, outside)
  const walks = await restageWalks({db, tapes}, outside)
  await requireOwnSource({db, tapes, walks}, config.baseUrl, accepted)
  const world = {...outside, clock: await createWalkClock(db, walks, outside.clock)}
  const needsKey = children.some(({privacy}) => privacy && privacy.hashed.length > 0)
  const hashKey = needsKey ? await requireHashKey(db, folder, config.hashKey) : undefined
  const learntRate = findLearntRate(run.ledger, config.baseUrl, world)
  await using client = createClient({...config, learntRate}, world)
  try {
    const webhooks = createWebhookWatch(run.ledger, config, world)
    const isDryRun = request.isDryRun ?? false
    const tools = {
      db,
      stream,
      folder,
      tapes,
      walks,
      client,
      config,
      accepted,
      runId: run.runId,
      webhooks,
      isDryRun,
    }
    const walk = await readToEnd(tools, world)
    if (isDryRun) return {...(await previewWalk(tools, walk)), streams: [], waitedMs: client.waitedMs}
    const certificate = await certifyWalk(db, stream, walk)
    world.onStep('walk certified')
    const budgetEndsAt = world.realClock.now() + config.detailBudgetMinutes * 60_000
    const details = await fetchMissingDetails(tools, walk, world)
    const changes = await settleWalk(tools, walk, details, world)
    const announced = listNamedDeals(run.ledger).map((deal) => ({id: deal.deal_id, at: deal.received_at}))
    const streams: ChildResult[] = []
    for (const child of children) {
      const budgetMs = budgetEndsAt - world.realClock.now()
      const childTools = {...tools, stream: child, hashKey, announced, webhooks: undefined}
      streams.push(await syncChildren(childTools, {businessDate: walk.businessDate, budgetMs}, world))
    }
    return {certificate, changes, streams, waitedMs: client.waitedMs}
  } catch (error) {
    await dropStepped({db, tapes, walks}, error)
    throw error
  } finally {
    storeLearntRate(run.ledger, config.baseUrl, client.stats.ratePerSecond, world)
    addSourceAnswers(run.ledger, client.stats.answers)
  }
}

/** The ledger is written this often at most while a run gets on. */
const NOTED_MS = 1000

/** Lets other processes see how the run gets on, too. */
function watchRun(run: CurrentRun, world: World): {run: CurrentRun; world: World} {
  let notedAt = 0
  const onProgress: World['onProgress'] = (progress) => {
    world.onProgress(progress)
    const now = world.realClock.now()
    if (now - notedAt < NOTED_MS) return
    notedAt = now
    run.setProgress(`${progress.step}: ${progress.pages} pages, ${progress.records} records`)
  }
  return {run, world: {...world, onProgress}}
}

/** Builds and checks a release without walking. */
export async function buildPortfolio(
  config: Config,
  request: BuildRequest,
  world: World,
): Promise<BuildResult> {
  const folder = dataFolderAt(config.dataDir)
  return buildRelease(folder, config, request, world)
}

/** Which batches to write. */
export interface ExportRequest {
  profiles: readonly string[]
  tables?: readonly string[]
  /** The release to read; the current one by default. */
  releaseId?: string
  /** Or the release of this date, built when it is not there. */
  asOf?: string
  /** Or of this month, `YYYY-MM`: journals need it, tables are those of its end. */
  period?: string
  /** Journals also book what was funded already at the first walk. */
  withOpening?: boolean
  options?: ExportOptions
  /** Whether columns other than those of the batch before are accepted. */
  acceptsColumns?: boolean
}

/**
 * Writes tables as one batch per profile; of journals what is new since the last export, which may be none or two.
 *
 * @throws ConfigError `EXPORT_PROFILE`, `EXPORT_PERIOD`, `EXPORT_TABLE`, `PERIOD_…`, `ACCOUNT_UNMAPPED`
 */
export async function exportRelease(
  config: Config,
  request: ExportRequest,
  world: World,
): Promise<BatchResult[]> {
  const profiles = request.profiles.filter((name) => !findJournalProfile(name))
  for (const name of profiles) requireProfile(name)
  const journals = request.profiles
    .flatMap((name) => findJournalProfile(name) ?? [])
    .map((profile) => ({
      profile,
      period: requireMonth(profile.name, request.period),
      withOpening: request.withOpening ?? false,
    }))
  const batches = profiles.length > 0 ? await exportTables(config, {...request, profiles}, world) : []
  for (const journal of journals) batches.push(...(await exportJournal(config, journal, world)))
  return batches
}

function requireMonth(profile: string, period: string | undefined): string {
  if (period !== undefined) return period
  throw new ConfigError({
    code: 'EXPORT_PERIOD',
    problem: `Profile '${profile}' on the command line: expected --period YYYY-MM, the month whose journal it writes.`,
    kept: 'Nothing was written.',
    next: '`loantape period list` shows the months there are.',
  })
}
