import {basename, join} from 'node:path'
import {DEAL_ID} from '../contract/deal.ts'
import {type LoantapeError, newError} from '../errors.ts'
import type {Check, Model} from '../types.ts'
import {quoteLiteral, quoteName} from '../warehouse/database.ts'
import {listFiles, readSqlFile, splitHeader} from '../warehouse/sql-file.ts'

/** A model as its header checks need it. */
type CheckedModel = Pick<Model, 'name' | 'file' | 'grain' | 'order' | 'checks' | 'isPerDeal'>

/** A check in a model's header. */
type CheckTag = Model['checks'][number]

/**
 * Reads the checks of the models' headers and every `checks/<name>.sql` of the folders. A later folder's file replaces
 * an earlier one of the same name.
 *
 * A check file begins with what it demands and `-- severity: error` or `-- severity: warn`, and can end with `-- next:`, what to do about
 * what it finds; then follows one SELECT that returns the rows that are wrong, their id first.
 *
 * @returns checks by name
 * @throws CheckError `CHECK_SQL`, with file and line
 */
export function readChecks(models: readonly CheckedModel[], folders: readonly string[]): Check[] {
  const files = folders.flatMap((folder) => listFiles(join(folder, 'checks'), '.sql'))
  const checks = [
    ...models.flatMap((model) => model.checks.map((tag) => parseTag(model, tag, models))),
    ...files.map((file) => parseCheck(file, readSqlFile(file))),
  ]
  const byName = new Map(checks.map((check) => [check.name, check]))
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

function parseTag(model: CheckedModel, tag: CheckTag, models: readonly CheckedModel[]): Check {
  const {file} = model
  const {line} = tag
  const demand = `${tag.rule}(${tag.args.join(', ')})`
  const sql = buildTagSql(model, tag)
  if (sql === null) {
    throw headerError(
      {file, line},
      `Check '${demand}' of model '${model.name}': expected unique(a, …), not_null(a, …), accepted(a, value, …), references(a, schema.table.column) or between(a, low, high)`,
    )
  }
  const description = describeTag(model.name, tag)
  const changedSql = buildChangedSql(model, tag, models) ?? undefined
  return {name: `${model.name} ${demand}`, severity: 'error', description, file, line, sql, changedSql}
}

function describeTag(table: string, {rule, args}: CheckTag): string {
  const [column = '', ...others] = args
  const all = args.join(', ')
  if (rule === 'unique') return `No two rows of ${table} have the same ${all}.`
  if (rule === 'not_null') return `No row of ${table} lacks ${all}.`
  if (rule === 'between') return `${column} of ${table} lies between ${others.join(' and ')}.`
  return `${column} of ${table} is one of ${rule === 'references' ? 'those in ' : ''}${others.join(', ')}.`
}

/** What finds every wrong row that changed deals brought; null where a row of another deal can have become wrong, too. */
function buildChangedSql(model: CheckedModel, tag: CheckTag, models: readonly CheckedModel[]): string | null {
  if (!model.isPerDeal) return null
  const {rule, args} = tag
  if (rule === 'unique') {
    const columns = args.map(quoteName)
    const same = columns.map((column) => `one.${column} is not distinct from changed.${column}`)
    return `select ${columns.map((column) => `one.${column}`).join(', ')}, count(*) as copies from release.${model.name} as one semi join ${model.name} as changed on ${same.join(' and ')} group by all having count(*) > 1`
  }
  const [schema, name, key] = args[1]?.split('.') ?? []
  const isOwnDeal =
    args[0] === DEAL_ID &&
    key === DEAL_ID &&
    models.some((other) => other.isPerDeal && other.name === `${schema}.${name}`)
  return rule === 'references' && !isOwnDeal ? null : buildTagSql(model, tag)
}

/**
 * The SELECT of the rows that break a header check, led by the columns of the model's grain; on one line.
 *
 * @returns null when the arguments do not fit the rule
 */
function buildTagSql(model: CheckedModel, {rule, args}: CheckTag): string | null {
  const columns = args.map(quoteName)
  const [name = ''] = columns
  const [, ...rest] = args
  const selectRows = (shown: readonly string[], isWrong: string) => {
    const named = new Set([...model.grain.map(quoteName), ...shown])
    return `select ${[...named].join(', ')} from ${model.name} where ${isWrong}`
  }
  switch (rule) {
    case 'unique':
      if (args.length === 0) return null
      return `select ${columns.join(', ')}, count(*) as copies from ${model.name} where ${buildDoubtSql(model, args)} group by all having count(*) > 1`
    case 'not_null':
      if (args.length === 0) return null
      return selectRows(columns, columns.map((each) => `${each} is null`).join(' or '))
    case 'accepted':
      if (rest.length === 0) return null
      return selectRows([name], `cast(${name} as varchar) not in (${rest.map(quoteLiteral).join(', ')})`)
    case 'references': {
      const [schema, other, key, ...more] = rest.join('.').split('.').map(quoteName)
      if (rest.length !== 1 || key === undefined || more.length > 0) return null
      return selectRows(
        [name],
        `${name} is not null and ${name} not in (select ${key} from ${schema}.${other} where ${key} is not null)`,
      )
    }
    case 'between': {
      const [low, high] = rest
      if (rest.length !== 2 || low === undefined || high === undefined) return null
      return selectRows([name], `${name} not between ${quoteLiteral(low)} and ${quoteLiteral(high)}`)
    }
    default:
      return null
  }
}

/**
 * SQL: whether rows may be alike in these columns. Where each stored row is greater than the one before it, as in a table that was
 * written in order, none are: to compare neighbours takes a sixth of what counting takes.
 */
function buildDoubtSql({name, order}: CheckedModel, columns: readonly string[]): string {
  if (!order.every((column) => columns.includes(column))) return 'true'
  const row = `row(${order.map(quoteName).join(', ')})`
  return `(select count(*) filter (where is_greater) < count(*) - 1 from (select ${row} > lag(${row}) over () as is_greater from ${name}))`
}

function parseCheck(file: string, text: string): Check {
  const {header, sql} = splitHeader(text)
  const severities = header.map((line) => /^-- severity: (error|warn)$/.exec(line)?.[1])
  const index = severities.findIndex((severity) => severity !== undefined)
  const description = wordsOf(header.slice(0, index === -1 ? undefined : index))
  if (description === '')
    throw headerError({file, line: 1}, 'Check has no description: expected `-- what it demands`')
  if (index === -1) {
    throw headerError(
      {file, line: header.length},
      'Check has no severity: expected `-- severity: error` or `-- severity: warn`',
    )
  }
  const next = header.findIndex((line) => line.startsWith('-- next: '))
  return {
    name: basename(file, '.sql'),
    next: next === -1 ? undefined : wordsOf(header.slice(next)).replace(/^next: /, ''),
    severity: severities[index] === 'warn' ? 'warn' : 'error',
    description,
    file,
    line: null,
    sql,
    changedSql: header.includes(`-- per: ${DEAL_ID}`) ? sql : undefined,
  }
}

function wordsOf(header: readonly string[]): string {
  return header
    .map((line) => line.replace(/^--\s*/, ''))
    .join(' ')
    .trim()
}

function headerError(place: {file: string; line: number}, problem: string): LoantapeError {
  return newError('CHECK_SQL', `${problem}, in ${place.file}:${place.line}.`)
}
