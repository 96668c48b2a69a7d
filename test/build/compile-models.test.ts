import {mkdirSync, renameSync, symlinkSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {fingerprintModels} from '../../src/build/build-models.ts'
import {readChecks} from '../../src/build/checks.ts'
import {compileModels} from '../../src/build/compile.ts'
import {readModels} from '../../src/build/read-models.ts'
import {loadSeed, parseSeed, readSeeds, replaceSeeds} from '../../src/build/seeds.ts'
import type {Check} from '../../src/core/types.ts'
import {openDatabase} from '../../src/store/database.ts'
import {anyRow} from '../support/data.ts'
import {writeSqlFolder} from './folder.ts'

const HEADER = '-- Deals.\n-- grain: deal_id\n-- deal_id: the id\n'
const DEAL = `${HEADER}select deal_id\nfrom raw.deal_version\n`

async function compile(files: Record<string, string>, checks: Check[] = []): Promise<string[]> {
  using folder = writeSqlFolder(files)
  const source = {models: readModels([folder.path]), seeds: readSeeds([folder.path]), checks}
  const plan = await compileModels(source)
  return plan.models.map(({name}) => name)
}

const expectRefused = (files: Record<string, string>, code: string, words: RegExp, checks: Check[] = []) =>
  expect(compile(files, checks)).rejects.toMatchObject({
    code,
    exitCode: 3,
    message: expect.stringMatching(words),
  })

/** A check as read from its file, `checks/typo.sql`. */
const aCheck = (sql: string): Check => ({
  name: 'typo',
  severity: 'error',
  description: '',
  file: 'checks/typo.sql',
  line: 1,
  sql,
  isPerDeal: false,
})

test.each([
  ['-- grain: deal_id\n-- deal_id: the id\n', /no description.*deal\.sql:1\./],
  ['-- Deals.\n', /no grain.*deal\.sql:1\./],
  ['-- Deals.\n-- grain: deal_id\n-- what\n', /'-- what'.*deal\.sql:3\./],
  ['-- Deals.\n-- grain: deal_id\n-- per: borrower_id\n', /per 'borrower_id': expected .*deal\.sql:3\./],
  ['-- Deals.\n-- grain: deal_id\n\n-- deal_id: the id\n', /blank line before '-- deal_id: the id'.*:3\./],
  [`${HEADER}-- deal_id: again\n`, /described twice.*deal\.sql:4\./],
  ['-- Deals.\n-- grain: id\n-- deal_id: x\n', /'id' is not described.*:3\./],
  [
    '-- Deals.\n-- grain: deal_id\n-- adds_up: deal_id\n-- deal_id: x\n',
    /is VARCHAR, which does not add up.*:4\./,
  ],
  ['-- Deals.\n-- grain: x\n-- per: deal_id\n-- x: y\n', /per column 'deal_id' is not described/],
])('refuses the header %j, at its line', async (header, words) => {
  await expectRefused({'core/deal.sql': `${header}select 'a' as deal_id`}, 'MODEL_FILE', words)
})

test.each([
  ['MODEL_FILE', 'select deal_id, status from raw.deal_version', /'status'.*:3\./],
  ['MODEL_FILE', 'select deal_id, deal_id from raw.deal_version', /'deal_id_1'.*a second 'deal_id'.*:3\./],
  ['MODEL_FILE', "-- gone: x\nselect 'a' as deal_id", /'gone'.*:4\./],
  ['MODEL_FILE', 'select deal_id as "the id" from raw.deal_version', /'the id'.*expected a name of.*:3\./],
  ['MODEL_FILE', 'select interval 1 day as deal_id', /'deal_id'.*INTERVAL.*:3\./],
  [
    'MODEL_FILE',
    "select 'a' as deal_id, 1 as Straße",
    /'Straße'.*expected a name of lower-case letters.*:3\./,
  ],
  ['MODEL_FILE', 'select deal_id\nfrom core.nothing', /'core.nothing'.*:5\./],
  ['MODEL_FILE', 'select deal_id\nfrom deal_version', /'deal_version'.*:5\./],
  // A model may not read the latest states: they are not history.
  ['MODEL_FILE', 'select deal_id from raw.deal_head', /'raw.deal_head'/],
  ['MODEL_BUILD', 'select\n  deal_idd as deal_id\nfrom raw.deal_version', /"deal_idd" not found.*:5\./],
  ['MODEL_FILE', 'select deal_id\nfrom from raw.x', /syntax error.*:5\./],
  ['MODEL_FILE', 'drop table raw.deal_version', /Only SELECT/],
  ['MODEL_FILE', "select 'a' as deal_id; select 2", /2 statements/],
])('refuses a model with %s, naming file and line: %s', async (code, sql, words) => {
  await expectRefused({'core/deal.sql': `${HEADER}${sql}\n`}, code, words)
})

test.each([
  ['now', 'select now()::varchar as deal_id', ':4\\.'],
  ['current_date', 'select\n  current_date::varchar as deal_id', ':5\\.'],
  ['current_localtimestamp', 'select localtimestamp::varchar as deal_id'],
  ['age', 'select age(observed_at)::varchar as deal_id from raw.deal_version'],
  ['current_setting', "select current_setting('threads')::varchar as deal_id"],
  ['(now|get_current_timestamp)', 'select ago(interval 1 day)::varchar as deal_id'],
  ['random', 'select deal_id\nfrom raw.deal_version\nwhere random() < 0.5', ':6\\.'],
  ['.*uuid', 'select a.deal_id from raw.walk as b join raw.deal_version as a on uuid()::varchar = b.walk_id'],
  ['using sample', 'select deal_id\nfrom raw.deal_version using sample 50%', ':5\\.'],
  ['using sample', 'select deal_id\nfrom (from raw.deal_version tablesample 10% (bernoulli, 7))'],
  ['read_text', "select content as deal_id from read_text('/etc/hostname')", ':4\\.'],
  ['read_csv', "with a as (from read_csv('/etc/hostname'))\nselect 'a' as deal_id from a"],
])('refuses a model that depends on %s, naming file and line', async (name, sql, line = '') => {
  const words = new RegExp(`^${name}(\\(\\))? can give .*deal\\.sql${line}`)
  await expectRefused({'core/deal.sql': `${HEADER}${sql}\n`}, 'MODEL_FILE', words)
})

test.each([
  [
    'sum(ltv)',
    /^sum\(\) of model 'mart\.x' adds up DOUBLE.*write amount \* 0\.2, or cast .*decimal\(38, 2\).*:6\./,
  ],
  ['mean(ltv::float)', /^mean\(\) of .*:6\./],
  ['stddev(amount)', /^stddev\(\) .* adds up DOUBLE.*sums of DECIMAL/],
  ['corr(amount, amount)', /^corr\(\) of .*:6\./],
  ['sum(ltv * 2) over (order by deal_id)', /^sum\(\) of model 'mart\.x' adds up DOUBLE.*:6\./],
])('refuses the sum of a DOUBLE, naming file and line: %s', async (sum, place) => {
  const group = sum.includes('over') ? '' : ' group by all'
  const files = {
    'core/ratio.sql': `${HEADER}-- ltv: a ratio\n-- amount: USD\nselect deal_id, 0.5::double as ltv, loan_amount as amount from raw.deal_version`,
    'mart/x.sql': `${HEADER}-- ltv: a ratio\nwith w as (select deal_id,\n${sum} as ltv from core.ratio${group}) from w`,
  }
  await expectRefused(files, 'MODEL_FILE', place)
})

test('compiling runs no model: even an endless one compiles', async () => {
  const sql = `select 'a' || count(*) as deal_id from range(100000000) as a, range(100000000) as b where a.range + b.range = -1`
  expect(await compile({'core/endless.sql': `${HEADER}${sql}`})).toEqual(['core.endless'])
})

test('orders models by what they read, in any case, even in joins, subqueries and CTEs; whole numbers of any size are published', async () => {
  const names = await compile({
    'core/a.sql': `${HEADER}-- n: how many\nwith Mine as (select Deal_Id from Mart.Z) select mine.deal_id, 1 as n from mine join core.b using (deal_id)`,
    'core/b.sql': `${HEADER}select deal_id from raw.deal_version where exists (select 1 from mart.z) -- end\n;\n`,
    'mart/z.sql': DEAL,
  })
  expect(names).toEqual(['mart.z', 'core.b', 'core.a'])
})

test('names the cycle and where it closes', async () => {
  const files = {
    'core/a.sql': `${HEADER}select deal_id from core.b`,
    'core/b.sql': `${HEADER}select deal_id\nfrom core.a`,
  }
  await expectRefused(files, 'MODEL_FILE', /core\.a → core\.b → core\.a.*b\.sql:5\./)
})

test.each([
  'raw/deal.sql',
  'loantape/published.sql',
  'fleet/portfolio_summary.sql',
  'total/x.sql',
  'seed/deal.sql',
  'release/deal.sql',
  'history/deal.sql',
  'deal.sql',
  'core/old/deal.sql',
  'core/deals.SQL',
  'core/checks/deal.sql',
  'checks/old/deal.sql',
  'checks/deal.SQL',
  'seeds/old/status.csv',
  // The engine would take it for the same table as seed.status.
  'seeds/Status.csv',
  'seeds/status.CSV',
  'seeds/account.csv',
  'seeds/note.csv',
])('a file in the place of %s is refused, not ignored', async (file) => {
  const words = new RegExp(`^File '${file}': expected (<schema>|checks|seeds)/<name>\\..*${file}:1\\.`)
  await expectRefused({'core/deal.sql': DEAL, [file]: DEAL}, 'MODEL_FILE', words)
})

test('a linked folder holds models like any other, and no file that begins with a dot is read', async () => {
  const files = {'risk/a.sql': `${HEADER}select deal_id from shared.deal`, 'elsewhere/shared/deal.sql': DEAL}
  const hidden = ['checks/._odd.sql', 'seeds/._kind.csv', 'risk/._a.sql', '.git/a.sql']
  using folder = writeSqlFolder({...files, ...Object.fromEntries(hidden.map((name) => [name, '\0\x05']))})
  const own = join(folder.path, 'own')
  mkdirSync(own)
  for (const name of ['risk', 'checks', 'seeds', '.git']) renameSync(join(folder.path, name), join(own, name))
  symlinkSync('../elsewhere/shared', join(own, 'shared'))
  const models = readModels([own])
  const source = {models, seeds: readSeeds([own]), checks: readChecks(models, [own])}
  expect((await compileModels(source)).models.map(({name}) => name)).toEqual(['shared.deal', 'risk.a'])
})

test('a schema that is a word of SQL, and a folder in the place of a model, are refused', async () => {
  await expectRefused({'left/a.sql': DEAL}, 'MODEL_FILE', /^Schema 'left' .*a\.sql:1\./)
  const files = {'core/deal.sql': DEAL, 'core/a.sql/readme': DEAL}
  await expectRefused(files, 'SQL_FILE', /core\/a\.sql': cannot be read \(EISDIR\)/)
})

test('binds checks, at the line of the file or of the tag', async () => {
  const check = aCheck('-- x\n-- severity: error\nselect nothing\nfrom core.deal')
  const files = {'core/deal.sql': DEAL}
  await expectRefused(files, 'CHECK_SQL', /"nothing" not found.*checks\/typo\.sql:3\./, [check])
  const broken = aCheck('select deal_id\nfrom from core.deal')
  await expectRefused(files, 'CHECK_SQL', /exactly one SELECT: syntax error.*checks\/typo\.sql:2\./, [broken])
  const tag = {...check, line: 7, sql: 'select nothing from core.deal'}
  await expectRefused(files, 'CHECK_SQL', /checks\/typo\.sql:7\./, [tag])
})

/** Returns the rows of `seed.kind` after these folders are read and a case's own text replaces the seed. */
async function loadKind(texts: readonly string[], own?: string): Promise<unknown[]> {
  const folders = texts.map((text) => writeSqlFolder({'seeds/kind.csv': text}))
  try {
    const mine = own === undefined ? [] : [parseSeed({name: 'kind', file: 'case.yaml', text: own})]
    const seeds = replaceSeeds(readSeeds(folders.map(({path}) => path)), mine)
    await using db = await openDatabase({attach: [{path: ':memory:', alias: 'release'}]})
    await db.run('create schema release.seed')
    for (const seed of seeds) await loadSeed(db, seed)
    return await db.all(anyRow, 'from release.seed.kind')
  } finally {
    for (const folder of folders) folder[Symbol.dispose]()
  }
}

test('a seed has columns of every type, and instants in every spelling of ISO 8601', async () => {
  const columns =
    'code,rank:bigint,n:integer,since:date,is_open:boolean,"limit_pct:decimal(18,2)","coupon_pct:decimal(5, 3)","unit:decimal(18,18)?",kind:canonical,state:on|off,end:on|off?'
  expect(await loadKind([`${columns}\na,1,2,2026-01-31,true,12.5,10.375,, Hot ,off,\n`])).toEqual([
    {
      ...{code: 'a', rank: '1', n: '2', since: '2026-01-31', is_open: true},
      ...{limit_pct: '12.50', coupon_pct: '10.375', unit: null, kind: 'hot', state: 'off', end: null},
    },
  ])
  const spelt =
    'code,on:date,at:timestamp\na,2026/1/31,2026-01-31\nb,2026-01-31 00:00:00,2026-01-31T10:30:00.25Z\n'
  expect(await loadKind([spelt])).toEqual([
    {code: 'a', on: '2026-01-31', at: '2026-01-31 00:00:00'},
    {code: 'b', on: '2026-01-31', at: '2026-01-31 10:30:00.25'},
  ])
})

test('lines of a later seed replace those with the same key; one can copy another in what it does not set', async () => {
  const dated = 'code:canonical,since:date\na,2026-01-01\nb,2026-01-02\n'
  expect(await loadKind(['code,rank:bigint\na,1\n', 'code,rank,since:date\nb,2,2026-02-01\n'])).toEqual([
    {code: 'a', rank: '1', since: null},
    {code: 'b', rank: '2', since: '2026-02-01'},
  ])
  expect(await loadKind([dated, 'code,since\n B ,2026-02-01\nc,2026-02-02\n'])).toEqual([
    {code: 'a', since: '2026-01-01'},
    {code: 'b', since: '2026-02-01'},
    {code: 'c', since: '2026-02-02'},
  ])
  const ranked = 'code:canonical,class,rank:bigint\na,old,1\nb,new,2\n'
  expect(await loadKind([ranked, 'code,like,rank\nc,B,\nd,a,9\n'])).toEqual([
    {code: 'a', class: 'old', rank: '1'},
    {code: 'b', class: 'new', rank: '2'},
    {code: 'c', class: 'new', rank: '2'},
    {code: 'd', class: 'old', rank: '9'},
  ])
  const unknown = /'nothing' of seed column 'like': expected one of a, b, in .*kind\.csv:3\./
  await expect(loadKind([ranked, 'code,like\nc,a\nd,nothing\n'])).rejects.toThrow(unknown)
  const misfit = /'many' of seed column 'rank': expected bigint, in .*kind\.csv:3\./
  await expect(loadKind([ranked, 'rank,code,class\n7,x,new\nmany,y,new\n'])).rejects.toThrow(misfit)
})

test('a seed that replaces another has its columns in any order, but those marked with a question mark, and its key', async () => {
  const built = 'code,class,rank:bigint\na,old,1\n'
  expect(await loadKind([built], 'class,note,code,rank\nnew,n,c,2\nnew,m,b,3\n')).toEqual([
    {code: 'b', class: 'new', rank: '3', note: 'm'},
    {code: 'c', class: 'new', rank: '2', note: 'n'},
  ])
  const optional = 'code,since:date?,name?,rank\n'
  expect(await loadKind([optional, 'name,rank,code\nfirst,1,a\n'])).toEqual([
    {code: 'a', since: null, name: 'first', rank: '1'},
  ])
  await expect(loadKind([optional, 'code,name\n'])).rejects.toThrow(
    /no column 'rank': expected the columns of the one it replaces, code, .*rank, in .*kind\.csv:1\./,
  )
})

test.each([
  [
    'code,on:date\na,2026-01-01\nb,2/26/2027\n',
    /'2\/26\/2027' .*'on': expected date such as 2026-02-26, in .*csv:3\./,
  ],
  ['code,since:date\na,26-02-26\n', /'26-02-26' of seed column 'since': expected date such as .*csv:2\./],
  ['code,since:date\na,2026-02-26x\n', /'2026-02-26x' of seed column 'since': expected date .*csv:2\./],
  ['code,at:timestamp\na,2026-01-31T10:30:00+05:00\n', /of seed column 'at': expected timestamp .*csv:2\./],
  [
    'code,"pct:decimal(18,2)?"\na,10.63\nb,10.638\n',
    /'10\.638' .*'pct': expected decimal\(18,2\), in .*csv:3\./,
  ],
  ['code,"n_pct:decimal(5,3)"\na,100.375\n', /'100\.375'.*expected decimal\(5,3\), .*csv:2\./],
  ['code,"n:decimal(19,2)"\n', /expected name .*text, .*, canonical, a\|b or decimal\(digits,decimals\)/],
  ['code,n:integer\na,35.5\n', /'35\.5' of seed column 'n': expected integer, in .*kind\.csv:2\./],
  ['code,since:date\n\n"a, or ""b""\nor c",2026-01-01\n\nd, soon\n', /'soon'.*kind\.csv:6\./],
  ['code,n:bigint\na,1\na,2\n', /'a'.*'code'.*kind\.csv:3\./],
  ['code,n:bigint\na,\n', /'' of seed column 'n': expected bigint, in .*kind\.csv:2\./],
  ['code,n:on|off\na, off\nb,Off\n', /'Off' of seed column 'n': expected one of on, off, .*kind\.csv:3\./],
  ['code,n:on|off\na,"  "\n', /seed column 'n': expected one of on, off, in .*kind\.csv:2\./],
  ['code,valid_from:date?\na,\na,2026-01-01\na,2026-01-01\n', /'a'.*'code'.*kind\.csv:4\./],
  ['code:canonical\nOn Hold\non hold \n', /'on hold'.*kind\.csv:3\./],
  ['code,n:bigint\na,1\n,2\n', /'' of seed column 'code'.*kind\.csv:3\./],
  ['code,n:float\na,1\n', /'n:float'.*kind\.csv:1\./],
  ['code,n:decimal(18,2)\na,1\n', /'n:decimal\(18'.*in quotes if it has a comma.*kind\.csv:1\./],
  ['', /''.*kind\.csv:1\./],
  ['code,,n\na,1,2\n', /'': expected name.*kind\.csv:1\./],
  ['code,n,n:date\n', /'n:date'.*once, in .*kind\.csv:1\./],
  ['code,n,m\na,1\n', /2 fields, no value for seed column 'm': expected 3.*kind\.csv:2\./],
  ['code,n\na,1,000\n', /3 fields, value '000' after the last seed column 'n': expected 2.*kind\.csv:2\./],
  ['code,n\na,"1\nb,2\n', /never closes.*kind\.csv:2\./],
  ['code,n\na,5" pipe\n', /whole value in quotes.*kind\.csv:2\./],
])('refuses the seed %j, naming file and line', async (text, words) => {
  await expect(loadKind([text])).rejects.toMatchObject({
    code: 'SEED_FILE',
    exitCode: 3,
    message: expect.stringMatching(words),
  })
})

test('refuses a check that reads a file or the state of the engine, before any of it is read', async () => {
  for (const [name, sql] of [
    ['read_text', "select content from read_text('/etc/hostname')"],
    ['query', "from query('select content from read_text(''/etc/hostname'')')"],
    ['read_csv', "from read_csv('/nowhere.csv')"],
    ['duckdb_settings', 'from duckdb_settings()'],
  ] as const) {
    const words = new RegExp(`^${name}\\(\\) can give .*checks/typo\\.sql:3\\.`)
    await expectRefused({'core/deal.sql': DEAL}, 'MODEL_FILE', words, [aCheck(`\n\n${sql}`)])
  }
})

test("a model may generate rows, ask for the build's variables, and measure the time between two instants", async () => {
  const sql = `${HEADER}select (range + unnest([1]))::varchar || getvariable('as_of') as deal_id from range(3)\n`
  expect(await compile({'core/deal.sql': sql})).toEqual(['core.deal'])
  const age = `${HEADER}select age(observed_at, created_at)::varchar as deal_id from raw.deal_version\n`
  expect(await compile({'core/deal.sql': age})).toEqual(['core.deal'])
})

test('byte order marks and other line ends leave models, checks and seeds the same', () => {
  const check = '-- Demands.\n-- severity: warn\nselect 1\n'
  const files = {'core/deal.sql': DEAL, 'seeds/kind.csv': 'kind,rank:bigint\na,1\n', 'checks/odd.sql': check}
  const read = (texts: Record<string, string>) => {
    using folder = writeSqlFolder(texts)
    const folders = [folder.path]
    return fingerprintModels({
      models: readModels(folders),
      checks: readChecks([], folders),
      seeds: readSeeds(folders),
    })
  }
  const marked = Object.entries(files).map(([name, text]) => [name, `\uFEFF${text.replaceAll('\n', '\r\n')}`])
  expect(read(Object.fromEntries(marked))).toBe(read(files))
})

test('neither a model nor a check reads a file, whatever else has that name', async () => {
  using folder = writeSqlFolder({'secret.csv': 'deal_id\nstolen\n'})
  const file = `"${join(folder.path, 'secret.csv')}"`
  const shadowed = `select s.deal_id from (with ${file} as (select '1' as deal_id) from ${file}) as x, ${file} as s`
  for (const sql of [`from ${file}`, shadowed, `select (select count(*) from ${file}) as deal_id`]) {
    const [code, words] = ['MODEL_FILE', /files are not read/]
    await expectRefused({'core/deal.sql': `${HEADER}${sql}`}, code, words)
    await expectRefused({'core/deal.sql': DEAL}, code, words, [aCheck(sql)])
  }
})
