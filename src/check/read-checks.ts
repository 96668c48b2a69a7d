import {existsSync, readdirSync} from 'node:fs'
import {basename, join} from 'node:path'
import {type LoantapeError, newError} from '../errors.ts'
import type {Check, CheckTag} from '../types.ts'
import {readSqlFile} from '../warehouse/sql-file.ts'
import {buildTagSql} from './tag-sql.ts'

/**
 * Reads the checks of the models' headers and every `checks/<name>.sql` of the folders. A later folder's file replaces
 * an earlier one of the same name.
 *
 * A check file begins with what it demands and `-- severity: error` or `-- severity: warn`; then follows one SELECT
 * that returns the rows that are wrong, their id first.
 *
 * @returns checks by name
 * @throws CheckError `CHECK_HEADER`, with file and line
 */
export function readChecks(tags: readonly CheckTag[], folders: readonly string[]): Check[] {
  const checks = new Map<string, Check>()
  for (const tag of tags) {
    const check = parseTag(tag)
    checks.set(check.name, check)
  }
  for (const folder of folders.map((root) => join(root, 'checks')).filter((path) => existsSync(path))) {
    for (const file of readdirSync(folder).filter((name) => name.endsWith('.sql'))) {
      const check = parseCheck(join(folder, file), readSqlFile(join(folder, file)))
      checks.set(check.name, check)
    }
  }
  return [...checks.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

function parseTag(tag: CheckTag): Check {
  const demand = `${tag.rule}(${tag.args.join(', ')})`
  const sql = buildTagSql(tag)
  if (sql === null) {
    throw headerError(
      tag,
      `Check '${demand}' of model '${tag.model}': expected unique(a, …), not_null(a, …), accepted(a, value, …), references(a, schema.table.column) or between(a, low, high)`,
    )
  }
  return {
    name: `${tag.model} ${demand}`,
    severity: 'error',
    description: `Every row of ${tag.model} holds ${demand}.`,
    file: tag.file,
    line: tag.line,
    sql,
  }
}

function parseCheck(file: string, text: string): Check {
  const lines = text.split('\n')
  const end = lines.findIndex((line) => !line.startsWith('--'))
  const header = end === -1 ? lines : lines.slice(0, end)
  const severities = header.map((line) => /^-- severity: (error|warn)$/.exec(line)?.[1])
  const index = severities.findIndex((severity) => severity !== undefined)
  const description = header
    .slice(0, index === -1 ? undefined : index)
    .map((line) => line.replace(/^--\s*/, ''))
    .join(' ')
    .trim()
  if (description === '')
    throw headerError({file, line: 1}, 'Check has no description: expected `-- what it demands`')
  if (index === -1) {
    throw headerError(
      {file, line: header.length},
      'Check has no severity: expected `-- severity: error` or `-- severity: warn`',
    )
  }
  return {
    name: basename(file, '.sql'),
    severity: severities[index] === 'warn' ? 'warn' : 'error',
    description,
    file,
    line: null,
    sql: text.replace(/;\s*$/, '\n'),
  }
}

function headerError(place: {file: string; line: number}, problem: string): LoantapeError {
  return newError('CHECK_HEADER', `${problem}, in ${place.file}:${place.line}.`)
}
