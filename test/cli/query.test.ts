import {readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {stripVTControlCharacters} from 'node:util'
import {expect, test} from 'vitest'
import {requireRelease} from '../../src/store/release.ts'
import {runCommand} from '../support/command.ts'
import {changeBlocks, FEW_TABLES, readLines} from '../support/data.ts'
import {aDeal, DAY_1, MAIN, type Started, startProcess} from '../support/lab.ts'
import {changeRecords, useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {expectRefused, readJson, readStanding} from './outcome.ts'

const PAIR = `select deal_id, loan_amount, property_value, created_at from core.deal
  where deal_id <= 'deal_000002' order by deal_id`

/** Must be sent as text, because a JSON number cannot hold it. */
const LARGEST = '9999999999999999.99'

/** Characters that reverse a terminal's line, color it, move its cursor, and that nobody sees. */
const TURNING = '3 \u202etS \\niaM\u202c \u009b31m\u007f \u200b\ufeff'

const lab = await useLab({tables: FEW_TABLES})
lab.service.store.insert([
  aDeal(1, {loan_amount_cents: 6_999_999_999_999_901n, property_value_cents: null}),
  aDeal(2, {loan_amount_cents: 10n, property_address: '2 "Old" Mill Rd,\nAustin, TX 78701'}),
  aDeal(3, {property_address: TURNING}),
])
changeRecords(lab, '/deals', (deals) => {
  for (const deal of deals) if (deal.id === 'deal_000003') deal.loan_amount = LARGEST
})
const {walk} = await lab.sync(DAY_1)
const walkId = walk.walk_id
const before = await readStanding(lab.folder)

test('no text of the source commands a terminal', async () => {
  const address = 'select property_address from core.deal'
  for (const args of [
    ['tape', 'cat', walkId],
    ['query', '--format', 'csv', address],
    ['query', '--format', 'json', address],
    ['trace', 'deal_000003'],
    ['trace', 'deal_000003', '--json'],
  ]) {
    const {stdout: shown} = await runCommand(args, lab.env, {width: 80})
    expect(shown).not.toMatch(/[[\p{Cc}\p{Bidi_Control}]--\n]/v)
    expect(shown).toContain(String.raw`\u009b31m\u007f \u200b\ufeff`)
    const {stdout: piped} = await runCommand(args, lab.env)
    if (args[0] !== 'trace') expect(piped).toContain('\u202e')
    if (args[0] === 'tape') expect(readLines(shown)).toEqual(readLines(piped))
  }
})

test('rows too wide for the terminal are printed one record below the other, a plan as it is drawn', async () => {
  const print = async (width?: number) => (await runCommand(['query', PAIR], lab.env, {width})).stdout
  const table = await print()
  const [, rule = ''] = table.split('\n')
  expect(await print(rule.length)).toBe(table)
  expect(await print(rule.length - 1)).toBe(
    [
      'deal_id         deal_000001',
      'loan_amount     69999999999999.01',
      'property_value',
      'created_at      2026-01-05 15:00:01',
      '',
      'deal_id         deal_000002',
      'loan_amount     0.10',
      'property_value  500000.00',
      'created_at      2026-01-05 15:00:02',
      '',
    ].join('\n'),
  )
  const plan = await runCommand(['query', 'explain select 1'], lab.env, {width: 10})
  expect(plan.stdout).toMatch(/^physical_plan\n┌─+┐\n│ /)
})

test('a statement can also come from a file or from standard input', async () => {
  const file = join(lab.folder.root, '../statement.sql')
  writeFileSync(file, `-- two deals\n${PAIR};\n`)
  const expected = (await lab.run(['query', PAIR])).stdout
  expect((await lab.run(['query', '--file', file])).stdout).toBe(expected)
  const piped = lab.start(['query', '-'])
  piped.process.stdin?.end(readFileSync(file))
  expect((await piped.ended).stdout).toBe(expected)
  for (const args of [[], ['--file', file, PAIR], ['--file', `${file}.not`]])
    await expectRefused(lab.run(['query', ...args, '--json']), 'QUERY_FAILED')
  rmSync(file)
})

test('decimals beyond a double are exact in every format', async () => {
  const print = async (format: string) => (await lab.run(['query', PAIR, '--format', format])).stdout
  expect(await print('table')).toMatch(/deal_000001 +69999999999999\.01 /)
  const sum = {rows: [{amount: '10069999999999999.10'}]}
  expect(readJson(await lab.run(['query', 'select amount from mart.portfolio_summary', '--json']))).toEqual(
    sum,
  )
  expect((await print('csv')).split('\n').slice(0, 3)).toEqual([
    'deal_id,loan_amount,property_value,created_at',
    'deal_000001,69999999999999.01,,2026-01-05 15:00:01',
    'deal_000002,0.10,500000.00,2026-01-05 15:00:02',
  ])
  expect(JSON.parse(await print('json'))).toMatchObject({
    rows: [
      {loan_amount: '69999999999999.01', property_value: null, created_at: '2026-01-05 15:00:01'},
      {loan_amount: '0.10', property_value: '500000.00', created_at: '2026-01-05 15:00:02'},
    ],
  })
})

test('an infinite date and an interval are shown as the engine writes them', async () => {
  const ends = `select 'infinity'::date as a, '-infinity'::date as b, '9999-12-31'::date as c, ['infinity'::date] as d`
  const spans = `interval '14 months -3 days' as e, timestamp '2026-03-02 12:00' - timestamp '2026-03-01' as f, null::interval as g`
  const {stdout} = await lab.run(['query', `${ends}, ${spans}`, '--format', 'csv'])
  const [, row] = stdout.split('\n')
  expect(row).toBe('infinity,-infinity,9999-12-31,"[""infinity""]",1 year 2 months -3 days,1 day 12:00:00,')
})

test('texts are quoted in CSV and escaped in a table, which may have more rows than a call takes arguments', async () => {
  const print = async (...args: string[]) => (await lab.run(['query', ...args])).stdout
  const csv = async (sql: string) => await print(sql, '--format', 'csv')
  const address = `select property_address as a from core.deal where deal_id = 'deal_000002'`
  expect(await csv(address)).toBe('a\n"2 ""Old"" Mill Rd,\nAustin, TX 78701"\n')
  expect(await csv('select unnest([null, 1]) as a')).toBe('a\n""\n1\n')
  expect(await csv("select '' as a, null as b")).toBe('a,b\n"",\n')
  const controls = `select 'a' || chr(27) || '[31m' || chr(10) || chr(155) || chr(9) || 'b' as a, 1 as b`
  expect((await print(controls)).split('\n').slice(2)).toEqual(['a\\u001b[31m\\n\\u009b\\tb  1', ''])
  const {stderr} = await lab.run(['query', "select sum('a'::varchar)"])
  expect(stderr).toContain('\n\tsum(DECIMAL) -> DECIMAL\n')
  expect((await print('select 1 as a from range(150000)')).split('\n')).toHaveLength(150_003)
})

const refused: [sql: string, words: RegExp][] = [
  ['insert into core.deal select * from core.deal', /read-only/],
  ['create table core.mine as select 1', /read-only/],
  [`select * from read_text('/etc/hostname')`, /disabled/],
  [`copy core.deal to 'stolen.csv'`, /disabled/],
  [`attach 'other.duckdb'`, /disabled/],
  ['set enable_external_access = true', /locked/],
  [`set memory_limit = '1GB'`, /locked/],
  ['select 1; select 2', /2 statements: expected one/],
  ['', /0 statements: expected one/],
  ['select 1 from core.deal where status = underwriting', /in single quotes: 'underwriting'\.\n/],
  ['select 1 from core.deal where status in (funded, draft)', /in single quotes: 'funded'\.\n/],
  ['select 1 from core.deal where loan_amuont > 1', /\^\nThe release/],
  ['select loan_amonut from core.deal', /loan_amount/],
]

test('a query that changes, leaves or misreads the release is refused', async () => {
  const kept = /([.!]\s|\n *\^\n)The release is read-only; nothing was changed\. Correct the statement/
  for (const [sql, words] of refused)
    await expectRefused(lab.run(['query', sql, '--json']), 'QUERY_FAILED', [words, kept])
  expect(await readStanding(lab.folder)).toEqual(before)
  expect(readdirSync(join(lab.folder.root, '..'))).toEqual(['data', 'tape.key'])
})

test('a query that needs too much memory ends with its exit code and says what to do', async () => {
  const sql = 'select list(range) from range(20000000)'
  const query = lab.run(['query', sql, '--json'], {LOANTAPE_MEMORY_MB: '64'})
  const words = /needs more memory .*nothing was changed\. Filter or aggregate more/
  await expectRefused(query, 'QUERY_MEMORY', words)
})

test('the statements that a refused query suggests fit a terminal', async () => {
  const wrong = lab.run(['query', 'select 1 from core.deals', '--json'])
  const {message} = await expectRefused(wrong, 'QUERY_FAILED')
  const statements = [...message.matchAll(/`([^`]+)`/g)].map(([, sql = '']) => sql)
  expect(statements).toHaveLength(2)
  for (const sql of statements) {
    const {code, stdout} = await lab.run(['query', sql])
    expect(code).toBe(0)
    expect(Math.max(...stdout.split('\n').map(({length}) => length))).toBeLessThanOrEqual(80)
  }
})

const [CTRL_C, CTRL_D, TAB, UP] = ['\x03', '\x04', '\t', '\x1b[A']

const LONG_QUERY = 'select count(*) from range(1e12::bigint) as a, range(1e12::bigint) as b;'

/** The shell on a terminal of 120 columns, provided by `script`. */
function startShell(): Started {
  const shell = `stty cols 120 rows 40; echo pid $$; exec '${process.execPath}' '${MAIN}' sql`
  const args =
    process.platform === 'linux' ? ['-qefc', shell, '/dev/null'] : ['-q', '/dev/null', 'sh', '-c', shell]
  return startProcess(['script', ...args], {...lab.env, TERM: 'xterm'})
}

/** Types, and waits until the new output contains a text. */
async function type({process, printed}: Started, text: string, shown: string): Promise<void> {
  const before = printed().stdout.length
  process.stdin?.write(text)
  await until(() => stripVTControlCharacters(printed().stdout.slice(before)).includes(shown))
}

test('statements span several lines and are completed, corrected, cleared and remembered', async () => {
  {
    using shell = startShell()
    await type(shell, '', 'as of 2026-02-02')
    await type(shell, 'select count(*) as deals\r', '->')
    await type(shell, `from core.deal_hi${TAB}`, 'core.deal_history')
    await type(shell, ';\r', '\r\ndeals\r\n─────\r\n    3')
    await type(shell, 'selec 1;\r', 'syntax error at or near "selec"')
    await type(shell, `select 'a;\r`, '->')
    await type(shell, `b' as two_lines; -- done\r`, 'a;\\nb')
    await type(shell, `select d.loan_am${TAB}`, 'd.loan_amount')
    await type(shell, CTRL_C, 'sql>')
    await type(shell, '.tables\r', 'mart.portfolio_summary')
    await type(shell, '.nothing\r', 'expected .tables, .help or .quit')
    shell.process.stdin?.write(`${LONG_QUERY}\r`)
    await until(() => {
      shell.process.stdin?.write(CTRL_C)
      return shell.printed().stdout.includes('Interrupted')
    })
    await type(shell, CTRL_D, '\n')
    expect((await shell.ended).code).toBe(0)
  }
  {
    using shell = startShell()
    await type(shell, '', 'sql>')
    await type(shell, `${LONG_QUERY}\r`, LONG_QUERY)
    process.kill(Number(/pid (\d+)/.exec(shell.printed().stdout)?.[1]), 'SIGTERM')
    expect((await shell.ended).code, 'asked to stop').toBe(0)
  }
  using shell = startShell()
  await type(shell, '', 'sql>')
  await type(shell, UP, 'select count(*) from range')
  await type(shell, CTRL_C, 'sql>')
  await type(shell, '.quit\r', '\n')
  expect((await shell.ended).code).toBe(0)
})

test('a query of a release whose file was changed says how to make that again', async () => {
  const {database} = requireRelease(lab.folder)
  const whole = readFileSync(database)
  await changeBlocks(database)
  const asked = lab.run(['query', 'from core.deal', '--json'])
  await expectRefused(asked, 'RELEASE_DAMAGED', 'Remove the release folder', 1)
  writeFileSync(database, whole)
})
