import type {Command} from 'commander'
import {groupThousands} from '../money.ts'
import {closePeriod, remapPeriods, reopenPeriod} from '../pipeline/period.ts'
import {listPeriods, type PeriodState} from '../pipeline/period-list.ts'
import type {Cli, CommonOptions} from './context.ts'
import {renderTable} from './table.ts'

/** `loantape period`. */
export function addPeriod(program: Command, cli: Cli): void {
  const period = program.command('period').description('accounting months: list, close, reopen')
  addList(period, cli)
  addClose(period, cli)
  addReopen(period, cli)
  addRemap(period, cli)
}

function addList(period: Command, cli: Cli): void {
  period
    .command('list')
    .description('every month from the first walk to the last, with its journal batches')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const config = cli.readConfig(options)
      const list = await listPeriods(config, cli.createWorld(config))
      cli.printResult(options, list, ({periods, events}) =>
        [
          renderPeriods(periods),
          '',
          ...events.map(
            ({period: month, action, at, who, why}) =>
              `${at} ${who}: ${action} ${month}${why === null ? '' : `: ${why}`}`,
          ),
        ]
          .join('\n')
          .trimEnd(),
      )
    })
}

function renderPeriods(periods: readonly PeriodState[]): string {
  return renderTable(
    [
      {title: 'period'},
      {title: 'state'},
      {title: 'loans', isNumber: true},
      {title: 'funded', isNumber: true},
      {title: 'known later', isNumber: true},
      {title: 'batches'},
    ],
    periods.flatMap(({period, state, closed, batches}) => {
      const [first = '', ...others] = batches.map(({profile, batch_id}) => `${profile} ${batch_id}`)
      const figures = closed
        ? [String(closed.loans), groupThousands(closed.amount), String(closed.late)]
        : ['', '', '']
      return [[period, state, ...figures, first], ...others.map((batch) => ['', '', '', '', '', batch])]
    }),
  )
}

function addClose(period: Command, cli: Cli): void {
  period
    .command('close')
    .description(
      'fix the journal and register of a finished month; what becomes known later is booked in the next',
    )
    .argument('<month>', 'YYYY-MM, the first open one')
    .option('--why <text>', 'a remark, kept in the ledger with your name and the time')
    .action(async (month: string, _options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions & {why?: string}>()
      const config = cli.readConfig(options)
      const request = {period: month, why: options.why ?? null}
      const result = await closePeriod(config, request, cli.createWorld(config))
      cli.printResult(
        options,
        result,
        ({entries, loans, amount, release_id}) =>
          `Closed ${month}: ${entries} entries, ${loans} funded loans, ${groupThousands(amount)} (release ${release_id}).`,
      )
    })
}

function addReopen(period: Command, cli: Cli): void {
  period
    .command('reopen')
    .description('open the month that was closed last')
    .argument('<month>', 'YYYY-MM')
    .requiredOption('--why <text>', 'the reason, kept in the ledger with your name and the time')
    .action((month: string, _options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions & {why: string}>()
      const config = cli.readConfig(options)
      const result = reopenPeriod(config, {period: month, why: options.why}, cli.createWorld(config))
      cli.printResult(options, result, () => `Reopened ${month}.`)
    })
}

function addRemap(period: Command, cli: Cli): void {
  period
    .command('remap')
    .description('move what closed months booked to the receivable accounts of the mapping that holds now')
    .option('--why <text>', 'a reason, kept in the ledger')
    .action((_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions & {why?: string}>()
      const config = cli.readConfig(options)
      const result = remapPeriods(config, {why: options.why ?? null}, cli.createWorld(config))
      cli.printResult(options, result, ({outcome, period: month}) =>
        outcome === 'unchanged'
          ? `The journal of ${month} moves the balances already.`
          : `The journal of ${month} moves the balances: export it.`,
      )
    })
}
