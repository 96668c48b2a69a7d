import {basename, join} from 'node:path'
import {z} from 'zod'
import {DEAL_ID} from '../contract/deal.ts'
import {LoantapeError, messageOf, newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import type {Check, Model} from '../core/types.ts'
import {type Database, inLanes, quoteLiteral, quoteName} from '../store/database.ts'
import {type CheckOutcome, checkResult} from '../store/release.ts'
import {describeRow, listFiles, readSqlFile, splitHeader} from '../store/sql.ts'
import type {StateDb} from '../store/state-db.ts'
import {type Around, RELEASE_PATH} from './build-models.ts'
import {createModelError, hideValues} from './read-models.ts'

type CheckedModel = Pick<Model, 'name' | 'file' | 'grain' | 'order' | 'checks' | 'isPerDeal' | 'isPublished'>

type CheckTag = Model['checks'][number]

/**
 * A later folder's file replaces an earlier one of the same name. The header of a file says what the check demands, then `--
 * severity: error` or `-- severity: warn`, then optionally `-- next:`, what to do about its findings. Its one SELECT returns the
 * wrong rows, their id first.
 * @throws CheckError `CHECK_SQL`, with file and line
 */
export function readChecks(models: readonly CheckedModel[], folders: readonly string[]): Check[] {
  const files = folders.flatMap((folder) => listFiles(join(folder, 'checks'), '.sql'))
  const checks = [
    ...models.flatMap((model) => checkGrain(model, models)),
    ...models.flatMap((model) => model.checks.map((tag) => parseTag(model, tag, models))),
    ...files.map((file) => parseCheck(file, readSqlFile(file))),
  ]
  const byName = new Map(checks.map((check) => [check.name, check]))
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** Checks a grain that no `unique` of the header makes certain: rows that share it are in no certain order. */
function checkGrain(model: CheckedModel, models: readonly CheckedModel[]): Check[] {
  const {grain, checks, isPublished} = model
  const isCertain = checks.some(
    ({rule, args}) => rule === 'unique' && args.every((arg) => grain.includes(arg)),
  )
  if (isCertain || !isPublished) return []
  const next = `Name what tells these rows apart in \`-- grain:\` of ${model.file}, or leave one of each.`
  return [{...parseTag(model, {rule: 'unique', args: grain, line: 1}, models), severity: 'warn', next}]
}

/** The SELECT is on one line and returns the columns of the model's grain first. */
function parseTag(model: CheckedModel, tag: CheckTag, models: readonly CheckedModel[]): Check {
  const {name: table, file, grain} = model
  const {rule, args, line} = tag
  const columns = args.map(quoteName)
  const [name = ''] = columns
  const [column, ...values] = args
  // Values may be quoted, as in SQL.
  const rest = values.map((value) => value.replace(/^'(.*)'$/, '$1'))
  const [schema, other, key, ...more] = rest.join('.').split('.').map(quoteName)
  const isReference = rest.length === 1 && key !== undefined && more.length === 0
  /** What each rule demands, and a SQL condition that holds for rows which break it; false if the arguments do not fit. */
  const demands: Record<string, false | [description: string, condition: string]> = {
    unique: args.length > 0 && [
      `No two rows of ${table} have the same ${args.join(', ')}.`,
      buildDoubtSql(model, args),
    ],
    not_null: args.length > 0 && [
      `No row of ${table} lacks ${args.join(', ')}.`,
      columns.map((each) => `${each} is null`).join(' or '),
    ],
    accepted: rest.length > 0 && [
      `${column} of ${table} is one of ${rest.join(', ')}.`,
      `cast(${name} as varchar) not in (${rest.map(quoteLiteral).join(', ')})`,
    ],
    references: isReference && [
      `${column} of ${table} is one of those in ${rest.join(', ')}.`,
      `${name} is not null and ${name} not in (select ${key} from ${schema}.${other} where ${key} is not null)`,
    ],
    between: rest.length === 2 && [
      `${column} of ${table} lies between ${rest.join(' and ')}.`,
      `${name} not between ${rest.map(quoteLiteral).join(' and ')}`,
    ],
  }
  const demand = `${rule}(${args.join(', ')})`
  const demanded = Object.hasOwn(demands, rule) && demands[rule]
  if (!demanded) {
    const problem = `Check '${demand}' of model '${table}': expected unique(a, …), not_null(a, …), accepted(a, value, …), references(a, schema.table.column) or between(a, low, high),`
    throw createModelError('CHECK_SQL', {file, line}, problem)
  }
  const [description, condition] = demanded
  const named = new Set([...grain.map(quoteName), ...(rule === 'not_null' ? columns : [name])])
  const [shown, group] =
    rule === 'unique'
      ? [`${columns.join(', ')}, count(*) as copies`, ' group by all having count(*) > 1']
      : [[...named].join(', '), '']
  const sql = `select ${shown} from ${table} where ${condition}${group}`
  const isWithin: Record<string, boolean> = {
    unique: args.includes(DEAL_ID),
    references:
      column === DEAL_ID && models.some((other) => other.isPerDeal && args[1] === `${other.name}.${DEAL_ID}`),
  }
  const isPerDeal = model.isPerDeal && (isWithin[rule] ?? true)
  return {name: `${table} ${demand}`, severity: 'error', description, sql, file, line, isPerDeal}
}

/**
 * Whether these columns may have duplicates. They have none if each stored row is greater than the one before, as in a sorted
 * table; comparing neighbors takes a sixth of the time of counting.
 */
function buildDoubtSql({name, order}: CheckedModel, columns: readonly string[]): string {
  if (!order.every((column) => columns.includes(column))) return 'true'
  const row = `row(${order.map(quoteName).join(', ')})`
  return `(select count(*) filter (where is_greater) < count(*) - 1 from (select ${row} > lag(${row}) over () as is_greater from ${name}))`
}

function parseCheck(file: string, text: string): Check {
  const {header, sql} = splitHeader(text)
  const [description = '', ...tagged] = header
    .join('\n')
    .split(/^-- (severity|next|per): /m)
    .map(wordsOf)
  const tags = new Map(tagged.flatMap((tag, index) => (index % 2 === 0 ? [[tag, tagged[index + 1]]] : [])))
  const severity = tags.get('severity')
  const refuse = (line: number, problem: string) =>
    createModelError('CHECK_SQL', {file, line}, `Check has no ${problem},`)
  if (description === '') throw refuse(1, 'description: expected `-- what it demands`')
  if (severity !== 'error' && severity !== 'warn')
    throw refuse(header.length, 'severity: expected `-- severity: error` or `-- severity: warn`')
  const isPerDeal = tags.get('per') === DEAL_ID
  return {
    name: basename(file, '.sql'),
    next: tags.get('next'),
    severity,
    description,
    file,
    line: 1,
    sql,
    isPerDeal,
  }
}

const wordsOf = (comment: string) =>
  comment
    .replaceAll(/^--\s*/gm, '')
    .replaceAll(/\n+/g, ' ')
    .trim()

const SAMPLES = 5

const KEPT_IDS = 100

/**
 * A check that finds rows is a result, not an error: see `requirePassed`. `changed` is of a build in which only changed deals
 * have new rows: `path` leads to tables with only those, enough for checks per deal that did not fail in the previous build.
 * @throws CheckError `CHECK_SQL` when the engine refuses a check
 */
export async function runChecks(
  db: Database,
  checks: readonly Check[],
  how: {
    around?: Around
    changed?: {path: string; failed: readonly string[]} | undefined
  } = {},
): Promise<CheckOutcome[]> {
  const {around = (_check, work) => work(), changed} = how
  return inLanes(db, checks, async (check, lane) => {
    try {
      if (changed) {
        const isEnough = check.isPerDeal && !changed.failed.includes(check.name)
        await lane.run(`set search_path = ${quoteLiteral(isEnough ? changed.path : RELEASE_PATH)}`)
      }
      return await around(check, () => findWrongRows(lane, check), lane)
    } catch (error) {
      if (error instanceof LoantapeError) throw error
      const problem = `Check '${check.name}' in ${check.file}:${check.line} did not run: ${hideValues(messageOf(error))}.`
      throw newError('CHECK_SQL', problem, {cause: error})
    }
  })
}

const foundRow = z.object({failures: z.coerce.number(), deals: z.coerce.number().optional()})

async function findWrongRows(db: Database, check: Check): Promise<CheckOutcome> {
  const {name, severity, description, next, sql} = check
  const first = `select * from (${sql}\n) order by all limit ${KEPT_IDS}`
  const rows = await db.all(z.record(z.string(), z.unknown()), first)
  const hasDeals = rows[0] !== undefined && 'deals' in rows[0]
  // Not from `rows`, which are only the first.
  const all = `select count(*) as failures${hasDeals ? ', sum(try_cast(deals as bigint)) as deals' : ''} from (${sql}\n)`
  const found = rows.length === 0 ? {failures: 0} : await db.one(foundRow, all)
  return {
    name,
    severity,
    description,
    next,
    ...found,
    samples: rows.slice(0, SAMPLES).map(describeRow),
    ids: rows.map((row) => String(Object.values(row)[0])),
    rows,
  }
}

/** @throws CheckError `CHECK_FAILED` with each check of severity error that found rows; `details` has up to 100 ids of each */
export function requirePassed(results: readonly CheckOutcome[]): void {
  const failed = results.filter(({severity, failures}) => severity === 'error' && failures > 0)
  if (failed.length === 0) return
  const described = failed.map(({name, failures, samples}) => {
    const more = failures > samples.length ? ', …' : ''
    return `'${name}' found ${quantity(failures, 'wrong row')}: ${samples.join(', ')}${more}`
  })
  const which = failed.length === 1 ? 'A check' : `${failed.length} checks`
  throw newError('CHECK_FAILED', `${which} failed: ${described.join('; ')}.`, {
    ...(failed.every(({next}) => next) && {next: failed.map(({next}) => next).join(' ')}),
    details: {checks: failed.map((one) => failedCheck.parse(one))},
  })
}

export type Checking = z.output<typeof checkingRow>
const checkingRow = z.object({
  release_id: z.string(),
  /** ISO 8601 of the real clock. */
  checked_at: z.string(),
  checks: z.number(),
  /** Checks that found rows, errors first, each with up to 100 ids. */
  failed: z.string().transform((text) => z.array(failedCheck).parse(JSON.parse(text))),
})
const failedCheck = checkResult.pick({name: true, severity: true, failures: true, ids: true})

/**
 * Stores what the checks found, even if it stops the build. The state database keeps the last 100 runs. `isPlain` says that the
 * release was to become current.
 */
export function storeChecking(
  stateDb: StateDb,
  {release_id, isPlain, at}: {release_id: string; isPlain: boolean; at: Date},
  outcomes: readonly CheckOutcome[],
): void {
  const found = outcomes
    .filter(({failures}) => failures > 0)
    .map((outcome) => failedCheck.parse(outcome))
    .sort((a, b) => (`${a.severity} ${a.name}` < `${b.severity} ${b.name}` ? -1 : 1))
  const {lastInsertRowid} = stateDb.insert('checking', {
    release_id,
    checked_at: at.toISOString(),
    checks: outcomes.length,
    is_plain: Number(isPlain),
    failed: JSON.stringify(found),
  })
  stateDb.run('delete from checking where checking_id <= ?', [Number(lastInsertRowid) - 100])
}

/** Finds the last checks of a release that was to become current. */
export function findLastChecking(stateDb: StateDb): Checking | undefined {
  return stateDb.first(
    checkingRow,
    'select * from checking where is_plain = 1 order by checking_id desc limit 1',
  )
}
