import {fitMemo, fitText, formatUsDate, type JournalProfile, PLAIN_TEXT, parseUsDate} from './journal.ts'

const GUIDE =
  'Oracle, NetSuite CSV Imports Guide, "General CSV file formatting": 25,000 records or 50 MB in one file'
const FIELDS =
  'Oracle, "Journal Entry and Intercompany Journal Entry Line-Level Fields Table", docs.oracle.com/en/cloud/saas/netsuite/ns-online-help/section_1534492737.html'

const LINE = 'Journal Entry - Line: '

const MEMO = 500

/** NetSuite: accounts by name, with their number in front where account numbers are used. */
export const netsuite: JournalProfile = {
  name: 'netsuite',
  looksUpBy: 'name',
  columns: {
    'External ID': ({line}) => line.journal_no,
    Date: ({line}) => formatUsDate(line.entry_date),
    Subsidiary: ({mapping}) => mapping.subsidiary,
    Currency: ({mapping}) => mapping.currency,
    Memo: ({line, batchId}) => fitMemo(line.memo, batchId, MEMO),
    [`${LINE}Account`]: ({line}) => line.account_name,
    [`${LINE}Debit`]: ({line}) => line.debit ?? '',
    [`${LINE}Credit`]: ({line}) => line.credit ?? '',
    [`${LINE}Memo`]: ({line}) => fitText(line.memo, MEMO),
    [`${LINE}Department`]: ({mapping}) => mapping.department,
    [`${LINE}Class`]: ({mapping}) => mapping.class,
    [`${LINE}Location`]: ({mapping}) => mapping.location,
  },
  limits: {
    rows: {max: 25_000, source: GUIDE},
    bytes: {max: 50_000_000, source: GUIDE},
    digits: {max: 10, source: FIELDS},
    cells: {
      Memo: {max: MEMO, source: 'ours: far above what we write'},
      [`${LINE}Memo`]: {max: MEMO, source: 'ours: far above what we write'},
    },
    characters: {pattern: PLAIN_TEXT, source: 'ours: reads alike in every encoding the assistant offers'},
  },
  readRow: (row) => ({
    number: row['External ID'] ?? '',
    date: parseUsDate(row.Date ?? ''),
    account: row[`${LINE}Account`] ?? '',
    debit: row[`${LINE}Debit`] ?? '',
    credit: row[`${LINE}Credit`] ?? '',
  }),
}
