import {existsSync} from 'node:fs'
import {dirname, resolve} from 'node:path'
import pLimit from 'p-limit'
import {EXIT_CODES, explainError, newError} from '../errors.ts'
import {quantity} from '../money.ts'
import {expectOneOf} from '../nearest.ts'
import type {CombinedVerification} from '../pipeline/verify-combined.ts'
import {openStateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {carryOutCommand} from '../web/command.ts'
import type {SourceRow} from '../web/fleet-page.ts'
import type {Call, CliCommand} from './command.ts'
import {brokenRow, readRow, renderRows} from './fleet-row.ts'
import {PATIENCE_MS, readSource} from './fleet-source.ts'
import {ENV_FILE, listSources} from './source-folder.ts'
import {parseHours} from './status.ts'

/** `loantape fleet`. */
export default function addFleet(command: CliCommand): void {
  command
    .command('serve')
    .example('fleet serve')
    .description('run every job of every source when it is due, and one page for all, until stopped')
    .option('--no-web', 'the schedulers alone')
    .examines()
    .does(async (call: Call<{web: boolean}>) => {
      const fleetDir = findFleet(call)
      const {serveFleet} = await import('./fleet-serve.ts')
      await serveFleet(call.cli, {fleetDir, config: call.config, web: call.options.web}, call.world)
    })
  command
    .command('status')
    .example('fleet status --max-age 26h')
    .description('how each source is doing, one line each; exit 1 when any is not healthy')
    .option(
      '--max-age <hours>',
      'oldest last success that is still healthy, such as 26h; by default LOANTAPE_ALARM_MAX_AGE_HOURS of each source',
    )
    .examines()
    .does(
      async (call: Call<{maxAge?: string}>) => {
        const fleetDir = findFleet(call)
        const {maxAge} = call.options
        const maxAgeHours = maxAge === undefined ? undefined : parseHours(maxAge)
        const sources = await Promise.all(
          requireSources(fleetDir).map((name) => readStatus(call, {fleetDir, name, maxAgeHours})),
        )
        const healthy = sources.every((row) => row.healthy)
        if (!healthy) call.cli.exitCode = 1
        return {healthy, sources}
      },
      ({sources}) => renderRows(sources),
    )
  command
    .command('run')
    .example('fleet run nightly')
    .description('run one job now for every source; exit code of the worst')
    .argument('<job>', 'such as nightly')
    .option('--source <name...>', 'only these')
    .examines()
    .does(
      async (call: Call<{source?: string[]}>, job: string) => {
        const fleetDir = findFleet(call)
        const {cli, config, options, world} = call
        const inTurn = pLimit(config.fleetRuns)
        const runs = await Promise.all(
          requireSources(fleetDir, options.source).map((name) =>
            inTurn(() => runJob(call, {fleetDir, name, job}, world)),
          ),
        )
        cli.exitCode = worstOf(runs.map(({exit_code}) => exit_code))
        return {runs}
      },
      ({runs}) =>
        runs.map(({source, exit_code, words}) => `${source}: exit ${exit_code}. ${words}`).join('\n'),
    )
  command
    .command('verify')
    .example('fleet verify')
    .description(
      'whether all lenders together, in ClickHouse, are the sum of what each has published; exit 1 where they are not',
    )
    .examines()
    .does(async ({cli, config, world}: Call) => {
      const {verifyCombined} = await import('../pipeline/verify-combined.ts')
      const verified = await verifyCombined(config, world)
      if (verified.differing > 0) cli.exitCode = 1
      return verified
    }, renderVerified)
}

function renderVerified({server, totals, differing}: CombinedVerification): string {
  if (totals.length === 0) return `Nothing at ${server} is computed over all lenders yet.`
  if (differing === 0)
    return `All of ${quantity(totals.length, 'sum')} at ${server} are those of all lenders together.`
  const lines = totals
    .filter(({together, sum}) => together !== sum)
    .map(({table, column, together, sum}) => `${table}.${column}: ${together} together, ${sum} as a sum`)
  return [
    `${differing} of ${quantity(totals.length, 'sum')} at ${server} ${differing === 1 ? 'differs' : 'differ'}:`,
    ...lines,
  ].join('\n  ')
}

/** The fleet in whose folder we are. */
function findFleet({cli, options}: Call): string {
  if (options.data !== undefined) {
    throw newError('USAGE', `Folder '${options.data}' in --data: expected none, each source has its own.`)
  }
  return dirname(resolve(cli.envFile ?? ENV_FILE))
}

/**
 * The sources that are meant; all of them by default.
 *
 * @throws ConfigError `FLEET_NONE`, `FLEET_SOURCE_UNKNOWN`
 */
function requireSources(fleetDir: string, asked?: readonly string[]): string[] {
  const names = listSources(fleetDir)
  if (names.length === 0) throw newError('FLEET_NONE', `No source in '${fleetDir}': its folder is empty.`)
  const unknown = asked?.find((name) => !names.includes(name))
  if (unknown !== undefined) {
    throw newError('FLEET_SOURCE_UNKNOWN', `Source '${unknown}' in --source: ${expectOneOf(unknown, names)}.`)
  }
  return asked ? names.filter((name) => asked.includes(name)) : names
}

async function readStatus(
  {cli, world}: Call,
  {fleetDir, name, maxAgeHours}: {fleetDir: string; name: string; maxAgeHours: number | undefined},
): Promise<SourceRow> {
  try {
    const source = await readSource(cli, fleetDir, name)
    const {stateDb: path} = source.folder
    using stateDb = existsSync(path) ? openStateDb(path, PATIENCE_MS) : undefined
    return readRow(name, source, {stateDb, maxAgeHours}, world)
  } catch (error) {
    return brokenRow(name, error)
  }
}

async function runJob(
  {cli}: Call,
  {fleetDir, name, job}: {fleetDir: string; name: string; job: string},
  {signal}: World,
): Promise<{source: string; exit_code: number; words: string}> {
  try {
    signal.throwIfAborted()
    const {place} = await readSource(cli, fleetDir, name)
    const end = await carryOutCommand(['run', job], {...place, signal})
    return {source: name, exit_code: end.exitCode ?? 1, words: inOneLine(end.words)}
  } catch (error) {
    const {code, exitCode, message} = signal.aborted
      ? newError('INTERRUPTED', 'The run was not started.')
      : explainError(error)
    return {source: name, exit_code: exitCode, words: inOneLine(`${message} [${code}]`)}
  }
}

const inOneLine = (words: string) => words.trim().replaceAll(/\s*\n\s*/g, ' ')

/** What another attempt may fix by itself: 6 before 4. */
const PASSING = [6, 4]

/** The exit code of several runs: the lowest that wants somebody, else one that the next attempt may fix, else 0. */
function worstOf(codes: readonly number[]): number {
  const order = [...EXIT_CODES.keys()].slice(1).filter((code) => !PASSING.includes(code))
  return [...order, ...PASSING].find((code) => codes.includes(code)) ?? 0
}
