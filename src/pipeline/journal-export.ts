import type {Config} from '../config.ts'
import {ConfigError} from '../errors.ts'
import type {BatchResult} from '../export/batch.ts'
import type {JournalProfile} from '../export/journal.ts'
import {handOver, issueJournal, type JournalTarget, requireHandedOver} from '../export/journal-batch.ts'
import {requireKnownBatches, requireSameHistory} from '../export/journal-origin.ts'
import {
  countIssuedLines,
  findBatches,
  type IssuedBatch,
  listBatches,
  listUndelivered,
  readBatchContent,
} from '../ledger/issued.ts'
import {type Ledger, openLedger} from '../ledger/ledger.ts'
import {findClosedPeriod, findFirstOpen} from '../ledger/periods.ts'
import {releaseManifestSchema, requireRelease} from '../release/manifest.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt, requireExports, requireWritable} from '../warehouse/data-folder.ts'
import {readAccountMapping} from './account-mapping.ts'
import {buildRelease} from './build.ts'
import {readJournal} from './journal-read.ts'
import {readPeriodSpan} from './period-span.ts'

/** Which journal to export. */
export interface JournalRequest {
  profile: JournalProfile
  /** `YYYY-MM` */
  period: string
  /** Also what was funded already at the first walk; once booked, it stays. */
  withOpening: boolean
}

/**
 * Brings what was issued of a period's journal up to date: issues the difference and hands its files over. A closed
 * period is issued as it was closed; what became known later follows as a batch of its own, dated in the open period.
 * What an earlier run issued and could not hand over is handed over first.
 *
 * @returns the batches handed over, and the last one of the period where none of them is
 * @throws ConfigError `PERIOD_…`, `ACCOUNT_UNMAPPED`, `EXPORTS_NOT_WRITABLE`, `JOURNAL_…`
 */
export async function exportJournal(
  config: Config,
  request: JournalRequest,
  world: World,
): Promise<BatchResult[]> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const {profile, period, withOpening} = request
  requireExports(folder, profile.name)
  using ledger = openLedger(folder.ledger)
  requireKnownBatches(ledger, folder, {profile: profile.name, period})
  const recovered = listUndelivered(ledger, profile.name)
  const batches = recovered.map((batch) => deliver(ledger, folder, batch, world))
  const span = await readPeriodSpan(folder, config, period, world)
  await requireSameHistory(ledger, folder, {profile: profile.name, period})
  const closed = findClosedPeriod(ledger, period, releaseManifestSchema)
  if (closed && !hasLater(listBatches(ledger, profile.name, period), closed.release.known_at)) {
    const target = {
      period,
      isClosed: true,
      isComplete: true,
      lines: closed.lines,
      withOpening,
      mapping: closed.mapping,
      source: closed.release,
      dateOf: (date: string) => date,
    }
    batches.push(...issueAndDeliver(ledger, folder, {profile, target}, world))
  }
  const built = await buildRelease(folder, config, {asOf: span.asOf}, world)
  const release = requireRelease(folder, built.release_id)
  const lines = await readJournal(release, period, {isClosed: closed !== undefined})
  const target = {
    period,
    isClosed: closed !== undefined,
    isComplete: span.isComplete,
    lines,
    withOpening,
    mapping: closed?.mapping ?? readAccountMapping(config),
    source: release.manifest,
    dateOf: (date: string) => (closed ? `${findFirstOpen(ledger)}-01` : date),
  }
  batches.push(...issueAndDeliver(ledger, folder, {profile, target}, world))
  if (batches.some((batch) => batch.period === period)) return batches
  return [...batches, describeStanding(ledger, folder, request, world)]
}

/** Whether something was issued that became known after a period was closed: then it was issued as closed before. */
function hasLater(batches: readonly IssuedBatch[], knownAt: string): boolean {
  return batches.some((batch) => batch.known_at > knownAt)
}

function issueAndDeliver(
  ledger: Ledger,
  folder: DataFolder,
  issue: {profile: JournalProfile; target: JournalTarget},
  world: World,
): BatchResult[] {
  const batch = issueJournal(ledger, issue, world)
  return batch ? [deliver(ledger, folder, batch, world)] : []
}

function deliver(ledger: Ledger, folder: DataFolder, batch: IssuedBatch, world: World): BatchResult {
  const dir = handOver(ledger, folder, batch, world)
  return {...measure(ledger, batch), dir, outcome: 'written'}
}

function measure(ledger: Ledger, batch: IssuedBatch): Omit<BatchResult, 'dir' | 'outcome'> {
  const files = readBatchContent(ledger, batch).filter(({name}) => name !== 'manifest.json')
  return {
    profile: batch.profile,
    period: batch.period,
    batch_id: batch.batch_id,
    files: files.length,
    rows: countIssuedLines(ledger, batch),
    bytes: files.reduce((sum, {content}) => sum + content.length, 0),
  }
}

/** What there is where nothing is new: the last batch, or that there is nothing to book. */
function describeStanding(
  ledger: Ledger,
  folder: DataFolder,
  {profile, period}: JournalRequest,
  world: World,
): BatchResult {
  const last = listBatches(ledger, profile.name, period).at(-1)
  if (last) {
    const dir = requireHandedOver(ledger, folder, last, world)
    return {...measure(ledger, last), dir, outcome: 'unchanged'}
  }
  return {profile: profile.name, period, batch_id: '', dir: '', files: 0, rows: 0, bytes: 0, outcome: 'empty'}
}

/**
 * Writes a journal batch again, the same bytes.
 *
 * @throws ConfigError `BATCH_UNKNOWN`
 */
export function reissueBatch(config: Config, batchId: string, world: World): BatchResult[] {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  using ledger = openLedger(folder.ledger)
  const batches = findBatches(ledger, batchId)
  if (batches.length === 0) {
    throw new ConfigError({
      code: 'BATCH_UNKNOWN',
      problem: `Batch '${batchId}' in --reissue: expected the id of a journal batch in the ledger.`,
      kept: 'Nothing was written.',
      next: '`loantape period list` names them. Batches of tables come out the same when their release is exported again.',
    })
  }
  for (const {profile} of batches) requireExports(folder, profile)
  return batches.map((batch) => deliver(ledger, folder, batch, world))
}
