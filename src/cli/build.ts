import {Option} from 'commander'
import {formatInstant, isCalendarDate, parseInstant} from '../clock.ts'
import {newError} from '../errors.ts'
import {groupThousands, quantity} from '../money.ts'
import {type BuildResult, buildRelease} from '../pipeline/build.ts'
import {type Compared, compareBuilds} from '../pipeline/compare-builds.ts'
import type {BuildRequest} from '../pipeline/prepare-build.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {Call, CliCommand} from './command.ts'
import {dateOption} from './options.ts'
import {joinLines, renderTable} from './table.ts'

type Options = BuildRequest & {compare?: boolean}

/** `loantape build`. */
export default function addBuild(command: CliCommand): void {
  command
    .description('build and check a release without walking; only a plain build moves `current`')
    .example('build --as-of 2026-06-30')
    .addOption(dateOption('--as-of <date>', 'the portfolio as of this business date, YYYY-MM-DD'))
    .option('--known-at <time>', 'with only what was stored by this instant, ISO 8601', parseKnownAt)
    .option('--out <file>', 'also write the DuckDB file here')
    .option(
      '--select <models>',
      'only these, into the scratch release: mart.run, +mart.run, mart.run+, mart.*',
    )
    .addOption(
      new Option(
        '--compare',
        'build it from an earlier build and from nothing, and compare every table byte by byte; exit 1 where they differ',
      ).conflicts('select'),
    )
    .does(
      ({config, options: {compare, ...request}, world}: Call<Options>) =>
        compare ? compareBuilds(config, request, world) : buildRelease(config, request, world),
      renderBuild,
    )
}

/** The checks that warned, each with what it found first and what to do. */
export function renderWarnings({results}: Pick<ReleaseManifest['checks'], 'results'>): string[] {
  return results.map(({name, failures, samples, deals, next}) => {
    const counted = `${quantity(failures, 'row')}${deals === undefined ? '' : ` of ${quantity(deals, 'deal')}`}`
    const more = failures > samples.length ? ', …' : '.'
    return `Check '${name}' warned: ${counted}: ${samples.join(', ')}${more}${next === undefined ? '' : ` ${next}`}`
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
  rebuilt,
}: BuildResult & Partial<Compared>): string {
  const passed = `${quantity(checks.passed, 'check')} passed, ${checks.warned} warned.`
  if (is_scratch) {
    const table = renderTable(
      ['model', {number: 'rows'}, {number: 'ms'}],
      models.map(({name, rows, duration_ms}) => [name, groupThousands(rows), String(duration_ms)]),
    )
    return `${joinLines([`Built into the scratch release: ${passed}`, ...renderWarnings(checks)])}\n\n${table}\n\n${dir}/portfolio.duckdb, or \`loantape query --release scratch\``
  }
  const words = outcome === 'released' ? 'Built' : 'Nothing new:'
  return joinLines([
    `${words} release ${release_id} (${is_current ? 'current' : 'beside the current one'}): ${passed}`,
    ...renderWarnings(checks),
    dir,
    rebuilt !== undefined &&
      `Every table is that of a whole build, byte by byte: ${describeRebuilt(rebuilt)}.`,
  ])
}

function describeRebuilt(rebuilt: number | null): string {
  return rebuilt === null
    ? 'it was built whole, too, as no earlier walk could be gone on from'
    : `${(rebuilt * 100).toFixed(1)} % of the deals were built anew`
}

/** An instant, as DuckDB reads it in UTC. */
function parseKnownAt(text: string): string {
  const micros = parseInstant(isCalendarDate(text) ? `${text}T00:00:00Z` : text)
  if (micros === null) {
    throw newError(
      'USAGE',
      `Instant '${text}' in --known-at: expected ISO 8601 with an offset, such as 2026-01-31T23:00:00Z.`,
    )
  }
  return formatInstant(micros).replace('T', ' ').replace('Z', '')
}
