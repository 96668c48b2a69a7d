import {existsSync, mkdirSync, readFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {createInterface} from 'node:readline'
import {stringify} from 'csv-stringify/sync'
import {closeWords, codeOf, explainError, messageOf, newError} from '../core/errors.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {asJson, type Database, requireOneStatement, withinLimits} from '../store/database.ts'
import {writeFileAtomically} from '../store/files.ts'
import {findReleaseDamage, openForQuestions} from '../store/release.ts'
import {readTables, type TableColumn} from '../store/sql.ts'
import {does, type Invocation, type ReleaseOptions, requireAskedRelease} from './command.ts'
import type {Text} from './table.ts'

export const commands = {
  query: does(async (call: Invocation<QueryOptions>, given: string | undefined) => {
    const {cli, config, options} = call
    const sql = readStatement(given, options.file)
    await using db = await openForQuestions(await requireAskedRelease(call), {memoryMb: config.memoryMb})
    const result = await withinLimits(
      db,
      call.world,
      () => runQuery(db.connection, sql),
      (_cut, cause) =>
        newError('INTERRUPTED', 'Asked to stop during the query.', {
          kept: 'Nothing was changed.',
          next: undefined,
          cause,
        }),
    )
    const format = options.json ? 'json' : options.format
    if (format === 'table') cli.printText(renderResult(result))
    else cli.print(format === 'csv' ? toCsv(result) : toJson(result))
  }),
  sql: does(async (call: Invocation<ReleaseOptions>) => {
    const {cli, config} = call
    if (!process.stdin.isTTY)
      throw newError('USAGE', 'Standard input of `sql` is not a terminal.', {
        next: '`loantape query -` answers a statement from it.',
      })
    const release = await requireAskedRelease(call)
    const {release_id, as_of} = release.manifest
    await using db = await openForQuestions(release, {memoryMb: config.memoryMb})
    cli.print(`Release ${release_id}, as of ${as_of}. .help says what can be typed.`)
    await runShell(db, join(dataFolderAt(config.dataDir).cache, 'sql-history'), call)
  }),
}

interface QueryOptions extends ReleaseOptions {
  file?: string
  format: 'table' | 'csv' | 'json'
}

const STANDARD_INPUT = 0

function readStatement(sql: string | undefined, file: string | undefined): string {
  if ((sql === undefined) === (file === undefined))
    throw newError(
      'QUERY_FAILED',
      'Statement of `query`: expected one, as SQL, `-` for standard input or --file.',
      {next: 'An example: `loantape query "from mart.portfolio_summary"`.'},
    )
  if (sql !== undefined && sql !== '-') return sql
  try {
    return readFileSync(file ?? STANDARD_INPUT, 'utf8')
  } catch (error) {
    throw newError(
      'QUERY_FAILED',
      `File '${file ?? 'standard input'}' of \`query\` cannot be read (${codeOf(error)}).`,
      {next: 'Name a file that holds one statement.', cause: error},
    )
  }
}

/** Decimals arrive as exact text. @throws ConfigError `QUERY_FAILED`, `QUERY_MEMORY` */
async function runQuery(connection: Database['connection'], sql: string) {
  try {
    await requireOneStatement(connection, sql)
    const reader = await connection.runAndReadAll(sql)
    const types = reader.columnTypes()
    const names = reader.deduplicatedColumnNames()
    const columns = names.map((name, index) => ({name, type: String(types[index])}))
    return {columns, rows: reader.convertRows(asJson)}
  } catch (cause) {
    const words = messageOf(cause)
    const tooLarge = 'Query stopped: it needs more memory than this machine or LOANTAPE_MEMORY_MB allows.'
    if (/^Out of Memory Error/i.test(words)) throw newError('QUERY_MEMORY', tooLarge, {cause})
    const refused = `Query refused: ${closeWords(words)}${hintQuotes(sql, words)}`
    throw findReleaseDamage(cause) ?? newError('QUERY_FAILED', refused, {cause})
  }
}

/** An unknown column was probably meant as text. */
function hintQuotes(sql: string, refusal: string): string {
  const [, word] = /^Binder Error: Referenced column "(\w+)" not found/.exec(refusal) ?? []
  const compared = new RegExp(`(?:[=<>]|\\blike|\\bin\\s*\\((?:[^()]*,)?)\\s*"?${word}\\b`, 'i')
  return word !== undefined && compared.test(sql) ? `Put a text in single quotes: '${word}'.\n` : ''
}

const numeric = /^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|U\w+INT|FLOAT|DOUBLE|DECIMAL)/
const counted = /^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|U\w+INT)/

type Result = Awaited<ReturnType<typeof runQuery>>

function renderResult({columns, rows}: Result): Text {
  const texts = rows.map((row) => row.map((value) => renderCell(value) ?? ''))
  // EXPLAIN returns a drawing.
  if (columns[0]?.name === 'explain_key') return texts.flat()
  return {columns: columns.map(({name, type}) => ({name, isFigure: numeric.test(type)})), rows: texts}
}

const toCsv = ({columns, rows}: Result): string =>
  stringify([columns.map(({name}) => name), ...rows.map((row) => row.map(renderCell))], {
    quoted_empty: columns.length === 1,
    // An empty text is `""`, as in exports; a null is empty.
    cast: {string: (value) => ({value, quoted_empty: true})},
  })

function toJson({columns, rows}: Result): string {
  const objects = rows.map((row) =>
    Object.fromEntries(columns.map(({name, type}, index) => [name, toJsonValue(row[index], type)])),
  )
  return JSON.stringify({rows: objects})
}

function renderCell(value: unknown): string | null {
  if (value === null || value === undefined) return null
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** Decimals stay text, which is exact. */
function toJsonValue(value: unknown, type: string): unknown {
  const count = counted.test(type) && typeof value === 'string' ? Number(value) : Number.NaN
  return Number.isSafeInteger(count) ? count : value
}

const HELP = `A statement ends with ; and may take several lines.
.tables  lists the tables; describe core.deal; shows the columns of one
.help    this
.quit    ends, as Ctrl-D does
Tab completes names of tables and columns; Ctrl-C clears what was typed, or stops a query.`

async function runShell(db: Database, historyFile: string, {cli, world}: Invocation): Promise<void> {
  const {connection} = db
  const {signal} = world
  const tables = await readTables(db)
  let typed = ''
  let isRunning = false
  let history = existsSync(historyFile) ? readFileSync(historyFile, 'utf8').split('\n') : []
  const lines = createInterface({
    input: process.stdin,
    output: process.stdout,
    completer: (line: string) => completeName(typed + line, tables),
    history,
    historySize: 1000,
    removeHistoryDuplicates: true,
    signal,
  })
  signal.addEventListener('abort', () => connection.interrupt())
  const prompt = () => {
    lines.setPrompt(typed === '' ? 'sql> ' : '  -> ')
    lines.prompt()
  }
  lines.on('history', (now) => {
    history = now
  })
  lines.on('SIGINT', () => {
    if (isRunning) return connection.interrupt()
    typed = ''
    lines.write(null, {ctrl: true, name: 'e'})
    lines.write(null, {ctrl: true, name: 'u'})
    prompt()
  })
  prompt()
  for await (const line of lines) {
    const command = typed === '' ? line.trim() : ''
    if (command === '.quit') break
    if (command.startsWith('.')) cli.print(answerCommand(command, tables))
    else if (typed !== '' || command !== '') typed += `${line}\n`
    if (isComplete(typed)) {
      isRunning = true
      await runQuery(connection, typed).then(
        (result) => cli.printText(renderResult(result)),
        (error: unknown) => cli.complain(explainError(error).problem.trimEnd()),
      )
      isRunning = false
      typed = ''
    }
    if (signal.aborted) break
    prompt()
  }
  lines.close()
  cli.print('')
  try {
    mkdirSync(dirname(historyFile), {recursive: true})
    writeFileAtomically(historyFile, history.join('\n'))
  } catch (error) {
    // A folder that cannot be written does not prevent queries.
    cli.complain(`What was typed is not kept: ${messageOf(error)}.`)
  }
}

function answerCommand(command: string, tables: ReadonlyMap<string, unknown>): string {
  if (command === '.tables') return [...tables.keys()].join('\n')
  return command === '.help' ? HELP : `Command '${command}': expected .tables, .help or .quit.`
}

/** Ends with a `;` outside of quotes and comments. */
function isComplete(text: string): boolean {
  const rest = text.replace(/'[^']*'|"[^"]*"|--.*|\/\*[\s\S]*?(\*\/|$)/g, '')
  return /^[^'"]*;\s*$/.test(rest)
}

/** Names of tables, and columns of the tables in the text, also after an alias. Returns the candidates and the last word. */
function completeName(text: string, tables: ReadonlyMap<string, TableColumn[]>): [string[], string] {
  const [word = ''] = /[\w.]*$/.exec(text) ?? []
  const named = [...tables].filter(([name]) => text.includes(name))
  const columns = new Set(
    (named.length > 0 ? named : [...tables]).flatMap(([, own]) => own.map(({name}) => name)),
  )
  const names = [...tables.keys(), ...columns].filter((name) => name.startsWith(word))
  if (names.length > 0) return [names, word]
  const [, column = word] = /\.(\w*)$/.exec(word) ?? []
  return [[...columns].filter((name) => name.startsWith(column)), column]
}
