import {hash} from 'node:crypto'
import {isDeepStrictEqual} from 'node:util'
import {parse} from 'csv-parse/sync'
import {stringify} from 'csv-stringify/sync'
import type {AccountMapping} from '../accounting/mapping.ts'
import type {IssuedLine, JournalProfile} from '../accounting/profiles.ts'
import {messageOf, newError} from '../core/errors.ts'
import {addAmounts, centsOf} from '../core/money.ts'
import type {BatchFile} from '../export/batch.ts'

/** A file of a journal batch as its manifest names it, its text, the lines it holds, and the cells of its rows, header first. */
interface JournalFile extends BatchFile {
  text: string
  lines: readonly IssuedLine[]
  cells: readonly string[][]
}

/** The input of a cell. */
interface JournalCell {
  line: IssuedLine
  entry: readonly IssuedLine[]
  /** Of the line in its entry, from 0. */
  index: number
  batchId: string
  mapping: AccountMapping
}

/** Writes a cell of at most `longest` characters. */
type Content = (cell: JournalCell, longest: number) => string

const DIMENSIONS = [
  'entity',
  'class',
  'location',
  'subsidiary',
  'department',
  'currency',
  'journal',
  'tax_rate',
] as const

/** What a column of a profile can hold. */
const CONTENTS: Record<string, Content> = {
  number: ({line}) => line.journal_no,
  // An importer tells entries apart by it, so all lines of one have that of the first.
  narration: ({line, entry}, longest) => fitText(`${line.journal_no} ${(entry[0] ?? line).memo}`, longest),
  us_date: ({line}) => line.entry_date.replace(/^(\d+)-(\d+)-(\d+)$/, '$2/$3/$1'),
  named_month({line}) {
    const [year, month, day] = line.entry_date.split('-')
    return `${day} ${MONTHS[Number(month) - 1]} ${year}`
  },
  account_code: ({line}) => line.account_code,
  account_name: ({line}) => line.account_name,
  debit: ({line}) => line.debit ?? '',
  credit: ({line}) => line.credit ?? '',
  amount: ({line}) => line.debit ?? `-${line.credit}`,
  memo: ({line}, longest) => fitText(line.memo, longest),
  memo_in_batch({line, batchId}, longest) {
    const mark = ` [${batchId}]`
    return `${fitText(line.memo, longest - mark.length)}${mark}`
  },
  batch_id: ({batchId}) => batchId,
  line_no: ({index}) => String(index + 1),
  ...Object.fromEntries(DIMENSIONS.map((field): [string, Content] => [field, ({mapping}) => mapping[field]])),
  tracking_name_1: ({mapping}) => mapping.tracking[0]?.name ?? '',
  tracking_option_1: ({mapping}) => mapping.tracking[0]?.option ?? '',
  tracking_name_2: ({mapping}) => mapping.tracking[1]?.name ?? '',
  tracking_option_2: ({mapping}) => mapping.tracking[1]?.option ?? '',
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

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
  const {columns, first_line_only, limits} = profile
  const names = Object.keys(columns)
  const header = stringify([names])
  const write = (cell: JournalCell) =>
    Object.entries(columns).map(([column, content]) =>
      cell.index > 0 && first_line_only.includes(column)
        ? ''
        : contentOf(content)(cell, limits.cells[column] ?? Infinity),
    )
  const parts: {text: string; bytes: number; lines: IssuedLine[]; cells: string[][]}[] = []
  for (const entry of Map.groupBy(lines, ({journal_no}) => journal_no).values()) {
    const cells = entry.map((line, index) => write({line, entry, index, ...context}))
    const text = stringify(cells)
    const bytes = Buffer.byteLength(text)
    let part = parts.at(-1)
    if (!part || part.lines.length + entry.length > limits.rows || part.bytes + bytes > limits.bytes) {
      part = {text: header, bytes: Buffer.byteLength(header), lines: [], cells: [names]}
      parts.push(part)
    }
    part.text += text
    part.bytes += bytes
    part.lines.push(...entry)
    part.cells.push(...cells)
  }
  const count = String(parts.length).padStart(2, '0')
  return parts.map(({text, bytes, lines, cells}, index) => {
    const suffix = parts.length === 1 ? '' : `_part${String(index + 1).padStart(count.length, '0')}of${count}`
    return {
      name: `${profile.name}_${context.batchId}${suffix}.csv`,
      bytes,
      sha256: hash('sha256', text),
      rows: lines.length,
      columns: names,
      sum_amount: null,
      sum_debit: addAmounts(lines.map(({debit}) => debit)),
      sum_credit: addAmounts(lines.map(({credit}) => credit)),
      text,
      lines,
      cells,
    }
  })
}

/**
 * Reads files back and proves them: rows and cells are those that were written, within the importer's limits, in characters it
 * accepts; each entry is in balance, its amounts of the importer's form.
 *
 * @throws CheckError `JOURNAL_FILE` naming file, line and what was expected
 */
export function proveJournalFiles(profile: JournalProfile, files: readonly JournalFile[]): void {
  for (const file of files) {
    const reading = {row: 0}
    try {
      proveFile(profile, file, reading)
      for (const entry of Map.groupBy(file.lines, ({journal_no}) => journal_no).values())
        proveEntry(profile, entry)
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
function proveFile({name, limits}: JournalProfile, {text, cells}: JournalFile, reading: {row: number}): void {
  prove(CHARACTERS[limits.characters].test(text), `a character that ${name} does not accept`)
  prove(Buffer.byteLength(text) <= limits.bytes, 'too many bytes')
  const [columns = [], ...written] = cells
  const [header, ...rows]: string[][] = parse(text)
  prove(rows.length <= limits.rows, `${rows.length} lines: expected at most ${limits.rows}`)
  prove(rows.length === written.length, `${rows.length} lines: expected the ${written.length} written`)
  reading.row = 1
  prove(isDeepStrictEqual(header, columns), `columns ${header?.join(', ')}: expected ${columns.join(', ')}`)
  for (const row of written) {
    const found = rows[reading.row - 1]
    reading.row += 1
    prove(isDeepStrictEqual(found, row), `'${found?.join(', ')}': expected '${row.join(', ')}'`)
    for (const [index, cell] of row.entries()) {
      const column = columns[index] ?? ''
      const longest = limits.cells[column] ?? Infinity
      prove(cell === cell.trim(), `spaces around '${cell}' in ${column}`)
      prove(cell.length <= longest, `${cell.length} characters in ${column}: expected at most ${longest}`)
    }
  }
  reading.row = 0
}

function proveEntry({limits}: JournalProfile, lines: readonly IssuedLine[]): void {
  let balance = 0n
  for (const {debit, credit} of lines) {
    const amount = debit ?? credit ?? ''
    prove((debit === null) !== (credit === null), 'debit and credit: expected exactly one')
    prove(/^\d+\.\d\d$/.test(amount) && Number(amount) > 0, `amount '${amount}': expected 1234.56`)
    const most = `at most ${limits.digits} digits before the point`
    prove(amount.length - 3 <= limits.digits, `amount '${amount}': expected ${most}`)
    balance += centsOf(debit ?? '') - centsOf(credit ?? '')
  }
  prove(balance === 0n && lines.length >= 2, `entry '${lines[0]?.journal_no}' is not in balance`)
}

function contentOf(name: string): Content {
  const content = CONTENTS[name]
  if (content) return content
  throw new Error(`content '${name}' in profiles.json`)
}

const CHARACTERS = {ascii: /^[\x20-\x7e\n]*$/, printable: /^[\P{C}\n]*$/u}

/** Typographic characters that have a plain form. */
const PLAIN: Readonly<Record<string, string>> = {
  '‘': "'",
  '’': "'",
  '“': '"',
  '”': '"',
  '–': '-',
  '—': '-',
  '…': '...',
  ß: 'ss',
  ø: 'o',
  Ø: 'O',
  æ: 'ae',
  Æ: 'AE',
  ł: 'l',
  Ł: 'L',
}

/** Text an importer accepts: one line, plain ASCII, at most `longest` characters; `?` for characters without a plain form. */
export function fitText(text: string, longest: number): string {
  const plain = text
    .replace(/[‘’“”–—…ßøØæÆłŁ]/g, (character) => PLAIN[character] ?? '?')
    .normalize('NFKD')
    .replace(/[\p{M}\p{Cf}]/gu, '')
    .replace(/\s+/g, ' ')
    .replace(/\p{Cc}/gu, '')
    .replace(/[^\x20-\x7e]/gu, '?')
    .trim()
  return plain.length <= longest ? plain : `${plain.slice(0, longest - 3).trimEnd()}...`
}
