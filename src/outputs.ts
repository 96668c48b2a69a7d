import {existsSync, readdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {listBatches} from './accounting/issued.ts'
import {findClosedPeriod, readPeriodSpan} from './accounting/periods.ts'
import {findJournalProfile} from './accounting/profiles.ts'
import {
  exportJournal,
  type JournalPreview,
  type JournalRequest,
  previewJournal,
  requireHandedOver,
} from './books/issue.ts'
import {requireBuilt} from './build/build.ts'
import type {Config} from './core/config.ts'
import {explainError, newError} from './core/errors.ts'
import type {World} from './core/types.ts'
import type {ExportOptions} from './export/batch.ts'
import {type BatchResult, describeRepair, type PeriodMark, readBatchManifest} from './export/batch.ts'
import {
  type DeliverableBatch,
  type DeliveryResult,
  deliverBatch,
  listDeliveries,
} from './export/deliver-files.ts'
import {type NamedTarget, placeOf, readTargets} from './export/delivery-target.ts'
import {PROFILE_NAMES, requireProfile, writeBatch} from './export/table-files.ts'
import {type DataFolder, dataFolderAt} from './store/data-folder.ts'
import {digestFile} from './store/files.ts'
import {type Release, readRelease, requireRelease} from './store/release.ts'
import {openStateDb, type StateDb} from './store/state-db.ts'

/** Which batches to write. */
export interface ExportRequest {
  profiles: readonly string[]
  tables?: readonly string[] | undefined
  /** The release to read; the current one by default. */
  releaseId?: string | undefined
  /** Or the release of this date, built if missing. */
  asOf?: string | undefined
  /** Or of this month, `YYYY-MM`: required for journals; tables are those of its end. */
  period?: string | undefined
  /** Journals also book what was already funded at the first walk. */
  withOpening?: boolean | undefined
  options?: ExportOptions
  /** Whether columns may differ from those of the previous batch. */
  acceptsColumns?: boolean
}

/**
 * Writes tables as one batch per profile, and of each journal what is new since its last export: none, one or two batches.
 *
 * @throws ConfigError `UNKNOWN_NAME`, `PERIOD_…`, `ACCOUNTING_…`
 */
export async function exportRelease(
  config: Config,
  request: ExportRequest,
  world: World,
): Promise<BatchResult[]> {
  const profiles = request.profiles.filter((name) => !findJournalProfile(name))
  for (const name of profiles) requireProfile(name, PROFILE_NAMES)
  const journals = listJournals(request)
  const batches = profiles.length > 0 ? await exportTables(config, {...request, profiles}, world) : []
  for (const journal of journals) {
    world.onProgress({step: journal.profile.name})
    batches.push(...(await exportJournal(config, journal, world)))
  }
  return batches
}

function listJournals({profiles, period, withOpening = false}: ExportRequest): JournalRequest[] {
  return profiles.flatMap((name) => {
    const profile = findJournalProfile(name)
    return profile ? {profile, period: requireMonth(name, period), withOpening} : []
  })
}

/**
 * What an export of journals would issue; issues nothing.
 *
 * @throws what {@link exportRelease} throws
 */
export async function previewExport(
  config: Config,
  request: ExportRequest,
  world: World,
): Promise<JournalPreview[]> {
  const previews = await Array.fromAsync(listJournals(request), async (journal) => {
    world.onProgress({step: journal.profile.name})
    return await previewJournal(config, journal, world)
  })
  return previews.flat()
}

function requireMonth(profile: string, period: string | undefined): string {
  if (period !== undefined) return period
  throw newError(
    'UNKNOWN_NAME',
    `Profile '${profile}' on the command line: expected --period YYYY-MM, the month whose journal it writes.`,
    {next: '`loantape period list` lists the months.'},
  )
}

/** Writes the tables of a release, one batch per profile. */
async function exportTables(config: Config, request: ExportRequest, world: World): Promise<BatchResult[]> {
  const folder = dataFolderAt(config.dataDir)
  const {release, period} = await findSource(folder, config, request, world)
  const batches: BatchResult[] = []
  const {tables, options, acceptsColumns = false} = request
  for (const profile of request.profiles) {
    world.onProgress({step: profile})
    try {
      batches.push(await writeBatch(folder, release, {profile, tables, period, options, acceptsColumns}))
    } catch (error) {
      if (existsSync(release.dir)) throw error
      // Exports take no lock: a sync or `prune` may remove an old release while it is read.
      throw newError(
        'RELEASE_PRUNED',
        `Release '${release.manifest.release_id}' was removed by retention while it was exported.`,
        {cause: error},
      )
    }
  }
  return batches
}

/** A closed period is read from the release it was closed with; if that is lost, from one with the same knowledge. */
async function findSource(
  folder: DataFolder,
  config: Config,
  {releaseId, asOf, period}: ExportRequest,
  world: World,
): Promise<{release: Release; period?: PeriodMark}> {
  if (period !== undefined) {
    const span = await readPeriodSpan(config, period, world)
    using stateDb = openStateDb(folder.stateDb)
    const closed = findClosedPeriod(stateDb, period)?.release
    const kept = closed && readRelease(join(folder.releases, closed.release_id))
    const mark = {period, isComplete: span.isComplete}
    if (kept) return {release: kept, period: mark}
    const knownAt = closed?.known_at.replace('T', ' ').replace('Z', '')
    return {release: await requireBuilt(config, {asOf: span.asOf, knownAt}, world), period: mark}
  }
  if (asOf === undefined) return {release: requireRelease(folder, releaseId)}
  return {release: await requireBuilt(config, {asOf}, world)}
}

type NamedBatch = Pick<BatchResult, 'profile' | 'batch_id' | 'dir'>

/**
 * Delivers batches to targets; for a journal's batch, every batch of its month that a target lacks, since only together are they
 * the journal. A target that fails does not stop the others: each failure is logged, and the first is thrown once all have been
 * tried.
 */
export async function deliverBatches(
  config: Config,
  request: {batches: readonly NamedBatch[]; targets: readonly string[]},
  world: World,
): Promise<DeliveryResult[]> {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  const asked = request.batches.filter(({batch_id}) => batch_id !== '')
  const batches = withWholeJournals(stateDb, folder, asked, world)
  const targets = readTargets(config, request.targets)
  const results = await sendBatches(stateDb, {batches, targets, isAgain: false}, world)
  const isAsked = ({profile, batch_id}: DeliveryResult) =>
    asked.some((batch) => batch.profile === profile && batch.batch_id === batch_id)
  return results.filter((result) => result.outcome === 'delivered' || isAsked(result))
}

/** Otherwise a failed delivery would be forgotten once its month has another batch. */
function withWholeJournals(
  stateDb: StateDb,
  folder: DataFolder,
  asked: readonly NamedBatch[],
  world: World,
): NamedBatch[] {
  const named = asked.flatMap((batch) => {
    const issued = listBatches(stateDb, {profile: batch.profile, batch_id: batch.batch_id})[0]
    if (!issued) return [batch]
    const parts = listBatches(stateDb, {profile: issued.profile, period: issued.period})
    return parts.map((part) => ({...part, dir: requireHandedOver(stateDb, folder, part, world)}))
  })
  return [...new Map(named.map((batch) => [batch.dir, batch])).values()]
}

async function sendBatches(
  stateDb: StateDb,
  request: {batches: readonly NamedBatch[]; targets: readonly NamedTarget[]; isAgain: boolean},
  world: World,
): Promise<DeliveryResult[]> {
  const results: DeliveryResult[] = []
  const failures: unknown[] = []
  for (const {name, target} of request.targets) {
    for (const batch of request.batches) {
      world.onProgress({step: 'delivering'})
      const how = {name, target, isAgain: request.isAgain}
      try {
        results.push(await deliverBatch(stateDb, await readBatch(batch), how, world))
      } catch (error) {
        if (world.signal.aborted) throw error
        failures.push(error)
        const {profile, batch_id} = batch
        world.log.warn({code: explainError(error).code, profile, batch_id}, `delivery to '${name}' failed`)
      }
    }
  }
  if (failures.length > 0) throw failures[0]
  return results
}

/**
 * Sends a batch again: to the targets named, or to where it was sent before.
 *
 * @throws ConfigError `UNKNOWN_NAME`
 */
export async function redeliverBatch(
  config: Config,
  {batchId, targets}: {batchId: string; targets: readonly string[]},
  world: World,
): Promise<DeliveryResult[]> {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  const batches = findKeptBatches(stateDb, folder, batchId, world)
  if (batches.length === 0) {
    throw newError('UNKNOWN_NAME', `Batch '${batchId}' is not in '${folder.exports}'.`, {
      next: 'The folders below it are named after the batches.',
    })
  }
  const named =
    targets.length > 0 ? readTargets(config, targets) : findEarlierTargets(stateDb, config, batchId)
  return await sendBatches(stateDb, {batches, targets: named, isAgain: true}, world)
}

/** The batches with this id: journals from the state database, which keeps their bytes, all others as they are on disk. */
function findKeptBatches(stateDb: StateDb, folder: DataFolder, batchId: string, world: World): NamedBatch[] {
  const issued = listBatches(stateDb, {batch_id: batchId}).map((batch) => ({
    ...batch,
    dir: requireHandedOver(stateDb, folder, batch, world),
  }))
  const profiles = existsSync(folder.exports) ? readdirSync(folder.exports) : []
  const lying = profiles
    .map((profile) => ({profile, batch_id: batchId, dir: join(folder.exports, profile, batchId)}))
    .filter(({dir}) => /^[\w-]+$/.test(batchId) && existsSync(join(dir, 'manifest.json')))
  return [...new Map([...issued, ...lying].map((batch) => [batch.dir, batch])).values()]
}

/** The targets at the places a batch was sent to, whatever their names now. */
function findEarlierTargets(stateDb: StateDb, config: Config, batchId: string): NamedTarget[] {
  const before = listDeliveries(stateDb, batchId)
  const refuse = (problem: string) =>
    newError('UNKNOWN_NAME', `Batch '${batchId}' ${problem}.`, {next: 'Name targets with --deliver.'})
  if (before.length === 0) throw refuse('has not been sent to anybody yet')
  const known = readTargets(config)
  return before.map(({target: name, place}) => {
    const there = known.filter(({target}) => placeOf(target) === place)
    if (there[0]) return there.find((candidate) => candidate.name === name) ?? there[0]
    throw refuse(`was sent to '${name}' (${place}), where there is no target now`)
  })
}

async function readBatch({profile, batch_id, dir}: NamedBatch): Promise<DeliverableBatch> {
  const path = join(dir, 'manifest.json')
  const repair = describeRepair(profile, batch_id)
  const files = readBatchManifest(dir)?.files
  if (!files) {
    throw newError('BATCH_DAMAGED', `Batch '${batch_id}' in '${dir}' has no manifest that can be read.`, {
      next: repair,
    })
  }
  const manifest = {name: 'manifest.json', bytes: statSync(path).size, sha256: await digestFile(path)}
  return {profile, batch_id, dir, repair, files: [...files, manifest]}
}
