import {z} from 'zod'
import {
  findBatches,
  findLastKnown,
  type IssuedBatch,
  listBatches,
  listIssuedLines,
  listIssuedPeriods,
  listUndelivered,
  readBatchContent,
} from '../accounting/issued.ts'
import type {JournalProfile} from '../accounting/journal.ts'
import {issueJournal, type JournalTarget, type OtherMonths, planMonth} from '../accounting/journal-batch.ts'
import {handOver, requireHandedOver} from '../accounting/journal-handover.ts'
import {requireSameHistory} from '../accounting/journal-origin.ts'
import {type ClosedPeriod, createDating, findClosedPeriod, listClosedPeriods} from '../accounting/periods.ts'
import {bookOpenings} from '../accounting/tie-out.ts'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import type {BatchResult} from '../export/batch.ts'
import type {Release} from '../release/manifest.ts'
import {openStateDb, type StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt, requireExports, requireWritable} from '../warehouse/data-folder.ts'
import {requireOwnMapping} from './account-mapping.ts'
import {createPerformer, type Perform} from './acts.ts'
import {requireBuilt} from './build.ts'
import {readJournal, readTieOut} from './journal-read.ts'
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

/** Where batches are issued, and how their files get to people. */
export interface Issuing {
  stateDb: StateDb
  perform: Perform
  handOut(batch: IssuedBatch): BatchResult
  /** Where the files of a batch lie that was issued before. */
  findHandedOut(batch: IssuedBatch): string
}

/** Brings what was issued of a month up to date. */
export async function issueMonth(
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
      // What it stands on since: after a true-up the history that came back.
      source: {...closed.release, history_id: closed.history_id},
      dateOf: (date: string) => date,
    })
    // After a recovery the month may have been closed on more than what is known now: this batch is no later one.
    for (const {batch_id} of batches) month.batchIds.add(batch_id)
  }
  const terms = await readTieOut(release, period)
  await issue({
    ...month,
    isComplete: span.isComplete,
    terms,
    lines: await readJournal(release, period, {isClosed: month.isClosed}),
    mapping: closed?.mapping ?? own,
    source: release.manifest,
    dateOf: createDating(month.closedPeriods),
  })
  if (!batches.some((batch) => batch.period === period))
    batches.push(describeStanding(stateDb, {profile, period}, findHandedOut))
  const issued = listIssuedLines(stateDb, profile.name, {period})
  const tied = issued.some(({event}) => event === 'opening') ? bookOpenings(terms) : terms
  return batches.map((batch) => (batch.period === period ? {...batch, terms: tied} : batch))
}

/** What a month is to add up to, before other months are looked at. */
type MonthTarget = Omit<JournalTarget, 'elsewhere'>

/**
 * Whether a closed month is issued as it was closed: unless something of it was issued that became known later, or it has
 * been issued and history was recovered since; then it was issued as closed before.
 */
function isIssuedAsClosed(
  stateDb: StateDb,
  {name}: JournalProfile,
  {period, release, history_id}: ClosedPeriod,
): boolean {
  const knownAt = findLastKnown(stateDb, name, period)
  return knownAt === null || (knownAt <= release.known_at && history_id === release.history_id)
}

/** Today's journal of other months, of the deals this month is about to book: what was booked of them may have moved. */
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

/** Puts the files of an issued batch into their place, and says what they come to. */
export function deliver(stateDb: StateDb, folder: DataFolder, batch: IssuedBatch, world: World): BatchResult {
  const dir = handOver(stateDb, folder, batch, world)
  return {...measure(stateDb, batch), dir, outcome: 'written'}
}

const rowsOfFiles = z.object({files: z.array(z.object({rows: z.number()}))})

export function measure(stateDb: StateDb, batch: IssuedBatch): Omit<BatchResult, 'dir' | 'outcome'> {
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

/** What there is where nothing is new: the last batch, or that there is nothing to book. */
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
 * Writes a journal batch again, the same bytes.
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
