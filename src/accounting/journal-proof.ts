import {parse} from 'csv-parse/sync'
import {isCalendarDate} from '../clock.ts'
import {type LoantapeError, messageOf, newError} from '../errors.ts'
import {parseCents} from '../money.ts'
import type {JournalProfile, ReadLine} from './journal.ts'
import type {JournalFile} from './journal-file.ts'

/**
 * Reads files back as their importer would and proves them: columns, characters, limits, dates and amounts; each entry
 * whole, in one place, under a number of its own, in balance, and line by line what it was written from.
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
    prove(limits.characters.pattern.test(file.text), `a character that ${profile.name} does not take`)
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

/** Runs of lines of one number: a number that comes back later is a run of its own. */
function groupAdjacent(lines: readonly ReadLine[]): [number: string, lines: ReadLine[]][] {
  const groups: [string, ReadLine[]][] = []
  for (const line of lines) {
    const last = groups.at(-1)
    if (last?.[0] === line.number) last[1].push(line)
    else groups.push([line.number, [line]])
  }
  return groups
}

/** What a line adds, debits positive. */
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
