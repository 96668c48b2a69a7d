import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {type BatchResult, requireProfile} from '../export/batch.ts'
import {findJournalProfile} from '../export/journal-profiles.ts'
import type {ExportOptions} from '../export/profile.ts'
import type {World} from '../types.ts'
import {exportJournal} from './journal-export.ts'
import {exportTables} from './table-export.ts'

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
  throw newError(
    'EXPORT_PERIOD',
    `Profile '${profile}' on the command line: expected --period YYYY-MM, the month whose journal it writes.`,
  )
}
