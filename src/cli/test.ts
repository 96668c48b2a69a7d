import {exitCodeOf} from '../errors.ts'
import type {TextRow} from '../model/compare-rows.ts'
import type {CaseResult} from '../model/run-cases.ts'
import {groupThousands, quantity} from '../money.ts'
import {type Tested, testModels} from '../pipeline/test-models.ts'
import type {Call, CliCommand} from './command.ts'
import {fitTable, joinLines} from './table.ts'

/** The exit code of a `CheckError`. */
const CASES_FAILED = exitCodeOf('check')

/** Rows of a case that are shown. */
const MOST_ROWS = 20

/** `loantape test`. */
export default function addTest(command: CliCommand): void {
  command
    .description(
      'run the tests of your own models, tests/<schema>.<table>.yaml in LOANTAPE_SQL_DIR; exit 3 when one fails',
    )
    .example('test mart.portfolio_summary')
    .argument('[table]', 'only those of this table')
    .examines()
    .does(async ({cli, config, options, world}: Call, table?: string) => {
      const tested = await testModels(config, table, world)
      if (tested.failed > 0) cli.exitCode = CASES_FAILED
      cli.printResult(options, tested, () => renderTested(tested, cli.width))
    })
}

const EXAMPLE = `a large funded deal is on the list:
  walks:
    2026-03-02:
      a: {status: funded, loan_amount: 20000000}
  rows:
    - {deal_id: a, loan_amount: 20000000}`

function renderTested(
  {folder, passed, failed, duration_ms, cases}: Tested,
  width: number | undefined,
): string {
  if (cases.length === 0)
    return `No tests in ${folder}. One of the table risk.watch_list is a few lines in ${folder}/risk.watch_list.yaml:\n\n${EXAMPLE}\n\ndocs/analyst-guide.md describes the form.`
  const tables = new Set(cases.map(({table}) => table)).size
  const counts = `${passed} passed${failed > 0 ? `, ${failed} failed` : ''}`
  return [
    ...cases.filter((one) => !one.passed).map((one) => renderFailure(one, width)),
    `${quantity(cases.length, 'case')} of ${quantity(tables, 'table')}: ${counts}, in ${(duration_ms / 1000).toFixed(1)} s.`,
  ].join('\n\n')
}

function renderFailure(
  {table, name, file, line, problem, ...diff}: CaseResult,
  width: number | undefined,
): string {
  const {different, missing, unexpected, misplaced} = diff
  const differences = different.flatMap(({row, columns}) =>
    Object.entries(columns).map(([column, {expected, found}]) => [
      ...Object.values(row).map(toText),
      `${column}: expected ${toText(expected)}, found ${toText(found)}`,
    ]),
  )
  const others = [
    ...missing.map((row) => ['missing', row] as const),
    ...unexpected.map((row) => ['unexpected', row] as const),
  ]
  const named = [...new Set(others.flatMap(([, row]) => Object.keys(row)))]
  return joinLines([
    `✗ ${table}: ${name}\n  ${file}:${line}`,
    problem !== null && `\n${problem}`,
    differences.length > 0 &&
      `\n${renderRows([...Object.keys(different[0]?.row ?? {}), 'difference'], differences, width)}`,
    others.length > 0 &&
      `\n${renderRows(
        ['row', ...named],
        others.map(([kind, row]) => [kind, ...named.map((column) => toText(row[column] ?? null))]),
        width,
      )}`,
    misplaced &&
      `\nRow ${misplaced.place} stands in another place: expected ${renderRow(misplaced.expected)}; found ${renderRow(misplaced.found)}.`,
  ])
}

function renderRows(
  columns: readonly string[],
  rows: readonly string[][],
  width: number | undefined,
): string {
  const more = rows.length - MOST_ROWS
  const table = fitTable(columns, rows.slice(0, MOST_ROWS), width)
  return more > 0 ? `${table}\n${groupThousands(more)} more; --json has all.` : table
}

const renderRow = (row: TextRow) =>
  Object.entries(row)
    .map(([column, value]) => `${column} ${toText(value)}`)
    .join(', ')

const toText = (value: string | null) => (value === '' ? "''" : (value ?? 'null'))
