import {type Command, Option} from 'commander'
import {parseDateOption} from '../config.ts'
import {type BatchResult, PROFILE_NAMES} from '../export/batch.ts'
import type {ExportOptions} from '../export/profile.ts'
import {exportRelease} from '../pipeline.ts'
import type {Cli, CommonOptions} from './context.ts'

interface CliOptions extends CommonOptions {
  asOf?: string
  release?: string
  table?: string[]
  lineEnding?: 'lf' | 'crlf'
  spreadsheetSafe?: boolean
  partition?: 'month'
  accept?: 'columns'
}

/** `loantape export`. */
export function addExport(program: Command, cli: Cli): void {
  program
    .command('export')
    .description('write a release as files with a manifest')
    .argument('<profile...>', PROFILE_NAMES.join(', '))
    .option('--as-of <date>', 'of the portfolio as of this business date, YYYY-MM-DD')
    .option('--release <id>', 'of this release; the current one by default')
    .option('--table <name...>', 'only these tables, such as core.deal')
    .addOption(new Option('--line-ending <kind>', 'csv: how lines end').choices(['lf', 'crlf']))
    .option('--spreadsheet-safe', "csv: put ' before texts that a spreadsheet would take for formulas")
    .addOption(new Option('--partition <by>', 'parquet: a file for each month').choices(['month']))
    .addOption(
      new Option('--accept <what>', 'csv: go on with other columns than before').choices(['columns']),
    )
    .action(async (profiles: string[], _options, command: Command) => {
      const options = command.optsWithGlobals<CliOptions>()
      const config = cli.readConfig(options)
      const batches = await exportRelease(
        config,
        {
          profiles,
          ...(options.table && {tables: options.table}),
          ...(options.release !== undefined && {releaseId: options.release}),
          ...(options.asOf !== undefined && {asOf: parseDateOption('--as-of', options.asOf)}),
          options: readExportOptions(options),
          acceptsColumns: options.accept === 'columns',
        },
        cli.createWorld(config),
      )
      cli.printResult(options, {batches}, (result) => result.batches.map(renderBatch).join('\n'))
    })
}

function readExportOptions({lineEnding, spreadsheetSafe, partition}: CliOptions): ExportOptions {
  return {
    ...(lineEnding && {lineEnding}),
    ...(spreadsheetSafe && {isSpreadsheetSafe: true}),
    ...(partition && {partition}),
  }
}

/** One batch, for people. */
export function renderBatch({profile, outcome, files, rows, dir}: BatchResult): string {
  const words = outcome === 'written' ? 'written' : 'there already, byte for byte'
  return `${profile}: ${files} files, ${rows} rows ${words}\n  ${dir}`
}
