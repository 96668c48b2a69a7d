import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {isDeepStrictEqual} from 'node:util'
import {listBatches} from './accounting/issued.ts'
import {findClosedPeriod, readPeriodSpan, readRegister} from './accounting/periods.ts'
import {findJournalProfile} from './accounting/profiles.ts'
import {readClosing} from './accounting/read-journal.ts'
import {
  exportJournal,
  type JournalPreview,
  type JournalRequest,
  previewJournal,
  requireHandedOver,
} from './books/issue.ts'
import {requireBuilt} from './build/build.ts'
import type {Config} from './core/config.ts'
import {explainError, isOfKind, newError, sayKept} from './core/errors.ts'
import type {World} from './core/types.ts'
import {type BatchResult, findBatches, type NamedBatch, type PeriodMark} from './export/batch.ts'
import {
  type DeliveryResult,
  deliverBatch,
  listDeliveries,
  oweBatch,
  sendBackup,
} from './export/deliver-files.ts'
import {type NamedTarget, placeOf, readTargets} from './export/delivery-target.ts'
import {type BatchRequest, requireProfile, writeBatch} from './export/table-files.ts'
import {type BackupResult, nameOf, readManifest} from './record/backup.ts'
import {type DataFolder, dataFolderAt} from './store/data-folder.ts'
import {type Release, readRelease, requireRelease, unlessDamaged} from './store/release.ts'
import {openStateDb, type StateDb} from './store/state-db.ts'

export interface ExportRequest extends Pick<BatchRequest, 'tables' | 'dialect' | 'partition'> {
  profiles: readonly string[]
  /** The release to read; the current one by default. */
  releaseId?: string | undefined
  /** Or the release of this date, built if missing. */
  asOf?: string | undefined
  /** Or of this month, `YYYY-MM`. Journals need it; tables are those of the month's end. */
  period?: string | undefined
  /** Journals also book what was already funded at the first walk. */
  withOpening?: boolean | undefined
  /** Of journals, the last month that must be issued; later ones that cannot be are left. By default, `period`. */
  through?: string | undefined
  /** The names of the targets that are to get a journal: what is issued is owed to them, even if nothing comes to be delivered. */
  deliver?: ((profile: string) => readonly string[]) | undefined
}

/**
 * Writes tables as one batch per profile, and of each journal what is new since its last export: the batches of {@link exportJournal}.
 * @throws ConfigError `UNKNOWN_NAME`, `TARGETS_INVALID`, `PERIOD_…`, `ACCOUNTING_…`
 */
export async function exportRelease(
  config: Config,
  request: ExportRequest,
  world: World,
): Promise<BatchResult[]> {
  const profiles = request.profiles.filter((name) => !findJournalProfile(name)).map(requireProfile)
  const journals = listJournals(config, request)
  const batches = profiles.length > 0 ? await exportTables(config, profiles, request, world) : []
  for (const journal of journals) {
    world.onProgress({step: journal.profile.name})
    try {
      for await (const batch of exportJournal(config, journal, world)) batches.push(batch)
    } catch (error) {
      failAfter(batches, error)
    }
  }
  return batches
}

/** Throws the error, which says which batches it came too late for. */
export function failAfter(batches: readonly BatchResult[], error: unknown): never {
  const written = batches.filter(({outcome}) => outcome === 'written')
  if (written.length === 0) throw error
  const names = written.map(({profile, batch_id}) => `${profile}/${batch_id}`).join(', ')
  throw sayKept(explainError(error), `These batches were written, and they count: ${names}.`)
}

/** Issues nothing. @throws what {@link exportRelease} throws */
export async function previewExport(
  config: Config,
  request: ExportRequest,
  world: World,
): Promise<JournalPreview[]> {
  const previews = await Array.fromAsync(listJournals(config, request), async (journal) => {
    world.onProgress({step: journal.profile.name})
    return await previewJournal(config, journal, world)
  })
  return previews.flat()
}

function listJournals(
  config: Config,
  {profiles, period, withOpening = false, through, deliver = () => []}: ExportRequest,
): JournalRequest[] {
  return profiles.flatMap((name) => {
    const profile = findJournalProfile(name)
    if (!profile) return []
    if (period !== undefined)
      return {profile, period, withOpening, through, owedTo: readTargets(config, deliver(name))}
    throw newError(
      'UNKNOWN_NAME',
      `Profile '${name}': expected --period YYYY-MM, the month whose journal it writes.`,
      {next: '`loantape period list` lists the months.'},
    )
  })
}

async function exportTables(
  config: Config,
  profiles: readonly BatchRequest['profile'][],
  request: ExportRequest,
  world: World,
): Promise<BatchResult[]> {
  const folder = dataFolderAt(config.dataDir)
  const {release, period} = await findSource(folder, config, request, world)
  return await Array.fromAsync(profiles, async (profile) => {
    world.onProgress({step: profile})
    return await writeBatch(folder, release, {...request, profile, period}).catch((cause: unknown) => {
      if (existsSync(release.dir)) throw cause
      // Exports take no lock: a sync or `prune` may remove an old release while it is read.
      throw newError(
        'RELEASE_PRUNED',
        `Release '${release.manifest.release_id}' was removed by retention while it was exported.`,
        {cause},
      )
    })
  })
}

/** For a closed period, finds the release it was closed with or, if that is lost, one with the same books. */
async function findSource(
  folder: DataFolder,
  config: Config,
  {releaseId, asOf, period}: ExportRequest,
  world: World,
): Promise<{release: Release; period?: PeriodMark}> {
  if (period === undefined) {
    if (asOf === undefined) return {release: requireRelease(folder, releaseId)}
    return {release: await requireBuilt(config, {asOf}, world)}
  }
  const span = await readPeriodSpan(config, period, world)
  using stateDb = openStateDb(folder.stateDb)
  const closed = findClosedPeriod(stateDb, period)
  const knownAt = closed?.release.known_at.replace('T', ' ').replace('Z', '')
  const kept = closed && unlessDamaged(() => readRelease(join(folder.releases, closed.release.release_id)))
  const release = kept ?? (await requireBuilt(config, {asOf: span.asOf, knownAt}, world))
  if (closed && !kept) {
    const {lines, terms} = closed
    const register = readRegister(stateDb, period)
    const built = await readClosing(release, period)
    // As sets, since earlier versions kept the terms in another order.
    const [then, now] = [terms, built.terms].map((list) => new Set(list))
    if (!isDeepStrictEqual({...built, terms: now}, {lines, terms: then, register}))
      throw newError(
        'PERIOD_STATE',
        `The release that '${period}' was closed with is lost, and one built now has another journal or loan register.`,
        {
          kept: 'Nothing was written.',
          next: `Build with the seeds and models of then (LOANTAPE_SQL_DIR), or reopen ${period} (the months closed after it first), close it again and export again.`,
        },
      )
  }
  return {release, period: {period, isComplete: span.isComplete}}
}

/** Of a journal, delivers every batch that {@link oweBatch} finds lacking. */
export async function deliverBatches(
  config: Config,
  request: {batches: readonly NamedBatch[]; targets: readonly string[]},
  world: World,
): Promise<DeliveryResult[]> {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  const listLacking = (to: NamedTarget) =>
    request.batches.flatMap((batch) => {
      const {profile, batch_id} = batch
      if (!findJournalProfile(profile)) return [batch]
      // A journal without anything new has no id.
      const [issued] = listBatches(stateDb, {profile, batch_id})
      return oweBatch(stateDb, to, profile, issued).map((one) =>
        requireHandedOver(stateDb, folder, one, world),
      )
    })
  // Of every target before any is sent to: a delivery may be stopped.
  const lacking = readTargets(config, request.targets).map((to) => ({to, batches: listLacking(to)}))
  const deliver = (batch: NamedBatch, to: NamedTarget) => deliverBatch(stateDb, batch, to, world)
  const results = await sendToEach(lacking, deliver, world)
  const isAsked = ({profile, batch_id}: DeliveryResult) =>
    request.batches.some((batch) => batch.profile === profile && batch.batch_id === batch_id)
  return results.filter((result) => result.outcome === 'delivered' || isAsked(result))
}

/** Sends to the targets named, or to where the batch was sent before. @throws ConfigError `UNKNOWN_NAME` */
export async function redeliverBatch(
  config: Config,
  {batchId, targets}: {batchId: string; targets: readonly string[]},
  world: World,
): Promise<DeliveryResult[]> {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  const issued = listBatches(stateDb, {batch_id: batchId})
  const restored = issued.map((batch) => requireHandedOver(stateDb, folder, batch, world))
  const batches = [...restored, ...findBatches(folder, batchId)]
  if (batches.length === 0) {
    throw newError('UNKNOWN_NAME', `Batch '${batchId}' is not in '${folder.exports}'.`, {
      next: 'The folders below it are named after the batches.',
    })
  }
  const named =
    targets.length > 0 ? readTargets(config, targets) : findEarlierTargets(stateDb, config, batchId)
  const asked = named.map((to) => ({to, batches}))
  const deliver = async (batch: NamedBatch, to: NamedTarget | FormerTarget) => {
    if ('target' in to) return await deliverBatch(stateDb, batch, {...to, isAgain: true}, world)
    const where = `to '${to.name}' (${to.place}), where there is no target now`
    throw newError('UNKNOWN_NAME', `Batch '${batchId}' was sent ${where}.`, {
      kept: 'Nothing was sent there.',
      next: NAME_TARGETS,
    })
  }
  return await sendToEach(asked, deliver, world)
}

const NAME_TARGETS = 'Name targets with --deliver.'

/** A place that the targets no longer name. */
type FormerTarget = Pick<NamedTarget, 'name'> & {place: string}

/** Finds targets by place, even if their names have changed. */
function findEarlierTargets(
  stateDb: StateDb,
  config: Config,
  batchId: string,
): (NamedTarget | FormerTarget)[] {
  const before = listDeliveries(stateDb, batchId)
  if (before.length === 0)
    throw newError('UNKNOWN_NAME', `Batch '${batchId}' has not been sent to anybody yet.`, {
      next: NAME_TARGETS,
    })
  const known = readTargets(config)
  return before.map(({target: name, place}) => {
    const there = known.filter(({target}) => placeOf(target) === place)
    return there.find((candidate) => candidate.name === name) ?? there[0] ?? {name, place}
  })
}

/** Sends each target its batches, each once. A failing target stops no other: failures are logged, the first is thrown at the end. */
async function sendToEach<Sent, To extends {name: string}>(
  asked: readonly {to: To; batches: readonly NamedBatch[]}[],
  send: (batch: NamedBatch, to: To) => Promise<Sent>,
  world: World,
): Promise<Sent[]> {
  const sent: Sent[] = []
  const failures: unknown[] = []
  for (const {to, batches} of asked) {
    const failed = new Set<string>()
    for (const batch of new Map(batches.map((one) => [one.dir, one])).values()) {
      // The batches of a journal build on each other.
      if (failed.has(batch.profile) && findJournalProfile(batch.profile)) continue
      world.onProgress({step: 'delivering'})
      try {
        sent.push(await send(batch, to))
      } catch (error) {
        if (world.signal.aborted) throw error
        failures.push(error)
        const [{profile, batch_id}, {code}] = [batch, explainError(error)]
        world.log.warn({code, profile, batch_id}, `delivery to '${to.name}' failed`)
        // The next batch would meet the same dead target and wait as long.
        if (isOfKind(error, 'auth', 'deferred')) break
        failed.add(profile)
      }
    }
  }
  if (failures.length > 0) throw failures[0]
  return sent
}

export type SentBackup = BackupResult & {deliveries: Awaited<ReturnType<typeof sendBackup>>[]}

/** Sends below `backup/<id of the data folder>/`. @throws at once if a target does not exist */
export function createBackupSender(config: Config, targets: readonly string[], world: World) {
  const named = readTargets(config, targets)
  return ({dir}: BackupResult): Promise<SentBackup['deliveries']> => {
    const {folder_id, files: listed, ...manifest} = readManifest(dir)
    const files = listed.map(({path: name, ...file}) => ({name, ...file}))
    const made = {profile: `backup/${folder_id}`, batch_id: nameOf(manifest), dir, files}
    const send = (_made: NamedBatch, target: NamedTarget) => sendBackup(made, target, world)
    const asked = named.map((to) => ({to, batches: [made]}))
    return sendToEach(asked, send, world)
  }
}
