import {hash} from 'node:crypto'
import {isDeepStrictEqual} from 'node:util'
import {parse} from 'csv-parse/sync'
import {stringify} from 'csv-stringify/sync'
import type {AccountMapping} from '../accounting/mapping.ts'
import type {IssuedLine, JournalProfile} from '../accounting/profiles.ts'
import {messageOf, newError} from '../core/errors.ts'
import {addAmounts, centsOf} from '../core/money.ts'
import type {BatchFile} from '../export/batch.ts'

interface JournalFile extends BatchFile {
  text: string
  lines: readonly IssuedLine[]
}

interface JournalCell {
  line: IssuedLine
  /** The position of the line in its entry, from 0. */
  index: number
  batchId: string
  mapping: AccountMapping
}

/**
 * What an importer reads from cells: `date` as `YYYY-MM-DD`, amounts as decimal text, `line_no` in the entry from 1. With
 * `narration`, lines of the same narration are one entry.
 */
type Told = Partial<
  Record<'number' | 'date' | 'account' | 'debit' | 'credit' | 'line_no' | 'narration', string>
>

interface Content {
  /** `fit` fits text into the cell: its characters, and its maximum length minus `less`. */
  write(cell: JournalCell, fit: (text: string, less?: number) => string): string
  /** Most contents say nothing that is booked. */
  read?(text: string): Told
}

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

const CONTENTS: Record<string, Content> = {
  number: {write: ({line}) => line.journal_no, read: (number) => ({number})},
  narration: {
    write: ({line}, fit) => fit(`${line.journal_no} ${line.memo}`),
    read: (narration) => ({number: narration.split(' ')[0] ?? '', narration}),
  },
  us_date: {
    write: ({line}) => line.entry_date.replace(/^(\d+)-(\d+)-(\d+)$/, '$2/$3/$1'),
    read: (text) => ({date: parseDate(text, /^(?<month>\d\d)\/(?<day>\d\d)\/(?<year>\d{4})$/, 'MM/DD/YYYY')}),
  },
  named_month: {
    write({line}) {
      const [year, month, day] = line.entry_date.split('-')
      return `${day} ${MONTHS[Number(month) - 1]} ${year}`
    },
    read: (text) => ({
      date: parseDate(text, /^(?<day>\d\d) (?<month>[A-Z][a-z]{2}) (?<year>\d{4})$/, 'dd mmm yyyy'),
    }),
  },
  account_code: {write: ({line}) => line.account_code, read: (account) => ({account})},
  account_name: {write: ({line}) => line.account_name, read: (account) => ({account})},
  debit: {write: ({line}) => line.debit ?? '', read: (debit) => ({debit})},
  credit: {write: ({line}) => line.credit ?? '', read: (credit) => ({credit})},
  amount: {
    write: ({line}) => line.debit ?? `-${line.credit}`,
    read: (text) => (text.startsWith('-') ? {credit: text.slice(1)} : {debit: text}),
  },
  memo: {write: ({line}, fit) => fit(line.memo)},
  /** Of a reversal, only the number that it reverses. */
  title: {write: ({line}, fit) => fit(line.memo.replace(/^(Reverses \S+):.*/su, '$1'))},
  memo_in_batch: {write: ({line, batchId}, fit) => `${fit(line.memo, batchId.length + 3)} [${batchId}]`},
  batch_id: {write: ({batchId}) => batchId},
  line_no: {write: ({index}) => String(index + 1), read: (line_no) => ({line_no})},
  ...Object.fromEntries(DIMENSIONS.map((field) => [field, {write: ({mapping}) => mapping[field]}])),
  tracking_name_1: {write: ({mapping}) => mapping.tracking[0]?.name ?? ''},
  tracking_option_1: {write: ({mapping}) => mapping.tracking[0]?.option ?? ''},
  tracking_name_2: {write: ({mapping}) => mapping.tracking[1]?.name ?? ''},
  tracking_option_2: {write: ({mapping}) => mapping.tracking[1]?.option ?? ''},
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

/** Into `YYYY-MM-DD`. */
function parseDate(text: string, form: RegExp, expected: string): string {
  const {year, month = '', day} = form.exec(text)?.groups ?? {}
  const number = MONTHS.includes(month) ? String(MONTHS.indexOf(month) + 1).padStart(2, '0') : month
  prove(/^\d\d$/.test(number), `date '${text}': expected ${expected}`)
  return `${year}-${number}-${day}`
}

/**
 * As many files as the importer's limits demand: `<profile>_<batch>.csv`, or `<profile>_<batch>_part01of03.csv`, …, each UTF-8,
 * LF, with a header line. Lines with the same number are an entry and stay together in one file.
 */
export function formatJournalFiles(
  profile: JournalProfile,
  lines: readonly IssuedLine[],
  context: Pick<JournalCell, 'batchId' | 'mapping'>,
): JournalFile[] {
  const {columns, first_line_only, limits} = profile
  const header = stringify([Object.keys(columns)])
  const write = (cell: JournalCell) =>
    Object.entries(columns).map(([column, content]) =>
      cell.index > 0 && first_line_only.includes(column)
        ? ''
        : contentOf(content).write(cell, (text, less = 0) =>
            fitText(text, (limits.cells[column] ?? Infinity) - less, limits.characters),
          ),
    )
  const parts: {text: string; bytes: number; lines: IssuedLine[]}[] = []
  for (const entry of Map.groupBy(lines, ({journal_no}) => journal_no).values()) {
    const text = stringify(entry.map((line, index) => write({line, index, ...context})))
    const bytes = Buffer.byteLength(text)
    let part = parts.at(-1)
    if (!part || part.lines.length + entry.length > limits.rows || part.bytes + bytes > limits.bytes) {
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
      columns: Object.keys(columns),
      sum_amount: null,
      sum_debit: addAmounts(lines.map(({debit}) => debit)),
      sum_credit: addAmounts(lines.map(({credit}) => credit)),
      text,
      lines,
    }
  })
}

/**
 * Reads files back as the importer would, and proves that what they hold can be imported and is what was written.
 * @throws CheckError `JOURNAL_FILE` naming file, line and what was expected
 */
export function proveJournalFiles(profile: JournalProfile, files: readonly JournalFile[]): void {
  const numbers = new Set<string>()
  for (const {name, text, lines} of files) {
    let place = `File '${name}'`
    try {
      const rows = readRows(profile, text, lines.length)
      let row = 1
      for (const [number, entry] of Map.groupBy(lines, ({journal_no}) => journal_no)) {
        let narration: string | undefined
        for (const [index, line] of entry.entries()) {
          row += 1
          place = `File '${name}', line ${row} (entry ${number} of deal ${line.deal_id})`
          const told = readCells(profile, rows[row - 2] ?? [], index === 0)
          narration ??= told.narration
          const written: Record<string, string | undefined> = {
            number,
            date: line.entry_date,
            account: line[`account_${profile.looks_up_by}`],
            debit: line.debit ?? '',
            credit: line.credit ?? '',
            line_no: String(index + 1),
            narration,
          }
          for (const [field, value] of Object.entries(told))
            prove(value === written[field], `${field} '${value}': expected '${written[field]}'`)
          proveAmount(line, profile.limits.digits)
        }
        prove(!numbers.has(number), `entry '${number}' twice`)
        numbers.add(number)
        const cents = entry.map(({debit, credit}) => centsOf(debit ?? '') - centsOf(credit ?? ''))
        const balance = cents.reduce((sum, one) => sum + one, 0n)
        prove(balance === 0n && entry.length >= 2, `entry '${number}' is not in balance`)
      }
    } catch (error) {
      throw newError('JOURNAL_FILE', `${place} would not import: ${messageOf(error)}.`)
    }
  }
}

function prove(isRight: boolean, problem: string): void {
  if (!isRight) throw new Error(problem)
}

/** Rows below the header. */
function readRows({limits, columns}: JournalProfile, text: string, written: number): string[][] {
  prove(Buffer.byteLength(text) <= limits.bytes, 'too many bytes')
  const [header = [], ...rows]: string[][] = parse(text)
  prove(rows.length <= limits.rows, `${rows.length} lines: expected at most ${limits.rows}`)
  prove(rows.length === written, `${rows.length} lines: expected the ${written} written`)
  const names = Object.keys(columns)
  const expected = names.join(', ')
  prove(isDeepStrictEqual(header, names), `columns ${header.join(', ')} in line 1: expected ${expected}`)
  return rows
}

/** Columns of the first line only are not read on others. */
function readCells(
  {columns, first_line_only, limits}: JournalProfile,
  cells: readonly string[],
  isFirst: boolean,
): Told {
  const told: Told = {account: '', debit: '', credit: '', ...(isFirst && {number: '', date: ''})}
  for (const [index, [column, content]] of Object.entries(columns).entries()) {
    const cell = cells[index] ?? ''
    const longest = limits.cells[column] ?? Infinity
    const [form, characters] = CHARACTERS[limits.characters]
    prove(form.test(cell), `'${cell}' in ${column}: expected ${characters}`)
    prove(cell === cell.trim(), `spaces around '${cell}' in ${column}`)
    prove(cell.length <= longest, `${cell.length} characters in ${column}: expected at most ${longest}`)
    const isOfFirst = first_line_only.includes(column)
    if (isOfFirst) prove((cell !== '') === isFirst, `${column} '${cell}': expected it on first lines alone`)
    if (isFirst || !isOfFirst) Object.assign(told, contentOf(content).read?.(cell))
  }
  return told
}

function proveAmount({debit, credit}: IssuedLine, digits: number): void {
  const amount = debit ?? credit ?? ''
  prove((debit === null) !== (credit === null), 'debit and credit: expected exactly one')
  prove(/^\d+\.\d\d$/.test(amount) && Number(amount) > 0, `amount '${amount}': expected 1234.56`)
  prove(amount.length - 3 <= digits, `amount '${amount}': expected at most ${digits} digits before the point`)
}

function contentOf(name: string): Content {
  const content = CONTENTS[name]
  if (content) return content
  throw new Error(`content '${name}' in profiles.json`)
}

const CHARACTERS = {
  ascii: [/^[\x20-\x7e]*$/, 'printable ASCII'],
  printable: [/^\P{C}*$/u, 'printable characters in one line'],
} as const

/** Each with its plain form behind it. */
const PLAIN: Readonly<Record<string, string>> = Object.fromEntries(
  `‘' ’' “" ”" –- —- ′' ⁄/ ×x đd ĐD ßss øo ØO æae ÆAE łl ŁL`
    .split(' ')
    .map(([sign, ...plain]) => [sign, plain.join('')]),
)

/** One line of at most `longest` characters. Emoji become `?`; in ASCII, so do all characters without a plain form. */
export function fitText(text: string, longest: number, characters: keyof typeof CHARACTERS): string {
  const shown = text.replace(/\s/g, ' ').replace(/\p{C}/gu, '')
  const line = characters === 'ascii' ? toAscii(shown) : shown.normalize('NFC').replace(ASTRAL, '?')
  const fitted = line.replace(/ +/g, ' ').trim()
  return fitted.length <= longest ? fitted : `${fitted.slice(0, longest - 3).trimEnd()}...`
}

/** Emoji among them. QuickBooks fails on them, Xero drops them. */
const ASTRAL = /[\u{10000}-\u{10ffff}]/gu

const toAscii = (text: string) =>
  text
    // Keeps "12½" from becoming 121/2.
    .replace(/(?<=\d)(?=[¼-¾⅐-⅞])/g, ' ')
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .replace(/\P{ASCII}/gu, (character) => PLAIN[character] ?? '?')
