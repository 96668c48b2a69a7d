import {
  fitText,
  formatUsDate,
  type JournalLimits,
  type JournalProfile,
  PLAIN_TEXT,
  parseUsDate,
} from './journal.ts'

const HELP =
  'Sage, "CSV import: General Ledger journal entries", intacct.com/ia/docs/en_US/help_action/More/Uploading_Data/GL/import-GL-journal-entries.htm'

const DESCRIPTION = 80
const MEMO = 500

const limits: JournalLimits = {
  cells: {
    DESCRIPTION: {
      max: DESCRIPTION,
      source: 'Sage, journal entry template of the Company Setup Checklist: DESCRIPTION',
    },
    MEMO: {max: MEMO, source: 'ours: far above what we write'},
  },
  characters: {pattern: PLAIN_TEXT, source: `${HELP}: plain CSV, no byte order mark`},
}

/** Sage Intacct general ledger: accounts by number; what names an entry stands on its first line only. */
export const intacct: JournalProfile = {
  name: 'intacct',
  columns: [
    'JOURNAL',
    'DATE',
    'DESCRIPTION',
    'REFERENCE_NO',
    'LINE_NO',
    'ACCT_NO',
    'LOCATION_ID',
    'DEPT_ID',
    'DOCUMENT',
    'MEMO',
    'DEBIT',
    'CREDIT',
  ],
  limits,
  writeEntry: ({number, date, memo, lines}, {batchId, mapping}) =>
    lines.map(({account_code, debit, credit}, index) => [
      ...(index === 0
        ? [mapping.journal, formatUsDate(date), fitText(memo, DESCRIPTION), number]
        : ['', '', '', '']),
      String(index + 1),
      account_code,
      mapping.location,
      mapping.department,
      batchId,
      fitText(memo, MEMO),
      debit ?? '',
      credit ?? '',
    ]),
  readRow: (row, before) => {
    const isFirst = row.LINE_NO === '1'
    if (isFirst !== (row.REFERENCE_NO !== ''))
      throw new Error(`REFERENCE_NO on line ${row.LINE_NO} of an entry`)
    return {
      number: isFirst ? (row.REFERENCE_NO ?? '') : (before?.number ?? ''),
      date: isFirst ? parseUsDate(row.DATE ?? '') : (before?.date ?? ''),
      account: row.ACCT_NO ?? '',
      debit: row.DEBIT ?? '',
      credit: row.CREDIT ?? '',
    }
  },
}
