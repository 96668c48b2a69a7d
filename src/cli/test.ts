import {exitCodeOf} from '../errors.ts'
import type {CaseResult} from '../model/cases.ts'
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
  {table, name, file, line, problem, missing, unexpected}: CaseResult,
  width?: number,
): string {
  const rowsOf = (kind: string, rows: CaseResult['missing']) =>
    rows.map((row) => [kind, ...Object.values(row).map(toText)])
  const rows = [...rowsOf('missing', missing), ...rowsOf('unexpected', unexpected)].sort((one, other) =>
    one.slice(1).join() < other.slice(1).join() ? -1 : 1,
  )
  const more = rows.length - MOST_ROWS
  return joinLines([
    `✗ ${table}: ${name}\n  ${file}:${line}`,
    problem !== null && `\n${problem}`,
    rows.length > 0 &&
      `\n${fitTable(['row', ...Object.keys(missing[0] ?? unexpected[0] ?? {})], rows.slice(0, MOST_ROWS), width)}`,
    more > 0 && `${groupThousands(more)} more; --json has all.`,
  ])
}

/** An empty text, and blanks around one, are seen between quotes. */
function toText(value: string | null): string {
  if (value === null) return 'null'
  return value === '' || value !== value.trim() ? `'${value}'` : value
}
