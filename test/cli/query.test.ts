import {mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {runCommand} from '../support/command.ts'
import {aDeal, createLab, type Lab} from '../support/lab.ts'
import {readFailure, readStanding, type Standing} from './outcome.ts'

const PAIR = `select deal_id, loan_amount, property_value, created_at from core.deal
  where deal_id <= 'deal_000002' order by deal_id`

/** Reverses a terminal's line, colors it, and moves its cursor. */
const TURNING = '3 \u202etS \\niaM\u202c \u009b31m\u007f'

let lab: Lab
let before: Standing
let walkId: string

beforeAll(async () => {
  lab = await createLab({tables: 'all'})
  lab.service.store.insert([
    aDeal(1, {loanAmountCents: 6_999_999_999_999_901n, propertyValueCents: null}),
    aDeal(2, {loanAmountCents: 10n, propertyAddress: '2 "Old" Mill Rd,\nAustin, TX 78701'}),
    aDeal(3, {propertyAddress: TURNING}),
  ])
  const {walk} = await lab.sync('2026-02-02T23:30:00-05:00')
  walkId = walk.walk_id
  before = await readStanding(lab.folder)
})

afterAll(() => lab[Symbol.asyncDispose]())

test.concurrent.each([
  ['tape', 'cat'],
  ['query', '--format', 'csv', 'select property_address from core.deal'],
  ['query', '--format', 'json', 'select property_address from core.deal'],
  ['trace', 'deal_000003'],
  ['trace', 'deal_000003', '--json'],
])('no text of the source commands a terminal: %s %s', async (...args) => {
  const words = args[1] === 'cat' ? [...args, walkId] : args
  const [piped, shown] = await Promise.all(
    [undefined, 80].map(async (width) => (await runCommand(words, lab.env, {width})).stdout),
  )
  expect(shown).not.toMatch(/[[\p{Cc}\p{Bidi_Control}]--\n]/v)
  expect(shown).toContain(String.raw`\u009b31m\u007f`)
  if (args[1] === 'cat') {
    const readBodies = (text = '') =>
      text
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    expect(readBodies(shown)).toEqual(readBodies(piped))
  }
  if (args[0] !== 'trace') expect(piped).toContain('\u202e')
})

test.concurrent('rows too wide for the terminal are printed one record below the other', async () => {
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
})

test.concurrent('a statement can also come from a file or from standard input', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'loantape-query-'))
  const file = join(dir, 'statement.sql')
  writeFileSync(file, `-- two deals\n${PAIR};\n`)
  const expected = (await lab.run(['query', PAIR])).stdout
  expect((await lab.run(['query', '--file', file])).stdout).toBe(expected)
  const piped = lab.start(['query', '-'])
  piped.process.stdin?.end(readFileSync(file))
  expect((await piped.ended).stdout).toBe(expected)
  for (const args of [[], ['--file', file, PAIR], ['--file', `${file}.not`]]) {
    expect(readFailure(await lab.run(['query', ...args, '--json']))).toMatchObject({
      code: 'QUERY_FAILED',
      exitCode: 2,
    })
  }
  rmSync(dir, {recursive: true})
})

test.concurrent('decimals beyond a double are exact in every format', async () => {
  const print = async (format: string) => (await lab.run(['query', PAIR, '--format', format])).stdout
  expect(await print('table')).toMatch(/deal_000001 +69999999999999\.01 /)
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

test.concurrent('quotes, commas and line ends in CSV follow RFC 4180', async () => {
  const {stdout} = await lab.run([
    'query',
    `select property_address as a from core.deal where deal_id = 'deal_000002'`,
    '--format',
    'csv',
  ])
  expect(stdout).toBe('a\n"2 ""Old"" Mill Rd,\nAustin, TX 78701"\n')
})

test.concurrent('a table shows control characters as escapes, so a text cannot break a line or steer a terminal', async () => {
  const {stdout} = await lab.run([
    'query',
    `select 'a' || chr(27) || '[31m' || chr(10) || chr(155) || 'b' as a, 1 as b`,
  ])
  expect(stdout.split('\n').slice(2)).toEqual(['a\\u001b[31m\\n\\u009bb  1', ''])
})

test.concurrent('a table may have more rows than a call takes arguments', async () => {
  const {stdout} = await lab.run(['query', 'select 1 as a from range(150000)'])
  expect(stdout.split('\n')).toHaveLength(150_003)
})

const refused: [behaviour: string, sql: string, words: RegExp][] = [
  ['inserts', 'insert into core.deal select * from core.deal', /read-only/],
  ['creates a table', 'create table core.mine as select 1', /read-only/],
  ['reads a file', `select * from read_text('/etc/hostname')`, /disabled/],
  ['writes a file', `copy core.deal to 'stolen.csv'`, /disabled/],
  ['attaches a database', `attach 'other.duckdb'`, /disabled/],
  ['unlocks the settings', 'set enable_external_access = true', /locked/],
  ['has two statements', 'select 1; select 2', /2 statements: expected one/],
  ['is empty', '', /0 statements: expected one/],
  [
    'compares with a bare word',
    'select 1 from core.deal where status = underwriting',
    /Put a text in single quotes: 'underwriting'\.\n/,
  ],
  [
    'lists bare words',
    'select 1 from core.deal where status in (funded, draft)',
    /Put a text in single quotes: 'funded'\.\n/,
  ],
  ['has a wrong column in a comparison', 'select 1 from core.deal where loan_amuont > 1', /\^\nThe release/],
  ['has a wrong column', 'select loan_amonut from core.deal', /loan_amount/],
]

for (const [behaviour, sql, words] of refused) {
  test.concurrent(`a query that ${behaviour} is refused`, async () => {
    const failure = readFailure(await lab.run(['query', sql, '--json']))
    expect(failure).toMatchObject({code: 'QUERY_FAILED', exitCode: 2})
    expect(failure.message).toMatch(words)
    expect(failure.message).toMatch(
      /([.!]\s|\n *\^\n)The release is read-only; nothing was changed\. Correct the statement/,
    )
    expect(await readStanding(lab.folder)).toEqual(before)
    expect(readdirSync(join(lab.folder.root, '..'))).toEqual(['data', 'tape.key'])
  })
}

test.concurrent('the commands a refused query suggests fit a terminal', async () => {
  const {message} = readFailure(await lab.run(['query', 'select 1 from core.deals', '--json']))
  const commands = [...message.matchAll(/`loantape query "([^"]+)"`/g)].map(([, sql = '']) => sql)
  expect(commands).toHaveLength(2)
  for (const sql of commands) {
    const {code, stdout} = await lab.run(['query', sql])
    const lines = stdout.trimEnd().split('\n')
    expect({code, isWide: lines.some((line) => line.length > 80)}).toEqual({code: 0, isWide: false})
    expect(lines.length).toBeGreaterThan(10)
  }
})
