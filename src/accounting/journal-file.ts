import {stringify} from 'csv-stringify/sync'
import type {JournalCell, JournalProfile} from './journal.ts'
import type {IssuedLine} from './journal-line.ts'

/** A file of a journal batch, and the lines it holds. */
export interface JournalFile {
  name: string
  text: string
  lines: readonly IssuedLine[]
}

/**
 * Writes lines as the files of a batch: one, or as many as the importer's limits demand. Lines of one number are an entry
 * and stand together in one file. UTF-8, LF, a header line each.
 *
 * @returns `<profile>_<batch>.csv`, or `<profile>_<batch>_part01of03.csv`, …
 */
export function writeJournalFiles(
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
