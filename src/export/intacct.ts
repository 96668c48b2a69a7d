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

const FIELDS =
  'Blackbaud, "Intacct Export", blackbaud.com/files/support/helpfiles/etapestry/etapestry/content/etap_intacct_export_def.html: field lengths'

const DESCRIPTION = 80
const MEMO = 500

/** What names an entry: on its first line, and on no other. */
const ENTRY_COLUMNS = ['JOURNAL', 'DATE', 'DESCRIPTION', 'REFERENCE_NO']

const limits: JournalLimits = {
  cells: {
    JOURNAL: {max: 4, source: FIELDS},
    DESCRIPTION: {
      max: DESCRIPTION,
      source: 'Sage, journal entry template of the Company Setup Checklist: DESCRIPTION',
    },
    MEMO: {max: MEMO, source: FIELDS},
  },
  characters: {pattern: PLAIN_TEXT, source: `${HELP}: plain CSV, no byte order mark`},
}

/** Sage Intacct general ledger: accounts by number; what names an entry stands on its first line only. */
export const intacct: JournalProfile = {
  name: 'intacct',
  looksUpBy: 'code',
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
    const isFirst = row.REFERENCE_NO !== ''
    const lineNo = isFirst ? '1' : String(Number(before?.note ?? 0) + 1)
    if (row.LINE_NO !== lineNo) throw new Error(`LINE_NO '${row.LINE_NO}': expected ${lineNo}`)
    for (const column of ENTRY_COLUMNS) {
      if ((row[column] !== '') !== isFirst) throw new Error(`${column} on line ${lineNo} of an entry`)
    }
    return {
      number: isFirst ? (row.REFERENCE_NO ?? '') : (before?.number ?? ''),
      date: isFirst ? parseUsDate(row.DATE ?? '') : (before?.date ?? ''),
      account: row.ACCT_NO ?? '',
      debit: row.DEBIT ?? '',
      credit: row.CREDIT ?? '',
      note: lineNo,
    }
  },
}
