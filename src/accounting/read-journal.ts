import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {openRelease, type Release} from '../store/release.ts'
import {quotePrograms} from './mapping.ts'
import {registeredLoanSchema} from './periods.ts'
import {type JournalLine, journalLineSchema, type TiedTerm, tiedTermSchema} from './profiles.ts'

const lineRow = journalLineSchema.extend({
  line_no: z.coerce.number(),
  term: z.string().nullable(),
  account_code: z.string().nullable(),
  account_name: z.string().nullable(),
})

/**
 * The canonical journal of a period, with opening balances (event `opening`).
 *
 * @param period `YYYY-MM`, or several of them
 * @param isClosed whether the period keeps the accounts it was closed with
 * @param deals only these
 * @throws ConfigError `ACCOUNTING_UNMAPPED` naming the programs and endings without an account, or the status without a class in
 *   which a loan left the funded book
 */
export async function readJournal(
  release: Release,
  period: string | readonly string[],
  {isClosed = false, deals}: {isClosed?: boolean; deals?: Iterable<string>} = {},
): Promise<JournalLine[]> {
  await using db = await openRelease(release)
  const periods = [period].flat()
  const ids = deals === undefined ? null : JSON.stringify([...deals])
  const asked = `period in (select unnest(from_json($1, '["varchar"]')))
    and ($2 is null or deal_id in (select unnest(from_json($2, '["varchar"]'))))`
  const [unclear, ...others] = await db.all(
    z.object({deal_id: z.string(), status: z.string()}),
    `select deal_id, status
     from (
       select
         *,
         lag(status_class) over versions as class_before,
         lag(loan_amount) over versions as amount_before,
         strftime(min(business_date) over (versions rows between current row and unbounded following), '%Y-%m') as period
       from core.deal_history
       where deal_id in (select deal_id from core.deal_history where status_class = 'unclassified')
       window versions as (partition by deal_id order by version)
     )
     where ${asked} and status_class = 'unclassified' and change <> 'vanished' and class_before = 'funded' and amount_before > 0
     order by deal_id, version`,
    [JSON.stringify(periods), ids],
  )
  if (unclear) {
    const more = others.length > 0 ? `, and ${quantity(others.length, 'more loan')} like it` : ''
    throw newError(
      'ACCOUNTING_UNMAPPED',
      `Deal '${unclear.deal_id}' left the funded book in ${periods.join(', ')} with the status '${unclear.status}', which has no class${more}: nobody knows whether the loan still stands.`,
      {
        ...(!isClosed && {kept: 'Nothing was issued or closed.'}),
        next: `Give the status a line in seeds/status.csv of LOANTAPE_SQL_DIR, such as \`${unclear.status},funded\` under \`status,like\`, then run this again: docs/analyst-guide.md#statuses.`,
      },
    )
  }
  const rows = await db.all(
    lineRow,
    `select * exclude (period) from accounting.journal_line where ${asked}
     union all
     select * exclude (period) from accounting.opening_line where ${asked}
     order by entry_date, deal_id, entry_id, line_no`,
    [JSON.stringify(periods), ids],
  )
  const programs = new Set<string | null>()
  const endings = new Set<string>()
  const lines: JournalLine[] = []
  for (const {account_code, account_name, term, ...line} of rows) {
    if (account_code !== null && account_name !== null) lines.push({...line, account_code, account_name})
    else if (line.event === 'ended' && line.line_no === 1) endings.add(nameEnding(term ?? ''))
    else programs.add(line.loan_program)
  }
  if (programs.size + endings.size === 0) return lines
  const months = periods.join(', ')
  const unmapped = [
    ...(programs.size > 0 ? [`programs ${quotePrograms([...programs].sort())}`] : []),
    ...(endings.size > 0 ? [`endings ${[...endings].sort().join(', ')}`] : []),
  ].join('; ')
  const problem = `Without an account in the journal of ${months}: ${unmapped}.`
  if (!isClosed) throw newError('ACCOUNTING_UNMAPPED', problem, {kept: 'Nothing was issued or closed.'})
  throw newError(
    'ACCOUNTING_UNMAPPED',
    `${problem} They became known after it was closed, and it keeps the accounts it was closed with.`,
    {
      next: `Reopen it with \`loantape period reopen ${months} --why …\` (the months closed after it first), name an account for each in accounting.json, and export again.`,
    },
  )
}

/** The mapping's name for a term of the roll-forward. */
function nameEnding(term: string): string {
  return term === 'ended_other' ? 'other' : term
}

/** The terms of a month's roll-forward: how much of each is booked, and why the rest is not. */
export async function readTieOut(release: Release, period: string): Promise<TiedTerm[]> {
  await using db = await openRelease(release)
  return await db.all(
    tiedTermSchema,
    `select
       term,
       amount,
       booked,
       cast(opening_balance + elsewhere as decimal(38, 2)) as unbooked,
       case when opening_balance > 0 then 'opening balance' when elsewhere > 0 then 'booked elsewhere' end as because,
       difference
     from accounting.tie_out where month = $1 order by term`,
    [period],
  )
}

/** The endings of a release's journal that have no account, under their names in the mapping. */
export async function readUnmappedEndings(release: Release): Promise<string[]> {
  await using db = await openRelease(release)
  const terms = await db.column(
    z.string(),
    `select distinct term from accounting.journal_line
     where event = 'ended' and line_no = 1 and account_code is null`,
  )
  return terms.map(nameEnding).sort()
}

/** The funded loans of a release. */
export async function readRegister(release: Release) {
  await using db = await openRelease(release)
  return await db.all(registeredLoanSchema, 'from accounting.loan_register order by deal_id')
}
