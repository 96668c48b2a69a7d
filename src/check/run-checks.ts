import {z} from 'zod'
import {CheckError, messageOf} from '../errors.ts'
import type {Check, CheckResult} from '../types.ts'
import type {Database} from '../warehouse/database.ts'

/** Rows a result shows. */
const SAMPLES = 5

const sampleRow = z.record(z.string(), z.unknown())
const countRow = z.object({rows: z.coerce.number()})

/**
 * Runs every check on the tables just built. A check that finds rows is a result, not an error: see `requirePassed`.
 *
 * @returns one result a check, in their order; samples are up to 5 rows such as `deal_7f3a (loan_amount=250000.00)`
 * @throws CheckError `CHECK_SQL` when the engine refuses a check
 */
export async function runChecks(db: Database, checks: readonly Check[]): Promise<CheckResult[]> {
  const results: CheckResult[] = []
  for (const check of checks) results.push(await runCheck(db, check))
  return results
}

async function runCheck(db: Database, check: Check): Promise<CheckResult> {
  const {name, severity} = check
  try {
    const rows = await db.all(sampleRow, `select * from (${check.sql}\n) order by all limit ${SAMPLES}`)
    if (rows.length < SAMPLES) return {name, severity, failures: rows.length, samples: rows.map(formatSample)}
    const count = await db.first(countRow, `select count(*) as rows from (${check.sql}\n)`)
    return {name, severity, failures: count?.rows ?? rows.length, samples: rows.map(formatSample)}
  } catch (error) {
    throw new CheckError({
      code: 'CHECK_SQL',
      problem: `Check '${name}' in ${check.file}:${check.line ?? 1} did not run: ${messageOf(error).split('\n')[0]}.`,
      kept: 'Nothing was released; current still points to the release before.',
      next: 'Correct the check, then run `loantape build`.',
      cause: error,
    })
  }
}

/** The first column is the id; the others explain. */
function formatSample(row: Record<string, unknown>): string {
  const [id, ...others] = Object.entries(row)
  const explained = others.map(([column, value]) => `${column}=${String(value)}`).join(', ')
  return explained === '' ? String(id?.[1]) : `${String(id?.[1])} (${explained})`
}

/**
 * Stops the build when a check of severity error found rows.
 *
 * @throws CheckError `CHECK_FAILED`, naming each failed check, how many rows, and the first of them
 */
export function requirePassed(results: readonly CheckResult[]): void {
  const failed = results.filter(({severity, failures}) => severity === 'error' && failures > 0)
  if (failed.length === 0) return
  const described = failed.map(({name, failures, samples}) => {
    const more = failures > samples.length ? ', …' : ''
    return `'${name}' found ${failures} wrong ${failures === 1 ? 'row' : 'rows'}: ${samples.join(', ')}${more}`
  })
  throw new CheckError({
    code: 'CHECK_FAILED',
    problem: `${failed.length === 1 ? 'A check' : `${failed.length} checks`} failed: ${described.join('; ')}.`,
    kept: 'Nothing was released; current still points to the release before.',
    next: 'Look at these rows in the source or correct the model, then run `loantape build`.',
  })
}
