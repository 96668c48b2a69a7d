import {z} from 'zod'
import {LoantapeError, messageOf, newError} from '../errors.ts'
import {quantity} from '../money.ts'
import type {CheckOutcome} from '../release-manifest.ts'
import {shorten} from '../shorten.ts'
import type {Check} from '../types.ts'
import {type Database, quoteLiteral} from '../warehouse/database.ts'
import {inLanes} from '../warehouse/in-lanes.ts'

/** Rows a message shows. */
const SAMPLES = 5

/** Rows whose ids are kept. */
const KEPT_IDS = 100

const wrongRow = z.record(z.string(), z.unknown())
const countRow = z.object({rows: z.coerce.number()})

/**
 * Runs every check on the tables just built. A check that finds rows is a result, not an error: see `requirePassed`.
 *
 * @param around runs each check, within its limits; what it throws of ours goes on as it is
 * @param changed where tables with the rows of changed deals alone are found, where whole ones, and the checks that failed before: all others held
 * for every other row
 * @returns one result a check, in their order; samples are up to 5 rows such as `deal_7f3a (loan_amount=250000.00)`
 * @throws CheckError `CHECK_SQL` when the engine refuses a check
 */
export function runChecks(
  db: Database,
  checks: readonly Check[],
  around: (check: Check, run: () => Promise<CheckOutcome>, lane: Database) => Promise<CheckOutcome> = (
    _check,
    run,
  ) => run(),
  changed?: {path: string; wholePath: string; failed: readonly string[]},
): Promise<CheckOutcome[]> {
  return inLanes(db, checks, async (check, lane) => {
    const changedSql = changed?.failed.includes(check.name) ? undefined : check.changedSql
    try {
      if (changed) {
        const path = changedSql === undefined ? changed.wholePath : changed.path
        await lane.run(`set search_path = ${quoteLiteral(path)}`)
      }
      return await around(
        check,
        () => findWrongRows(lane, {...check, sql: (changed && changedSql) ?? check.sql}),
        lane,
      )
    } catch (error) {
      if (error instanceof LoantapeError) throw error
      throw newError(
        'CHECK_SQL',
        `Check '${check.name}' in ${check.file}:${check.line ?? 1} did not run: ${messageOf(error).split('\n')[0]}.`,
        {cause: error},
      )
    }
  })
}

async function findWrongRows(db: Database, {name, severity, next, sql}: Check): Promise<CheckOutcome> {
  const rows = await db.all(wrongRow, `select * from (${sql}\n) order by all limit ${KEPT_IDS}`)
  const isAll = rows.length < KEPT_IDS
  const failures = isAll
    ? rows.length
    : (await db.one(countRow, `select count(*) as rows from (${sql}\n)`)).rows
  return {
    name,
    severity,
    failures,
    next,
    deals: rows[0] && 'deals' in rows[0] ? rows.reduce((sum, {deals}) => sum + Number(deals), 0) : undefined,
    samples: rows.slice(0, SAMPLES).map(formatSample),
    ids: rows.map((row) => String(Object.values(row)[0])),
    rows,
  }
}

/** The first column is the id; the others explain. */
function formatSample(row: Record<string, unknown>): string {
  const [[id, subject] = ['', ''], ...others] = Object.entries(row)
  const named = id.endsWith('_id') ? String(subject) : shorten(String(subject))
  const explained = others.map(([column, value]) => `${column}=${shorten(String(value))}`).join(', ')
  return explained === '' ? named : `${named} (${explained})`
}

/**
 * Stops the build when a check of severity error found rows.
 *
 * @throws CheckError `CHECK_FAILED`, naming each failed check, how many rows, and the first of them; its details name
 * up to 100 of each
 */
export function requirePassed(results: readonly CheckOutcome[]): void {
  const failed = results.filter(({severity, failures}) => severity === 'error' && failures > 0)
  if (failed.length === 0) return
  const described = failed.map(({name, failures, samples}) => {
    const more = failures > samples.length ? ', …' : ''
    return `'${name}' found ${quantity(failures, 'wrong row')}: ${samples.join(', ')}${more}`
  })
  throw newError(
    'CHECK_FAILED',
    `${failed.length === 1 ? 'A check' : `${failed.length} checks`} failed: ${described.join('; ')}.`,
    {
      details: {
        checks: failed.map(({name, severity, failures, ids}) => ({name, severity, failures, ids})),
      },
    },
  )
}
