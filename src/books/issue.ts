import {existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {backup} from 'node:sqlite'
import {z} from 'zod'
import {type Act, applyAct, createPerformer, type Perform} from '../accounting/acts.ts'
import {
  type BatchContent,
  findBatches,
  findLastKnown,
  type IssuedBatch,
  listBatches,
  listIssuedLines,
  listIssuedPeriods,
  listUndelivered,
  markHandedOver,
  readBatchContent,
} from '../accounting/issued.ts'
import {requireOwnMapping} from '../accounting/own-mapping.ts'
import {
  type ClosedPeriod,
  createDating,
  findClosedPeriod,
  listClosedPeriods,
  readPeriodSpan,
} from '../accounting/periods.ts'
import {bookOpenings, type IssuedLine, type JournalProfile} from '../accounting/profiles.ts'
import {readJournal, readTieOut} from '../accounting/read-journal.ts'
import {requireBuilt} from '../build/build.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {addAmounts} from '../core/money.ts'
import type {World} from '../core/types.ts'
import type {BatchResult} from '../export/batch.ts'
import {beginBatch, isWholeBatch} from '../export/batch-folder.ts'
import {type DataFolder, dataFolderAt, requireExports, requireWritable} from '../store/data-folder.ts'
import {syncToDisk} from '../store/files.ts'
import {tellWentOn} from '../store/recorded.ts'
import type {Release} from '../store/release.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {issueJournal, type JournalTarget, type OtherMonths, planMonth} from './journal-batch.ts'
import {requireSameHistory} from './standing.ts'

/** Which journal to export. */
export interface JournalRequest {
  profile: JournalProfile
  /** `YYYY-MM` */
  period: string
  /** Also book what was already funded at the first walk; once booked, it stays. */
  withOpening: boolean
}

/**
 * Issues what is new in a period's journal and hands its files over. A closed period is issued as it was closed; what became
 * known later follows as a batch of its own, dated in the open period. Batches that an earlier run issued but could not hand over
 * are handed over first.
 *
 * @returns the batches handed over; if none is of the period, also its last one
 * @throws ConfigError `PERIOD_…`, `ACCOUNTING_…`, `NOT_WRITABLE`, `JOURNAL_…`
 */
export async function exportJournal(
  config: Config,
  request: JournalRequest,
  world: World,
): Promise<BatchResult[]> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  requireExports(folder, request.profile.name)
  using stateDb = openStateDb(folder.stateDb)
  return await issueMonth(
    config,
    request,
    {
      stateDb,
      perform: createPerformer(config, {folder, stateDb}, world),
      handOut: (batch) => deliver(stateDb, folder, batch, world),
      findHandedOut: (batch) => requireHandedOver(stateDb, folder, batch, world),
    },
    world,
  )
}

/** Where batches are issued, and how their files are handed over. */
interface Issuing {
  stateDb: StateDb
  perform: Perform
  handOut(batch: IssuedBatch): BatchResult
  /** The folder of the files of an issued batch. */
  findHandedOut(batch: IssuedBatch): string
}

/** Issues what is new in a month. */
async function issueMonth(
  config: Config,
  {profile, period, withOpening}: JournalRequest,
  {stateDb, perform, handOut, findHandedOut}: Issuing,
  world: World,
): Promise<BatchResult[]> {
  const folder = dataFolderAt(config.dataDir)
  const batches = listUndelivered(stateDb, profile.name).map(handOut)
  const own = requireOwnMapping(config)
  const span = await readPeriodSpan(config, period, world)
  await requireSameHistory(stateDb, folder)
  const closed = findClosedPeriod(stateDb, period)
  const release = await requireBuilt(config, {asOf: span.asOf}, world)
  const readLatest = async () =>
    span.asOf === span.observedUntil ? release : await requireBuilt(config, {asOf: span.observedUntil}, world)
  const month = {
    period,
    isClosed: closed !== undefined,
    closedPeriods: listClosedPeriods(stateDb),
    batchIds: new Set(listBatches(stateDb, profile.name, period).map(({batch_id}) => batch_id)),
    withOpening,
  }
  const issue = async (target: MonthTarget) => {
    const elsewhere = await readElsewhere(stateDb, profile, target, readLatest)
    const batch = issueJournal(stateDb, {profile, target: {...target, elsewhere}, perform}, world)
    if (batch) batches.push(handOut(batch))
  }
  if (closed && isIssuedAsClosed(stateDb, profile, closed)) {
    await issue({
      ...month,
      isComplete: true,
      lines: closed.lines,
      terms: closed.terms,
      mapping: closed.mapping,
      // The history it now depends on: after a true-up, the recovered one.
      source: tellWentOn(stateDb, {...closed.release, history_id: closed.history_id}),
      dateOf: (date: string) => date,
    })
    // After a recovery, the month may have been closed with more knowledge than there is now: this batch is not a later one.
    for (const {batch_id} of batches) month.batchIds.add(batch_id)
  }
  const terms = await readTieOut(release, period)
  await issue({
    ...month,
    isComplete: span.isComplete,
    terms,
    lines: await readJournal(release, period, {isClosed: month.isClosed}),
    mapping: closed?.mapping ?? own,
    source: tellWentOn(stateDb, release.manifest),
    dateOf: createDating(month.closedPeriods),
  })
  if (!batches.some((batch) => batch.period === period))
    batches.push(describeStanding(stateDb, {profile, period}, findHandedOut))
  const issued = listIssuedLines(stateDb, profile.name, {period})
  const tied = issued.some(({event}) => event === 'opening') ? bookOpenings(terms) : terms
  return batches.map((batch) => (batch.period === period ? {...batch, terms: tied} : batch))
}

/** What a month must add up to, before other months are considered. */
type MonthTarget = Omit<JournalTarget, 'elsewhere'>

/**
 * Whether to issue a closed month as it was closed. Not if later knowledge of it was already issued, or history was recovered
 * since it was issued: then it was issued as closed before.
 */
function isIssuedAsClosed(
  stateDb: StateDb,
  {name}: JournalProfile,
  {period, release, history_id}: ClosedPeriod,
): boolean {
  const knownAt = findLastKnown(stateDb, name, period)
  return knownAt === null || (knownAt <= release.known_at && history_id === release.history_id)
}

/** The present journal of other months, for the deals this month is about to book: their bookings may have moved. */
async function readElsewhere(
  stateDb: StateDb,
  profile: JournalProfile,
  target: MonthTarget,
  readLatest: () => Promise<Release>,
): Promise<OtherMonths> {
  const {lines} = planMonth(stateDb, profile, target)
  const deals = new Set(lines.map(({deal_id}) => deal_id))
  const issued = listIssuedLines(stateDb, profile.name, {deals}).filter(
    ({period}) => period !== target.period,
  )
  if (issued.length === 0) return {deals, lines: []}
  const periods = listIssuedPeriods(stateDb, profile.name).filter((period) => period !== target.period)
  const booked = new Set(issued.map(({deal_id}) => deal_id))
  return {deals, lines: await readJournal(await readLatest(), periods, {deals: booked})}
}

/** Puts the files of an issued batch into their place, and counts them. */
export function deliver(stateDb: StateDb, folder: DataFolder, batch: IssuedBatch, world: World): BatchResult {
  const dir = handOver(stateDb, folder, batch, world)
  return {...measure(stateDb, batch), dir, outcome: 'written'}
}

const rowsOfFiles = z.object({files: z.array(z.object({rows: z.number()}))})

function measure(stateDb: StateDb, batch: IssuedBatch): Omit<BatchResult, 'dir' | 'outcome'> {
  const {profile, period, batch_id} = batch
  const written = readBatchContent(stateDb, batch)
  const files = written.filter(({name}) => name !== 'manifest.json')
  const manifest = written.find(({name}) => name === 'manifest.json')
  const counted = rowsOfFiles.parse(JSON.parse(Buffer.from(manifest?.content ?? '{}').toString()))
  return {
    profile,
    period,
    batch_id,
    files: files.length,
    rows: counted.files.reduce((sum, {rows}) => sum + rows, 0),
    bytes: files.reduce((sum, {content}) => sum + content.length, 0),
  }
}

/** The result if nothing is new: the last batch, or that there is nothing to book. */
function describeStanding(
  stateDb: StateDb,
  {profile, period}: Pick<JournalRequest, 'profile' | 'period'>,
  findHandedOut: Issuing['findHandedOut'],
): BatchResult {
  const last = listBatches(stateDb, profile.name, period).at(-1)
  if (last) return {...measure(stateDb, last), dir: findHandedOut(last), outcome: 'unchanged'}
  return {profile: profile.name, period, batch_id: '', dir: '', files: 0, rows: 0, bytes: 0, outcome: 'empty'}
}

/**
 * Writes a journal batch again, byte for byte.
 *
 * @throws ConfigError `UNKNOWN_NAME`
 */
export function reissueBatch(config: Config, batchId: string, world: World): BatchResult[] {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  using stateDb = openStateDb(folder.stateDb)
  const batches = findBatches(stateDb, batchId)
  if (batches.length === 0) {
    throw newError(
      'UNKNOWN_NAME',
      `Batch '${batchId}' in --reissue: expected the id of a journal batch in the state database.`,
      {
        kept: 'Nothing was written.',
        next: '`loantape period list` names them. Batches of tables come out the same when their release is exported again.',
      },
    )
  }
  for (const {profile} of batches) requireExports(folder, profile)
  return batches.map((batch) => deliver(stateDb, folder, batch, world))
}

/** The folder of the files of a batch. */
function batchDir(folder: DataFolder, {profile, batch_id}: IssuedBatch): string {
  return join(folder.exports, profile, batch_id)
}

/**
 * Puts the files of an issued batch into their place, under a temporary name first and the manifest last, and records it. The
 * bytes come from the state database, so they are the same every time.
 *
 * @returns their folder
 */
function handOver(stateDb: StateDb, folder: DataFolder, batch: IssuedBatch, world: World): string {
  const final = batchDir(folder, batch)
  const isManifest = ({name}: BatchContent) => name === 'manifest.json'
  const files = readBatchContent(stateDb, batch).sort((a, b) => Number(isManifest(a)) - Number(isManifest(b)))
  markHandedOver(stateDb, batch, false)
  using written = beginBatch(final)
  for (const {name, content} of files) {
    writeFileSync(join(written.dir, name), content)
    syncToDisk(join(written.dir, name))
  }
  world.onStep('journal written')
  written.finish(() => isInPlace(final, files))
  world.onStep('journal in place')
  markHandedOver(stateDb, batch, true)
  world.onStep('journal handed over')
  return final
}

/**
 * Makes sure that the files of an issued batch are in their place; they may have been removed, or never put there.
 *
 * @returns their folder
 */
export function requireHandedOver(
  stateDb: StateDb,
  folder: DataFolder,
  batch: IssuedBatch,
  world: World,
): string {
  return isHandedOver(folder, batch) ? batchDir(folder, batch) : handOver(stateDb, folder, batch, world)
}

/** Whether the files of an issued batch are in their place. */
export const isHandedOver = (folder: DataFolder, batch: IssuedBatch) => isWholeBatch(batchDir(folder, batch))

/** Whether a folder has exactly these files, byte for byte. */
function isInPlace(dir: string, files: readonly BatchContent[]): boolean {
  if (!existsSync(dir) || readdirSync(dir).length !== files.length) return false
  return files.every(({name, content}) => {
    const path = join(dir, name)
    return existsSync(path) && readFileSync(path).equals(content)
  })
}

/** A batch that an export would issue. */
export interface JournalPreview {
  /** Its `dir` is empty: no files were written. */
  batch: BatchResult
  /** What it would book, by account; amounts are decimal text, USD. */
  accounts: {account_code: string; account_name: string; lines: number; debit: string; credit: string}[]
  /** Its files, each with its first lines. */
  files: {name: string; head: string}[]
}

const HEAD_LINES = 5

/**
 * What {@link exportJournal} would issue; issues nothing: batches go into a temporary copy of the state database. A release that
 * is needed for it and missing is built, and kept.
 */
export async function previewJournal(
  config: Config,
  request: JournalRequest,
  world: World,
): Promise<JournalPreview[]> {
  const folder = dataFolderAt(config.dataDir)
  const dir = mkdtempSync(join(tmpdir(), 'loantape-preview-'))
  try {
    const copy = join(dir, 'state.sqlite')
    {
      using issued = openStateDb(folder.stateDb)
      await backup(issued.db, copy)
    }
    using stateDb = openStateDb(copy)
    const {name} = request.profile
    const handOut = (batch: IssuedBatch): BatchResult => ({
      ...measure(stateDb, batch),
      dir: '',
      outcome: 'written',
    })
    const perform = (act: Act) => applyAct(stateDb, act)
    const issuing = {stateDb, perform, handOut, findHandedOut: () => ''}
    const batches = await issueMonth(config, request, issuing, world)
    const lines = listIssuedLines(stateDb, name)
    return batches.map((batch) => ({
      batch,
      accounts: addUpAccounts(lines.filter(({batch_id}) => batch_id === batch.batch_id)),
      files: readBatchContent(stateDb, {profile: name, batch_id: batch.batch_id})
        .filter((file) => file.name !== 'manifest.json')
        .map((file) => ({
          name: file.name,
          head: Buffer.from(file.content).toString().split('\n', HEAD_LINES).join('\n'),
        })),
    }))
  } finally {
    rmSync(dir, {recursive: true, force: true})
  }
}

function addUpAccounts(lines: readonly IssuedLine[]): JournalPreview['accounts'] {
  const accounts = Map.groupBy(lines, ({account_code}) => account_code)
  return [...accounts].sort().map(([account_code, own]) => ({
    account_code,
    account_name: own[0]?.account_name ?? '',
    lines: own.length,
    debit: addAmounts(own.map(({debit}) => debit)),
    credit: addAmounts(own.map(({credit}) => credit)),
  }))
}
