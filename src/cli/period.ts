import type {Command} from 'commander'
import {groupThousands} from '../money.ts'
import type {NotIssued} from '../pipeline/not-issued.ts'
import {closePeriod, remapPeriods, reopenPeriod} from '../pipeline/period.ts'
import {listPeriods, type PeriodState} from '../pipeline/period-list.ts'
import {type TrueUpResult, trueUp} from '../pipeline/true-up.ts'
import {listExportedProfiles, readJobs} from '../schedule/job.ts'
import type {Cli, CommonOptions} from './context.ts'
import {renderTable} from './table.ts'

/** `loantape period`. */
export function addPeriod(program: Command, cli: Cli): void {
  const period = program
    .command('period')
    .description('accounting months: list, close, reopen, remap, true-up')
  addList(period, cli)
  addClose(period, cli)
  addReopen(period, cli)
  addRemap(period, cli)
  addTrueUp(period, cli)
}

function addList(period: Command, cli: Cli): void {
  period
    .command('list')
    .description('every month from the first walk to the last, with its journal batches')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const config = cli.readConfig(options)
      const exported = listExportedProfiles(await readJobs(config))
      const list = await listPeriods(config, cli.createWorld(config), exported)
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
      {title: 'not yet issued'},
      {title: 'batches'},
    ],
    periods.flatMap(({period, state, closed, batches, not_issued}) => {
      const issued = batches.map(({profile, batch_id}) => `${profile} ${batch_id}`)
      const open = not_issued.map(renderNotIssued)
      const figures = closed
        ? [String(closed.loans), groupThousands(closed.amount), String(closed.late)]
        : ['', '', '']
      const rows = Math.max(1, issued.length, open.length)
      return Array.from({length: rows}, (_, row) => {
        const lead = row === 0 ? [period, state, ...figures] : ['', '', '', '', '']
        return [...lead, open[row] ?? '', issued[row] ?? '']
      })
    }),
  )
}

/** `xero 3 entries, 1,234.56` */
export function renderNotIssued({profile, entries, amount}: Omit<NotIssued, 'period'>): string {
  return `${profile} ${entries} ${entries === 1 ? 'entry' : 'entries'}, ${groupThousands(amount)}`
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

function addTrueUp(period: Command, cli: Cli): void {
  period
    .command('true-up')
    .description('after a recovery: by how much books and history differ, per deal and account')
    .option(
      '--issue',
      'hand the difference out, dated in the first open month; from then on the books stand on this history',
    )
    .option('--why <text>', 'a reason, kept in the ledger with your name and the time')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions & {issue?: boolean; why?: string}>()
      const config = cli.readConfig(options)
      const request = {isIssued: options.issue ?? false, why: options.why ?? null}
      const result = await trueUp(config, request, cli.createWorld(config))
      cli.printResult(options, result, renderTrueUp)
    })
}

function renderTrueUp({outcome, period, lost, profiles}: TrueUpResult): string {
  if (outcome === 'unchanged')
    return 'Books and history stand together: there is nothing to bring up to date.'
  const differences = profiles.flatMap(({profile, differences: own}) =>
    own.map(({deal_id, account_code, account_name, debit, credit}) => [
      profile,
      deal_id,
      `${account_code} ${account_name}`,
      debit === null ? '' : groupThousands(debit),
      credit === null ? '' : groupThousands(credit),
    ]),
  )
  const columns = [
    {title: 'profile'},
    {title: 'deal'},
    {title: 'account'},
    {title: 'debit', isNumber: true},
    {title: 'credit', isNumber: true},
  ]
  return [
    `The history lacks what these were made from: ${lost.length === 0 ? 'nothing that says so' : lost.join(', ')}.`,
    ...(differences.length > 0 ? ['', renderTable(columns, differences), ''] : []),
    ...profiles.map(({profile, deals, amount, batch}) => {
      const found = `${profile}: ${deals} deals booked from what the history lacks`
      const moved = `${groupThousands(amount)} to book on ${period}-01`
      return batch
        ? `${found}; ${moved}: ${batch.dir}`
        : `${found}; ${amount === '0.00' ? 'their balances agree' : moved}.`
    }),
    outcome === 'issued'
      ? 'The books stand on this history now.'
      : 'Nothing was changed. `loantape period true-up --issue` hands this out and lets the books stand on this history.',
  ].join('\n')
}
