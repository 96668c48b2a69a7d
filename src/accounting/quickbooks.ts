import {fitMemo, formatUsDate, type JournalProfile, PRINTABLE_TEXT, parseUsDate} from './journal.ts'

const HELP =
  'Intuit, "Import journal entries", quickbooks.intuit.com/learn-support/en-au/help-article/import-export-files/import-journal-entries-quickbooks-online/L4tQBwbs7_AU_en_AU'
const API = 'Intuit, JournalEntry and Account of the QuickBooks Online API, developer.intuit.com'

const MEMO = 4000

/** QuickBooks Online: accounts by name (`Parent:Sub`), account numbers turned off while importing. */
export const quickbooks: JournalProfile = {
  name: 'quickbooks',
  looksUpBy: 'name',
  columns: {
    'Journal No.': ({line}) => line.journal_no,
    'Journal Date': ({line}) => formatUsDate(line.entry_date),
    'Account Name': ({line}) => line.account_name,
    Debits: ({line}) => line.debit ?? '',
    Credits: ({line}) => line.credit ?? '',
    Description: ({line, batchId}) => fitMemo(line.memo, batchId, MEMO),
    Name: ({mapping}) => mapping.entity,
    Class: ({mapping}) => mapping.class,
    Location: ({mapping}) => mapping.location,
  },
  limits: {
    rows: {max: 1000, source: HELP},
    cells: {
      'Journal No.': {max: 21, source: API},
      'Account Name': {max: 100, source: API},
      Description: {max: MEMO, source: API},
    },
    characters: {pattern: PRINTABLE_TEXT, source: `${HELP}: CSV, read as UTF-8`},
  },
  readRow: (row) => ({
    number: row['Journal No.'] ?? '',
    date: parseUsDate(row['Journal Date'] ?? ''),
    account: row['Account Name'] ?? '',
    debit: row.Debits ?? '',
    credit: row.Credits ?? '',
  }),
}
