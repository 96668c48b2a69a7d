import {fitMemo, fitText, type JournalProfile, PRINTABLE_TEXT} from './journal.ts'

const HELP =
  'Xero, "Enter multiple manual journals using an import template", help.xero.com/nz/ManualJournalsImport'

const MEMO = 500

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

function formatDate(date: string): string {
  const [year, month, day] = date.split('-')
  return `${day} ${MONTHS[Number(month) - 1]} ${year}`
}

function parseDate(text: string): string {
  const [, day, month = '', year] = /^(\d{2}) ([A-Z][a-z]{2}) (\d{4})$/.exec(text) ?? []
  if (!MONTHS.includes(month)) throw new Error(`date '${text}': expected dd mmm yyyy`)
  return `${year}-${String(MONTHS.indexOf(month) + 1).padStart(2, '0')}-${day}`
}

/**
 * Xero manual journals: accounts by code, one signed amount. Lines of one narration and date are one journal: the
 * narration begins with the entry's number.
 */
export const xero: JournalProfile = {
  name: 'xero',
  looksUpBy: 'code',
  columns: {
    '*Narration': ({line}) => fitText(`${line.journal_no} ${line.memo}`, MEMO),
    '*Date': ({line}) => formatDate(line.entry_date),
    Description: ({line, batchId}) => fitMemo(line.memo, batchId, MEMO),
    '*AccountCode': ({line}) => line.account_code,
    '*TaxRate': ({mapping}) => mapping.tax_rate,
    '*Amount': ({line}) => line.debit ?? `-${line.credit}`,
    TrackingName1: ({mapping}) => mapping.tracking[0]?.name ?? '',
    TrackingOption1: ({mapping}) => mapping.tracking[0]?.option ?? '',
    TrackingName2: ({mapping}) => mapping.tracking[1]?.name ?? '',
    TrackingOption2: ({mapping}) => mapping.tracking[1]?.option ?? '',
  },
  limits: {
    rows: {max: 300, source: HELP},
    cells: {
      '*AccountCode': {max: 10, source: 'Xero, Accounts of the Accounting API, developer.xero.com: Code'},
      '*Narration': {max: MEMO, source: 'ours: far above what we write'},
      Description: {max: MEMO, source: 'ours: far above what we write'},
    },
    characters: {pattern: PRINTABLE_TEXT, source: `${HELP}: CSV, read as UTF-8`},
  },
  readRow: (row, before) => {
    const amount = row['*Amount'] ?? ''
    const narration = row['*Narration'] ?? ''
    const number = narration.split(' ')[0] ?? ''
    if (before?.number === number && before.note !== narration) {
      throw new Error(`narration '${narration}': expected that of the line above`)
    }
    return {
      number,
      date: parseDate(row['*Date'] ?? ''),
      account: row['*AccountCode'] ?? '',
      debit: amount.startsWith('-') ? '' : amount,
      credit: amount.startsWith('-') ? amount.slice(1) : '',
      note: narration,
    }
  },
}
