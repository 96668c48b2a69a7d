import type {Command} from 'commander'
import {parseDateOption} from '../config.ts'
import {type Trace, traceDeal} from '../pipeline/trace.ts'
import type {Cli, CommonOptions} from './context.ts'

interface TraceOptions extends CommonOptions {
  field?: string
  asOf?: string
}

/** `loantape trace`. */
export function addTrace(program: Command, cli: Cli): void {
  program
    .command('trace')
    .description(
      'where what is known of a deal comes from: each version with the record as the source sent it',
    )
    .argument('<deal>', 'its id')
    .option('--field <name>', 'show the value of this field, such as loan_amount')
    .option('--as-of <date>', 'only what counts up to this business date')
    .action(async (dealId: string, _options, command: Command) => {
      const options = command.optsWithGlobals<TraceOptions>()
      const asOf = options.asOf === undefined ? undefined : parseDateOption('--as-of', options.asOf)
      const versions = await traceDeal(cli.readConfig(options), dealId, {field: options.field, asOf})
      cli.printResult(options, {deal_id: dealId, versions}, () =>
        versions.map((version) => renderTrace(version, options.field)).join('\n\n'),
      )
    })
}

function renderTrace(trace: Trace, field: string | undefined): string {
  const {kind, source, business_date, observed_at, tape, line, request, sha256, record} = trace
  return [
    `${business_date}  ${kind} (${source})${field === undefined ? '' : `  ${field}: ${trace.value ?? 'not shown'}`}`,
    `  asked at ${observed_at}${request === null ? '' : `: GET ${request}`}`,
    tape === null
      ? '  its tape is not kept'
      : `  ${tape}, line ${line}${sha256 === null ? '' : `, sha256 ${sha256}`}`,
    ...(record === null ? [] : [`  ${JSON.stringify(record)}`]),
  ].join('\n')
}
