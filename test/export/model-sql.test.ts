import {afterAll, beforeAll, expect, test} from 'vitest'
import {parseSelects} from '../../src/build/compile.ts'
import {NotRewritten, toClickhouseSql} from '../../src/export/clickhouse-sql.ts'
import {type Database, openDatabase} from '../../src/store/database.ts'

let db: Database
beforeAll(async () => {
  db = await openDatabase({threads: 1})
})
afterAll(() => db[Symbol.asyncDispose]())

async function rewrite(sql: string): Promise<string> {
  const selects = await parseSelects(db, [{name: 'a', file: 'a.sql', sql}])
  return toClickhouseSql(selects.get('a')?.statements[0], {
    table: (table) => `all_of(${table})`,
    variable: (variable) => `given(${variable})`,
  }).replace(/\s+/g, ' ')
}

test.each([
  [
    'names of columns and tables',
    'select d.a, b as c from core.deal as d',
    'select `d`.`a` as `a`, `b` as `c` from all_of(core.deal) as `d`',
  ],
  [
    'a division, which yields a DOUBLE',
    'select a / nullif(b, 0) as r',
    'select (toFloat64(`a`) / toFloat64(nullif(`b`, 0))) as `r`',
  ],
  ['a decimal constant', 'select a * 0.05 as r', "select (`a` * toDecimal64('0.05', 2)) as `r`"],
  ['a negative one', 'select a * -1.5 as r', "select (`a` * toDecimal64('-1.5', 1)) as `r`"],
  [
    'a count, which is signed',
    'select count(*) filter (where a) as n',
    'select toInt64(count() filter (where `a`)) as `n`',
  ],
  [
    'grouping',
    'select a, count(distinct b) as n from t group by all',
    'select `a` as `a`, toInt64(count(distinct `b`)) as `n` from `t` as `t` group by all',
  ],
  [
    'sets of groups',
    'select grouping(a) as g from t group by grouping sets ((a), (b, a))',
    'select grouping(`a`) as `g` from `t` as `t` group by grouping sets ((`a`), (`a`, `b`))',
  ],
  [
    'casts',
    'select cast(a as decimal(38, 2)) as d, cast(a as bigint) as i, cast(a as date) as t',
    'select toDecimal128(round(`a`, 2), 2) as `d`, cast(round(`a`) as Nullable(Int64)) as `i`, toDate32(`a`) as `t`',
  ],
  ['an anti-slash and a quote', "select 'a''\\b' as t", "select 'a\\'\\\\b' as `t`"],
  [
    'the days between two dates',
    'select unnest(generate_series(a, b, interval 1 day)) as day',
    "select arrayJoin(arrayMap(step -> addDays(`a`, step), range(toUInt64(greatest(0, dateDiff('day', assumeNotNull(`a`), assumeNotNull(`b`)) + 1))))) as `day`",
  ],
  [
    'parallel lists',
    'select unnest([1, 2]) as a, unnest([3, 4]) as b',
    'select tupleElement(arrayJoin(arrayZip([1, 2], [3, 4])), 1) as `a`, tupleElement(arrayJoin(arrayZip([1, 2], [3, 4])), 2) as `b`',
  ],
  [
    'a window',
    'select sum(a) over (partition by b order by c desc nulls first) as s',
    'select sum(`a`) over (partition by `b` order by `c` desc nulls first) as `s`',
  ],
  ['a variable', "select getvariable('as_of') as d", 'select given(as_of) as `d`'],
  [
    'a CTE, a join, a limit',
    'with x as (select 1 as a) select distinct x.a from x left join y on y.a = x.a order by a limit 3',
    'with `x` as ( select 1 as `a` ) select distinct `x`.`a` as `a` from `x` as `x` left join `y` as `y` on (`y`.`a` = `x`.`a`) order by `a` nulls last limit 3',
  ],
])('rewrites %s', async (_, sql, expected) => {
  expect(await rewrite(sql)).toBe(expected)
})

const refused = {
  'select regexp_extract(a, b) as c': 'regexp_extract',
  'select a from t using sample 10': 'sample',
  'select sum(a) over (order by b rows between 1 preceding and current row) as c': 'start expr',
  'select a from t full join u on t.a = u.a': 'full',
  'select {x: 1} as s': 'struct_pack',
  'select a from read_csv(b)': 'table_function',
  'select a from t limit 1 offset 2': 'limit_modifier',
  'select try_cast(a as date) as b': 'try cast',
  'select distinct on (a) a from t': 'distinct on',
  'select a intersect select b': 'intersect',
  'select quantile_cont(a, 0.5) as b': 'quantile_cont',
  'select a from t natural join u': 'natural',
  'select sum(a order by b) as c from t': 'order',
  'select x -> x + 1 as c': 'lambda',
}

test('an unknown construct is refused by name', async () => {
  for (const [sql, what] of Object.entries(refused)) {
    const failure = await rewrite(sql).catch((error: unknown) => error)
    expect(failure, sql).toBeInstanceOf(NotRewritten)
    expect(String(failure).toLowerCase(), sql).toContain(what)
  }
})
