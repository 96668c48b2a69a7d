import {existsSync} from 'node:fs'
import {join} from 'node:path'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {type BatchResult, type PeriodMark, writeBatch} from '../export/batch.ts'
import type {ExportOptions} from '../export/profile.ts'
import {openLedger} from '../ledger/ledger.ts'
import {findClosedPeriod} from '../ledger/periods.ts'
import {type Release, readRelease, requireRelease} from '../release/manifest.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'
import {buildRelease} from './build.ts'
import {readPeriodSpan} from './period-span.ts'

/** Which tables to export. */
export interface TableRequest {
  profiles: readonly string[]
  tables?: readonly string[]
  releaseId?: string
  asOf?: string
  period?: string
  options?: ExportOptions
  /** Whether columns other than those of the batch before are accepted. */
  acceptsColumns?: boolean
}

/** Writes the tables of a release, one batch per profile. */
export async function exportTables(
  config: Config,
  request: TableRequest,
  world: World,
): Promise<BatchResult[]> {
  const folder = dataFolderAt(config.dataDir)
  const {release, period} = await findSource(folder, config, request, world)
  const batches: BatchResult[] = []
  const {tables, options, acceptsColumns = false} = request
  const how = {...(tables && {tables}), ...(options && {options}), ...(period && {period}), acceptsColumns}
  for (const profile of request.profiles) {
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
  {releaseId, asOf, period}: TableRequest,
  world: World,
): Promise<{release: Release; period?: PeriodMark}> {
  if (period !== undefined) {
    const span = await readPeriodSpan(folder, config, period, world)
    using ledger = openLedger(folder.ledger)
    const closed = findClosedPeriod(ledger, period)?.release
    const kept = closed && readRelease(join(folder.releases, closed.release_id))
    const mark = {period, isComplete: span.isComplete}
    if (kept) return {release: kept, period: mark}
    const knownAt = closed?.known_at.replace('T', ' ').replace('Z', '')
    const built = await buildRelease(config, {asOf: span.asOf, knownAt}, world)
    return {release: requireRelease(folder, built.release_id), period: mark}
  }
  if (asOf === undefined) return {release: requireRelease(folder, releaseId)}
  const built = await buildRelease(config, {asOf}, world)
  return {release: requireRelease(folder, built.release_id)}
}
