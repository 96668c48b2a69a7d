import {readFileSync} from 'node:fs'
import {Option} from 'commander'
import {stringify} from 'csv-stringify/sync'
import {closeWords, codeOf, messageOf, newError} from '../errors.ts'
import {openRelease} from '../release/open-release.ts'
import {type Database, requireOneStatement} from '../warehouse/database.ts'
import type {Call, CliCommand} from './command.ts'
import {dateOption, type ReleaseOptions, requireAskedRelease} from './options.ts'
import {fitTable} from './table.ts'

interface QueryOptions extends ReleaseOptions {
  file?: string
  format: 'table' | 'csv' | 'json'
}

/** `loantape query`. */
export default function addQuery(command: CliCommand): void {
  command
    .description('SQL over a release, read-only; tables are named core.deal, mart.portfolio_summary, …')
    .example('query "select * from mart.portfolio_summary"')
    .argument('[sql]', 'one statement; - reads it from standard input')
    .option('-f, --file <file>', 'a file that holds the statement')
    .addOption(
      new Option('--format <format>', 'how rows are printed')
        .choices(['table', 'csv', 'json'])
        .default('table'),
    )
    .option('--release <id>', 'of this release; the current one by default')
    .addOption(dateOption('--as-of <date>', 'of the portfolio as of this business date, YYYY-MM-DD'))
    .does(async (call: Call<QueryOptions>, given: string | undefined) => {
      const {cli, config, options} = call
      const sql = readStatement(given, options.file)
      await using db = await openRelease(await requireAskedRelease(call), {memoryMb: config.memoryMb})
      const result = await runQuery(db.connection, sql)
      cli.print(renderResult(result, options.json ? 'json' : options.format, cli.width))
    })
}

const STANDARD_INPUT = 0

/** The statement of the command line, of a file, or of standard input. */
function readStatement(sql: string | undefined, file: string | undefined): string {
  if ((sql === undefined) === (file === undefined))
    throw newError(
      'QUERY_FAILED',
      'Statement of `query`: expected one, as SQL, `-` for standard input or --file.',
      {
        next: 'An example: `loantape query "from mart.portfolio_summary"`.',
      },
    )
  if (sql !== undefined && sql !== '-') return sql
  try {
    return readFileSync(file ?? STANDARD_INPUT, 'utf8')
  } catch (error) {
    throw newError(
      'QUERY_FAILED',
      `File '${file ?? 'standard input'}' of \`query\` cannot be read (${codeOf(error)}).`,
      {
        next: 'Name a file that holds one statement.',
        cause: error,
      },
    )
  }
}

type Connection = Database['connection']

/**
 * Columns and rows of a query; decimals are exact text.
 *
 * @throws ConfigError `QUERY_FAILED`, `QUERY_MEMORY`
 */
export async function runQuery(connection: Connection, sql: string) {
  try {
    await requireOneStatement(connection, sql)
    const reader = await connection.runAndReadAll(sql)
    const types = reader.columnTypes()
    const columns = reader
      .deduplicatedColumnNames()
      .map((name, index) => ({name, type: String(types[index])}))
    return {columns, rows: reader.getRowsJson()}
  } catch (error) {
    if (/^Out of Memory Error/i.test(messageOf(error)))
      throw newError(
        'QUERY_MEMORY',
        'Query stopped: it needs more memory than this machine or LOANTAPE_MEMORY_MB gives.',
        {cause: error},
      )
    throw newError(
      'QUERY_FAILED',
      `Query refused: ${closeWords(messageOf(error))}${hintQuotes(sql, error)}`,
      {
        cause: error,
      },
    )
  }
}

/** A word that stands where a text is compared was meant as one, and taken for the name of a column. */
function hintQuotes(sql: string, error: unknown): string {
  const [, word] = /^Binder Error: Referenced column "(\w+)" not found/.exec(messageOf(error)) ?? []
  const compared = new RegExp(`(?:[=<>]|\\blike|\\bin\\s*\\((?:[^()]*,)?)\\s*"?${word}\\b`, 'i')
  return word !== undefined && compared.test(sql) ? `A text stands in single quotes: '${word}'.\n` : ''
}

const numeric = /^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|U\w+INT|FLOAT|DOUBLE|DECIMAL)/
const counted = /^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|U\w+INT)/

/** Rows as they are printed on a terminal of a width. */
export function renderResult(
  {columns, rows}: Awaited<ReturnType<typeof runQuery>>,
  format: QueryOptions['format'],
  width: number | undefined,
): string {
  const texts = () => rows.map((row) => row.map(renderCell))
  if (format === 'csv') return stringify([columns.map(({name}) => name), ...texts()])
  if (format === 'json') {
    const objects = rows.map((row) =>
      Object.fromEntries(columns.map(({name, type}, index) => [name, toJson(row[index], type)])),
    )
    return JSON.stringify({rows: objects})
  }
  // A plan is a drawing of many lines.
  if (columns[0]?.name === 'explain_key') return texts().flat().join('\n')
  return fitTable(
    columns.map(({name, type}) => (numeric.test(type) ? {number: name} : name)),
    texts(),
    width,
  )
}

function renderCell(value: unknown): string {
  if (value === null || value === undefined) return ''
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** Counts become numbers where they fit; decimals stay text, which is exact. */
function toJson(value: unknown, type: string): unknown {
  const count = counted.test(type) && typeof value === 'string' ? Number(value) : Number.NaN
  return Number.isSafeInteger(count) ? count : value
}
