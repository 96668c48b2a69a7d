import {hash} from 'node:crypto'
import {parse} from 'csv-parse/sync'
import {stringify} from 'csv-stringify/sync'
import {
  type BatchAct,
  type BatchContent,
  describeBatch,
  type IssuedBatch,
  listAllBatches,
  listBatches,
  listIssuedLines,
} from '../accounting/issued.ts'
import {type AccountMapping, findSharedNames} from '../accounting/mapping.ts'
import {createDating, listClosedPeriods} from '../accounting/periods.ts'
import {
  bridgeJournal,
  type DateOf,
  findMovedDeals,
  isReversal,
  type JournalBridge,
  planIssue,
  sortLines,
  splitOpening,
} from '../accounting/plan.ts'
import {
  bookOpenings,
  type IssuedLine,
  type JournalCell,
  type JournalLine,
  type JournalProfile,
  type ReadLine,
} from '../accounting/profiles.ts'
import {isCalendarDate} from '../core/clock.ts'
import {type LoantapeError, messageOf, newError} from '../core/errors.ts'
import {addAmounts, parseCents} from '../core/money.ts'
import type {TiedTerm, World} from '../core/types.ts'
import {type BatchFile, formatManifest} from '../export/batch-folder.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {inStateTransaction, type StateDb} from '../store/state-db.ts'

/** The journal of a period that everything issued must add up to. */
export interface JournalTarget {
  /** `YYYY-MM` */
  period: string
  isComplete: boolean
  isClosed: boolean
  /** The closed months when the journal was read. */
  closedPeriods: readonly string[]
  /** The batches of the month when the journal was read. */
  batchIds: ReadonlySet<string>
  /** With opening balances. */
  lines: readonly JournalLine[]
  /** The terms of the month's roll-forward, opening balances not booked. */
  terms: readonly TiedTerm[]
  /** Whether opening balances are asked for. */
  withOpening: boolean
  mapping: AccountMapping
  source: ReleaseManifest
  dateOf: DateOf
  elsewhere: OtherMonths
}

/** The present journal of the other months that were ever issued to a profile, for some deals. */
export interface OtherMonths {
  deals: ReadonlySet<string>
  /** With opening balances. */
  lines: readonly JournalLine[]
}

/**
 * Issues the difference between a journal and what was already issued, in one transaction of the state database that holds lines
 * and files: from then on it is issued, whatever happens to the process. `handOver` puts the files into their place. The files
 * are written and proved before, so that nobody waits for the state database meanwhile; if another export or a closing was
 * faster, all of it is done again.
 *
 * @returns undefined if there is nothing to issue
 * @throws CheckError `JOURNAL_FILE`; ConfigError `JOURNAL_STALE`: nothing was issued
 */
export function issueJournal(
  stateDb: StateDb,
  {perform, ...issue}: {profile: JournalProfile; target: JournalTarget; perform: PerformIssue},
  world: World,
): IssuedBatch | undefined {
  for (;;) {
    const state = readIssueState(stateDb)
    const batch = prepareBatch(stateDb, issue)
    if (!batch) return undefined
    world.onStep('journal planned')
    const isStored = inStateTransaction(stateDb, () => {
      if (readIssueState(stateDb) !== state) return false
      perform({
        act: 'batch issued',
        at: new Date(world.realClock.now()).toISOString(),
        batches: [describeBatch(batch)],
      })
      return true
    })
    if (!isStored) continue
    world.onStep('journal issued')
    return batch
  }
}

/** Issues batches for good: see {@link issueJournal}. */
type PerformIssue = (act: {act: 'batch issued'; at: string; batches: BatchAct[]}) => void

/** What batches are made from besides the journal; if it changes, a batch may change. */
export function readIssueState(stateDb: StateDb): string {
  return JSON.stringify([listAllBatches(stateDb, {withoutFiles: true}), listClosedPeriods(stateDb)])
}

/** A batch that is ready to be stored. */
type PreparedBatch = IssuedBatch & {lines: readonly IssuedLine[]; files: readonly BatchContent[]}

function prepareBatch(
  stateDb: StateDb,
  {profile, target}: {profile: JournalProfile; target: JournalTarget},
): PreparedBatch | undefined {
  const {period, closedPeriods, batchIds, source} = target
  const isStale = JSON.stringify(listClosedPeriods(stateDb)) !== JSON.stringify(closedPeriods)
  if (isStale) throw describeStale(period)
  requireOwnNames(profile, target)
  // Another process may meanwhile have issued from later knowledge.
  const isLater = ({batch_id, known_at}: IssuedBatch) => !batchIds.has(batch_id) && known_at > source.known_at
  if (listBatches(stateDb, profile.name, period).some(isLater)) throw describeStale(period)
  const {wanted, leftOut, lines: own, before} = planMonth(stateDb, profile, target)
  const other = planElsewhere(stateDb, profile, target, own)
  const lines = sortLines([...own, ...other.lines])
  if (lines.length === 0) return undefined
  const supersedes = listSuperseded(lines, [...before, ...other.before])
  const terms = leftOut.length === 0 ? bookOpenings(target.terms) : target.terms
  const bridge = bridgeJournal(wanted, leftOut, own, {elsewhere: other.lines, terms})
  return composeBatch({profile, target, lines, handedOut: lines, supersedes, bridge})
}

/** The plan of the month's own journal. */
export function planMonth(
  stateDb: StateDb,
  profile: JournalProfile,
  target: Pick<JournalTarget, 'period' | 'lines' | 'withOpening' | 'dateOf'>,
) {
  const before = listIssuedLines(stateDb, profile.name, {period: target.period})
  const {wanted, leftOut} = splitOpening(target.lines, before, target.withOpening)
  return {wanted, leftOut, lines: planIssue(wanted, before, target), before}
}

/**
 * The plan of other months for the same deals: an entry issued there that no longer holds may be what this month books
 * now.
 */
function planElsewhere(
  stateDb: StateDb,
  profile: JournalProfile,
  {period, elsewhere, closedPeriods}: JournalTarget,
  own: readonly IssuedLine[],
) {
  const deals = new Set(own.map(({deal_id}) => deal_id))
  const issued = listIssuedLines(stateDb, profile.name, {deals}).filter((line) => line.period !== period)
  if (issued.some(({deal_id}) => !elsewhere.deals.has(deal_id))) throw describeStale(period)
  const {wanted} = splitOpening(elsewhere.lines, issued, false)
  const moved = findMovedDeals(wanted, issued)
  const isMoved = ({deal_id}: JournalLine) => moved.has(deal_id)
  const before = issued.filter(isMoved)
  return {lines: planIssue(wanted.filter(isMoved), before, {dateOf: createDating(closedPeriods)}), before}
}

/**
 * Makes a batch with its files, and proves them.
 *
 * @param batch `lines` go into the state database, `handedOut` into the files; if that is empty, there are no files
 * @throws CheckError `JOURNAL_FILE`
 */
export function composeBatch(batch: {
  profile: JournalProfile
  target: Pick<JournalTarget, 'period' | 'isComplete' | 'mapping' | 'source'>
  lines: readonly IssuedLine[]
  handedOut: readonly IssuedLine[]
  supersedes: string[]
  bridge: JournalBridge
}): PreparedBatch {
  const {profile, target, lines, handedOut} = batch
  const {period, source} = target
  const numbers = [...new Set(lines.map(({journal_no}) => journal_no))].sort()
  const digest = hash('sha256', [profile.name, period, ...numbers].join('\n')).slice(0, 12)
  const {known_at, history_id} = source
  const named = {profile: profile.name, batch_id: `${period}-${digest}`, period, known_at, history_id, lines}
  if (handedOut.length === 0) return {...named, files: []}
  const files = formatJournalFiles(profile, handedOut, {batchId: named.batch_id, mapping: target.mapping})
  proveJournalFiles(profile, files)
  const manifest = formatManifest(source, {
    batch_id: named.batch_id,
    profile: profile.name,
    period,
    period_complete: target.isComplete,
    files: files.map((file) => describeFile(profile, file)),
    supersedes: batch.supersedes,
    bridge: batch.bridge,
  })
  const texts = [...files, {name: 'manifest.json', text: manifest}]
  return {...named, files: texts.map(({name, text}) => ({name, content: Buffer.from(text)}))}
}

/** The error if another process was faster. */
export function describeStale(period: string): LoantapeError {
  return newError(
    'JOURNAL_STALE',
    `Journal of ${period}: another command issued, closed or reopened while it was read.`,
  )
}

/**
 * Makes sure that an importer which looks accounts up by name can tell them apart.
 *
 * @throws ConfigError `ACCOUNTING_MAPPING`
 */
export function requireOwnNames(
  {name, looksUpBy}: JournalProfile,
  {period, isClosed, mapping}: Pick<JournalTarget, 'period' | 'isClosed' | 'mapping'>,
): void {
  const shared = looksUpBy === 'name' ? findSharedNames(mapping) : []
  if (shared.length === 0) return
  const reopen = isClosed ? `Reopen ${period}, which keeps the accounts it was closed with: give` : 'Give'
  throw newError(
    'ACCOUNTING_MAPPING',
    `Account names that stand for two codes in accounting.json: ${shared.join('; ')}. ${name} looks accounts up by name.`,
    {next: `${reopen} each account the name it has in ${name}, a sub-account as Parent:Sub.`},
  )
}

/** The batches in which the entries now reversed were issued. */
export function listSuperseded(
  lines: readonly IssuedLine[],
  issued: readonly (IssuedLine & {batch_id: string})[],
): string[] {
  const reversed = new Set(lines.filter(isReversal).map(({entry_id}) => entry_id))
  return [...new Set(issued.filter(({entry_id}) => reversed.has(entry_id)).map(({batch_id}) => batch_id))]
}

function describeFile({columns}: JournalProfile, {name, text, lines}: JournalFile): BatchFile {
  const content = Buffer.from(text)
  return {
    name,
    bytes: content.length,
    sha256: hash('sha256', content),
    rows: lines.length,
    columns: Object.keys(columns),
    sum_amount: null,
    sum_debit: addAmounts(lines.map(({debit}) => debit)),
    sum_credit: addAmounts(lines.map(({credit}) => credit)),
  }
}

/** A file of a journal batch, and the lines it holds. */
export interface JournalFile {
  name: string
  text: string
  lines: readonly IssuedLine[]
}

/**
 * Writes lines as the files of a batch: one, or as many as the importer's limits demand. Lines with the same number are an entry
 * and stay together in one file. UTF-8, LF, a header line each.
 *
 * @returns `<profile>_<batch>.csv`, or `<profile>_<batch>_part01of03.csv`, …
 */
export function formatJournalFiles(
  profile: JournalProfile,
  lines: readonly IssuedLine[],
  context: Pick<JournalCell, 'batchId' | 'mapping'>,
): JournalFile[] {
  const header = stringify([Object.keys(profile.columns)])
  const cells = Object.values(profile.columns)
  const most = {rows: profile.limits.rows?.max ?? Infinity, bytes: profile.limits.bytes?.max ?? Infinity}
  const parts: {text: string; bytes: number; lines: IssuedLine[]}[] = []
  for (const entry of Map.groupBy(lines, ({journal_no}) => journal_no).values()) {
    const text = stringify(entry.map((line, index) => cells.map((write) => write({line, index, ...context}))))
    const bytes = Buffer.byteLength(text)
    let part = parts.at(-1)
    if (!part || part.lines.length + entry.length > most.rows || part.bytes + bytes > most.bytes) {
      part = {text: header, bytes: Buffer.byteLength(header), lines: []}
      parts.push(part)
    }
    part.text += text
    part.bytes += bytes
    part.lines.push(...entry)
  }
  const count = String(parts.length).padStart(2, '0')
  return parts.map((part, index) => {
    const suffix = parts.length === 1 ? '' : `_part${String(index + 1).padStart(count.length, '0')}of${count}`
    return {name: `${profile.name}_${context.batchId}${suffix}.csv`, text: part.text, lines: part.lines}
  })
}

/**
 * Reads files back as their importer would and proves them: columns, characters, limits, dates and amounts; each entry
 * whole, in one place, under a number of its own, balanced, and line by line the same as what was written.
 *
 * @throws CheckError `JOURNAL_FILE` naming file, line and what was expected
 */
export function proveJournalFiles(profile: JournalProfile, files: readonly JournalFile[]): void {
  const numbers = new Set<string>()
  for (const file of files) {
    const prove = (isRight: boolean, problem: string, row?: number) => {
      if (!isRight) throw proofError(file, problem, row)
    }
    const {limits} = profile
    prove(limits.characters.pattern.test(file.text), `a character that ${profile.name} does not accept`)
    prove(Buffer.byteLength(file.text) <= (limits.bytes?.max ?? Number.POSITIVE_INFINITY), 'too many bytes')
    const lines = readLines(profile, file)
    prove(
      lines.length <= (limits.rows?.max ?? Number.POSITIVE_INFINITY),
      `${lines.length} lines: expected at most ${limits.rows?.max}`,
    )
    for (const [number, entryLines] of groupAdjacent(lines)) {
      prove(!numbers.has(number), `entry '${number}' twice`)
      numbers.add(number)
      const balance = entryLines.reduce((sum, line) => sum + centsOf(line), 0n)
      prove(balance === 0n && entryLines.length >= 2, `entry '${number}' is not in balance`)
    }
    proveSame(file, lines)
  }
}

function readLines(profile: JournalProfile, file: JournalFile): ReadLine[] {
  const {limits} = profile
  const columns = Object.keys(profile.columns)
  const [header, ...body] = attempt(file, (): string[][] => parse(file.text))
  if (JSON.stringify(header) !== JSON.stringify(columns)) {
    throw proofError(file, `columns ${header?.join(', ')}: expected ${columns.join(', ')}`, 1)
  }
  const lines: ReadLine[] = []
  body.forEach((cells, index) => {
    const row = index + 2
    const prove = (isRight: boolean, problem: string) => {
      if (!isRight) throw proofError(file, problem, row)
    }
    for (const [index, cell] of cells.entries()) {
      const column = columns[index] ?? ''
      const {max} = limits.cells[column] ?? {max: cell.length}
      prove(cell === cell.trim(), `spaces around '${cell}' in ${column}`)
      prove(cell.length <= max, `${cell.length} characters in ${column}: expected at most ${max}`)
    }
    const byColumn = Object.fromEntries(columns.map((column, index) => [column, cells[index] ?? '']))
    const line = attempt(file, () => profile.readRow(byColumn, lines.at(-1)), row)
    const {number, account} = line
    prove(/^LT\d{4}-[0-9a-f]{12}$/.test(number), `number '${number}' of an entry`)
    prove(account !== '', 'no account')
    prove(isCalendarDate(line.date), `date '${line.date}'`)
    prove((line.debit === '') !== (line.credit === ''), 'debit and credit: expected exactly one')
    const amount = line.debit + line.credit
    prove(/^\d+\.\d\d$/.test(amount) && centsOf(line) !== 0n, `amount '${amount}': expected 1234.56`)
    prove(
      amount.length - 3 <= (limits.digits?.max ?? amount.length),
      `amount '${amount}': expected at most ${limits.digits?.max} digits before the point`,
    )
    lines.push(line)
  })
  return lines
}

function attempt<T>(file: JournalFile, read: () => T, row?: number): T {
  try {
    return read()
  } catch (error) {
    throw proofError(file, messageOf(error), row)
  }
}

/** Runs of lines with the same number; a number that comes back later is another run. */
function groupAdjacent(lines: readonly ReadLine[]): [number: string, lines: ReadLine[]][] {
  const groups: [string, ReadLine[]][] = []
  for (const line of lines) {
    const last = groups.at(-1)
    if (last?.[0] === line.number) last[1].push(line)
    else groups.push([line.number, [line]])
  }
  return groups
}

/** The amount of a line, debits positive. */
function centsOf({debit, credit}: Pick<ReadLine, 'debit' | 'credit'>): bigint {
  const cents = parseCents(debit === '' ? credit : debit)
  if (typeof cents === 'string') return 0n
  return debit === '' ? -cents : cents
}

function proveSame(file: JournalFile, lines: readonly ReadLine[]): void {
  const wrong = file.lines.findIndex((line, index) => {
    const read = lines[index]
    return (
      read?.number !== line.journal_no ||
      read.date !== line.entry_date ||
      read.debit !== (line.debit ?? '') ||
      read.credit !== (line.credit ?? '') ||
      (read.account !== line.account_code && read.account !== line.account_name)
    )
  })
  if (wrong !== -1 || lines.length !== file.lines.length) {
    throw proofError(file, `entry '${lines[wrong]?.number}' is not what was written`, wrong + 2)
  }
}

function proofError({name}: JournalFile, problem: string, row?: number): LoantapeError {
  return newError(
    'JOURNAL_FILE',
    `File '${name}'${row === undefined ? '' : `, line ${row}`} would not import: ${problem}.`,
  )
}
