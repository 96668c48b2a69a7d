import {mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {dirname, join} from 'node:path'
import {afterAll, expect, test} from 'vitest'
import {runCommand} from '../support/command.ts'
import type {Ended} from '../support/lab.ts'
import {readFailure, readJson} from './outcome.ts'

const root = mkdtempSync(join(tmpdir(), 'loantape-own-tests-'))
afterAll(() => rmSync(root, {recursive: true}))

const guide = readFileSync(join(import.meta.dirname, '../../docs/analyst-guide.md'), 'utf8')
const [, MODEL = ''] = /^```sql\n(-- Funded deals that deserve.*?)^```/ms.exec(guide) ?? []
const [, SHOWN = ''] = /^```yaml\n(.*?)^```/ms.exec(guide) ?? []
const FILE = 'tests/risk.watch_list.yaml'

let folders = 0

/** Runs `loantape test` on the guide's model and these files. */
async function runTests(
  files: Record<string, string | Buffer>,
  args: readonly string[] = [],
  width?: number,
): Promise<Ended & {folder: string}> {
  const folder = join(root, String(folders++))
  for (const [name, text] of Object.entries({'risk/watch_list.sql': MODEL, ...files})) {
    mkdirSync(dirname(join(folder, name)), {recursive: true})
    writeFileSync(join(folder, name), text)
  }
  const env = {LOANTAPE_SQL_DIR: folder, LOANTAPE_DATA_DIR: join(root, 'data'), LOANTAPE_LOG_LEVEL: 'error'}
  return {...(await runCommand(['test', ...args], env, {width})), folder}
}

/** A case of the watch list after one walk. */
const aCase = (deals: string, rows: string, name = 'a case') =>
  `${name}:\n  walks:\n    2026-03-02: {${deals}}\n  rows: [${rows}]\n`

test("the guide's tests pass", async () => {
  const {code, stdout} = await runTests({[FILE]: SHOWN})
  expect(stdout).toMatch(/^1 case of 1 table: 1 passed, in \d+\.\d s\.\n$/)
  expect(code).toBe(0)
})

test('a failed case is shown with file, line and what differs, and the exit code is 3', async () => {
  const deals = 'a: {status: funded, loan_amount: 20000000}, b: {status: funded, loan_amount: 30000000}'
  const rows = "{deal_id: a, loan_amount: 1, reason: ''}, {deal_id: c, loan_amount: 5, reason: null}"
  const {code, stdout, folder} = await runTests({[FILE]: SHOWN + aCase(deals, rows)})
  const line = SHOWN.split('\n').length
  expect(stdout.replace(/in \d+\.\d s/, 'in 1.0 s')).toBe(`✗ risk.watch_list: a case
  ${folder}/tests/risk.watch_list.yaml:${line}

deal_id  difference
───────  ──────────────────────────────────────────
a        loan_amount: expected 1, found 20000000.00
a        reason: expected '', found large

row         deal_id  loan_amount  reason
──────────  ───────  ───────────  ──────
missing     c        5            null
unexpected  b        30000000.00  large

2 cases of 1 table: 1 passed, 1 failed, in 1.0 s.
`)
  expect(code).toBe(3)
})

test('a table that is wider than the terminal is shown row below row, and a long one is cut', async () => {
  const rows = Array.from({length: 25}, (_, index) => `{deal_id: deal number ${index}, reason: large}`)
  const {stdout} = await runTests({[FILE]: aCase('a: {}', rows.join(', '))}, [], 25)
  expect(stdout).toContain('row      missing\ndeal_id  deal number 0\nreason   large\n\nrow ')
  expect(stdout).toContain('5 more; --json has all.')
  expect(stdout).not.toContain('deal number 20')
})

test('--json has every case with what differs', async () => {
  const files = {
    [FILE]: SHOWN + aCase('a: {status: funded, loan_amount: 20000000}', '{deal_id: a, loan_amount: 1}'),
  }
  const ended = await runTests(files, ['risk.watch_list', '--json'])
  expect(ended.code).toBe(3)
  expect(readJson(ended)).toMatchObject({
    passed: 1,
    failed: 1,
    cases: [
      {table: 'risk.watch_list', line: 1, passed: true, problem: null, different: []},
      {
        name: 'a case',
        passed: false,
        missing: [],
        unexpected: [],
        different: [{row: {deal_id: 'a'}, columns: {loan_amount: {expected: '1', found: '20000000.00'}}}],
      },
    ],
  })
})

test('seeds of the folder and of a case reach the model, and built-in models have tests, too', async () => {
  const mine = readFileSync(join(import.meta.dirname, '../../sql/seeds/status.csv'), 'utf8')
  const {stdout, code} = await runTests({
    'seeds/status.csv': `${mine}signed,funded,95,\n`,
    [FILE]:
      aCase('a: {status: Signed, loan_amount: 20000000}', '{deal_id: a}') +
      `its own:\n  seeds:\n    status: |\n${mine.replace(/^/gm, '      ')}\n  walks: {2026-03-02: {a: {status: signed, loan_amount: 20000000}}}\n  rows: []\n`,
    'tests/mart.portfolio_summary.yaml': aCase('a: {status: signed}', '{funded_deals: 1}'),
  })
  expect(stdout).toMatch(/^3 cases of 2 tables: 3 passed/)
  expect(code).toBe(0)
})

test('a case whose table cannot be built or read fails alone', async () => {
  const {stdout, code} = await runTests({
    [FILE]:
      SHOWN +
      aCase('a: {}', '').replace('  rows', '  where: lon_amount > 1\n  rows') +
      aCase('a: {}', '', 'another').replace(
        '  rows',
        '  seeds: {funded_on: "deal_id,funded_on\\na,soon\\n"}\n  rows',
      ),
  })
  expect(stdout).toMatch(/column "lon_amount" not found/)
  expect(stdout).toMatch(/'soon' of seed column 'funded_on': expected date, in seeds\.funded_on:2:3\./)
  expect(stdout).toMatch(/3 cases of 1 table: 1 passed, 2 failed/)
  expect(code).toBe(3)
})

test.each<[what: string, text: string, words: RegExp]>([
  [
    'an unknown name',
    'a:\n  walk: {}\n  walks: {2026-03-02: {}}\n  rows: []\n',
    /'walk' of case 'a': .*nearest is 'walks', in .*:2:3/,
  ],
  [
    'a day that is none',
    'a:\n  walks: {2026-02-30: {}}\n  rows: []\n',
    /'2026-02-30' at walks of case 'a': expected a business day such as .*:2:11/,
  ],
  [
    'a date that is none',
    'a:\n  as_of: 2026-3-1\n  walks: {}\n  rows: []\n',
    /'2026-3-1' at as_of of case 'a': expected a date such as 2026-03-31, in .*:2:10/,
  ],
  [
    'a status that is missing',
    aCase('d1: {status: }', ''),
    /Nothing at walks › 2026-03-02 › d1 › status of case 'a case': .*null for none.*:3:31/,
  ],
  [
    'a status that is null',
    aCase('d1: {status: null}', ''),
    /'null' at walks › 2026-03-02 › d1 › status of case 'a case': expected a value.*:3:31/,
  ],
  [
    'a column of a deal that is none',
    aCase('d1: {loan_amout: 1}', ''),
    /'loan_amout' at walks › 2026-03-02 › d1 of case 'a case': .*nearest is 'loan_amount', in .*:3:23/,
  ],
  [
    'an amount that is none',
    aCase('d1: {loan_amount: "1,000"}', ''),
    /'1,000' at walks › 2026-03-02 › d1 › loan_amount.*: expected a number such as 100\.00/,
  ],
  ['a fate that is none', aCase('d1: vanishd', ''), /'vanishd' at .* › d1 .*nearest is 'vanished'/],
  [
    'a column the model does not have',
    aCase('d1: {}', '{deal: d1}'),
    /'deal' at rows › 1 of case 'a case': expected one of deal_id, loan_amount, reason, in .*:4:11/,
  ],
  [
    'rows of different columns',
    aCase('d1: {}', '{deal_id: x}, {reason: x}'),
    /at rows › 2 of .*: expected the columns of the first row, deal_id/,
  ],
  [
    'no rows',
    'a:\n  walks: {2026-03-02: {}}\n',
    /Nothing at rows of case 'a': expected the rows .* \[\] where it has none, in .*:2:3/,
  ],
  [
    'a seed that is none',
    aCase('d1: {}', '').replace('  rows', '  seeds: {statuss: ""}\n  rows'),
    /'statuss' at seeds .*nearest is 'status'/,
  ],
  [
    'a seed that is broken',
    aCase('d1: {}', '').replace('  rows', '  seeds: {funded_on: "deal_id,funded_on\\na"}\n  rows'),
    /at seeds › funded_on of .*no value for seed column 'funded_on'.*in seeds\.funded_on:2:1, in .*:4:22/,
  ],
  ['two cases of one name', aCase('', '') + aCase('', ''), /'a case' stands twice: expected once, in .*:5:1/],
  ['a tab', 'a:\n\twalks: {}\n', /Tab at the beginning of a line: expected spaces, in .*:2:1/],
  ['an alias of nothing', 'a: *b\n', /'\*b': expected an anchor '&b' above, in .*:1:4/],
  ['nothing in it', '# later\n', /expected the names of cases, below each its `walks` and `rows`, in .*:1:1/],
  ['a list', '- walks: {}\n', /expected the names of cases/],
])('a file with %s is refused before anything runs', async (_what, text, words) => {
  const failure = readFailure(await runTests({[FILE]: text}, ['--json']))
  expect(failure).toMatchObject({code: 'TEST_FILE', exitCode: 3})
  expect(failure.message).toMatch(words)
  expect(failure.message).toMatch(/Nothing was tested/)
})

test('all that is wrong in all files is named at once', async () => {
  const {message} = readFailure(
    await runTests(
      {
        [FILE]: `${aCase('d1: {statuss: x}, d2: gone', '')}b: {rows: []}\n`,
        'tests/mart.portfolio_sumary.yaml': SHOWN,
        'tests/core.deal.yaml': Buffer.concat([Buffer.from('a'), Buffer.from([0xe9])]),
      },
      ['--json'],
    ),
  )
  expect(message).toMatch(/^Tests have 5 problems:\n/)
  expect(message).toMatch(
    /'mart\.portfolio_sumary' of .* is no model: .*nearest is 'mart\.portfolio_summary'/,
  )
  expect(message).toMatch(/Byte 0xE9 in .*core\.deal\.yaml:1:2: expected UTF-8/)
})

test.each([
  ['tests/risk.watch_list.yml'],
  ['tests/risk/watch_list.yaml'],
  ['risk/schema.yml'],
  ['risk.watch_list.yaml'],
  ['tests/no_odd_ltv.sql'],
])('%s is refused instead of left out', async (name) => {
  const failure = readFailure(await runTests({[name]: SHOWN, 'compose.yaml': 'services: {}\n'}, ['--json']))
  expect(failure.code).toBe('TEST_FILE')
  expect(failure.message).toContain(`File '${name}' in `)
  expect(failure.message).toContain(': expected tests/<schema>.<table>.yaml')
})

test('where there are no tests, it says what one looks like and where it goes', async () => {
  const {stdout, code, folder} = await runTests({})
  expect(stdout).toContain(`No tests in ${folder}/tests.`)
  expect(code).toBe(0)
  const [, example = ''] = /:\n\n(.*?)\n\n/s.exec(stdout) ?? []
  expect((await runTests({[FILE]: example})).code).toBe(0)
})

test('a table without tests, and no folder, are wrong usage', async () => {
  const unknown = readFailure(await runTests({[FILE]: SHOWN}, ['risk.watchlist', '--json']))
  expect(unknown).toMatchObject({code: 'UNKNOWN_NAME', exitCode: 2})
  expect(unknown.message).toMatch(/'risk\.watchlist' has no tests\/.*nearest is 'risk\.watch_list'/)
  const unset = readFailure(await runCommand(['test', '--json'], {LOANTAPE_LOG_LEVEL: 'error'}))
  expect(unset).toMatchObject({code: 'SQL_DIR_MISSING', exitCode: 2})
  expect(unset.message).toMatch(/LOANTAPE_SQL_DIR is not set/)
})

test('a model that does not compile is named before any test runs', async () => {
  const files = {'risk/watch_list.sql': MODEL.replace('status_class', 'statusclass'), [FILE]: SHOWN}
  const failure = readFailure(await runTests(files, ['--json']))
  expect(failure).toMatchObject({code: 'MODEL_BUILD', exitCode: 3})
})
