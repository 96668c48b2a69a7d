import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {fingerprintModels} from '../../src/build/build-models.ts'
import {readChecks} from '../../src/build/checks.ts'
import {compileModels} from '../../src/build/compile.ts'
import {readModels} from '../../src/build/read-models.ts'
import {parseSeed, readSeeds, replaceSeeds} from '../../src/build/seeds.ts'
import type {Check} from '../../src/core/types.ts'
import {failureOf} from '../support/lab.ts'
import {writeSqlFolder} from './folder.ts'
import {buildRelease, builtInPlan, noRow} from './history.ts'

const HEADER = '-- Deals.\n-- grain: deal_id\n-- deal_id: the id\n'
const DEAL = `${HEADER}select deal_id\nfrom raw.deal_version\n`

async function compile(files: Record<string, string>, checks: Check[] = []): Promise<string[]> {
  using folder = writeSqlFolder(files)
  const source = {models: readModels([folder.path]), seeds: readSeeds([folder.path]), checks}
  const plan = await compileModels(source)
  return plan.models.map(({name}) => name)
}

/** A check as read from its file, `checks/typo.sql`. */
const aCheck = (sql: string): Check => ({
  name: 'typo',
  severity: 'error',
  description: '',
  file: 'checks/typo.sql',
  line: null,
  sql,
})

test.each([
  [
    'no description',
    '-- grain: deal_id\n-- deal_id: the id\nselect 1 as deal_id',
    /no description.*deal\.sql:1\./,
  ],
  ['no grain', '-- Deals.\nselect 1 as deal_id', /no grain.*deal\.sql:1\./],
  ['an unknown header line', `-- Deals.\n-- grain: deal_id\n-- what\nselect 1`, /'-- what'.*deal\.sql:3\./],
  [
    'a column described twice',
    `${HEADER}-- deal_id: again\nselect 1 as deal_id`,
    /described twice.*deal\.sql:4\./,
  ],
  [
    'a grain that is not a column',
    '-- Deals.\n-- grain: id\n-- deal_id: x\nselect 1',
    /'id' is not described.*:3\./,
  ],
  [
    'an unknown check',
    `${HEADER}-- check: perfect(deal_id)\nselect 1`,
    /'perfect\(deal_id\)'.*unique\(…\).*:4\./,
  ],
])('refuses a header with %s, at its line', async (_, text, message) => {
  await expect(compile({'core/deal.sql': text})).rejects.toMatchObject({
    code: 'MODEL_HEADER',
    exitCode: 3,
    message: expect.stringMatching(message),
  })
})

test.each([
  [
    'an undescribed column',
    `${HEADER}select deal_id, status from raw.deal_version`,
    'MODEL_COLUMNS',
    /'status'.*:3\./,
  ],
  [
    'a description without column',
    `${HEADER}-- gone: x\nselect 'a' as deal_id`,
    'MODEL_COLUMNS',
    /'gone'.*:4\./,
  ],
  [
    'a type few tools read',
    `${HEADER}select 1::hugeint as deal_id`,
    'MODEL_TYPE',
    /'deal_id'.*HUGEINT.*:3\./,
  ],
  [
    'an unknown table',
    `${HEADER}select deal_id\nfrom core.nothing`,
    'MODEL_UNKNOWN_TABLE',
    /'core.nothing'.*:5\./,
  ],
  [
    'a table without schema',
    `${HEADER}select deal_id\nfrom deal_version`,
    'MODEL_UNKNOWN_TABLE',
    /'deal_version'.*:5\./,
  ],
  [
    'an unknown column',
    `${HEADER}select\n  deal_idd as deal_id\nfrom raw.deal_version`,
    'MODEL_BUILD',
    /"deal_idd" not found.*:5\./,
  ],
  ['a syntax error', `${HEADER}select deal_id\nfrom from raw.x`, 'MODEL_SQL', /syntax error.*:5\./],
  ['another statement', `${HEADER}drop table raw.deal_version`, 'MODEL_SQL', /Only SELECT/],
  ['two statements', `${HEADER}select 'a' as deal_id; select 2`, 'MODEL_SQL', /2 statements/],
])('refuses %s, naming file and line', async (_, text, code, message) => {
  await expect(compile({'core/deal.sql': text})).rejects.toMatchObject({
    code,
    exitCode: 3,
    message: expect.stringMatching(message),
  })
})

test.each([
  [
    'a sum',
    'select deal_id, sum(ltv) as ltv\nfrom core.ratio group by all',
    /sum\(\) of model 'mart\.x' adds up DOUBLE.*:5\./,
  ],
  [
    'an average',
    'select deal_id,\n  mean(ltv::float) as ltv\nfrom core.ratio group by all',
    /mean\(\) of model 'mart\.x' adds up DOUBLE.*:6\./,
  ],
  [
    'a sum over a window, inside a CTE',
    'with w as (\n  select deal_id,\n  sum(ltv * 2) over (order by deal_id) as ltv from core.ratio)\nselect * from w',
    /sum\(.*\) of model 'mart\.x' adds up DOUBLE.*:7\./,
  ],
])('refuses %s of a DOUBLE, naming file and line', async (_, sql, message) => {
  const files = {
    'core/ratio.sql': `${HEADER}-- ltv: a ratio\nselect deal_id, 0.5::double as ltv from raw.deal_version`,
    'mart/x.sql': `${HEADER}-- ltv: a ratio\n${sql}`,
  }
  await expect(compile(files)).rejects.toMatchObject({
    code: 'MODEL_INEXACT_SUM',
    exitCode: 3,
    message: expect.stringMatching(message),
  })
})

test('a model built deal by deal must have a column that names the deal', async () => {
  const text =
    '-- Statuses.\n-- grain: status\n-- per: deal_id\n-- status: of a deal\nselect status from raw.deal_version'
  await expect(compile({'core/x.sql': text})).rejects.toMatchObject({
    code: 'MODEL_HEADER',
    message: expect.stringContaining("per column 'deal_id' is not described"),
  })
})

test('sums and averages of decimals and counts are exact, and a DOUBLE may be compared', async () => {
  const sql = `select deal_id, sum(loan_amount) over (partition by deal_id) as amount, max(0.5::double) over () as ltv from raw.deal_version`
  const names = await compile({
    'mart/x.sql': `${HEADER}-- amount: USD\n-- ltv: a ratio\nselect deal_id, max(amount)::decimal(38, 2) as amount, max(ltv) as ltv from (${sql}) group by all`,
  })
  expect(names).toEqual(['mart.x'])
})

test('compiling runs no model: even an endless one compiles', async () => {
  const sql = `select 'a' || count(*) as deal_id from range(100000000) as a, range(100000000) as b where a.range + b.range = -1`
  expect(await compile({'core/endless.sql': `${HEADER}${sql}`})).toEqual(['core.endless'])
})

test('orders models by what they read, even in joins, subqueries and CTEs', async () => {
  const names = await compile({
    'core/a.sql': `${HEADER}with deal as (select * from mart.z) select deal.deal_id from deal join core.b using (deal_id)`,
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
  await expect(compile(files)).rejects.toMatchObject({
    code: 'MODEL_CYCLE',
    message: expect.stringMatching(/core\.a → core\.b → core\.a.*b\.sql:5\./),
  })
})

test.each(['raw', 'seed', 'release', 'history'])(
  'refuses the schema %s, which belongs to the pipeline',
  async (schema) => {
    await expect(compile({[`${schema}/deal.sql`]: DEAL})).rejects.toMatchObject({code: 'MODEL_NAME'})
  },
)

test('binds checks, at the line of the file or of the tag', async () => {
  const check = aCheck('-- x\n-- severity: error\nselect nothing\nfrom core.deal')
  await expect(compile({'core/deal.sql': DEAL}, [check])).rejects.toMatchObject({
    code: 'CHECK_SQL',
    message: expect.stringMatching(/"nothing" not found.*checks\/typo\.sql:3\./),
  })
  const tag = {...check, line: 7, sql: 'select nothing from core.deal'}
  await expect(compile({'core/deal.sql': DEAL}, [tag])).rejects.toThrow(/checks\/typo\.sql:7\./)
})

test("a user's model replaces the built-in one of that name, and its seed lines those with the same key", async () => {
  using first = writeSqlFolder({
    'core/deal.sql': DEAL,
    'seeds/kind.csv': 'code:canonical,since:date\na,2026-01-01\nb,2026-01-02\n',
  })
  using second = writeSqlFolder({
    'core/deal.sql': `${HEADER}select 'mine' as deal_id`,
    'seeds/kind.csv': 'code,since\n B ,2026-02-01\nc,2026-02-02\n',
  })
  const folders = [first.path, second.path]
  const plan = await compileModels({models: readModels(folders), seeds: readSeeds(folders), checks: []})
  await using db = await buildRelease({}, {}, plan)
  expect(await db.all(noRow, 'select deal_id from core.deal')).toEqual([{deal_id: 'mine'}])
  expect(await db.all(noRow, 'select code, since, typeof(since) as type from seed.kind')).toEqual([
    {code: 'a', since: '2026-01-01', type: 'DATE'},
    {code: 'b', since: '2026-02-01', type: 'DATE'},
    {code: 'c', since: '2026-02-02', type: 'DATE'},
  ])
})

test('a line of a seed can copy another in everything it does not set itself', async () => {
  const built = {
    'core/deal.sql': DEAL,
    'seeds/kind.csv': 'code:canonical,class,rank:bigint\na,old,1\nb,new,2\n',
  }
  using first = writeSqlFolder(built)
  using second = writeSqlFolder({'seeds/kind.csv': 'code,like,rank\nc,B,\nd,a,9\n'})
  const source = {models: readModels([first.path]), seeds: readSeeds([first.path, second.path]), checks: []}
  await using db = await buildRelease({}, {}, await compileModels(source))
  expect(await db.all(noRow, 'from seed.kind')).toEqual([
    {code: 'a', class: 'old', rank: '1'},
    {code: 'b', class: 'new', rank: '2'},
    {code: 'c', class: 'new', rank: '2'},
    {code: 'd', class: 'old', rank: '9'},
  ])
  using third = writeSqlFolder({'seeds/kind.csv': 'code,like\nc,a\nd,nothing\n'})
  expect(() => readSeeds([first.path, third.path])).toThrow(
    /'nothing' of seed column 'like': expected one of a, b, in .*kind\.csv:3:3\./,
  )
  using fourth = writeSqlFolder({'seeds/kind.csv': 'rank,code,class\n7,x,new\nmany,y,new\n'})
  await expect(compileModels({...source, seeds: readSeeds([first.path, fourth.path])})).rejects.toThrow(
    /'many' of seed column 'rank': expected bigint, in .*kind\.csv:3:1\./,
  )
})

test('a seed that replaces another has its columns in any order, and its key', async () => {
  using built = writeSqlFolder({'core/deal.sql': DEAL, 'seeds/kind.csv': 'code,class,rank:bigint\na,old,1\n'})
  const own = parseSeed({
    name: 'kind',
    file: 'case.yaml',
    text: 'class,note,code,rank\nnew,n,c,2\nnew,m,b,3\n',
  })
  const seeds = replaceSeeds(readSeeds([built.path]), [own])
  await using db = await buildRelease(
    {},
    {},
    await compileModels({models: readModels([built.path]), seeds, checks: []}),
  )
  expect(await db.all(noRow, 'from seed.kind')).toEqual([
    {code: 'b', class: 'new', rank: '3', note: 'm'},
    {code: 'c', class: 'new', rank: '2', note: 'n'},
  ])
})

test('a seed has columns of every type', async () => {
  using folder = writeSqlFolder({
    'core/deal.sql': DEAL,
    'seeds/kind.csv':
      'code,rank:bigint,since:date,is_open:boolean,"limit_pct:decimal(18,2)",kind:canonical\na,1,2026-01-31,true,12.5, Hot \n',
  })
  const source = {models: readModels([folder.path]), seeds: readSeeds([folder.path]), checks: []}
  await using db = await buildRelease({}, {}, await compileModels(source))
  expect(await db.all(noRow, 'from seed.kind')).toEqual([
    {code: 'a', rank: '1', since: '2026-01-31', is_open: true, limit_pct: '12.50', kind: 'hot'},
  ])
})

test.each([
  [
    'a value of another type',
    'code,since:date\na,2026-01-01\nb,soon\n',
    'SEED_FILE',
    /'soon' of seed column 'since': expected date, in .*kind\.csv:3:3\./,
  ],
  [
    'a wrong value behind blank lines, commas and line ends in quotes',
    'code,since:date\n\n"a, or ""b""\nor c",2026-01-01\n\nd, soon\n',
    'SEED_FILE',
    /'soon'.*kind\.csv:6:3\./,
  ],
  ['a repeated key', 'code,n:bigint\na,1\na,2\n', 'SEED_FILE', /'a'.*'code'.*kind\.csv:3:1\./],
  [
    'a repeated key from one day on',
    'code,valid_from:date\na,\na,2026-01-01\na,2026-01-01\n',
    'SEED_FILE',
    /'a'.*'code'.*kind\.csv:4:1\./,
  ],
  ['a key in two spellings', 'code:canonical\nOn Hold\non hold \n', 'SEED_FILE', /'on hold'.*kind\.csv:3:1/],
  ['a row without key', 'code,n:bigint\na,1\n,2\n', 'SEED_FILE', /'' of seed column 'code'.*kind\.csv:3:1/],
  ['an unknown type', 'code,n:float\na,1\n', 'SEED_FILE', /'n:float'.*kind\.csv:1:6/],
  [
    'a type cut in two',
    'code,n:decimal(18,2)\na,1\n',
    'SEED_FILE',
    /'n:decimal\(18'.*in quotes if it has a comma.*kind\.csv:1:6/,
  ],
  ['no header', '', 'SEED_FILE', /''.*kind\.csv:1/],
  ['a column without name', 'code,,n\na,1,2\n', 'SEED_FILE', /'': expected name.*kind\.csv:1:6/],
  ['a repeated column', 'code,n,n:date\n', 'SEED_FILE', /'n:date'.*once, in .*kind\.csv:1:8/],
  [
    'too few fields',
    'code,n,m\na,1\n',
    'SEED_FILE',
    /2 fields, no value for seed column 'm': expected 3.*kind\.csv:2:3/,
  ],
  [
    'too many fields',
    'code,n\na,1,000\n',
    'SEED_FILE',
    /3 fields, value '000' after the last seed column 'n': expected 2.*kind\.csv:2:5/,
  ],
  ['a quote that never closes', 'code,n\na,"1\nb,2\n', 'SEED_FILE', /never closes.*kind\.csv:2:3/],
  ['a quote inside a value', 'code,n\na,5" pipe\n', 'SEED_FILE', /whole value in quotes.*kind\.csv:2:4/],
])('refuses a seed with %s, naming file, line and column', async (_, text, code, message) => {
  await expect(compile({'seeds/kind.csv': text})).rejects.toMatchObject({
    code,
    exitCode: 3,
    message: expect.stringMatching(message),
  })
})

test('a release describes its tables and columns, and keeps no work table', async () => {
  await using db = await buildRelease({})
  const comments = await db.all(
    noRow,
    `select comment from duckdb_columns() where schema_name = 'core' and table_name = 'deal' and column_name = 'zip'
     union all select comment from duckdb_tables() where schema_name = 'core' and table_name = 'deal'`,
  )
  expect(comments).toMatchObject([
    {comment: expect.stringContaining('five digits')},
    {comment: expect.stringContaining('Deals present at as_of')},
  ])
  const schemas = `select distinct schema_name as name from duckdb_tables() where database_name = 'release' order by 1`
  const names = (await db.all(noRow, schemas)).map(({name}) => name)
  expect(names).toContain('core')
  expect(names).not.toContain('work')
})

test('the fingerprint changes with a name or a content, and with nothing else', async () => {
  const {plan, checks} = await builtInPlan()
  const fingerprint = fingerprintModels(plan.models, checks, plan.seeds)
  const [model, ...others] = plan.models
  expect(fingerprint).toMatch(/^[0-9a-f]{64}$/)
  expect(fingerprintModels([...others, {...model!, file: '/elsewhere.sql'}], checks, plan.seeds)).toBe(
    fingerprint,
  )
  expect(fingerprintModels([...others, {...model!, name: 'core.x'}], checks, plan.seeds)).not.toBe(
    fingerprint,
  )
  expect(fingerprintModels(plan.models, checks.slice(1), plan.seeds)).not.toBe(fingerprint)
  const seeds = plan.seeds.map((seed) => ({...seed, text: `${seed.text}\n`}))
  expect(fingerprintModels(plan.models, checks, seeds)).not.toBe(fingerprint)
})

test.each([
  ['the time', 'select now()::varchar as deal_id', /now\(\) can give .*deal\.sql:4\./],
  ['the day', 'select\n  current_date::varchar as deal_id', /current_date\(\) can give .*deal\.sql:5\./],
  [
    'the local time',
    'select localtimestamp::varchar as deal_id',
    /current_localtimestamp\(\) can give .*deal\.sql:4\./,
  ],
  [
    'the age of an instant',
    'select age(observed_at)::varchar as deal_id from raw.deal_version',
    /age\(\) can give .*deal\.sql:4\./,
  ],
  ['a setting', "select current_setting('threads')::varchar as deal_id", /current_setting\(\) can give/],
  ['the time through a macro', 'select ago(interval 1 day)::varchar as deal_id', /now|get_current_timestamp/],
  [
    'randomness',
    'select deal_id\nfrom raw.deal_version\nwhere random() < 0.5',
    /random\(\) can give .*deal\.sql:6\./,
  ],
  [
    'randomness below a join',
    'select a.deal_id from raw.deal_version as a join raw.walk as b on uuid()::varchar = b.walk_id',
    /uuid/,
  ],
  [
    'a file',
    "select content as deal_id from read_text('/etc/hostname')",
    /read_text\(\) can give .*deal\.sql:4\./,
  ],
  ['a file in a CTE', "with a as (from read_csv('/etc/hostname'))\nselect 'a' as deal_id from a", /read_csv/],
])('refuses a model that asks for %s', async (_, sql, message) => {
  await expect(compile({'core/deal.sql': `${HEADER}${sql}\n`})).rejects.toMatchObject({
    code: 'MODEL_UNREPEATABLE',
    exitCode: 3,
    message: expect.stringMatching(message),
  })
})

test.each([
  ['a file', "select content from read_text('/etc/hostname')", 'read_text'],
  ['a file through a text', "from query('select content from read_text(''/etc/hostname'')')", 'query'],
  ['a file that is not there', "from read_csv('/nowhere.csv')", 'read_csv'],
  ['the settings of the engine', 'from duckdb_settings()', 'duckdb_settings'],
])('refuses a check that reads %s, before any of it is read', async (_, sql, name) => {
  using folder = writeSqlFolder({'checks/curious.sql': `-- A check.\n-- severity: warn\n${sql}\n`})
  await expect(compile({'core/deal.sql': DEAL}, readChecks([], [folder.path]))).rejects.toMatchObject({
    code: 'MODEL_UNREPEATABLE',
    message: expect.stringMatching(new RegExp(`^${name}\\(\\) can give .*curious\\.sql:3\\.`)),
  })
})

test("a model may generate rows, ask for the build's variables, and measure the time between two instants", async () => {
  const sql = `${HEADER}select (range + unnest([1]))::varchar || getvariable('as_of') as deal_id from range(3)\n`
  expect(await compile({'core/deal.sql': sql})).toEqual(['core.deal'])
  const age = `${HEADER}select age(observed_at, created_at)::varchar as deal_id from raw.deal_version\n`
  expect(await compile({'core/deal.sql': age})).toEqual(['core.deal'])
})

test('refuses a model that reads the latest states, which are not history', async () => {
  const sql = `${HEADER}select '' as deal_id from raw.deal_head\n`
  await expect(compile({'core/deal.sql': sql})).rejects.toMatchObject({code: 'MODEL_UNKNOWN_TABLE'})
})

test('byte order marks and other line ends leave models and seeds the same', () => {
  const files = {'core/deal.sql': DEAL, 'seeds/kind.csv': 'kind,rank:bigint\na,1\n'}
  const read = (texts: Record<string, string>) => {
    using folder = writeSqlFolder(texts)
    return fingerprintModels(readModels([folder.path]), [], readSeeds([folder.path]))
  }
  const marked = Object.entries(files).map(([name, text]) => [name, `\uFEFF${text.replaceAll('\n', '\r\n')}`])
  expect(read(Object.fromEntries(marked))).toBe(read(files))
})

test('refuses a seed that is not UTF-8, naming the first bad byte', async () => {
  using folder = writeSqlFolder({'seeds/kind.csv': ''})
  const bytes = Buffer.concat([Buffer.from('code\n\uFFFD, Neuch'), Buffer.from([0xe2]), Buffer.from('tel\n')])
  writeFileSync(join(folder.path, 'seeds/kind.csv'), bytes)
  expect(() => readSeeds([folder.path])).toThrow(/^Byte 0xE2 in .*kind\.csv:2:9: expected UTF-8/)
})

test('a seed that replaces another needs all of its columns except those marked with a question mark', () => {
  using first = writeSqlFolder({'seeds/kind.csv': 'code,since:date?,name?,rank\n'})
  using second = writeSqlFolder({'seeds/kind.csv': 'name,rank,code\nfirst,1,a\n'})
  expect(readSeeds([first.path, second.path])).toMatchObject([
    {
      columns: ['code', 'since', 'name', 'rank'],
      types: {since: 'date'},
      rows: [{values: ['a', null, 'first', '1']}],
    },
  ])
  using third = writeSqlFolder({'seeds/kind.csv': 'code,name\n'})
  expect(() => readSeeds([first.path, third.path])).toThrow(
    /no column 'rank': expected the columns of the one it replaces, code, .*rank, in .*kind\.csv:1\./,
  )
})

test.each([
  ['in no schema', {'deal.sql': DEAL}, /'deal\.sql' has no schema: expected <schema>\/<name>\.sql/],
  [
    'below its schema',
    {'core/deal.sql': DEAL, 'core/old/deal.sql': DEAL},
    /'core\/old\/deal\.sql' lies below its schema: expected <schema>\/<name>\.sql/,
  ],
])('a model that lies %s is refused, not ignored', async (_, files: Record<string, string>, words) => {
  const message = expect.stringMatching(words)
  await expect(compile(files)).rejects.toMatchObject({code: 'MODEL_NAME', message})
})

test('a folder in the place of a model is named', async () => {
  await expect(compile({'core/deal.sql/readme': ''})).rejects.toMatchObject({
    code: 'SQL_FILE',
    exitCode: 3,
    message: expect.stringMatching(/core\/deal\.sql' cannot be read \(EISDIR\)/),
  })
})

test('neither a model nor a check reads a file, whatever else has that name', async () => {
  using folder = writeSqlFolder({'secret.csv': 'deal_id\nstolen\n'})
  const file = `"${join(folder.path, 'secret.csv')}"`
  const shadowed = `select s.deal_id from (with ${file} as (select '1' as deal_id) from ${file}) as x, ${file} as s`
  for (const sql of [`from ${file}`, shadowed, `select (select count(*) from ${file}) as deal_id`]) {
    const refused = {code: 'MODEL_UNKNOWN_TABLE', message: expect.stringContaining('files are not read')}
    expect(await failureOf(compile({'core/deal.sql': `${HEADER}${sql}`})), sql).toMatchObject(refused)
    expect(await failureOf(compile({'core/deal.sql': DEAL}, [aCheck(sql)])), sql).toMatchObject(refused)
  }
})
