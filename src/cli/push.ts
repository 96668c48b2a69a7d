import {readFileSync} from 'node:fs'
import {type Command, Option} from 'commander'
import {createDealClient} from '../client/deal-client.ts'
import {requireSource} from '../config.ts'
import {codeOf, newError} from '../errors.ts'
import {parseDealRows} from '../push/deal-rows.ts'
import {type PushResult, pushDeals} from '../push/push-deals.ts'
import {appendResult, readCreated} from '../push/result-file.ts'
import type {Cli, CommonOptions} from './context.ts'

interface PushOptions extends CommonOptions {
  result?: string
  dryRun?: boolean
}

/** Exit code of a push whose file had rows that became no deal. */
const ROWS_LEFT = 3

/** `loantape push`. */
export function addPush(program: Command, cli: Cli): void {
  const push = program.command('push').description('send records to the Deal Financing Service')
  push
    .command('deals <file.csv>')
    .description(
      'create a deal for every row, once by its external_reference; exit 3 when rows were left out',
    )
    .addOption(new Option('--result <file>', 'what came of each row (default: <file.csv>.result.csv)'))
    .option('--dry-run', 'check every row, send nothing')
    .action(async (file: string, _options, command: Command) => {
      const options = command.optsWithGlobals<PushOptions>()
      const result = await pushFile(file, options, cli)
      if (result.invalid + result.refused > 0) cli.exitCode = ROWS_LEFT
      cli.printResult(options, result, renderPush)
    })
}

async function pushFile(file: string, options: PushOptions, cli: Cli): Promise<PushResult> {
  const rows = parseDealRows(file, readCsv(file))
  const resultFile = options.result ?? `${file}.result.csv`
  if (options.dryRun) {
    const invalid = rows.filter((row) => 'problem' in row)
    for (const row of invalid) cli.complain(`line ${row.line}: ${'problem' in row ? row.problem : ''}`)
    return {created: 0, known: 0, invalid: invalid.length, refused: 0, result_file: resultFile}
  }
  const config = cli.readConfig(options)
  const {baseUrl, baseUrlQuery = '', apiKey, retries, requestTimeoutSeconds} = requireSource(config)
  const {signal, realClock, random} = cli.createWorld(config)
  const timeoutMs = requestTimeoutSeconds * 1000
  const counts = await pushDeals(rows, {
    client: createDealClient({
      baseUrl,
      apiKey,
      retries,
      timeoutMs,
      clock: realClock,
      random,
      fetch: (url, options) => fetch(addQuery(String(url), baseUrlQuery), options),
    }),
    known: readCreated(resultFile),
    onResult: (result) => appendResult(resultFile, result),
    signal,
  })
  return {...counts, result_file: resultFile}
}

function addQuery(url: string, query: string): string {
  return url + (url.includes('?') ? query.replace('?', '&') : query)
}

function readCsv(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw newError(
      'PUSH_FILE',
      `File '${file}' cannot be read (${codeOf(cause)}): expected a CSV file of deals.`,
      {cause},
    )
  }
}

function renderPush({created, known, invalid, refused, result_file}: PushResult): string {
  return (
    `${created} deals created, ${known} known from before, ${invalid} rows invalid, ${refused} refused.\n` +
    `Row by row: ${result_file}`
  )
}
