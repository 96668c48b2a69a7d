import {existsSync, mkdirSync, readFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {createInterface} from 'node:readline'
import {explainError, messageOf, newError} from '../errors.ts'
import {openRelease} from '../release/open-release.ts'
import {writeFileAtomically} from '../warehouse/atomic-file.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {readTables} from '../warehouse/table-columns.ts'
import type {Call, CliCommand} from './command.ts'
import type {Cli} from './context.ts'
import {dateOption, type ReleaseOptions, requireAskedRelease} from './options.ts'
import {renderResult, runQuery} from './query.ts'

/** `loantape sql`. */
export default function addSql(command: CliCommand): void {
  command
    .description('a shell for SQL over a release, read-only: statements end with ; and Tab completes names')
    .example('sql')
    .option('--release <id>', 'of this release; the current one by default')
    .addOption(dateOption('--as-of <date>', 'of the portfolio as of this business date, YYYY-MM-DD'))
    .does(async (call: Call<ReleaseOptions>) => {
      const {cli, config} = call
      if (!process.stdin.isTTY)
        throw newError('USAGE', 'Standard input of `sql` is no terminal.', {
          kept: 'Nothing was started.',
          next: '`loantape query -` answers a statement from it.',
        })
      const release = await requireAskedRelease(call)
      await using db = await openRelease(release, {memoryMb: config.memoryMb})
      cli.print(
        `Release ${release.manifest.release_id}, as of ${release.manifest.as_of}. .help says what can be typed.`,
      )
      await runShell(db, join(dataFolderAt(config.dataDir).cache, 'sql-history'), cli)
    })
}

const HELP = `A statement ends with ; and may take several lines.
.tables  the tables there are; describe core.deal; shows the columns of one
.help    this
.quit    ends, as Ctrl-D does
Tab completes names of tables and columns; Ctrl-C clears what was typed, or stops a query.`

const FIRST_PROMPT = 'sql> '
const NEXT_PROMPT = '  -> '
const HISTORY_LINES = 1000

/** Asks for statements and prints their rows until there is no more. */
async function runShell(db: Database, historyFile: string, cli: Cli): Promise<void> {
  const {connection} = db
  const tables = await readTables(db)
  let typed = ''
  let isRunning = false
  let history = existsSync(historyFile) ? readFileSync(historyFile, 'utf8').split('\n') : []
  const lines = createInterface({
    input: process.stdin,
    output: process.stdout,
    completer: (line: string) => completeName(typed + line, tables),
    history,
    historySize: HISTORY_LINES,
    removeHistoryDuplicates: true,
  })
  const prompt = () => {
    lines.setPrompt(typed === '' ? FIRST_PROMPT : NEXT_PROMPT)
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
        (result) => cli.print(renderResult(result, 'table', cli.width)),
        (error: unknown) => cli.complain(explainError(error).problem.trimEnd()),
      )
      isRunning = false
      typed = ''
    }
    prompt()
  }
  lines.close()
  cli.print('')
  try {
    mkdirSync(dirname(historyFile), {recursive: true})
    writeFileAtomically(historyFile, history.join('\n'))
  } catch (error) {
    // Whoever may only read the folder can ask all the same.
    cli.complain(`What was typed is not kept: ${messageOf(error)}.`)
  }
}

function answerCommand(command: string, tables: ReadonlyMap<string, unknown>): string {
  if (command === '.tables') return [...tables.keys()].join('\n')
  return command === '.help' ? HELP : `Command '${command}': expected .tables, .help or .quit.`
}

/** Whether a statement ends here: with a `;` that is in no text, name or comment. */
function isComplete(text: string): boolean {
  const rest = text.replace(/'[^']*'|"[^"]*"|--.*|\/\*[\s\S]*?(\*\/|$)/g, '')
  return /^[^'"]*;\s*$/.test(rest)
}

/**
 * How the last word of a text can go on: as a table, or as a column of the tables that the text names, behind an alias as well.
 *
 * @returns the words, and what there is of them
 */
function completeName(text: string, tables: ReadonlyMap<string, string[]>): [string[], string] {
  const [word = ''] = /[\w.]*$/.exec(text) ?? []
  const named = [...tables].filter(([name]) => text.includes(name))
  const columns = new Set((named.length > 0 ? named : [...tables]).flatMap(([, names]) => names))
  const names = [...tables.keys(), ...columns].filter((name) => name.startsWith(word))
  if (names.length > 0) return [names, word]
  const [, column = word] = /\.(\w*)$/.exec(word) ?? []
  return [[...columns].filter((name) => name.startsWith(column)), column]
}
