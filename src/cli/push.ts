import {readFileSync} from 'node:fs'
import {createDealClient} from '../client/deal-client.ts'
import {requireSource} from '../config.ts'
import {codeOf, newError} from '../errors.ts'
import {quantity} from '../money.ts'
import {parseDealRows} from '../push/deal-rows.ts'
import {type PushResult, pushDeals} from '../push/push-deals.ts'
import {appendResult, readCreated} from '../push/result-file.ts'
import type {Call, CliCommand} from './command.ts'

interface PushOptions {
  result?: string
  dryRun?: boolean
}

/** Exit code of a push whose file had rows that became no deal. */
const ROWS_LEFT = 3

/** `loantape push`. */
export default function addPush(command: CliCommand): void {
  const push = command
  push
    .command('deals <file.csv>')
    .example('push deals deals.csv --dry-run')
    .description(
      'create a deal for every row, once by its external_reference; exit 3 when rows were left out',
    )
    .option('--result <file>', 'what came of each row (default: <file.csv>.result.csv)')
    .option('--dry-run', 'check every row, send nothing')
    .examines()
    .does(
      async (call: Call<PushOptions>, file: string) => {
        const result = await pushFile(call, file)
        if (result.invalid + result.refused > 0) call.cli.exitCode = ROWS_LEFT
        return result
      },
      ({created, known, invalid, refused, result_file}) =>
        `${quantity(created, 'deal')} created, ${known} known from before, ${quantity(invalid, 'row')} invalid, ${refused} refused.\n` +
        `Row by row: ${result_file}`,
    )
}

async function pushFile(call: Call<PushOptions>, file: string): Promise<PushResult> {
  const {cli, options} = call
  const rows = parseDealRows(file, readCsv(file))
  const resultFile = options.result ?? `${file}.result.csv`
  if (options.dryRun) {
    const invalid = rows.filter((row) => 'problem' in row)
    for (const row of invalid) cli.complain(`line ${row.line}: ${'problem' in row ? row.problem : ''}`)
    return {created: 0, known: 0, invalid: invalid.length, refused: 0, result_file: resultFile}
  }
  const {baseUrl, baseUrlQuery = '', apiKey, retries, requestTimeoutSeconds} = requireSource(call.config)
  const {signal, realClock, random} = call.world
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
