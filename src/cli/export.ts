import type {Command} from 'commander'
import {parseDateOption} from '../config.ts'
import {ConfigError} from '../errors.ts'
import {type BatchResult, PROFILE_NAMES} from '../export/batch.ts'
import {reissueBatch} from '../pipeline/journal-export.ts'
import {exportRelease} from '../pipeline.ts'
import type {Cli, CommonOptions} from './context.ts'

interface ExportOptions extends CommonOptions {
  asOf?: string
  release?: string
  table?: string[]
  period?: string
  withOpening?: boolean
  reissue?: string
}

/** `loantape export`. */
export function addExport(program: Command, cli: Cli): void {
  program
    .command('export')
    .description('write a release, or the journal of a month, as files with a manifest')
    .argument('[profile...]', PROFILE_NAMES.join(', '))
    .option('--as-of <date>', 'of the portfolio as of this business date, YYYY-MM-DD')
    .option('--release <id>', 'of this release; the current one by default')
    .option('--period <month>', 'journals: of this month, YYYY-MM; tables: as of its end')
    .option('--table <name...>', 'only these tables, such as core.deal')
    .option('--with-opening', 'journals: also book what was funded already at the first walk')
    .option('--reissue <batch>', 'write a journal batch again, the same bytes')
    .action(async (profiles: string[], _options, command: Command) => {
      const options = command.optsWithGlobals<ExportOptions>()
      const config = cli.readConfig(options)
      requireOneSubject(profiles, options)
      if (options.reissue !== undefined) {
        const batches = reissueBatch(config, options.reissue, cli.createWorld(config))
        cli.printResult(options, {batches}, (result) => result.batches.map(renderBatch).join('\n'))
        return
      }
      const batches = await exportRelease(
        config,
        {
          profiles,
          ...(options.period !== undefined && {period: options.period}),
          ...(options.withOpening && {withOpening: true}),
          ...(options.table && {tables: options.table}),
          ...(options.release !== undefined && {releaseId: options.release}),
          ...(options.asOf !== undefined && {asOf: parseDateOption('--as-of', options.asOf)}),
        },
        cli.createWorld(config),
      )
      cli.printResult(options, {batches}, (result) => result.batches.map(renderBatch).join('\n'))
    })
}

/** What to export is said once: by a batch, by profiles, and those of one moment. */
function requireOneSubject(profiles: readonly string[], options: ExportOptions): void {
  const moments = (['--as-of', '--release', '--period'] as const).filter(
    (_, index) => [options.asOf, options.release, options.period][index] !== undefined,
  )
  if (options.reissue === undefined && profiles.length === 0) {
    throw usageError(`expected a profile (${PROFILE_NAMES.join(', ')}) or --reissue`)
  }
  if (options.reissue !== undefined && profiles.length > 0)
    throw usageError('expected no profile with --reissue')
  if (moments.length > 1) throw usageError(`expected one of ${moments.join(', ')}`)
}

function usageError(words: string): ConfigError {
  return new ConfigError({code: 'USAGE', problem: `Command line: ${words}.`, kept: 'Nothing was written.'})
}

/** One batch, for people. */
export function renderBatch({profile, period, batch_id, outcome, files, rows, dir}: BatchResult): string {
  if (outcome === 'empty') return `${profile}: nothing to book in ${period}`
  const words = {
    written: 'written',
    unchanged: period === undefined ? 'there already, byte for byte' : 'issued before, nothing new since',
  }[outcome]
  return `${profile}: batch ${batch_id}, ${files} files, ${rows} rows ${words}\n  ${dir}`
}
