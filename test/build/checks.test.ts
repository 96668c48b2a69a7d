import {afterAll, expect, test} from 'vitest'
import type {Counted} from '../../src/build/build-models.ts'
import {aRow, type History, type Row} from '../../src/build/case-rows.ts'
import {readChecks, requirePassed, runChecks} from '../../src/build/checks.ts'
import {type Database, openDatabase} from '../../src/store/database.ts'
import type {CheckOutcome, CheckResult} from '../../src/store/release.ts'
import {writeSqlFolder} from './folder.ts'
import {buildRelease, builtInPlan, planOf} from './history.ts'

const tag = (rule: string, ...args: string[]) => ({
  name: 'core.deal',
  grain: ['deal_id'],
  order: ['deal_id'],
  file: 'sql/core/deal.sql',
  checks: [{rule, args, line: 4}],
  isPerDeal: false,
  isPublished: false,
})

async function checkTag(tested: ReturnType<typeof tag>): Promise<CheckResult | undefined> {
  await using db = await openDatabase()
  await db.run(`
    create schema core;
    create table core.deal as
      select * from (values ('a', 1.00, 'draft', 'p'), ('b', 2.00, 'funded', 'q'), ('b', null, 'x', null)) t(deal_id, amount, status, parent);
    create table core.parent as select 'p' as id;
  `)
  const [result] = await runChecks(db, readChecks([tested], []))
  return result
}

const ONE_OF = 'status of core.deal is one of draft, funded.'
const PARENT = 'parent of core.deal is one of those in core.parent.id.'

test.each([
  ['No two rows of core.deal have the same deal_id.', tag('unique', 'deal_id'), ['b (copies=2)']],
  ['No two rows of core.deal have the same deal_id, status.', tag('unique', 'deal_id', 'status'), []],
  ['No row of core.deal lacks deal_id, amount.', tag('not_null', 'deal_id', 'amount'), ['b (amount=null)']],
  [ONE_OF, tag('accepted', 'status', 'draft', 'funded'), ['b (status=x)']],
  [ONE_OF, tag('accepted', 'status', "'draft'", "'funded'"), ['b (status=x)']],
  [PARENT, tag('references', 'parent', 'core.parent.id'), ['b (parent=q)']],
  [
    'amount of core.deal lies between 1 and 1.50.',
    tag('between', 'amount', '1', '1.50'),
    ['b (amount=2.00)'],
  ],
])('a header check finds the rows that break it: %s', async (description, tested, samples) => {
  expect(readChecks([tested], [])).toMatchObject([{description}])
  expect(await checkTag(tested)).toMatchObject({severity: 'error', failures: samples.length, samples})
})

test('a grain that two rows share is warned of, where no `unique` of the header stops the release', async () => {
  const published = {...tag('unique', 'deal_id'), isPublished: true}
  const next = 'Name what tells these rows apart in `-- grain:` of sql/core/deal.sql, or leave one of each.'
  const found = {severity: 'warn', samples: ['b (copies=2)'], next}
  expect(await checkTag({...published, checks: []})).toMatchObject(found)
  expect(readChecks([published], [])).toMatchObject([{severity: 'error'}])
})

test('a header check that the engine refuses is named, with its line', async () => {
  await using db = await openDatabase()
  await db.run(`create schema core; create table core.deal as select 'a' as deal_id`)
  await expect(runChecks(db, readChecks([tag('not_null', 'amount')], []))).rejects.toMatchObject({
    code: 'CHECK_SQL',
    message: expect.stringMatching(
      /^Check 'core\.deal not_null\(amount\)' in sql\/core\/deal\.sql:4 did not run/,
    ),
  })
})

test.each([
  ['nothing', '', 0],
  ['one row', `('a', 1)`, 0],
  ['rows in order', `('a', 1), ('a', 2), ('b', 1)`, 0],
  ['rows in no order', `('b', 1), ('a', 2), ('a', 1)`, 0],
  ['equal neighbors', `('a', 1), ('a', 1), ('b', 1)`, 1],
  ['equal rows far apart', `('b', 1), ('a', 1), ('b', 1)`, 1],
  ['all null, twice', `('a', 1), (null, null), (null, null)`, 1],
  ['half null, twice', `('a', null), ('a', null), ('b', 1)`, 1],
  ['a null, once', `(null, 1), ('a', null), ('b', 1)`, 0],
])('equal rows are found wherever they are: %s', async (_, rows, failures) => {
  await using db = await openDatabase()
  await db.run('create schema core; create table core.deal (deal_id varchar, version bigint)')
  if (rows !== '') await db.run(`insert into core.deal values ${rows}`)
  const tested = {...tag('unique', 'deal_id', 'version'), order: ['deal_id', 'version']}
  expect(await runChecks(db, readChecks([tested], []))).toMatchObject([{failures}])
})

test.each([
  tag('perfect', 'deal_id'),
  tag('constructor', 'deal_id'),
  tag('unique'),
  tag('accepted', 'status'),
  tag('references', 'parent', 'core.parent'),
  tag('between', 'amount', '1'),
])('refuses a header check that is unknown or whose arguments do not fit: %j', (tested) => {
  expect(() => readChecks([tested], [])).toThrow(/sql\/core\/deal\.sql:4\./)
})

test.each([
  ['no severity', '-- Demands.\nselect 1', /no severity.*odd\.sql:1/],
  ['no severity and no SELECT', '-- Demands.\n-- severity: odd', /no severity.*odd\.sql:2/],
  ['no description', '-- severity: error\nselect 1', /no description.*odd\.sql:1/],
])('refuses a check file with %s', (_, text, message) => {
  using folder = writeSqlFolder({'checks/odd.sql': text})
  expect(() => readChecks([], [folder.path])).toThrow(message)
})

test('what a check demands, and what to do about it, end at the next tag of its header, in any order, without blanks', () => {
  using folder = writeSqlFolder({
    'checks/odd.sql':
      '-- It\n-- demands. \n-- per: deal_id\t\n-- next: Do\n--   it: so.\n-- severity: warn \nselect 1\n',
    'checks/other.sql':
      '-- It\n-- demands.\n-- severity: warn\n-- next: Do\n--   it: so.\n-- per: deal_id\nselect 1\n',
  })
  const read = {description: 'It demands.', next: 'Do it: so.', severity: 'warn', isPerDeal: true}
  expect(readChecks([], [folder.path])).toMatchObject([read, read])
})

test('a check shows five rows, keeps a hundred ids and counts all; as an error it stops the build with them', async () => {
  using folder = writeSqlFolder({
    'checks/many.sql': `-- There is no row.\n-- severity: warn\nselect 'deal_' || range as deal_id from range(1000, 1150);\n`,
  })
  await using db = await openDatabase()
  const ids = Array.from({length: 100}, (_, index) => `deal_${1000 + index}`)
  const samples = ids.slice(0, 5)
  const found = await runChecks(db, readChecks([], [folder.path]))
  const rows = ids.map((deal_id) => ({deal_id}))
  const description = 'There is no row.'
  expect(found).toEqual([{name: 'many', severity: 'warn', description, failures: 150, samples, ids, rows}])
  expect(() => requirePassed(found)).not.toThrow()
  const severity = 'error' as const
  expect(() => requirePassed([...found, ...found.map((one) => ({...one, name: 'sums', severity}))])).toThrow(
    expect.objectContaining({
      code: 'CHECK_FAILED',
      exitCode: 3,
      details: {checks: [{name: 'sums', severity, failures: 150, ids}]},
      message:
        `A check failed: 'sums' found 150 wrong rows: ${samples.join(', ')}, …. ` +
        'Nothing was released; `current` is as it was. ' +
        'Look at these rows in the source or correct the model, then run `loantape build`.',
    }),
  )
})

test('a row is told with lists and groups of values as they are', async () => {
  const sql = `select 'deal_1' as deal_id, [1, 2] as versions, {'amount': 1.50, 'status': null} as loan`
  using folder = writeSqlFolder({'checks/odd.sql': `-- None.\n-- severity: warn\n${sql}\n`})
  await using db = await openDatabase()
  const samples = ['deal_1 (versions=[1,2], loan={"amount":"1.50","status":null})']
  expect(await runChecks(db, readChecks([], [folder.path]))).toMatchObject([{samples}])
})

const toFindings = (results: readonly CheckOutcome[]): Omit<CheckResult, 'ids'>[] =>
  results
    .filter(({failures}) => failures > 0)
    .map(({name, severity, failures, samples}) => ({name, severity, failures, samples}))

/** Returns the findings of one check in a release that holds only what the check reads. */
async function findingsOf(
  only: string,
  history: History,
  {spoil = '', ...counted}: Partial<Counted> & {spoil?: string} = {},
): Promise<Omit<CheckResult, 'ids'>[]> {
  const checks = (await builtInPlan()).checks.filter(({name}) => name === only)
  const plan = await planOf(checks.map(({sql}) => sql).join())
  await using db = await buildRelease(history, counted, plan)
  await db.run(spoil)
  return toFindings(await runChecks(db, checks))
}

const bridge = (row: Row): Row => ({
  distinct_records: 1,
  amount_total: '100000.00',
  kept_quarantined_deals: 0,
  kept_quarantined_amount: '0',
  kept_missing_deals: 0,
  kept_missing_amount: '0',
  adjusted_deals: 0,
  adjusted_amount: '0',
  present_deals: 1,
  present_amount: '100000.00',
  ...row,
})
const certified = [aRow('walk', bridge({}))]
const sound: History = {deal_version: [aRow('deal_version')], walk: certified}
const soon = {asOf: '2026-03-03'}

test('a limit on a bucket that cannot exist stops the build, and one on a bucket nobody has seen is a warning', async () => {
  const limits = (...rows: [dimension: string, bucket: string][]) =>
    `insert into release.seed.limit select name, dimension, bucket, 'open', 'amount', 5, null, null
     from (values ${rows.map(([dimension, bucket], index) => `('${index}', '${dimension}', '${bucket}')`).join(', ')}) as t(name, dimension, bucket)`
  const find = async (name: string, spoil: string) =>
    (await findingsOf(name, sound, {...soon, spoil})).map(({severity, samples}) => [severity, samples])
  const wrong = limits(
    ['ltv_band', '80-85|85–90| >90'],
    ['state', 'Texas|unknown'],
    ['size_band', '>=10m'],
    ['status_class', 'Funded'],
    ['created_month', '2026-3'],
    ['status', 'Underwriting|underwriting'],
    ['loan_program', 'bridge|unknown'],
  )
  expect(await find('limit_names_buckets', wrong)).toEqual([
    [
      'error',
      [
        '0 (dimension=ltv_band, bucket=80-85)',
        '1 (dimension=state, bucket=Texas)',
        '2 (dimension=size_band, bucket=>=10m)',
        '3 (dimension=status_class, bucket=Funded)',
        '4 (dimension=created_month, bucket=2026-3)',
      ],
    ],
  ])
  expect(await find('limit_names_known_buckets', wrong)).toEqual([
    ['warn', ['5 (dimension=status, bucket=Underwriting)', '6 (dimension=loan_program, bucket=bridge)']],
  ])
  const ranks = (await builtInPlan()).plan.models.find(({name}) => name === 'work.bucket_rank')
  const every = `insert into release.seed.limit
    select dimension || bucket, dimension, bucket, 'open', 'amount', 5, null, null
    from (${ranks?.sql} union all select 'created_month', '2026-12', 1)`
  for (const name of ['limit_names_buckets', 'limit_names_known_buckets'])
    expect(await find(name, every), name).toEqual([])
})

test('an order of statuses that contradicts their classes stops the build, and the error says what to do', async () => {
  await using db = await buildRelease(sound, soon)
  const checks = (await builtInPlan()).checks.filter(({name}) => name === 'status_order_fits_class')
  await db.run(`insert into release.seed.status values ('on hold', 'pipeline', 200, null),
    ('signed', 'pipeline', 90, null), ('nearly', 'pipeline', 89, null), ('in default', 'funded', 160, null),
    ('transferred', 'ended_funded', 85, null), ('dead', 'ended_unfunded', 5, null)`)
  const found = await runChecks(db, checks)
  const below = 'expected=below 90 (funded)'
  const samples = [
    `on hold (class=pipeline, sort_order=200, ${below})`,
    `signed (class=pipeline, sort_order=90, ${below})`,
    'transferred (class=ended_funded, sort_order=85, expected=above 90 (funded))',
  ]
  expect(found).toMatchObject([{severity: 'error', failures: 3, samples}])
  const next = expect.stringMatching(/^Give each another sort_order in seeds\/status\.csv /)
  expect(() => requirePassed(found)).toThrow(expect.objectContaining({code: 'CHECK_FAILED', next}))
})

const day = (number: number) => ({day: `2026-03-0${number}`, created_at: '2026-03-01 12:00:00'})
const BOTH = {distinct_records: 2, present_deals: 2, amount_total: '190000.00', present_amount: '190000.00'}
const book: History = {
  walk: [1, 2, 3].map((number) => aRow('walk', bridge({day: `2026-03-0${number}`, ...BOTH}))),
  deal_version: [
    aRow('deal_version', {...day(1), deal_id: 'a', status: 'funded', loan_program: 'bridge'}),
    aRow('deal_version', {...day(2), deal_id: 'b', status: 'draft'}),
    aRow('deal_version', {...day(2), deal_id: 'a', status: 'funded', loan_amount: '90000.00'}),
    aRow('deal_version', {...day(3), deal_id: 'b', status: 'funded'}),
  ],
  borrower_version: [aRow('borrower_version', {...day(1), deal_id: 'a', email_hash: 'ab12'})],
}

/** By check: SQL that damages the release, and the id that the check then reports. */
const SPOILT: Record<string, Record<string, string>> = {
  portfolio_totals_agree: {
    'update release.mart.portfolio_summary set amount = amount + 0.01': 'mart.portfolio_summary',
    'update release.mart.portfolio_summary set open_amount = open_amount + 0.01': 'mart.portfolio_summary',
    'update release.mart.portfolio_summary set funded_amount = 7': 'mart.portfolio_summary',
    'update release.mart.portfolio_summary set funded_deals = 7': 'mart.portfolio_summary',
    "update release.mart.portfolio_breakdown set ended_deals = 1 where dimension = 'ltv_band'": 'ltv_band',
    "delete from release.mart.portfolio_breakdown where dimension = 'state'":
      'mart.portfolio_breakdown state',
    'update release.mart.position_daily set deals = 3': 'mart.position_daily',
  },
  history_is_gapless: {
    'update release.core.deal_history set version = 2': 'a',
    "update release.core.deal_history set valid_to = timestamp '2026-03-03'": 'a',
  },
  funded_book_rolls_forward: {
    'update release.mart.funded_rollforward set closing = closing + 0.01': '2026-04 closing',
    'update release.mart.funded_rollforward set originated = originated + 1': '2026-03 originated',
    "update release.mart.funded_rollforward_deal set term = 'increased'": '2026-03 increased',
    'update release.mart.funded_rollforward set opening = opening + 1': '2026-04 opening',
  },
  'mart.funded_rollforward accepted(difference, 0.00)': {
    'update release.mart.funded_rollforward set difference = 0.01': '2026-03',
  },
  fundings_agree: {
    'update release.mart.origination_monthly set amount = 1': '2026-03',
    'update release.mart.pull_through set funded = 2': '2026-03',
    "update release.mart.pull_through set funded_amount = 1 where loan_program <> '(all)'": '2026-03',
    "update release.mart.pull_through set entered = 9 where loan_program = '(all)'": '2026-03',
    "update release.mart.pull_through set fallout = 9 where loan_program = '(all)'": '2026-03',
  },
  vintages_hold_all_loans: {
    'update release.mart.vintage set deals = deals + 1': '2026-03 month on book 0',
    'update release.mart.vintage set months_on_book = months_on_book + 1': '2026-03 month on book 1',
    'update release.mart.vintage set cohort_amount = 1': '2026-03 month on book 0',
  },
  funnel_narrows: {
    "update release.mart.pipeline_funnel set reached_deals = 9 where status = 'funded'": '2026-03 funded',
  },
  funding_curve_rises: {
    'update release.mart.funding_curve set funded_pct = 0 where age_months = 1': '2026-03 age 1',
    'update release.mart.funding_curve set age_months = age_months + 1': '2026-03 age 1',
    'update release.mart.funding_curve set deals = 9 where age_months = 1': '2026-03 age 1',
  },
  stages_hold_all_deals: {
    'update release.mart.stage_duration set at_risk = at_risk + 1': 'mart.stage_duration',
    'update release.mart.stage_duration set spells = spells + 1': 'mart.stage_duration',
    "update release.mart.stage_duration set completed = 9 where exit <> 'any'": 'mart.stage_duration',
  },
  transitions_hold_all_deals: {
    "update release.mart.status_transition set from_status = 'draft' where from_status = '(new)'":
      '2026-03 draft',
    "update release.mart.status_transition set deals = 9 where month = '2026-04'": '2026-04 funded',
    'update release.mart.status_transition set amount = amount + 0.01': '2026-04 funded',
    'update release.mart.status_transition set roll_rate_pct = 99': '2026-04 funded',
    'update release.mart.status_transition set roll_rate_amount_pct = 99': '2026-04 funded',
  },
  months_add_up: {
    'update release.mart.portfolio_monthly set open_amount = open_amount + 0.01': '2026-03-31 state',
    "update release.mart.portfolio_monthly set dimension = 'state' where dimension = 'status'":
      '2026-03-31 status',
    'update release.mart.portfolio_monthly set funded_deals = 7': '2026-03-31 ltv_band',
    'update release.mart.portfolio_monthly set funded_amount = 7': '2026-03-31 ltv_band',
    'update release.mart.portfolio_monthly set open_deals = 7': '2026-03-31 ltv_band',
  },
  exposures_agree: {
    'update release.mart.top_exposure set loan_amount = 1': 'mart.top_exposure',
    'update release.mart.concentration set funded_top_1_pct = 1': 'mart.top_exposure',
    'update release.mart.concentration set funded_top_5_pct = 1': 'mart.top_exposure',
    'update release.mart.concentration set funded_top_10_pct = 1': 'mart.top_exposure',
    "update release.mart.top_exposure set loan_amount = 1 where dimension = 'borrower'":
      'top_exposure borrower',
  },
  journal_ties_out: {
    'update release.accounting.journal_line set debit = debit + 0.01': '2026-03 funding',
    "update release.accounting.journal_line set event = 'increase'": '2026-03 increase',
    'update release.accounting.journal_line set credit = credit + 0.01': '2026-03 funding',
    'delete from release.accounting.loan_register': 'loan register',
  },
  entries_balance: {
    'delete from release.accounting.journal_line where line_no = 2': 'LT2603-',
    'update release.accounting.journal_line set debit = debit + 1 where line_no = 1': 'LT2603-',
    "update release.accounting.journal_line set deal_id = 'other' where line_no = 1": 'LT2603-',
  },
}
const spoils = Object.entries(SPOILT).flatMap(([name, each]) =>
  Object.entries(each).map(([spoil, id]) => [name, spoil, id] as const),
)

/** Built once; each test undoes its damage. */
let spoilt: Promise<Database> | undefined

afterAll(async () => (await spoilt)?.[Symbol.asyncDispose]())

test.each(spoils)('%s notices: %s', async (name, spoil, id) => {
  spoilt ??= buildRelease(book, {asOf: '2026-04-30'})
  const db = await spoilt
  const checks = (await builtInPlan()).checks.filter((check) => check.name === name)
  await db.run(`begin; ${spoil}`)
  const found = toFindings(await runChecks(db, checks))
  await db.run('rollback')
  expect(found).toMatchObject([
    {name, severity: 'error', samples: expect.arrayContaining([expect.stringContaining(id)])},
  ])
})

test('a sound release passes every check', async () => {
  spoilt ??= buildRelease(book, {asOf: '2026-04-30'})
  const found = toFindings(await runChecks(await spoilt, (await builtInPlan()).checks))
  expect(found.map(({name}) => name)).toEqual(['walked_recently'])
})

test('the bridge must add up, and equal core.deal if nothing was stored since', async () => {
  const HOLDS = 'certificate_bridge_holds'
  const off = {...sound, walk: [aRow('walk', bridge({kept_missing_amount: '0.01'}))]}
  expect(await findingsOf(HOLDS, off, soon)).toMatchObject([{name: HOLDS, severity: 'error', failures: 1}])
  const wrong = {...sound, walk: [aRow('walk', bridge({distinct_records: 2, present_deals: 2}))]}
  expect(await findingsOf(HOLDS, wrong, soon)).toMatchObject([{name: HOLDS}])
  const webhook = aRow('deal_version', {
    deal_id: 'deal_2',
    observed_at: '2026-03-02 15:00:00',
    recorded_at: '2026-03-02 15:00:01',
  })
  expect(await findingsOf(HOLDS, {...sound, deal_version: [aRow('deal_version'), webhook]}, soon)).toEqual([])
})

const valued = (deal_id: string, property_value: string) =>
  aRow('deal_version', {deal_id, loan_amount: '150000.00', property_value})
const booked: History = {
  deal_version: [
    aRow('deal_version'),
    aRow('deal_version', {day: '2026-03-03', status: 'funded', loan_program: 'bridge'}),
  ],
  walk: [aRow('walk'), aRow('walk', {day: '2026-03-03', ...bridge({})})],
}
const LOST = `update release.accounting.journal_line set account_code = null`
const dated: History = {
  deal_version: [
    aRow('deal_version', {status: 'funded'}),
    aRow('deal_version', {deal_id: 'deal_2'}),
    aRow('deal_version', {deal_id: 'deal_3'}),
  ],
  walk: certified,
}
const DATES = `insert into release.seed.funded_on values ('deal_1', date '2026-03-02'),
  ('deal_1 ', date '2026-03-01'), ('deal_2', date '2026-03-04'), ('deal_3', date '2026-02-03')`

test.each<[name: string, history: History, how: Partial<Counted> & {spoil?: string}, samples: string[]]>([
  [
    'ltv_is_plausible',
    {
      deal_version: [valued('a', '100000.00'), valued('b', '99999.99'), valued('c', '14999.99')],
      walk: certified,
    },
    {},
    [
      'b (loan_amount=150000.00, property_value=99999.99, ltv=above 1.5: kept, in no average)',
      'c (loan_amount=150000.00, property_value=14999.99, ltv=above 10: taken for unknown)',
    ],
  ],
  [
    'entry_has_accounts',
    booked,
    {...soon, spoil: `${LOST} where account_code = '1200'`},
    ['bridge (entries=1)'],
  ],
  [
    'entry_has_accounts',
    booked,
    {...soon, spoil: `${LOST}, event = 'ended', term = 'sold' where account_code = '1200'`},
    ['ending sold (entries=1)'],
  ],
  [
    'status_is_classified',
    {deal_version: [aRow('deal_version', {status: 'on_the_moon'})], walk: certified},
    soon,
    ['on_the_moon (deals=1, amount=100000.00)'],
  ],
  [
    'funded_month_is_certain',
    {
      deal_version: [
        aRow('deal_version', {day: '2026-02-26'}),
        aRow('deal_version', {day: '2026-03-03', status: 'funded'}),
      ],
      walk: [aRow('walk', {day: '2026-02-26'}), aRow('walk', {day: '2026-03-03'})],
    },
    soon,
    ['deal_1 (funded_after=2026-02-26, funded_by=2026-03-03, booked_in=2026-03, loan_amount=100000.00)'],
  ],
  [
    'funded_on_applies',
    dated,
    {...soon, spoil: DATES},
    [
      'deal_1  (funded_on=2026-03-01, problem=no such deal)',
      'deal_2 (funded_on=2026-03-04, problem=lies ahead)',
      'deal_3 (funded_on=2026-02-03, problem=no funding it belongs to)',
    ],
  ],
  [
    'funded_on_applies',
    {...dated, walk: [aRow('walk'), aRow('walk', {day: '2026-03-05'})]},
    {...soon, spoil: DATES},
    [
      'deal_1  (funded_on=2026-03-01, problem=no such deal)',
      'deal_3 (funded_on=2026-02-03, problem=no funding it belongs to)',
    ],
  ],
  ['walked_recently', sound, {asOf: '2026-03-04'}, ['2026-03-04 (observed_until=2026-03-02)']],
])('%s warns, case %#', async (name, history, how, samples) => {
  const warned = {name, severity: 'warn', failures: samples.length, samples}
  expect(await findingsOf(name, history, how)).toEqual([warned])
})

test('a funding seen on the first of a month is certain after a late walk the day before or a date of its month', async () => {
  const find = async (started_at: string, given?: string) => {
    const history = {
      deal_version: [
        aRow('deal_version', {day: '2026-02-28'}),
        aRow('deal_version', {day: '2026-03-01', status: 'funded'}),
      ],
      walk: [aRow('walk', {day: '2026-02-28', started_at}), aRow('walk', {day: '2026-03-01'})],
    }
    const date = `date '${given}'`
    const spoil = `insert into release.seed.funded_on values ('deal_1', ${date});
      update release.core.deal set funded_on = ${date}, funded_before = ${date}`
    const found = await findingsOf('funded_month_is_certain', history, {...soon, ...(given && {spoil})})
    return found.flatMap(({samples}) => samples)
  }
  // 08:15 and 23:30 in New York.
  const [morning, night] = ['2026-02-28 13:15:00', '2026-03-01 04:30:00']
  const warned = (by: string) => [
    `deal_1 (funded_after=2026-02-28, funded_by=${by}, booked_in=2026-03, loan_amount=100000.00)`,
  ]
  expect(await find(morning)).toEqual(warned('2026-03-01'))
  expect(await find(night)).toEqual([])
  expect(await find(morning, '2026-03-01')).toEqual([])
  expect(await find(night, '2026-02-27')).toEqual(warned('2026-02-27'))
})
