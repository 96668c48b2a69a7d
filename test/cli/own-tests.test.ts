import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {writeSqlFolder} from '../build/folder.ts'
import {runCommand} from '../support/command.ts'
import type {Ended} from '../support/lab.ts'
import {expectRefused, readJson} from './outcome.ts'

const guide = readFileSync(join(import.meta.dirname, '../../docs/analyst-guide.md'), 'utf8')
const [, MODEL = ''] = /^```sql\n(-- Funded deals that deserve.*?)^```/ms.exec(guide) ?? []
const [, SHOWN = ''] = /^```yaml\n(.*?)^```/ms.exec(guide) ?? []
const FILE = 'tests/risk.watch_list.yaml'

/** Runs `loantape test` on the guide's model and these files. */
async function runTests(
  files: Record<string, string | Buffer>,
  args: readonly string[] = [],
): Promise<Ended & {folder: string}> {
  using own = writeSqlFolder({'risk/watch_list.sql': MODEL, ...files})
  const folder = own.path
  const env = {LOANTAPE_SQL_DIR: folder, LOANTAPE_DATA_DIR: join(folder, 'data'), LOANTAPE_LOG_LEVEL: 'error'}
  return {...(await runCommand(['test', ...args], env)), folder}
}

/** Renders a case of the watch list after one walk. */
const aCase = (deals: string, rows: string, name = 'a case') =>
  `${name}:\n  walks:\n    2026-03-02: {${deals}}\n  rows: [${rows}]\n`

test('a failed case shows file, line and difference, and the exit code is 3', async () => {
  const deals = 'a: {status: funded, loan_amount: 20000000}, b: {status: funded, loan_amount: 30000000}'
  const rows = "{deal_id: a, loan_amount: 1, reason: ''}, {deal_id: c, loan_amount: 5, reason: null}"
  const {code, stdout, folder} = await runTests({[FILE]: SHOWN + aCase(deals, rows)})
  const line = SHOWN.split('\n').length
  expect(stdout.replace(/in \d+\.\d s/, 'in 1.0 s')).toBe(`✗ risk.watch_list: a case
  ${folder}/tests/risk.watch_list.yaml:${line}

row         deal_id  loan_amount  reason
──────────  ───────  ───────────  ──────
missing     a        1.00         ''
unexpected  a        20000000.00  large
unexpected  b        30000000.00  large
missing     c        5.00         null

2 cases of 1 table: 1 passed, 1 failed, in 1.0 s.
`)
  expect(code).toBe(3)
  const json = readJson(await runTests({[FILE]: SHOWN + aCase(deals, rows)}, ['risk.watch_list', '--json']))
  expect(json).toMatchObject({
    failed: 1,
    cases: [
      {table: 'risk.watch_list', line: 1, passed: true, problem: null},
      {name: 'a case', passed: false, missing: [{deal_id: 'a', loan_amount: '1.00'}, {deal_id: 'c'}]},
    ],
  })
})

test('seeds of the folder and of a case reach the model, and built-in models can be tested, too', async () => {
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

const RATED = `-- Rates.
-- grain: deal_id
-- deal_id: the id
-- note_rate: as the record says
-- versions: of the deal
select deal_id, note_rate, (select count(*) from core.deal_history) as versions from core.deal_extra
`

test('a case gives a deal mapped fields like its columns, and a model that needs fields.json is told so', async () => {
  const files = {
    'risk/rated.sql': RATED,
    'data/fields.json':
      '{"note_rate": {"path": "terms.rate", "type": "decimal(9,6)"}, "kind": {"type": "text"}}',
    'tests/risk.rated.yaml': `a rate that changes alone makes no version:
  walks: {2026-03-02: {a: {status: funded, note_rate: 0.1}, b: {}}, 2026-03-03: {a: {note_rate: 0.095}}}
  rows: [{deal_id: a, note_rate: 0.095, versions: 2}, {deal_id: b, note_rate: null, versions: 2}]
it can be taken away:
  walks: {2026-03-02: {a: {note_rate: 0.1}}, 2026-03-03: {a: {note_rate: null, status: funded}}}
  rows: [{deal_id: a, note_rate: null, versions: 2}]
it counts up to the last day, even if no walk stored it:
  walks: {2026-03-02: {a: {note_rate: 0.1}}, 2026-03-03: {certificate: none, a: {note_rate: 0.2}}}
  rows: [{deal_id: a, note_rate: 0.2, versions: 1}]
a field that is called like a column does not take its place:
  walks: {2026-03-02: {a: {}, b: {}}, 2026-03-03: {a: vanished}}
  where: deal_id = 'b'
  rows: [{deal_id: b, versions: 3}]
`,
  }
  expect(await runTests(files)).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^4 cases of 1 table: 4 passed/),
  })
  const {'data/fields.json': _, ...without} = files
  const words = /Unknown table 'core\.deal_extra': .*once fields\.json of the data folder maps a field/
  await expectRefused(runTests(without, ['--json']), 'MODEL_FILE', words, 3)
})

test("values are compared in the column's type without rounding, and duplicate rows count", async () => {
  const deals = 'a: {status: funded, loan_amount: 20000000}'
  const {stdout} = await runTests({
    [FILE]:
      aCase(deals, '{loan_amount: 20000000}', 'another spelling of a number') +
      aCase(deals, '{loan_amount: 20000000.004}', 'a number that is a little off') +
      aCase(deals, '{reason: large}, {reason: large}', 'a row too many') +
      aCase(deals, '', 'a row that is not expected') +
      aCase(
        `${deals}, b: {status: funded, loan_amount: 20000000}`,
        '{deal_id: a, reason: large}, {reason: large, deal_id: b}',
        'columns in another order',
      ) +
      aCase(deals, "{deal_id: 'a '}", 'a text with a blank'),
  })
  const [, ...failed] = stdout.match(/(?<=✗ risk.watch_list: ).*|\d passed, \d failed/g)?.toReversed() ?? []
  const wrong = ['a row that is not expected', 'a row too many', 'a number that is a little off']
  expect(failed).toEqual(['a text with a blank', ...wrong])
  expect(stdout).toMatch(/unexpected +20000000\.000\nmissing +20000000\.004$/m)
  expect(stdout).toMatch(/^missing +'a '$/m)
})

test('if a table declares an order, rows in another order differ', async () => {
  const model = MODEL.replace('-- grain: deal_id\n', '-- grain: deal_id\n-- order: loan_amount\n')
  const deals = 'a: {status: funded, loan_amount: 30000000}, b: {status: funded, loan_amount: 20000000}'
  const cases =
    aCase(deals, '{deal_id: b}, {deal_id: a}') + aCase(deals, '{deal_id: a}, {deal_id: b}', 'wrong')
  const {stdout} = await runTests({'risk/watch_list.sql': model, [FILE]: cases})
  expect(stdout).toMatch(/^✗ risk.watch_list: wrong\n/)
  expect(stdout).toMatch(/^missing +1 +a$/m)
  expect(stdout).toContain('1 passed, 1 failed')
})

test('a case whose table cannot be built or read fails alone', async () => {
  const withSeed = (name: string, seed: string) =>
    aCase('a: {}', '', name).replace('  rows', `  seeds: {${seed}}\n  rows`)
  const {stdout, code} = await runTests({
    [FILE]:
      SHOWN +
      aCase('a: {}', '').replace('  rows', '  where: lon_amount > 1\n  rows') +
      withSeed('soon', 'funded_on: "deal_id,funded_on\\na,soon\\n"') +
      withSeed('no seed', 'statuss: ""') +
      aCase('d1: {loan_amout: 1}', '', 'no column') +
      aCase('d1: {loan_amount: "1,000"}', '', 'no amount') +
      aCase('d1: {}', '{deal: d1}', 'no such row') +
      'no day:\n  walks: {}\n  rows: []\n',
  })
  expect(stdout).toMatch(/column "lon_amount" not found/)
  expect(stdout).toMatch(
    /'soon' of seed column 'funded_on': expected date such as 2026-02-26, in seeds\.funded_on:2\./,
  )
  expect(stdout).toMatch(/No seed 'statuss': .*nearest is 'status'/)
  expect(stdout).toMatch(/does not have a column with name "loan_amout"/)
  expect(stdout).toMatch(/Could not convert string "1,000" to DECIMAL/)
  expect(stdout).toMatch(/column "deal" not found/)
  expect(stdout).toMatch(/no day\n.*\n\nNo walk says which day it is: expected one, or `as_of`\./)
  expect(stdout).toMatch(/8 cases of 1 table: 1 passed, 7 failed/)
  expect(code).toBe(3)
})

test('a file that is wrong is refused before anything runs', async () => {
  const wrong: [text: string, words: RegExp][] = [
    ['a:\n  walk: {}\n  walks: {}\n  rows: []\n', /: a: Unrecognized key: "walk"/],
    ['a:\n  walks: {2026-02-30: {}}\n  rows: []\n', /a\.walks\.2026-02-30: expected walks by/],
    [aCase('d1: vanishd', ''), /\.d1: expected columns with values, or missing, vanished/],
    [
      aCase('d1: {}', '{reason: x, deal_id: x}, {deal_id: y, reason: y}, {deal_id: z, raeson: z}'),
      /: [^\n]*\.rows\.2: expected the columns of the first row, reason, deal_id\n/,
    ],
    [aCase('d1: {}', '{}'), /\.rows\.0: expected columns with values\n/],
    ['a:\n  walks: {}\n  as_of: 26-03-31\n  rows: []\n', /a\.as_of: expected a business day such as/],
    ['a:\n  walks: {}\n', /a\.rows: expected the rows .* \[\] if it has none/],
    [aCase('', '') + aCase('', ''), /Map keys must be unique at line 5, column 1/],
    ['a:\n\twalks: {}\n', /Tabs .* at line 2, column 1/],
    ['a: *b\n', /Unresolved alias .*b/],
    ['# later\n', /expected the names of cases, below each its `walks` and `rows`/],
    ['- walks: {}\n', /expected the names of cases/],
  ]
  for (const [text, words] of wrong) {
    const place = /risk\.watch_list\.yaml: .*Nothing was tested/s
    await expectRefused(runTests({[FILE]: text}, ['--json']), 'TEST_FILE', [words, place], 3)
  }
})

test('all faults of all files are named at once', async () => {
  const wrong = {
    [FILE]: `${aCase('d2: gone', '')}b: {rows: []}\n`,
    'tests/mart.portfolio_sumary.yaml': SHOWN,
    'tests/core.deal.yaml': Buffer.concat([Buffer.from('a\uFFFD'), Buffer.from([0xe9])]),
  }
  const words = [
    /case\.walks\..*d2: .*; b\.walks: expected walks/,
    /no model 'mart\.portfolio_sumary', .*nearest is 'mart\.portfolio_summary'/,
    /core\.deal\.yaml': byte 0xE9 at 1:3: expected UTF-8/,
  ]
  const {message} = await expectRefused(runTests(wrong, ['--json']), 'TEST_FILE', words, 3)
  expect(message.match(/^ {2}- /gm)).toHaveLength(3)
})

test('a test in another place, or with another ending, is refused, not ignored', async () => {
  for (const name of ['tests/risk.watch_list.yml', 'tests/risk/watch_list.yaml', 'tests/no_odd_ltv.sql']) {
    const tested = runTests({[name]: SHOWN, 'compose.yaml': 'services: {}\n'}, ['--json'])
    const words = [`File '${name}' in `, ': expected tests/<schema>.<table>.yaml']
    await expectRefused(tested, 'TEST_FILE', words, 3)
  }
})

test("the guide's tests pass, whatever editors leave beside them; without tests, it says where and leads to an example", async () => {
  const left = {
    'tests/.risk.watch_list.yaml.swp': 'b0VIM',
    'tests/._risk.watch_list.yaml': '\0',
    'tests/.DS_Store': '',
  }
  const passed = await runTests({[FILE]: SHOWN, ...left})
  expect(passed.stdout).toMatch(/^1 case of 1 table: 1 passed, in \d+\.\d s\.\n$/)
  expect(passed.code).toBe(0)
  const {stdout, code, folder} = await runTests({})
  expect(stdout).toContain(`No tests in ${folder}/tests. \`loantape init\` lays out an example`)
  expect(code).toBe(0)
})

test('a table without tests, a missing folder, and a model that does not compile are named', async () => {
  const unknown = runTests({[FILE]: SHOWN}, ['risk.watchlist', '--json'])
  const nearest = /'risk\.watchlist' has no tests\/.*nearest is 'risk\.watch_list'/
  await expectRefused(unknown, 'UNKNOWN_NAME', nearest)
  const unset = runCommand(['test', '--json'], {LOANTAPE_LOG_LEVEL: 'error'})
  await expectRefused(unset, 'SQL_DIR_MISSING', 'LOANTAPE_SQL_DIR is not set')
  const files = {'risk/watch_list.sql': MODEL.replace('status_class', 'statusclass'), [FILE]: SHOWN}
  await expectRefused(runTests(files, ['--json']), 'MODEL_BUILD', [], 3)
})
