import type {Command} from 'commander'
import {parseDateOption} from '../config.ts'
import {newError} from '../errors.ts'
import {groupThousands} from '../money.ts'
import {type Trace, traceDeal} from '../pipeline/trace.ts'
import {type FigureTrace, isFigure, traceFigure} from '../pipeline/trace-figure.ts'
import type {Cli, CommonOptions} from './context.ts'
import {renderTable} from './table.ts'

interface TraceOptions extends CommonOptions {
  field?: string
  asOf?: string
}

/** `loantape trace`. */
export function addTrace(program: Command, cli: Cli): void {
  program
    .command('trace')
    .description(
      'where what is known of a deal comes from: each version with the record as the source sent it; or which deals are behind a figure',
    )
    .argument('<deal or figure>', 'id of a deal, or mart.portfolio_summary.funded_amount and the like')
    .option('--field <name>', 'of a deal: show the value of this field, such as loan_amount')
    .option('--as-of <date>', 'of a deal: only what counts up to this business date')
    .action(async (traced: string, _options, command: Command) => {
      const options = command.optsWithGlobals<TraceOptions>()
      const config = cli.readConfig(options)
      if (isFigure(traced)) {
        requireNoDealOptions(traced, options)
        cli.printResult(options, await traceFigure(config, traced), renderFigure)
        return
      }
      const asOf = options.asOf === undefined ? undefined : parseDateOption('--as-of', options.asOf)
      const versions = await traceDeal(config, traced, {field: options.field, asOf})
      cli.printResult(options, {deal_id: traced, versions}, () =>
        versions.map((version) => renderTrace(version, options.field)).join('\n\n'),
      )
    })
}

function requireNoDealOptions(figure: string, {field, asOf}: TraceOptions): void {
  if (field === undefined && asOf === undefined) return
  throw newError('TRACE_FIGURE', `Figure '${figure}' with --field or --as-of: these are for a deal.`, {
    next: 'Leave them out: a figure is that of the current release.',
  })
}

function renderFigure({figure, value, as_of, deals}: FigureTrace): string {
  const columns = [
    {title: 'deal'},
    {title: 'status'},
    {title: 'loan_amount', isNumber: true},
    {title: 'property_value', isNumber: true},
    {title: 'ltv', isNumber: true},
    {title: 'as it is since (UTC)'},
  ]
  const rows = deals.map(({deal_id, status, loan_amount, property_value, ltv, last_changed_at}) => [
    deal_id,
    status,
    groupThousands(loan_amount),
    groupThousands(property_value ?? ''),
    ltv === null ? '' : String(ltv),
    last_changed_at,
  ])
  return [
    `${figure} is ${value === null ? 'not known' : groupThousands(value)} as of ${as_of}: ${groupThousands(String(deals.length))} ${deals.length === 1 ? 'deal' : 'deals'}.`,
    ...(deals.length > 0 ? ['', renderTable(columns, rows), ''] : []),
    '`loantape trace <deal>` shows the record behind each, as the source sent it.',
  ].join('\n')
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
