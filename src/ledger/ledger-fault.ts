import {messageOf, newError} from '../errors.ts'

/** https://sqlite.org/rescode.html */
const [CORRUPT, NOT_A_DATABASE, READ_ONLY, CANNOT_OPEN] = [11, 26, 8, 14]

/** What to do about a ledger that is damaged. */
export const LEDGER_NEXT =
  'Bring its latest backup back (docs/operations.md). Without it closed months are open again, and journals would be issued a second time.'

/** What SQLite says of the ledger's file, in our words where somebody can fix it; all else as it is. */
export function explainLedgerFault(path: string, cause: unknown): unknown {
  // The low byte is the kind of fault, what is above it the details.
  const fault = cause instanceof Error && 'errcode' in cause ? Number(cause.errcode) & 0xff : undefined
  if (fault === CORRUPT || fault === NOT_A_DATABASE) {
    return newError('LEDGER_UNREADABLE', `Ledger '${path}' cannot be read: ${messageOf(cause)}.`, {cause})
  }
  if (fault === READ_ONLY || fault === CANNOT_OPEN) {
    return newError('LEDGER_NOT_WRITABLE', `Ledger '${path}' cannot be written: ${messageOf(cause)}.`, {
      cause,
    })
  }
  return cause
}
