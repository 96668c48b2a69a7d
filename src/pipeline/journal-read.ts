import {z} from 'zod'
import {type JournalLine, journalLineSchema} from '../accounting/journal-line.ts'
import {quotePrograms} from '../accounting/mapping.ts'
import {type RegisteredLoan, registeredLoanSchema} from '../accounting/periods.ts'
import {newError} from '../errors.ts'
import type {Release} from '../release/manifest.ts'
import {openRelease} from '../release/open-release.ts'

const lineRow = journalLineSchema.extend({
  line_no: z.coerce.number(),
  account_code: z.string().nullable(),
  account_name: z.string().nullable(),
})

/**
 * The canonical journal of a period, opening balances among it (event `opening`).
 *
 * @param period `YYYY-MM`, or several of them
 * @param isClosed whether the period keeps the accounts it was closed with
 * @param deals only these
 * @throws ConfigError `ACCOUNT_UNMAPPED` naming the programs without an account
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
  const rows = await db.all(
    lineRow,
    `select * exclude (period) from accounting.journal_line where ${asked}
     union all
     select * exclude (period) from accounting.opening_line where ${asked}
     order by entry_date, deal_id, entry_id, line_no`,
    [JSON.stringify(periods), ids],
  )
  const unmapped = new Set<string | null>()
  const lines: JournalLine[] = []
  for (const {account_code, account_name, ...line} of rows) {
    if (account_code === null || account_name === null) unmapped.add(line.loan_program)
    else lines.push({...line, account_code, account_name})
  }
  if (unmapped.size === 0) return lines
  const months = periods.join(', ')
  const problem = `Programs without an account in the journal of ${months}: ${quotePrograms([...unmapped].sort())}.`
  if (!isClosed) throw newError('ACCOUNT_UNMAPPED', problem, {kept: 'Nothing was issued or closed.'})
  throw newError(
    'ACCOUNT_UNMAPPED',
    `${problem} They became known after it was closed, and it keeps the accounts it was closed with.`,
    {
      next: `Reopen it with \`loantape period reopen ${months} --why …\` (the months closed after it first), name a receivable account for each in accounting.json, or one for '*', and export again.`,
    },
  )
}

/** The funded loans of a release. */
export async function readRegister(release: Release): Promise<RegisteredLoan[]> {
  await using db = await openRelease(release)
  return await db.all(registeredLoanSchema, 'from accounting.loan_register order by deal_id')
}

/** Every program of a release's deals, null among them where one has none. */
export async function readPrograms(release: Release): Promise<(string | null)[]> {
  await using db = await openRelease(release)
  const rows = await db.all(
    z.object({loan_program: z.string().nullable()}),
    'select distinct loan_program from core.deal order by loan_program',
  )
  return rows.map(({loan_program}) => loan_program)
}
