import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {openRelease, type Release} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {type AccountMapping, findReceivable, readPrograms} from './mapping.ts'
import {registeredLoanSchema} from './periods.ts'
import {type JournalLine, journalLineSchema, type TiedTerm, tiedTermSchema} from './profiles.ts'

const lineRow = journalLineSchema.extend({
  line_no: z.coerce.number(),
  term: z.string().nullable(),
  account_code: z.string().nullable(),
  account_name: z.string().nullable(),
})

/**
 * The canonical journal of some months, `YYYY-MM`, with opening balances (event `opening`). With `isClosed`, the months keep the
 * accounts they were closed with.
 * @throws ConfigError `ACCOUNTING_UNMAPPED` naming programs and endings without an account, or a status without a class with
 *   which a loan left the funded book
 */
export async function readJournal(
  release: Release,
  periods: readonly string[],
  {isClosed = false, deals}: {isClosed?: boolean; deals?: Iterable<string>} = {},
): Promise<JournalLine[]> {
  await using db = await openRelease(release)
  const asked = [JSON.stringify(periods), deals === undefined ? null : JSON.stringify([...deals])]
  const status = z.object({deal_id: z.string(), status: z.string(), period: z.string()})
  const [unclear, ...others] = await db.all(status, readQuery('left_unclear'), asked)
  if (unclear) {
    const more = others.length > 0 ? `, and ${quantity(others.length, 'more loan')} like it` : ''
    throw newError(
      'ACCOUNTING_UNMAPPED',
      `Deal '${unclear.deal_id}' left the funded book in ${unclear.period} with the status '${unclear.status}', which has no class${more}: nobody knows whether the loan still stands.`,
      {
        next: `Give the status a line in seeds/status.csv of LOANTAPE_SQL_DIR, such as \`${unclear.status},funded\` under \`status,like\`, then run this again: docs/analyst-guide.md#statuses.`,
      },
    )
  }
  const rows = await db.all(lineRow, readQuery('journal_of_months'), asked)
  const programs = new Set<string | null>()
  const terms = new Set<string | null>()
  const lines: JournalLine[] = []
  for (const {account_code, account_name, term, ...line} of rows) {
    if (account_code !== null && account_name !== null) lines.push({...line, account_code, account_name})
    else if (line.event === 'ended' && line.line_no === 1) terms.add(term)
    // The return of a loan is booked from the account of its ending, which the memo names.
    else if (line.event === 'funding' && line.line_no === 2)
      terms.add(/^Reversal of (\w+)/.exec(line.memo)?.[1] ?? 'before a loan came back')
    else programs.add(line.loan_program)
  }
  if (programs.size + terms.size === 0) return lines
  const months = periods.join(', ')
  const problem = `Without an account in the journal of ${months}: ${nameUnmapped(programs, terms)}.`
  if (!isClosed) throw newError('ACCOUNTING_UNMAPPED', problem)
  throw newError(
    'ACCOUNTING_UNMAPPED',
    `${problem} They became known after it was closed, and it keeps the accounts it was closed with.`,
    {
      next: `Reopen it with \`loantape period reopen ${months} --why …\` (the months closed after it first), name an account for each in accounting.json, and export again.`,
    },
  )
}

/** Programs are in quotes because they may contain commas or control characters; endings are named as the mapping does. */
function nameUnmapped(programs: Iterable<string | null>, terms: Iterable<string | null>): string {
  const quoted = [...programs]
    .sort()
    .map((name) => (name === null ? 'none (deals without one)' : JSON.stringify(name)))
  const endings = [...terms].map((term) => (term === 'ended_other' ? 'other' : term)).sort()
  return [
    quoted.length > 0 && `programs ${quoted.join(', ')}`,
    endings.length > 0 && `endings ${endings.join(', ')}`,
  ]
    .filter(Boolean)
    .join('; ')
}

/** What has no account, as `programs "bridge"; endings sold`: programs of any deal, and booked endings. */
export async function listUnmapped(release: Release, mapping: AccountMapping): Promise<string> {
  await using db = await openRelease(release)
  const terms = await db.column(
    z.string(),
    `select distinct term from accounting.journal_line
     where event = 'ended' and line_no = 1 and account_code is null`,
  )
  const programs = (await readPrograms(release)).filter((program) => !findReceivable(mapping, program))
  return nameUnmapped(programs, terms)
}

/** How much of each term of the roll-forward is booked, and why the rest is not; in the order of the roll-forward. */
export async function readTieOut(release: Release, period: string): Promise<TiedTerm[]> {
  await using db = await openRelease(release)
  return await db.all(tiedTermSchema, readQuery('tied_terms'), [period])
}

/** The journal and roll-forward of a month, and the funded loans of a release as of its end. */
export async function readClosing(release: Release, period: string) {
  const lines = await readJournal(release, [period])
  const terms = await readTieOut(release, period)
  await using db = await openRelease(release)
  const register = await db.all(registeredLoanSchema, 'from accounting.loan_register order by deal_id')
  return {lines, terms, register}
}
