import type {Command} from 'commander'
import {parseDateOption} from '../config.ts'
import {type BatchResult, PROFILE_NAMES} from '../export/batch.ts'
import {exportRelease} from '../pipeline.ts'
import type {Cli, CommonOptions} from './context.ts'

interface ExportOptions extends CommonOptions {
  asOf?: string
  release?: string
  table?: string[]
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
    .action(async (profiles: string[], _options, command: Command) => {
      const options = command.optsWithGlobals<ExportOptions>()
      const config = cli.readConfig(options)
      const batches = await exportRelease(
        config,
        {
          profiles,
          ...(options.table && {tables: options.table}),
          ...(options.release !== undefined && {releaseId: options.release}),
          ...(options.asOf !== undefined && {asOf: parseDateOption('--as-of', options.asOf)}),
        },
        cli.createWorld(config),
      )
      cli.printResult(options, {batches}, (result) => result.batches.map(renderBatch).join('\n'))
    })
}

/** One batch, for people. */
export function renderBatch({profile, outcome, files, rows, dir}: BatchResult): string {
  const words = outcome === 'written' ? 'written' : 'there already, byte for byte'
  return `${profile}: ${files} files, ${rows} rows ${words}\n  ${dir}`
}
