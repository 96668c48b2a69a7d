import type {IssuedLine} from './journal-line.ts'
import type {AccountMapping} from './mapping.ts'

/** A limit of an importer and who says so. Limits of others may change: each stands in one place. */
interface Limit {
  max: number
  source: string
}

/** What an importer takes. */
interface JournalLimits {
  /** Lines in one file, the header not counted. */
  rows?: Limit
  bytes?: Limit
  /** Digits of an amount before the point. */
  digits?: Limit
  /** Characters of a cell, by column. */
  cells: Readonly<Record<string, Limit>>
  /** What every file matches. */
  characters: {pattern: RegExp; source: string}
}

/** What a cell is written from. */
export interface JournalCell {
  line: IssuedLine
  /** Of the line in its entry, from 0. */
  index: number
  batchId: string
  mapping: AccountMapping
}

/** A line as an importer would read it. */
export interface ReadLine {
  /** `Journal No.`, `External ID`, …: that of its entry. */
  number: string
  /** `YYYY-MM-DD` */
  date: string
  account: string
  /** Decimal text; one of the two is empty. */
  debit: string
  credit: string
  /** What the row below is read against, where a format needs that. */
  note?: string
}

/** A way to write the canonical journal: what stands in each column, and a reader that proves what was written. */
export interface JournalProfile {
  name: string
  /** What the importer knows accounts by. */
  looksUpBy: 'code' | 'name'
  /** What the cells of each column hold, in the order of the columns. */
  columns: Readonly<Record<string, (cell: JournalCell) => string>>
  limits: JournalLimits
  /**
   * The line a row stands for.
   *
   * @param row the cells by column
   * @param before the line of the row above: some formats name an entry on its first line only
   * @throws Error when the row is not of the format
   */
  readRow(row: Readonly<Record<string, string>>, before: ReadLine | undefined): ReadLine
}

/** `2026-02-03` as `02/03/2026`. */
export function formatUsDate(date: string): string {
  const [year, month, day] = date.split('-')
  return `${month}/${day}/${year}`
}

/** `02/03/2026` as `2026-02-03`. */
export function parseUsDate(text: string): string {
  const match = /^(\d{2})\/(\d{2})\/(\d{4})$/.exec(text)
  if (!match) throw new Error(`date '${text}': expected MM/DD/YYYY`)
  return `${match[3]}-${match[1]}-${match[2]}`
}

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

/** Text an importer takes: one line, plain ASCII, at most `longest` characters; `?` for what has no plain form. */
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

/** A memo with the batch it came in, together at most `longest` characters: {@link fitText}. */
export function fitMemo(memo: string, batchId: string, longest: number): string {
  const mark = ` [${batchId}]`
  return `${fitText(memo, longest - mark.length)}${mark}`
}

/** Printable ASCII and line ends: reads alike in every encoding an importer may assume. */
export const PLAIN_TEXT = /^[\x20-\x7e\n]*$/

/** Printable Unicode and line ends. */
export const PRINTABLE_TEXT = /^[\P{C}\n]*$/u
