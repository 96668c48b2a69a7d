import {stringify} from 'csv-stringify/sync'
import type {IssuedLine} from '../journal-line.ts'
import type {JournalCell, JournalEntry, JournalProfile} from './journal.ts'

/** A file of a journal batch. */
export interface JournalFile {
  name: string
  text: string
  entries: readonly JournalEntry[]
}

/** Lines of one number as one entry each, in the order of the lines. */
export function groupEntries(lines: readonly IssuedLine[]): JournalEntry[] {
  return [...Map.groupBy(lines, ({journal_no}) => journal_no)].map(([number, entryLines]) => ({
    number,
    date: entryLines[0]?.entry_date ?? '',
    memo: entryLines[0]?.memo ?? '',
    lines: entryLines,
  }))
}

/**
 * Writes entries as the files of a batch: one, or as many as the importer's limits demand, never within an entry.
 * UTF-8, LF, a header line each.
 *
 * @returns `<profile>_<batch>.csv`, or `<profile>_<batch>_part01of03.csv`, …
 */
export function writeJournalFiles(
  profile: JournalProfile,
  entries: readonly JournalEntry[],
  context: Pick<JournalCell, 'batchId' | 'mapping'>,
): JournalFile[] {
  const header = stringify([Object.keys(profile.columns)])
  const cells = Object.values(profile.columns)
  const most = {rows: profile.limits.rows?.max ?? Infinity, bytes: profile.limits.bytes?.max ?? Infinity}
  const parts: {text: string; rows: number; bytes: number; entries: JournalEntry[]}[] = []
  for (const entry of entries) {
    const text = stringify(
      entry.lines.map((line, index) => cells.map((write) => write({entry, line, index, ...context}))),
    )
    const rows = entry.lines.length
    const bytes = Buffer.byteLength(text)
    let part = parts.at(-1)
    if (!part || part.rows + rows > most.rows || part.bytes + bytes > most.bytes) {
      part = {text: header, rows: 0, bytes: Buffer.byteLength(header), entries: []}
      parts.push(part)
    }
    part.text += text
    part.rows += rows
    part.bytes += bytes
    part.entries.push(entry)
  }
  const count = String(parts.length).padStart(2, '0')
  return parts.map((part, index) => {
    const suffix = parts.length === 1 ? '' : `_part${String(index + 1).padStart(count.length, '0')}of${count}`
    return {name: `${profile.name}_${context.batchId}${suffix}.csv`, text: part.text, entries: part.entries}
  })
}
