import {ConfigError, messageOf, UnexpectedError} from '../errors.ts'

/** https://sqlite.org/rescode.html */
const [CORRUPT, NOT_A_DATABASE, READ_ONLY, CANNOT_OPEN] = [11, 26, 8, 14]

/** What to do about a ledger that is damaged. */
export const LEDGER_NEXT =
  'Bring its latest backup back (docs/operations.md). Without it closed months are open again, and journals would be issued a second time.'

/** What SQLite says of the ledger's file, in our words where it is for somebody to mend; all else as it is. */
export function explainLedgerFault(path: string, cause: unknown): unknown {
  // The low byte is the kind of fault, what is above it the details.
  const fault = cause instanceof Error && 'errcode' in cause ? Number(cause.errcode) & 0xff : undefined
  if (fault === CORRUPT || fault === NOT_A_DATABASE) {
    return new UnexpectedError({
      code: 'LEDGER_UNREADABLE',
      problem: `Ledger '${path}' cannot be read: ${messageOf(cause)}.`,
      kept: 'It was not changed; warehouse, releases and exports are separate files and stay as they are.',
      next: LEDGER_NEXT,
      cause,
    })
  }
  if (fault === READ_ONLY || fault === CANNOT_OPEN) {
    return new ConfigError({
      code: 'LEDGER_NOT_WRITABLE',
      problem: `Ledger '${path}' cannot be written: ${messageOf(cause)}.`,
      kept: 'Nothing was started; what is stored there is untouched.',
      next: 'Run loantape as the user that the data folder belongs to.',
      cause,
    })
  }
  return cause
}
