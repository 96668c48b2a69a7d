import {hash} from 'node:crypto'
import {isDeepStrictEqual} from 'node:util'
import {parse} from 'csv-parse/sync'
import {stringify} from 'csv-stringify/sync'
import type {IssuedLine, JournalCell, JournalProfile, ReadLine} from '../accounting/profiles.ts'
import {messageOf, newError} from '../core/errors.ts'
import {addAmounts, centsOf} from '../core/money.ts'
import type {BatchFile} from '../export/batch.ts'

/** A file of a journal batch as its manifest names it, its text, and the lines it holds. */
interface JournalFile extends BatchFile {
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
  const most = {rows: profile.limits.rows ?? Infinity, bytes: profile.limits.bytes ?? Infinity}
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
  return parts.map(({text, bytes, lines}, index) => {
    const suffix = parts.length === 1 ? '' : `_part${String(index + 1).padStart(count.length, '0')}of${count}`
    return {
      name: `${profile.name}_${context.batchId}${suffix}.csv`,
      bytes,
      sha256: hash('sha256', text),
      rows: lines.length,
      columns: Object.keys(profile.columns),
      sum_amount: null,
      sum_debit: addAmounts(lines.map(({debit}) => debit)),
      sum_credit: addAmounts(lines.map(({credit}) => credit)),
      text,
      lines,
    }
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
    const reading = {row: 0}
    try {
      proveFile(profile, file, numbers, reading)
    } catch (error) {
      const place = `File '${file.name}'${reading.row === 0 ? '' : `, line ${reading.row}`}`
      throw newError('JOURNAL_FILE', `${place} would not import: ${messageOf(error)}.`)
    }
  }
}

function prove(isRight: boolean, problem: string): void {
  if (!isRight) throw new Error(problem)
}

/** @param reading its `row` is the line being read; 0 for what concerns the whole file */
function proveFile(
  profile: JournalProfile,
  {text, lines: written}: JournalFile,
  numbers: Set<string>,
  reading: {row: number},
): void {
  const {limits, name} = profile
  const most = limits.rows ?? Infinity
  prove(limits.characters.test(text), `a character that ${name} does not accept`)
  prove(Buffer.byteLength(text) <= (limits.bytes ?? Infinity), 'too many bytes')
  const rows: string[][] = parse(text)
  prove(rows.length - 1 <= most, `${rows.length - 1} lines: expected at most ${most}`)
  const columns = Object.keys(profile.columns)
  const lines: ReadLine[] = []
  for (const cells of rows) {
    reading.row += 1
    if (reading.row > 1) lines.push(readLine(profile, columns, cells, lines.at(-1)))
    else
      prove(isDeepStrictEqual(cells, columns), `columns ${cells.join(', ')}: expected ${columns.join(', ')}`)
  }
  for (const [index, {number, date, account, debit, credit}] of lines.entries()) {
    reading.row = index + 2
    const line = written[index]
    const isSame =
      number === line?.journal_no &&
      date === line.entry_date &&
      debit === (line.debit ?? '') &&
      credit === (line.credit ?? '') &&
      [line.account_code, line.account_name].includes(account)
    prove(isSame, `entry '${number}' is not what was written`)
    const isNext = number === lines[index - 1]?.number
    prove(isNext || !numbers.has(number), `entry '${number}' twice`)
    numbers.add(number)
  }
  reading.row = 0
  prove(lines.length === written.length, `${lines.length} lines: expected the ${written.length} written`)
  for (const [number, own] of Map.groupBy(lines, (line) => line.number)) {
    const balance = own.reduce((sum, {debit, credit}) => sum + centsOf(debit) - centsOf(credit), 0n)
    prove(balance === 0n && own.length >= 2, `entry '${number}' is not in balance`)
  }
}

function readLine(
  {limits, readRow}: JournalProfile,
  columns: readonly string[],
  cells: readonly string[],
  before: ReadLine | undefined,
): ReadLine {
  const row = Object.fromEntries(columns.map((column, index) => [column, cells[index] ?? '']))
  for (const [column, cell] of Object.entries(row)) {
    const max = limits.cells[column] ?? Infinity
    prove(cell === cell.trim(), `spaces around '${cell}' in ${column}`)
    prove(cell.length <= max, `${cell.length} characters in ${column}: expected at most ${max}`)
  }
  const line = readRow(row, before)
  const {debit, credit} = line
  const amount = debit + credit
  const digits = limits.digits ?? Infinity
  prove((debit === '') !== (credit === ''), 'debit and credit: expected exactly one')
  prove(/^\d+\.\d\d$/.test(amount) && Number(amount) > 0, `amount '${amount}': expected 1234.56`)
  prove(amount.length - 3 <= digits, `amount '${amount}': expected at most ${digits} digits before the point`)
  return line
}
