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
  const lines: JournalLine[] = []
  for (const {account_code, account_name, term: _term, ...line} of rows)
    if (account_code !== null && account_name !== null) lines.push({...line, account_code, account_name})
  if (lines.length === rows.length) return lines
  const months = periods.join(', ')
  const problem = `Without an account in the journal of ${months}: ${nameUnmapped(findUnmapped(rows))}.`
  if (!isClosed) throw newError('ACCOUNTING_UNMAPPED', problem)
  throw newError(
    'ACCOUNTING_UNMAPPED',
    `${problem} They became known after it was closed, and it keeps the accounts it was closed with.`,
    {
      next: `Reopen it with \`loantape period reopen ${months} --why …\` (the months closed after it first), name an account for each in accounting.json, and export again.`,
    },
  )
}

/** The programs and endings of the lines without an account. */
function findUnmapped(rows: readonly z.output<typeof lineRow>[]) {
  const [programs, endings] = [new Set<string | null>(), new Set<string | null>()]
  for (const {account_code, event, line_no, term, memo, loan_program} of rows) {
    if (account_code !== null) continue
    if (event === 'ended' && line_no === 1) endings.add(term)
    // The return of a loan is booked from the account of its ending, which the memo names.
    else if (event === 'funding' && line_no === 2) endings.add(memo.replace(/^Reversal of (\w+).*$/s, '$1'))
    else programs.add(loan_program)
  }
  return {programs: [...programs], endings: [...endings]}
}

/** Programs are in quotes because they may contain commas or control characters; endings are named as the mapping does. */
function nameUnmapped({programs, endings}: ReturnType<typeof findUnmapped>): string {
  const quoted = programs
    .sort()
    .map((name) => (name === null ? 'none (deals without one)' : JSON.stringify(name)))
  const named = endings.map((ending) => (ending === 'ended_other' ? 'other' : ending)).sort()
  return [
    quoted.length > 0 && `programs ${quoted.join(', ')}`,
    named.length > 0 && `endings ${named.join(', ')}`,
  ]
    .filter(Boolean)
    .join('; ')
}

/** What has no account, as `programs "bridge"; endings sold`: programs booked or of any deal, and booked endings. */
export async function listUnmapped(release: Release, mapping: AccountMapping): Promise<string> {
  await using db = await openRelease(release)
  const rows = await db.all(
    lineRow,
    `select distinct on (event, line_no, term, loan_program, split_part(memo, ' ', 3)) *
     from (from accounting.journal_line union all from accounting.opening_line) where account_code is null`,
  )
  const {programs, endings} = findUnmapped(rows)
  const all = new Set([...programs, ...(await readPrograms(release))])
  return nameUnmapped({programs: [...all].filter((program) => !findReceivable(mapping, program)), endings})
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
