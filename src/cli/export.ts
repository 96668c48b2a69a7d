import {type Command, Option} from 'commander'
import {parseDateOption} from '../config.ts'
import type {DeliveryResult} from '../delivery/deliver.ts'
import {readTargets} from '../delivery/target.ts'
import {ConfigError} from '../errors.ts'
import {type BatchResult, PROFILE_NAMES} from '../export/batch.ts'
import type {ExportOptions} from '../export/profile.ts'
import {deliverBatches, redeliverBatch} from '../pipeline/deliver.ts'
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
  deliver?: string[]
  redeliver?: string
}

/** `loantape export`. */
export function addExport(program: Command, cli: Cli): void {
  program
    .command('export')
    .description('write a release as files with a manifest')
    .argument('[profile...]', PROFILE_NAMES.join(', '))
    .option('--as-of <date>', 'of the portfolio as of this business date, YYYY-MM-DD')
    .option('--release <id>', 'of this release; the current one by default')
    .option('--table <name...>', 'only these tables, such as core.deal')
    .addOption(new Option('--line-ending <kind>', 'csv: how lines end').choices(['lf', 'crlf']))
    .option('--spreadsheet-safe', "csv: put ' before texts that a spreadsheet would take for formulas")
    .addOption(new Option('--partition <by>', 'parquet: a file for each month').choices(['month']))
    .addOption(
      new Option('--accept <what>', 'csv: go on with other columns than before').choices(['columns']),
    )
    .option('--deliver <target...>', 'then send the batches to these targets (LOANTAPE_TARGETS_FILE)')
    .option('--redeliver <batch>', 'send a batch once more, to --deliver or to where it went before')
    .action(async (profiles: string[], _options, command: Command) => {
      const options = command.optsWithGlobals<CliOptions>()
      const config = cli.readConfig(options)
      const world = cli.createWorld(config)
      const targets = options.deliver ?? []
      if (options.redeliver !== undefined) {
        const request = {batchId: options.redeliver, targets}
        const deliveries = await redeliverBatch(config, request, world)
        cli.printResult(options, {deliveries}, (result) => result.deliveries.map(renderDelivery).join('\n'))
        return
      }
      requireProfiles(profiles)
      // A typing error in a target's name should not come to light after an hour of exporting.
      if (targets.length > 0) readTargets(config.targetsFile, targets)
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
        world,
      )
      const deliveries =
        targets.length > 0 ? await deliverBatches(config, {batches, targets}, world) : undefined
      cli.printResult(options, {batches, ...(deliveries && {deliveries})}, () =>
        [...batches.map(renderBatch), ...(deliveries ?? []).map(renderDelivery)].join('\n'),
      )
    })
}

function readExportOptions({lineEnding, spreadsheetSafe, partition}: CliOptions): ExportOptions {
  return {
    ...(lineEnding && {lineEnding}),
    ...(spreadsheetSafe && {isSpreadsheetSafe: true}),
    ...(partition && {partition}),
  }
}

function requireProfiles(profiles: readonly string[]): void {
  if (profiles.length > 0) return
  throw new ConfigError({
    code: 'USAGE',
    problem: `Command line: expected one or more profiles: ${PROFILE_NAMES.join(', ')}.`,
    kept: 'Nothing was started.',
  })
}

/** One delivery, for people. */
export function renderDelivery({target, profile, batch_id, outcome, sent}: DeliveryResult): string {
  const words = outcome === 'unchanged' ? 'has everything already' : `took ${sent} files`
  return `${target}: ${words} of ${profile}/${batch_id}`
}

/** One batch, for people. */
export function renderBatch({profile, outcome, files, rows, dir}: BatchResult): string {
  const words = outcome === 'written' ? 'written' : 'there already, byte for byte'
  return `${profile}: ${files} files, ${rows} rows ${words}\n  ${dir}`
}
