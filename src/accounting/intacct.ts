import {fitText, formatUsDate, type JournalProfile, PLAIN_TEXT, parseUsDate} from './journal.ts'

const HELP =
  'Sage, "CSV import: General Ledger journal entries", intacct.com/ia/docs/en_US/help_action/More/Uploading_Data/GL/import-GL-journal-entries.htm'

const FIELDS =
  'Blackbaud, "Intacct Export", blackbaud.com/files/support/helpfiles/etapestry/etapestry/content/etap_intacct_export_def.html: field lengths'

const DESCRIPTION = 30
const MEMO = 500

/** What names an entry: on its first line, and on no other. */
const ENTRY_COLUMNS: JournalProfile['columns'] = {
  JOURNAL: ({index, mapping}) => (index === 0 ? mapping.journal : ''),
  DATE: ({index, line}) => (index === 0 ? formatUsDate(line.entry_date) : ''),
  DESCRIPTION: ({index, line}) => (index === 0 ? fitText(line.memo, DESCRIPTION) : ''),
  REFERENCE_NO: ({index, line}) => (index === 0 ? line.journal_no : ''),
}

/** Sage Intacct general ledger: accounts by number; what names an entry stands on its first line only. */
export const intacct: JournalProfile = {
  name: 'intacct',
  looksUpBy: 'code',
  columns: {
    ...ENTRY_COLUMNS,
    LINE_NO: ({index}) => String(index + 1),
    ACCT_NO: ({line}) => line.account_code,
    LOCATION_ID: ({mapping}) => mapping.location,
    DEPT_ID: ({mapping}) => mapping.department,
    DOCUMENT: ({batchId}) => batchId,
    MEMO: ({line}) => fitText(line.memo, MEMO),
    DEBIT: ({line}) => line.debit ?? '',
    CREDIT: ({line}) => line.credit ?? '',
  },
  limits: {
    cells: {
      JOURNAL: {max: 4, source: FIELDS},
      // Its template allows 80; what is within the smaller limit imports by both.
      DESCRIPTION: {max: DESCRIPTION, source: HELP},
      MEMO: {max: MEMO, source: FIELDS},
    },
    characters: {pattern: PLAIN_TEXT, source: `${HELP}: plain CSV, no byte order mark`},
  },
  readRow: (row, before) => {
    const isFirst = row.REFERENCE_NO !== ''
    const lineNo = isFirst ? '1' : String(Number(before?.note ?? 0) + 1)
    if (row.LINE_NO !== lineNo) throw new Error(`LINE_NO '${row.LINE_NO}': expected ${lineNo}`)
    for (const column of Object.keys(ENTRY_COLUMNS)) {
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
