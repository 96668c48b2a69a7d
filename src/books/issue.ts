import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {gunzipSync} from 'node:zlib'
import {z} from 'zod'
import {applyAct, type BatchAct, openBooks, type Perform} from '../accounting/acts.ts'
import {
  hasOpenings,
  type IssuedBatch,
  listAsClosed,
  listBatches,
  listIssuedLines,
  listIssuedMonths,
  listRenamed,
  markHandedOver,
} from '../accounting/issued.ts'
import {type AccountMapping, requireOwnMapping} from '../accounting/mapping.ts'
import {
  findClosedPeriod,
  findFirstOpenDay,
  lastDayOf,
  listClosedPeriods,
  readPeriodSpan,
} from '../accounting/periods.ts'
import {bookOpenings, type IssuedLine, type JournalProfile, type TiedTerm} from '../accounting/profiles.ts'
import {readJournal, readTieOut} from '../accounting/read-journal.ts'
import {requireBuilt} from '../build/build.ts'
import type {Config} from '../core/config.ts'
import {explainError, isOfKind, LoantapeError, messageOf, newError, sayKept} from '../core/errors.ts'
import {addAmounts} from '../core/money.ts'
import {makeTemporaryFolder} from '../core/process.ts'
import {copyDatabase} from '../core/sqlite.ts'
import type {World} from '../core/types.ts'
import {type BatchResult, isWholeBatch, measureBatch} from '../export/batch.ts'
import {oweBatch} from '../export/deliver-files.ts'
import type {NamedTarget} from '../export/delivery-target.ts'
import {type DataFolder, dataFolderAt, requireExports, requireWritable} from '../store/data-folder.ts'
import {beginFolder, syncToDisk} from '../store/files.ts'
import {readWentOn} from '../store/recorded.ts'
import {openRelease, type Release} from '../store/release.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {
  describeStale,
  type JournalTarget,
  prepareBatch,
  readIssueState,
  requireUnchanged,
} from './journal-batch.ts'
import {compareIssued, requireSameHistory} from './standing.ts'

export interface JournalRequest {
  profile: JournalProfile
  /** `YYYY-MM` */
  period: string
  /** Also books what was already funded at the first walk; once booked, it stays. */
  withOpening: boolean
  /** The last month that must be issued; a later one that cannot be is left. By default, the period. */
  through?: string | undefined
  /** What is issued or handed over is to be delivered to them. */
  owedTo: readonly NamedTarget[]
}

/**
 * Issues what the months of a profile lack, see {@link listSteps}, and hands the files over, after those that an earlier run could
 * not hand over. Yields each batch as soon as it is handed over; if none of the period is issued, also its last one.
 * @throws ConfigError `PERIOD_…`, `ACCOUNTING_…`, `NOT_WRITABLE`, `JOURNAL_…`
 */
export async function* exportJournal(
  config: Config,
  request: JournalRequest,
  world: World,
): AsyncGenerator<BatchResult> {
  using books = openBooks(config, world)
  requireExports(books.folder, request.profile.name)
  yield* issueMonths(config, request, books, world)
}

/**
 * The state database stays free while a batch is made: it is stored in one transaction if nothing was issued meanwhile,
 * otherwise all is done again. Once stored it is issued. `isTold`: one of the period was.
 */
async function* issueMonths(
  config: Config,
  request: JournalRequest,
  issuing: {folder: DataFolder; stateDb: StateDb; perform: Perform},
  world: World,
  isTold = false,
): AsyncGenerator<BatchResult> {
  const {profile, period, through = period, owedTo} = request
  const {folder, stateDb, perform} = issuing
  const waiting = listBatches(stateDb, {profile: profile.name, is_handed_over: 0})
  const mapping = requireOwnMapping(config)
  const renamed = listRenamed(stateDb, profile, mapping)
  /** `terms` are without opening balances booked. */
  const tell = (batch: BatchResult, terms?: readonly TiedTerm[]): BatchResult => {
    if (batch.period !== period) return batch
    const tied = terms && hasOpenings(stateDb, profile.name) ? bookOpenings(terms) : terms
    return {...batch, ...(tied && {terms: tied}), ...(renamed.length > 0 && {renamed})}
  }
  const owe = (batch: Pick<IssuedBatch, 'batch_id' | 'period'>) => {
    for (const target of owedTo) oweBatch(stateDb, target, profile.name, batch)
  }
  waiting.forEach(owe)
  for (const batch of waiting) yield tell(handOver(stateDb, folder, batch, world))
  isTold ||= waiting.some((batch) => batch.period === period)
  const {isOver, observedUntil} = await readPeriodSpan(config, period, world)
  await requireSameHistory(stateDb, folder, world)
  let state = readIssueState(stateDb)
  const [monthEnd] = [lastDayOf(through), observedUntil].sort()
  let latest: Promise<Release> | undefined
  const readRelease = async (month: string) => {
    latest ??= requireBuilt(config, {asOf: observedUntil}, world)
    return await latest.catch((error: unknown) => {
      if (month > through || monthEnd === observedUntil) throw error
      // The deals of today may fail a check that those of the month pass.
      return requireBuilt(config, {asOf: monthEnd}, world)
    })
  }
  const store = (batch: BatchAct) => {
    // First: an act that is on its tape stands, even if this process ends now.
    owe(batch)
    return perform(() => {
      const now = readIssueState(stateDb)
      if (now.events !== state.events) throw describeStale(period)
      if (now.batches !== state.batches) return undefined
      requireUnchanged(config, mapping, period)
      state = {...now, batches: now.batches + 1}
      return {act: 'batch issued', at: new Date(world.realClock.now()).toISOString(), batches: [batch]}
    })
  }
  const nothing = {profile: profile.name, batch_id: '', dir: '', files: 0, rows: 0, bytes: 0}
  let left: BatchResult | undefined
  for await (const {month, read} of listSteps(stateDb, request, {readRelease, mapping, isOver})) {
    let target: JournalTarget
    let batch: BatchAct | undefined
    try {
      target = await read()
      batch = prepareBatch(stateDb, target)
    } catch (error) {
      if (month <= through || !isOfKind(error, 'config', 'check')) throw error
      const {code, message} = sayKept(error, 'Nothing of it was issued.')
      left = {...nothing, period: month, outcome: 'left', because: {code, message}}
      // Months after it rest on it.
      break
    }
    if (!batch) continue
    world.onStep('journal planned')
    if (!store(batch)) return yield* issueMonths(config, request, issuing, world, isTold)
    world.onStep('journal issued')
    isTold ||= month === period
    yield tell(handOver(stateDb, folder, batch, world), target.terms)
  }
  if (!isTold) {
    const last = listBatches(stateDb, {profile: profile.name, period}).at(-1)
    const found = last
      ? requireHandedOver(stateDb, folder, last, world)
      : {...nothing, period, outcome: 'empty' as const}
    yield tell(found, await readTieOut(await readRelease(period), period))
  }
  if (left) yield left
}

/**
 * What an export does, step by step, for every month from the first to the last that was ever issued to the profile or is asked
 * for, oldest first, since entries of a month rest on those of earlier ones, and what moves from one month to another is booked in
 * the one and reversed in the other; months after the period come last. Closed months are issued as they were closed, see
 * {@link listAsClosed}; what became known later follows in batches of its own, dated in the open period. Each month is compared
 * with what was issued of it alone, so that one that is left now is made up for by the next export: `read` says what its issued
 * lines must add up to.
 */
async function* listSteps(
  stateDb: StateDb,
  {profile, period, ...request}: JournalRequest,
  {
    readRelease,
    mapping,
    isOver,
  }: {
    readRelease: (month: string) => Promise<Release>
    mapping: AccountMapping
    isOver: (period: string) => boolean
  },
) {
  const issued = [...listIssuedMonths(stateDb, profile.name), period].sort()
  const range = {first: issued[0] ?? period, last: issued.at(-1) ?? period}
  const isOpened = hasOpenings(stateDb, profile.name)
  if (request.withOpening && !isOpened) await requireOpenings(await readRelease(period), profile, range.first)
  const withOpening = request.withOpening || isOpened
  const common = {profile, present: mapping, withOpening}
  const wentOn = readWentOn(stateDb)
  const asClosed = listAsClosed(stateDb, profile.name, range).map((month) => ({
    month,
    read: async () => {
      const closed = findClosedPeriod(stateDb, month)
      if (!closed) throw describeStale(month)
      // The history that it depends on now, which a true-up replaces by the recovered one.
      const source = {...closed.release, history_id: closed.history_id, ...wentOn}
      return {...common, ...closed, isComplete: true, closed, source, firstOpenDay: ''}
    },
  }))
  yield* asClosed.filter(({month}) => month <= period)
  const open = await compareIssued(stateDb, await readRelease(period), [profile.name], {withOpening})
  const months = open.map((one) => one.period).filter((name) => name >= range.first && name <= range.last)
  // Later ones are issued as closed below, whatever is open of them now.
  const later = asClosed.map(({month}) => month).filter((month) => month > period)
  const present = [...new Set([...months, ...later, period])].sort().map((month) => ({
    month,
    read: async () => {
      const release = await readRelease(month)
      const isClosed = listClosedPeriods(stateDb).includes(month)
      return {
        ...common,
        period: month,
        isComplete: isOver(month),
        terms: await readTieOut(release, month),
        lines: await readJournal(release, [month], {isClosed}),
        mapping,
        source: {...release.manifest, ...wentOn},
        firstOpenDay: findFirstOpenDay(stateDb),
      }
    },
  }))
  yield* present.filter(({month}) => month <= period)
  yield* [...asClosed, ...present].filter(({month}) => month > period)
}

/** Those of a month before the `first` that the profile gets are in none of its batches. @throws ConfigError `PERIOD_STATE` */
async function requireOpenings(release: Release, {name}: JournalProfile, first: string): Promise<void> {
  await using db = await openRelease(release)
  const [month] = await db.column(z.string().nullable(), 'select min(period) from accounting.opening_line')
  if (!month || month >= first) return
  throw newError(
    'PERIOD_STATE',
    `Opening balances belong to ${month}, before ${first}, the first month of ${name}: expected that month with --with-opening.`,
    {next: 'It brings all months since, too. If your books have them, leave --with-opening out.'},
  )
}

/** The files as they were handed out, by name, with the manifest last. @throws UnexpectedError `STATE_UNREADABLE` */
export function readBatchFiles(
  stateDb: StateDb,
  {profile, batch_id}: Pick<IssuedBatch, 'profile' | 'batch_id'>,
): {name: string; text: string}[] {
  const files = stateDb.all(
    z.object({name: z.string(), content: z.instanceof(Uint8Array)}),
    `select name, content from journal_file join journal_batch using (batch_no)
     where profile = ? and batch_id = ? order by name = 'manifest.json', name`,
    [profile, batch_id],
  )
  try {
    return files.map(({name, content}) => ({name, text: gunzipSync(content).toString()}))
  } catch (cause) {
    const words = `its files in the state database cannot be read (${messageOf(cause)})`
    throw newError('STATE_UNREADABLE', `Batch '${profile}/${batch_id}' was issued, but ${words}.`, {cause})
  }
}

/** Byte for byte. @throws ConfigError `UNKNOWN_NAME` */
export function reissueBatch(config: Config, batchId: string, world: World): BatchResult[] {
  const folder = requireWritable(dataFolderAt(config.dataDir))
  using stateDb = openStateDb(folder.stateDb)
  const batches = listBatches(stateDb, {batch_id: batchId})
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
  return batches.map((batch) => handOver(stateDb, folder, batch, world))
}

function batchDir(folder: DataFolder, {profile, batch_id}: IssuedBatch): string {
  return join(folder.exports, profile, batch_id)
}

/** Its files are in their place. */
function describeBatch(folder: DataFolder, batch: IssuedBatch) {
  const {profile, period, batch_id} = batch
  const dir = batchDir(folder, batch)
  return {profile, period, batch_id, ...measureBatch(dir), dir}
}

/** Puts the files of an issued batch into their place, manifest last, and records it. */
export function handOver(
  stateDb: StateDb,
  folder: DataFolder,
  batch: IssuedBatch,
  world: World,
): BatchResult {
  const dir = batchDir(folder, batch)
  const files = readBatchFiles(stateDb, batch)
  markHandedOver(stateDb, batch, false)
  try {
    using written = beginFolder(dir)
    for (const {name, text} of files) {
      writeFileSync(join(written.dir, name), text)
      syncToDisk(join(written.dir, name))
    }
    world.onStep('journal written')
    written.finish(() => isWholeBatch(dir, files.at(-1)?.text))
  } catch (error) {
    const {profile, batch_id} = batch
    const {kind, ...failure} = explainError(error)
    const words = `its files could not be written; the next export of ${profile} writes them`
    const problem = `Batch '${profile}/${batch_id}' was issued, but ${words}. ${failure.problem}`
    throw new LoantapeError({...failure, problem, kept: 'It counts.', cause: error}, kind)
  }
  world.onStep('journal in place')
  markHandedOver(stateDb, batch, true)
  world.onStep('journal handed over')
  return {...describeBatch(folder, batch), outcome: 'written'}
}

/** Hands over a batch again if its files were removed or never put there. */
export function requireHandedOver(
  stateDb: StateDb,
  folder: DataFolder,
  batch: IssuedBatch,
  world: World,
): BatchResult {
  if (!isHandedOver(folder, batch)) handOver(stateDb, folder, batch, world)
  return {...describeBatch(folder, batch), outcome: 'unchanged'}
}

export const isHandedOver = (folder: DataFolder, batch: IssuedBatch) => isWholeBatch(batchDir(folder, batch))

export type JournalPreview = Awaited<ReturnType<typeof previewJournal>>[number]

/** What {@link exportJournal} would issue, from a temporary copy of the state database. A missing release is built, and kept. */
export async function previewJournal(config: Config, request: JournalRequest, world: World) {
  const folder = dataFolderAt(config.dataDir)
  using dir = makeTemporaryFolder('loantape-preview-')
  const copy = {...folder, stateDb: join(dir.path, 'state.sqlite'), exports: join(dir.path, 'exports')}
  {
    using issued = openStateDb(folder.stateDb)
    await copyDatabase(issued.db, copy.stateDb)
  }
  using stateDb = openStateDb(copy.stateDb)
  // A batch whose files are still to be written is issued already.
  stateDb.run('update journal_batch set is_handed_over = 1')
  const perform: Perform = (decide) => {
    const act = decide()
    if (act) applyAct(stateDb, act)
    return act
  }
  const issuing = issueMonths(config, request, {folder: copy, stateDb, perform}, world)
  const batches = await Array.fromAsync(issuing)
  return batches.map((batch) => ({
    /** The files no longer exist. */
    batch: {...batch, dir: ''},
    accounts: addUpAccounts(listIssuedLines(stateDb, batch.profile, {batch_id: batch.batch_id})),
    files: readBatchFiles(stateDb, batch)
      .slice(0, -1)
      .map(({name, text}) => ({name, head: text.split('\n', 5).join('\n')})),
  }))
}

/** Amounts are decimal text, USD. */
function addUpAccounts(lines: readonly IssuedLine[]) {
  const accounts = Map.groupBy(lines, ({account_code}) => account_code)
  return [...accounts].sort().map(([account_code, own]) => ({
    account_code,
    account_name: own[0]?.account_name ?? '',
    lines: own.length,
    debit: addAmounts(own.map(({debit}) => debit)),
    credit: addAmounts(own.map(({credit}) => credit)),
  }))
}
