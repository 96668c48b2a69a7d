import {hash} from 'node:crypto'
import {existsSync, readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {type AccountMapping, findSharedNames} from '../contract/mapping.ts'
import {ConfigError} from '../errors.ts'
import {
  type BatchContent,
  type IssuedBatch,
  listBatches,
  listIssuedLines,
  markHandedOver,
  readBatchContent,
  storeBatch,
} from '../ledger/issued.ts'
import {inLedgerTransaction, type Ledger} from '../ledger/ledger.ts'
import {listClosedPeriods} from '../ledger/periods.ts'
import {addAmounts} from '../money.ts'
import type {IssuedLine, JournalLine, World} from '../types.ts'
import {GENERATOR} from '../version.ts'
import {syncToDisk} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {beginBatch} from './batch-folder.ts'
import type {JournalProfile} from './journal.ts'
import {bridgeJournal, isReversal, type JournalBridge} from './journal-bridge.ts'
import {groupEntries, type JournalFile, writeJournalFiles} from './journal-file.ts'
import {planIssue, splitOpening} from './journal-plan.ts'
import {proveJournalFiles} from './journal-proof.ts'
import {type BatchFile, type BatchManifest, type BatchSource, isWholeBatch} from './manifest.ts'

/** The journal of a period that everything issued must add up to. */
export interface JournalTarget {
  /** `YYYY-MM` */
  period: string
  isComplete: boolean
  isClosed: boolean
  /** Opening balances among them. */
  lines: readonly JournalLine[]
  /** Whether opening balances are asked for. */
  withOpening: boolean
  mapping: AccountMapping
  source: BatchSource
  /** The date an entry, or the reversal of one, gets. */
  dateOf: (date: string) => string
}

/**
 * Issues what is new between a journal and what was issued of it, in one transaction of the ledger that holds lines and
 * files: from then on it is issued, whatever happens to the process. {@link handOver} puts the files into their place.
 * The files are written and proved before, so that nobody waits for the ledger meanwhile; where another export or a
 * closing was faster, all of it is done again.
 *
 * @returns undefined when there is nothing to issue
 * @throws CheckError `JOURNAL_FILE`; ConfigError `JOURNAL_STALE`: nothing was issued
 */
export function issueJournal(
  ledger: Ledger,
  issue: {profile: JournalProfile; target: JournalTarget},
  world: World,
): IssuedBatch | undefined {
  for (;;) {
    const state = readState(ledger, issue)
    const batch = prepareBatch(ledger, issue)
    if (!batch) return undefined
    world.onStep('journal planned')
    const isStored = inLedgerTransaction(ledger, () => {
      if (readState(ledger, issue) !== state) return false
      storeBatch(ledger, {...batch, issued_at: new Date(world.realClock.now()).toISOString()})
      return true
    })
    if (!isStored) continue
    world.onStep('journal issued')
    const {profile, batch_id, period, known_at} = batch
    return {profile, batch_id, period, known_at}
  }
}

/** What a batch is made from beside the journal: another state, another batch. */
function readState(
  ledger: Ledger,
  {profile, target: {period}}: {profile: JournalProfile; target: JournalTarget},
): string {
  const batches = listBatches(ledger, profile.name, period).map(({batch_id}) => batch_id)
  return JSON.stringify([batches, listClosedPeriods(ledger)])
}

function prepareBatch(
  ledger: Ledger,
  {profile, target}: {profile: JournalProfile; target: JournalTarget},
): (IssuedBatch & {lines: readonly IssuedLine[]; files: readonly BatchContent[]}) | undefined {
  requireSameState(ledger, target)
  requireOwnNames(profile, target)
  requireLatest(listBatches(ledger, profile.name, target.period), target)
  const before = listIssuedLines(ledger, profile.name, target.period)
  const {wanted, leftOut} = splitOpening(target.lines, before, target.withOpening)
  const lines = planIssue(wanted, before, target)
  if (lines.length === 0) return undefined
  const batch = describeBatch(profile, target, lines)
  const context = {batchId: batch.batch_id, mapping: target.mapping}
  const files = writeJournalFiles(profile, groupEntries(lines), context)
  proveJournalFiles(profile, files)
  const supersedes = listSuperseded(lines, before)
  const bridge = bridgeJournal(wanted, leftOut, lines)
  const manifest = writeManifest({profile, target, batchId: batch.batch_id, files, bridge, supersedes})
  const contents = files.map(({name, text}) => ({name, content: Buffer.from(text)}))
  return {...batch, lines, files: [...contents, manifest]}
}

function requireSameState(ledger: Ledger, {period, isClosed}: JournalTarget): void {
  if (listClosedPeriods(ledger).includes(period) === isClosed) return
  throw new ConfigError({
    code: 'JOURNAL_STALE',
    problem: `Period '${period}' was ${isClosed ? 'reopened' : 'closed'} while its journal was read.`,
    kept: 'Nothing was issued or written.',
    next: 'Export again.',
  })
}

function requireOwnNames(
  {name, looksUpBy}: JournalProfile,
  {period, isClosed, mapping}: JournalTarget,
): void {
  const shared = looksUpBy === 'name' ? findSharedNames(mapping) : []
  if (shared.length === 0) return
  const reopen = isClosed ? `Reopen ${period}, which keeps the accounts it was closed with: give` : 'Give'
  throw new ConfigError({
    code: 'ACCOUNT_NAME_SHARED',
    problem: `Account names that stand for two codes in accounting.json: ${shared.join('; ')}. ${name} looks accounts up by name.`,
    kept: 'Nothing was issued or written.',
    next: `${reopen} each account the name it has in ${name}, a sub-account as Parent:Sub.`,
  })
}

function requireLatest(batches: readonly IssuedBatch[], {period, source}: JournalTarget): void {
  const later = batches.find(({known_at}) => known_at > source.known_at)
  if (!later) return
  throw new ConfigError({
    code: 'JOURNAL_STALE',
    problem: `Journal of ${period} as known at ${source.known_at}: batch '${later.batch_id}' was made from what was known at ${later.known_at}.`,
    kept: 'Nothing was issued or written.',
    next: 'Run `loantape sync`, then export again.',
  })
}

function describeBatch(
  {name}: JournalProfile,
  {period, source}: JournalTarget,
  lines: readonly IssuedLine[],
): IssuedBatch {
  const numbers = [...new Set(lines.map(({journal_no}) => journal_no))].sort()
  const digest = hash('sha256', [name, period, ...numbers].join('\n')).slice(0, 12)
  return {profile: name, batch_id: `${period}-${digest}`, period, known_at: source.known_at}
}

/** The batches that entries now reversed were issued in. */
function listSuperseded(
  lines: readonly IssuedLine[],
  issued: readonly (IssuedLine & {batch_id: string})[],
): string[] {
  const reversed = new Set(lines.filter(isReversal).map(({entry_id}) => entry_id))
  return [...new Set(issued.filter(({entry_id}) => reversed.has(entry_id)).map(({batch_id}) => batch_id))]
}

function writeManifest(batch: {
  profile: JournalProfile
  target: JournalTarget
  batchId: string
  files: readonly JournalFile[]
  bridge: JournalBridge
  supersedes: string[]
}): BatchContent {
  const {profile, target, files} = batch
  const manifest: BatchManifest = {
    schema_version: 1,
    generator: GENERATOR,
    batch_id: batch.batchId,
    profile: profile.name,
    release_id: target.source.release_id,
    as_of: target.source.as_of,
    period: target.period,
    period_complete: target.isComplete,
    known_at: target.source.known_at,
    history_id: target.source.history_id,
    currency: target.source.currency,
    time_zone: target.source.time_zone,
    files: files.map((file) => describeFile(profile, file)),
    source: target.source.source,
    supersedes: batch.supersedes,
    bridge: batch.bridge,
  }
  return {name: 'manifest.json', content: Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`)}
}

function describeFile({columns}: JournalProfile, {name, text, entries}: JournalFile): BatchFile {
  const lines = entries.flatMap((entry) => entry.lines)
  const content = Buffer.from(text)
  return {
    name,
    bytes: content.length,
    sha256: hash('sha256', content),
    rows: lines.length,
    columns: [...columns],
    sum_amount: null,
    sum_debit: addAmounts(lines.map(({debit}) => debit)),
    sum_credit: addAmounts(lines.map(({credit}) => credit)),
  }
}

/** Where the files of a batch lie. */
function batchDir(folder: DataFolder, {profile, batch_id}: IssuedBatch): string {
  return join(folder.exports, profile, batch_id)
}

/**
 * Puts the files of an issued batch into their place, the manifest last, under a temporary name first, and notes it. The
 * bytes come from the ledger: however often, they are the same.
 *
 * @returns where they lie
 */
export function handOver(ledger: Ledger, folder: DataFolder, batch: IssuedBatch, world: World): string {
  const final = batchDir(folder, batch)
  const files = readBatchContent(ledger, batch).sort(manifestLast)
  markHandedOver(ledger, batch, false)
  using written = beginBatch(final)
  for (const {name, content} of files) {
    writeFileSync(join(written.dir, name), content)
    syncToDisk(join(written.dir, name))
  }
  world.onStep('journal written')
  written.finish(() => isInPlace(final, files))
  world.onStep('journal in place')
  markHandedOver(ledger, batch, true)
  world.onStep('journal handed over')
  return final
}

/**
 * Makes sure that the files of an issued batch are there; they may have been removed, or never been put there.
 *
 * @returns where they lie
 */
export function requireHandedOver(
  ledger: Ledger,
  folder: DataFolder,
  batch: IssuedBatch,
  world: World,
): string {
  const dir = batchDir(folder, batch)
  return isWholeBatch(dir) ? dir : handOver(ledger, folder, batch, world)
}

/** Whether exactly these files lie in a folder, byte for byte. */
function isInPlace(dir: string, files: readonly BatchContent[]): boolean {
  if (!existsSync(dir) || readdirSync(dir).length !== files.length) return false
  return files.every(({name, content}) => {
    const path = join(dir, name)
    return existsSync(path) && readFileSync(path).equals(content)
  })
}

function manifestLast(a: BatchContent, b: BatchContent): number {
  return Number(a.name === 'manifest.json') - Number(b.name === 'manifest.json')
}
