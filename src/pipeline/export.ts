import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {findJournalProfile, PROFILE_NAMES} from '../accounting/journal-profiles.ts'
import {findClosedPeriod} from '../accounting/periods.ts'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {type BatchResult, type PeriodMark, requireProfile, writeBatch} from '../export/batch.ts'
import type {ExportOptions} from '../export/profile.ts'
import {type Release, readRelease, requireRelease} from '../release/manifest.ts'
import {openStateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'
import {requireBuilt} from './build.ts'
import {exportJournal, type JournalRequest} from './journal-export.ts'
import {type JournalPreview, previewJournal} from './journal-preview.ts'
import {readPeriodSpan} from './period-span.ts'

/** Which batches to write. */
export interface ExportRequest {
  profiles: readonly string[]
  tables?: readonly string[] | undefined
  /** The release to read; the current one by default. */
  releaseId?: string | undefined
  /** Or the release of this date, built when it is not there. */
  asOf?: string | undefined
  /** Or of this month, `YYYY-MM`: journals need it, tables are those of its end. */
  period?: string | undefined
  /** Journals also book what was funded already at the first walk. */
  withOpening?: boolean | undefined
  options?: ExportOptions
  /** Whether columns other than those of the batch before are accepted. */
  acceptsColumns?: boolean
}

/**
 * Writes tables as one batch per profile; of journals what is new since the last export, which may be none or two.
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

/** The journals that are asked for. */
function listJournals({profiles, period, withOpening = false}: ExportRequest): JournalRequest[] {
  return profiles
    .flatMap((name) => findJournalProfile(name) ?? [])
    .map((profile) => ({profile, period: requireMonth(profile.name, period), withOpening}))
}

/**
 * Tells what an export of journals would issue, and issues nothing.
 *
 * @throws what {@link exportRelease} throws
 */
export async function previewExport(
  config: Config,
  request: ExportRequest,
  world: World,
): Promise<JournalPreview[]> {
  const previews: JournalPreview[] = []
  for (const journal of listJournals(request)) {
    world.onProgress({step: journal.profile.name})
    previews.push(...(await previewJournal(config, journal, world)))
  }
  return previews
}

function requireMonth(profile: string, period: string | undefined): string {
  if (period !== undefined) return period
  throw newError(
    'UNKNOWN_NAME',
    `Profile '${profile}' on the command line: expected --period YYYY-MM, the month whose journal it writes.`,
    {next: '`loantape period list` shows the months there are.'},
  )
}

/** Writes the tables of a release, one batch per profile. */
async function exportTables(config: Config, request: ExportRequest, world: World): Promise<BatchResult[]> {
  const folder = dataFolderAt(config.dataDir)
  const {release, period} = await findSource(folder, config, request, world)
  const batches: BatchResult[] = []
  const {tables, options, acceptsColumns = false} = request
  const how = {...(tables && {tables}), ...(options && {options}), ...(period && {period}), acceptsColumns}
  for (const profile of request.profiles) {
    world.onProgress({step: profile})
    try {
      batches.push(await writeBatch(folder, release, {profile, ...how}))
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

/** A closed period is read from the release it was closed with; where that was lost, as it was known then. */
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
