import {Option} from 'commander'
import {formatInstant, isCalendarDate, parseInstant} from '../clock.ts'
import {newError} from '../errors.ts'
import {groupThousands, quantity} from '../money.ts'
import {type BuildResult, buildRelease} from '../pipeline/build.ts'
import type {BuildRequest} from '../pipeline/prepare-build.ts'
import {verifyBuild} from '../pipeline/verify-build.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {Call, CliCommand} from './command.ts'
import {dateOption} from './options.ts'
import {joinLines, renderTable} from './table.ts'

type Options = BuildRequest & {verify?: boolean}

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
        '--verify',
        'then build all of it again from nothing, and compare every table byte by byte',
      ).conflicts('select'),
    )
    .does(
      async ({config, options: {verify, ...request}, world}: Call<Options>) =>
        verify
          ? {...(await verifyBuild(config, request, world)), verified: true}
          : buildRelease(config, request, world),
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
  verified = false,
}: BuildResult & {verified?: boolean}): string {
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
    verified && 'Every table is that of a whole build, byte by byte.',
  ])
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
