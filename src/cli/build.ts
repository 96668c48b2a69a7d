import type {Command} from 'commander'
import {formatInstant, isCalendarDate, parseInstant} from '../clock.ts'
import {parseDateOption} from '../config.ts'
import {newError} from '../errors.ts'
import {groupThousands} from '../money.ts'
import {type BuildResult, buildRelease} from '../pipeline/build.ts'
import type {Cli, CommonOptions} from './context.ts'
import {renderTable} from './table.ts'

interface BuildOptions extends CommonOptions {
  asOf?: string
  knownAt?: string
  out?: string
  select?: string
}

/** `loantape build`. */
export function addBuild(program: Command, cli: Cli): void {
  program
    .command('build')
    .description('build and check a release without walking; only a plain build moves `current`')
    .option('--as-of <date>', 'the portfolio as of this business date, YYYY-MM-DD')
    .option('--known-at <time>', 'with only what was stored by this instant, ISO 8601')
    .option('--out <file>', 'also write the DuckDB file here')
    .option(
      '--select <models>',
      'only these, into the scratch release: mart.run, +mart.run, mart.run+, mart.*',
    )
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<BuildOptions>()
      const config = cli.readConfig(options)
      const request = {
        asOf: options.asOf === undefined ? undefined : parseDateOption('--as-of', options.asOf),
        knownAt: options.knownAt === undefined ? undefined : parseKnownAt(options.knownAt),
        out: options.out,
        select: options.select,
      }
      const result = await buildRelease(config, request, cli.createWorld(config))
      cli.printResult(options, result, renderBuild)
    })
}

function renderBuild({
  outcome,
  release_id,
  dir,
  checks,
  is_current,
  is_scratch,
  models,
}: BuildResult): string {
  const passed = `${checks.passed} checks passed, ${checks.warned} warned.`
  if (is_scratch) {
    const table = renderTable(
      [{title: 'model'}, {title: 'rows', isNumber: true}, {title: 'ms', isNumber: true}],
      models.map(({name, rows, duration_ms}) => [name, groupThousands(String(rows)), String(duration_ms)]),
    )
    return `Built into the scratch release: ${passed}\n\n${table}\n\n${dir}/portfolio.duckdb, or \`loantape query --release scratch\``
  }
  const words = outcome === 'released' ? 'Built' : 'Nothing new:'
  return `${words} release ${release_id} (${is_current ? 'current' : 'beside the current one'}): ${passed}\n${dir}`
}

/** An instant, as DuckDB reads it in UTC. */
function parseKnownAt(text: string): string {
  const micros = parseInstant(isCalendarDate(text) ? `${text}T00:00:00Z` : text)
  if (micros === null) {
    throw newError(
      'USAGE_KNOWN_AT',
      `Instant '${text}' in --known-at: expected ISO 8601 with an offset, such as 2026-01-31T23:00:00Z.`,
    )
  }
  return formatInstant(micros).replace('T', ' ').replace('Z', '')
}
