import {execFileSync} from 'node:child_process'
import {mkdtempDisposableSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {Workbook} from '@cj-tech-master/excelts'
import type {Page} from 'playwright-core'
import {expect, onTestFinished, test, vi} from 'vitest'
import {seedPortfolio} from '../../src/service/portfolio.ts'
import {openForQuestions, requireRelease} from '../../src/store/release.ts'
import {parseQuestion} from '../../src/web/question.ts'
import {FEW_TABLES} from '../support/data.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {listViolations} from './browser.ts'
import {basic, chartIn, OPERATOR, openPage, serveLab, textOf, VIEWER} from './side.ts'

const BY_STATUS =
  'select status, sum(loan_amount)::decimal(18, 2) as amount from core.deal group by all order by all'

const lab = await useLab({tables: FEW_TABLES})
seedPortfolio(lab.service.store, {deals: 60, seed: 'sql', today: '2026-03-02'})
await lab.sync('2026-03-02T23:30:00-05:00')
const side = await serveLab(lab)

async function open(query: Record<string, string> = {}): Promise<Page> {
  const {page} = await openPage(`${side.url}/sql`)
  await follow(page, `/sql?${new URLSearchParams(query)}`)
  return page
}

/** Follows a link from the current page: a query without a referrer is not run. */
async function follow(page: Page, path: string): Promise<void> {
  await Promise.all([page.waitForEvent('load'), page.evaluate(`location.href = ${JSON.stringify(path)}`)])
}

const get = (path: string, query: Record<string, string> = {}, headers: Record<string, string> = {}) =>
  side.get(`${path}?${new URLSearchParams(query)}`, headers)
const read = async (path: string, query: Record<string, string>) => (await get(path, query)).text()

const readText = async (path: string, query: Record<string, string>) => textOf(await read(path, query))

test('rows are shown in the form asked for, or as a table if that is impossible', async () => {
  const show = (as: string, q: string) => read('/sql', {as, q})
  for (const shape of ['bar', 'line', 'area']) {
    const chart = await show(shape, BY_STATUS)
    expect(chart).toContain('<figure class="chart" aria-label="amount"')
    expect(chart).toContain(`<option selected>${shape}</option>`)
  }
  expect(await show('number', `${BY_STATUS} limit 1`)).toMatch(/class="name">Status<.*class="name">Amount</s)
  expect(await show('bar', 'select 1')).toMatch(/A chart needs a column.*<td class="number">1<\/td>/s)
  const showRecords = (rows: string) =>
    readText('/sql', {as: 'records', q: `select 'a' as name, ${rows} as deal_rows`})
  for (const odd of ['1', "'TX'", "'[1]'", '[1, 2]'])
    expect(await showRecords(odd)).toContain(
      "Column 'deal_rows': expected lists of objects. The rows as a table: ",
    )
  expect(await showRecords('[{n: 7}]')).toContain('N 7')
  expect(await show('pie', 'select 1')).toContain('<td class="number">1</td>')
})

test('rows in long form are drawn with the text as series, or the page says why not', async () => {
  const show = async (rows: string) => {
    const q = `select * from (values ${rows}) as t(month_end, bucket, amount)`
    const page = await read('/sql', {as: 'line', q})
    const drawn = chartIn(page)
    if (!drawn) return /<p class="notice">(.*?)<\/p>/s.exec(page)?.[1]?.replaceAll('&#39;', "'")
    return [drawn.xAxis.data, drawn.series.map(({name, data}: {name: string; data: unknown}) => [name, data])]
  }
  const long = `('01', 'TX', 1.5), ('01', 'CA', 2), ('02', 'TX', 3), ('02', null, 4)`
  const series = [
    ['TX', [1.5, 3]],
    ['CA', [2, null]],
    ['–', [null, 4]],
  ]
  expect(await show(long)).toEqual([['01', '02'], series])
  expect(await show(`${long}, ('02', 'TX', 5)`)).toContain(
    `'month_end' and 'bucket' have the same values in several rows`,
  )
  expect(await show(`('01', 1, 2), ('01', 2, 3)`)).toContain(`'month_end' has the same value in several rows`)
  const many = Array.from({length: 9}, (_, index) => `('01', 'b${index}', 1)`).join(', ')
  expect(await show(many)).toContain(`'bucket' has 9 values: a chart can show 8 series.`)
})

test('after Back the editor and its form show the query of the page, and Run runs what the editor shows', async () => {
  const page = await open({q: 'select 1 as one', as: 'table'})
  await page.locator('.cm-content').fill('select 2 as two')
  await page.getByLabel('Show as').selectOption('number')
  await page.getByRole('button', {name: 'Run'}).click()
  await page.locator('.figure').waitFor()
  await page.goBack()
  await page.locator('.cm-content').waitFor()
  expect(await page.locator('.cm-content').textContent()).toBe('select 1 as one')
  expect(await page.getByLabel('Show as').inputValue()).toBe('table')
  await page.evaluate(`document.querySelector('#q').value = 'select 3 as three'`)
  // The page before shows the same.
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', {name: 'Run'}).click()])
  expect(await page.locator('thead th').allTextContents()).toEqual(['one'])
})

test('a text that nobody sent is not left behind unasked', async () => {
  const {page} = await openPage(`${side.url}/sql`)
  const asked: string[] = []
  page.on('dialog', async (dialog) => {
    asked.push(dialog.type())
    await dialog.dismiss()
  })
  await page.locator('.cm-content').fill('select 1 as one')
  await page.getByRole('link', {name: 'All tables'}).click()
  await until(async () => asked.length > 0)
  // What is written after a question that got no answer was not sent either.
  await page.route('**/sql?*', (route) => route.abort('aborted'), {times: 1})
  await page.getByRole('button', {name: 'Run'}).click()
  await page.locator('.cm-content').fill('select 2 as two')
  await page.getByRole('link', {name: 'All tables'}).click()
  await until(async () => asked.length > 1)
  await page.getByRole('button', {name: 'Run'}).click()
  await page.locator('.downloads').waitFor()
  await page.getByRole('link', {name: 'All tables'}).click()
  await page.waitForURL(`${side.url}/tables`)
  expect(asked).toEqual(['beforeunload', 'beforeunload'])
})

test('a query takes the values of its parameters from fields below it, in a pivot and in downloads, too', async () => {
  const q = 'select status, loan_amount from core.deal where status = $by -- $no'
  const page = await open({q, as: 'table'})
  expect(await page.locator('.downloads').textContent()).toContain('0 rows.')
  expect(await page.locator('.sql input:not([type=hidden], [name=name], [name=title])').count()).toBe(1)
  await page.getByLabel('$by', {exact: true}).fill("o'funded")
  await page.getByRole('button', {name: 'Run'}).click()
  await page.waitForURL(/o%27funded/)
  await page.getByLabel('$by', {exact: true}).fill('funded')
  await page.getByRole('button', {name: 'Run'}).click()
  await page.waitForURL(/%24by=funded/)
  const link = new URL((await page.getByRole('link', {name: 'CSV'}).getAttribute('href')) ?? '', side.url)
  expect(link.searchParams.get('q')).toBe(q.replace('$by', "'funded'"))
  await page.getByText('Pivot', {exact: true}).first().click()
  await page.getByRole('button', {name: 'Pivot'}).click()
  await page.waitForURL(/by=sum/)
  expect(await page.locator('.matrix tbody').textContent()).toContain('funded')
  expect(await page.locator('form[action="/sql/queries"] [name=q]').inputValue()).toContain('$by')
  expect((await get('/data/query.csv', {q})).status).toBe(400)
})

test('a pivot in a link that somebody sent is what its query shows once a person runs it', async () => {
  const pivot = {rows: 'status', columns: 'status', by: 'max', of: 'amount'}
  const answer = await get('/sql', {q: BY_STATUS, ...pivot}, {'sec-fetch-site': 'none'})
  const [form = ''] = /<form class="sql" action="\/sql".*?<\/form>/s.exec(await answer.text()) ?? []
  const sent = [...form.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)]
  expect(Object.fromEntries(sent.map(([, name, value]) => [name, value]))).toEqual(pivot)
})

test('a pivot has a cell for each pair, totals of both, exact sums, and numbers are written by what they are', async () => {
  const q = `select * from (values ('TX', 'funded', 0.10::decimal(18, 2)), ('TX', 'draft', 12345678901234.20), (null, 'All', 1.00), ('All', 'funded', 2.00)) as t("a ""b""", status, amount) order by 1; `
  const pivot = {q, rows: 'a "b"', columns: 'status', of: 'amount'}
  const cellsOf = async (query: Record<string, string>) => {
    const page = await read('/sql', query)
    return textOf(/<table>.*<\/table>/s.exec(page)?.[0] ?? page).trim()
  }
  expect(await cellsOf(pivot)).toBe(
    'A &quot;b&quot; All draft funded All All – – $2.00 $2.00 TX – $12,345,678,901,234.20 $0.10 $12,345,678,901,234.30 – $1.00 – – $1.00 All $1.00 $12,345,678,901,234.20 $2.10 $12,345,678,901,237.30',
  )
  expect(await cellsOf({...pivot, by: 'count'})).toMatch(/ All 1 1 2 4$/)
  expect(await cellsOf({...pivot, by: 'avg'})).toMatch(/ All \$1\.00 \$12,345,678,901,234\.20 \$1\.05 /)
  const ended = `-- ;\nselect 'x; --' as s, /* ; /* nested */ */ $$;$$ as "t;", 1 as n ; ; -- one; 'two'`
  expect(await cellsOf({q: ended, rows: 's', columns: 't;', of: 'n'})).toBe('S ; All x; -- 1 1 All 1 1')
  const page = await read('/sql', {...pivot, by: 'max'})
  expect(page).toMatch(/<p class="downloads">\d+ cells\. Download the cells without totals: /)
  expect(page).toMatch(/<select name="by">.*<option selected>max/)
  const [, download = ''] = /href="([^"]*query\.csv[^"]*)">CSV/.exec(page) ?? []
  expect(await (await side.get(download.replaceAll('&amp;', '&'))).text()).toBe(
    '"a ""b""",status,amount\nAll,funded,2.00\nTX,draft,12345678901234.20\nTX,funded,0.10\n,All,1.00\n',
  )
  expect(await read('/sql', {...pivot, as: 'area'})).toContain('<figure class="chart"')
  expect(await read('/sql', {...pivot, of: 'nothing'})).toContain('nothing')
  expect(await read('/sql', {...pivot, of: 'status'})).toContain('<pre class="failed"')
  const exact = `select 2026 as closing_year, 12345 as deals, 1.5::decimal(18, 2) as amount, 0.123456 as ltv, 'a_b' as status`
  expect(await cellsOf({q: exact})).toBe('closing_year deals amount ltv status 2026 12,345 $1.50 12.3 % a_b')
  expect(await read('/sql', {q: exact})).toContain('<span title="0.123456">12.3 %</span>')
  const odd = `select [1, 2] as parts, {'a': null} as whole, 'infinity'::date as until, interval '14 months -3 days' as lasted`
  expect(await cellsOf({q: odd})).toBe(
    'parts whole until lasted [1,2] {&quot;a&quot;:null} infinity 1 year 2 months -3 days',
  )
})

test.each([
  [['x', 'y', 'is_total'], 'X b All a 3 3 All 3 3'],
  [['is_total', 'is_current', 'v_note'], 'Is total b All a 3 3 All 3 3'],
  [['r', 'r_href', 'r_note'], 'R b All a 3 3 All 3 3'],
  [['place_2', 'value', 'place_1'], 'Place 2 b All a 3 3 All 3 3'],
  [['v_href', 'v_href', 'v'], 'V href a All a 3 3 All 3 3'],
])('a pivot of columns called %s shows its figures', async ([rows = '', columns = '', of = ''], shown) => {
  const second = columns === rows ? '' : `'b' as ${columns},`
  const page = await read('/sql', {q: `select 'a' as ${rows}, ${second} 3 as ${of}`, rows, columns, of})
  expect(textOf(/<table>.*<\/table>/s.exec(page)?.[0] ?? page).trim()).toBe(shown)
})

test("the last queries of a person are the person's alone, each once, and bounded", async () => {
  await using guarded = await serveLab(lab, {webToken: OPERATOR, webViewerToken: VIEWER})
  const ask = async (name: string, token: string, q?: string) => {
    const path = q === undefined ? '/sql' : `/sql?${new URLSearchParams({q})}`
    const page = await guarded.read(path, basic(name, token))
    const [, list = ''] = /Your last queries<\/summary><ul>(.*?)<\/ul>/s.exec(page) ?? []
    return [...list.matchAll(/<a[^>]*>(.*?)<\/a>/g)].map(([, text]) => text)
  }
  const began_at = '2026-03-02T00:00:00.000Z'
  const asked = {who: 'operator "ann"', command: 'sql', exit_code: 0, began_at, ended_at: began_at}
  for (let n = 1; n <= 32; n += 1) guarded.stateDb.insert('page_action', {...asked, words: `select ${n}`})
  await ask('ann', OPERATOR, 'select 30')
  const kept = await ask('ann', OPERATOR, "selec '<b>'\n from nowhere")
  expect(kept).toHaveLength(30)
  const last = ['selec &#39;&lt;b&gt;&#39; from nowhere', 'select 30', 'select 32', 'select 31']
  expect(kept.slice(0, 4)).toEqual(last)
  expect(await ask('bob', OPERATOR)).toEqual([])
  expect(await ask('ann', VIEWER)).toEqual([])
  expect(await ask('bob', OPERATOR, 'select 1')).toEqual(['select 1'])
  expect(await guarded.read('/runs', OPERATOR)).not.toContain('operator &quot;')
})

test('a query is answered at once while another process writes the state database, and is not kept', async () => {
  await using busy = await serveLab(lab)
  // A server that waited for the other process would wait for days.
  busy.stateDb.db.exec('pragma busy_timeout = 1000000000')
  using other = new DatabaseSync(lab.folder.stateDb)
  other.exec('begin immediate')
  const page = await busy.readText('/sql?q=select+40%2B2')
  expect(page).toMatch(/The query is not kept: .* 42 /)
  other.exec('rollback')
  expect(await busy.readText('/sql?q=select+40%2B2')).toContain('Your last queries select 40+2')
})

test('an error quotes the given text, marks its line, and says what to do next', async () => {
  const page = await open({q: 'select deal_id\nfrom core.deal\nwhere nothing = 1;'})
  const words = (await page.locator('pre.failed').textContent()) ?? ''
  expect(words).toContain('\n\nLINE 3: where nothing = 1;\n              ^\nThe release is read-only')
  const marked = page.locator('.cm-line.failed-line')
  expect(await marked.allTextContents()).toEqual(['where nothing = 1;'])
  await page.getByRole('textbox', {name: 'One SELECT'}).press('Control+End')
  await page.keyboard.type(' ')
  expect(await marked.count()).toBe(0)
  const say = async (q: string) => {
    await follow(page, `/sql?${new URLSearchParams({q})}`)
    return (await page.locator('pre.failed').textContent()) ?? ''
  }
  expect(await say('drop table core.deal')).toContain('Query refused: expected one SELECT;')
  expect(await say('pivot core.deal on status')).toContain(
    `PIVOT needs its values: \`pivot core.deal on status in (`,
  )
  for (const q of ["select '", 'select 1 /*', 'selec 1', 'select (', 'select 1 limit x'])
    expect(await say(q), q).not.toMatch(/select \* from \(|;select 1|asked/)
})

test('the editor completes tables and columns, runs by keys, and Tab leaves it', async () => {
  const page = await open()
  const editor = page.getByRole('textbox', {name: 'One SELECT'})
  const choice = page.locator('.cm-tooltip-autocomplete li').first()
  const complete = async (text: string, label: string) => {
    await page.keyboard.type(text)
    await until(async () => {
      // A person whose list does not appear asks for it once and waits; asking again and again would bring none.
      await choice.waitFor({timeout: 1000}).catch(() => page.keyboard.press('Control+Space'))
      const [first] = await choice.allTextContents()
      return first === label
    })
    // A new completion list ignores input at first, and one that was seen may be gone when it is asked.
    await until(async () => {
      if (await choice.isVisible())
        await choice.dispatchEvent('mousedown', {}, {timeout: 1000}).catch(() => undefined)
      return !(await choice.isVisible())
    })
  }
  await editor.click()
  await page.keyboard.type('select sum')
  await choice.waitFor()
  expect(await listViolations(page, ['minor', 'moderate', 'serious', 'critical'])).toEqual([])
  for (let index = 0; index < 'select sum'.length; index += 1) await page.keyboard.press('Backspace')
  await complete('from core.dea', 'deal')
  await page.keyboard.type(' d\n')
  await complete('select count(d.loan_am', 'loan_amount')
  await page.keyboard.type(') as deals\n')
  await complete('where loan_pro', 'loan_program')
  await page.keyboard.type(' is not null')
  await page.keyboard.press('Tab')
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Run')
  await editor.focus()
  await page.keyboard.press('Control+Enter')
  await page.waitForURL(/q=/)
  const q = new URL(page.url()).searchParams.get('q')
  expect(q?.replaceAll('\r', '')).toBe(
    'from core.deal d\nselect count(d.loan_amount) as deals\nwhere loan_program is not null',
  )
  expect(await page.locator('tbody td').count()).toBe(1)
  expect(await editor.textContent()).toContain('from core.deal d')
})

test('without scripts the field still works, as a form of the same address', async () => {
  const {page} = await openPage(`${side.url}/sql`, {javaScriptEnabled: false})
  await page.getByRole('textbox').fill(`${BY_STATUS};`)
  await page.getByRole('button', {name: 'Run'}).click()
  expect(await page.locator('thead').textContent()).toBe('statusamount')
  expect(await page.getByRole('textbox').inputValue()).toBe(`${BY_STATUS};`)
})

test('a JSON download is JSON: a number that is not finite is null, every decimal has a digit before the point', async () => {
  const q = `select 'nan'::double as "n n", '-infinity'::float as f, 1.5::double as d, [1.5::double] as l, 'x' as t, -0.25::decimal(18,18) as s, [0.5::decimal(38,38)] as w`
  const rows = await read('/data/query.json', {q})
  expect(JSON.parse(rows)).toEqual([{'n n': null, f: null, d: 1.5, l: [1.5], t: 'x', s: -0.25, w: [0.5]}])
  const within = `select {'NaN': ['nan'::double, null, 2], 't': '[-Infinity, "NaN\\"]', 'm': map {'a"NaN': '-inf'::float}, 'd': .5::decimal(2,2)} as "a b" from range(2)`
  const row = {'a b': {NaN: [null, null, 2], t: '[-Infinity, "NaN\\"]', m: {'a"NaN': null}, d: 0.5}}
  expect(JSON.parse(await read('/data/query.json', {q: within}))).toEqual([row, row])
})

test('a Parquet download keeps each digit of a whole number, however long it is', async () => {
  using folder = mkdtempDisposableSync(join(tmpdir(), 'loantape-parquet-'))
  const file = join(folder.path, 'rows.parquet')
  const q = `select sum(n) as total, [max(n)] as l, 5::uhugeint as u from (values (9007199254740993::bigint), (99999999999999999999999999999::hugeint)) as t(n)`
  writeFileSync(file, Buffer.from(await (await get('/data/query.parquet', {q})).arrayBuffer()))
  expect(await lab.query(`from '${file}'`)).toEqual([
    {total: '100000000000009007199254740992', l: ['99999999999999999999999999999'], u: '5'},
  ])
})

test('a worksheet holds numbers, days and truths, anything else as its text, and no invalid cell', async () => {
  const q = `select 'infinity'::date, '-infinity'::timestamp, '20000-01-01'::date, interval 3 month as "months_pct", [1, 2], '0101'::bit, 'nan'::double, '-infinity'::float, 12::tinyint, 1.5::decimal(18, 2), '2026-03-02'::date, true from range(2)`
  const answer = await get('/data/query.xlsx', {q})
  for (const {headers} of [answer, await get('/data/core.deal.xlsx')])
    expect(headers.get('content-type')).toContain('spreadsheetml')
  const book = new Workbook()
  await book.xlsx.load(Buffer.from(await answer.arrayBuffer()))
  const [sheet, ...others] = book.worksheets
  expect([sheet?.rowCount, others]).toEqual([3, []])
  const texts = ['infinity', '-infinity', '20000-01-01', '3 months', '[1, 2]', '0101', 'NaN', '-Infinity']
  const values = [...texts, 12, 1.5, new Date('2026-03-02'), true]
  expect(values.map((_, index) => sheet?.getRow(3).getCell(index + 1).value)).toEqual(values)
})

const SUM = 'select sum(loan_amount) as total from core.deal'

const REFUSED = [
  // Other statements, however they are hidden.
  'drop table core.deal',
  "attach ':memory:' as own",
  'set variable as_of = null',
  "copy core.deal to '1.csv'",
  'pragma enable_profiling',
  'explain analyze select 1',
  'select 1 into x',
  'select 1\0; create temp macro sum(x) as 1.00',
  'select 1; create temp macro sum(x) as 1.00',
  'select 1; select 2',
  "select 1) to 'stolen.csv' --",
  'with x as (insert into core.deal select * from core.deal returning *) from x',
  'from (pivot core.deal on status)',
  // Functions that change the engine, wherever they appear.
  "from enable_logging('QueryLog')",
  'select * from Enable_Profiling()',
  'describe from enable_logging()',
  'select exists (from disable_logging())',
  'select * from range(3) as t(x), lateral (from truncate_duckdb_logs())',
  'select list(x order by (select count(*) from checkpoint())) from range(3) as t(x)',
  "select write_log('x')",
  // Statements inside a text.
  "from query('from enable_logging()')",
  "from query_table('duckdb_databases')",
  "from json_execute_serialized_sql(json_serialize_sql('select 42'))",
  "select json_serialize_plan('from enable_logging()')",
  'from histogram(core.deal, state)',
  // Files.
  "from '/etc/passwd'",
  "from 'own.csv'",
  "describe 'own.parquet'",
  "from read_csv('/etc/passwd')",
  "select (select content from read_text('/etc/passwd'))",
  'from arrow_scan(1::pointer, 1::pointer, 1::pointer)',
  // What belongs to the machine.
  "select getenv('HOME')",
  'select current_query()',
  "select system.main.current_setting('temp_directory')",
  "select ('home_directory').current_setting()",
  "select list_transform(['temp_directory'], lambda x : current_setting(x))",
  'from duckdb_settings()',
  'from duckdb_databases',
  'from pragma_database_list',
  'from pg_catalog.pg_settings',
  'from duckdb_logs',
  // Too large, or empty.
  "select repeat('x', 30000000)",
  'select 1e999',
  '-- nothing',
]

/** One of each kind is asked on a page and as a download; the others only go to the parser. */
const AS_ASKED = /\0|drop table|Enable_Profiling|read_text|getenv|repeat\(|1e999|nothing/

test('a statement that is no question about the release is refused with a reason, and the next is answered as before', async () => {
  const [sum] = await lab.query(SUM)
  const [asked, parsed] = [true, false].map((is) => REFUSED.filter((sql) => AS_ASKED.test(sql) === is))
  for (const sql of asked ?? []) {
    const page = await read('/sql', {q: sql})
    expect(page, sql).toContain('<pre class="failed"')
    if (sql.includes('repeat(')) continue
    const data = await get('/data/query.csv', {q: sql})
    expect([data.status, await data.text()], sql).toEqual([400, expect.stringMatching(/^Query refused: /)])
  }
  await using db = await openForQuestions(requireRelease(lab.folder), {memoryMb: 200, withWork: true})
  for (const sql of parsed ?? []) await expect(parseQuestion(db, sql), sql).rejects.toThrow()
  expect(await read('/data/query.csv', {q: SUM})).toBe(`total\n${sum?.total}\n`)
  expect(await read('/sql', {q: `${SUM}; -- of all`})).toContain(
    Number(sum?.total).toLocaleString('en-US', {minimumFractionDigits: 2}),
  )
})

test('questions in any form of a SELECT are answered, and their download has the same rows', async () => {
  for (const [q, csv] of [
    ['select 1 as a; -- end', 'a\n1\n'],
    [`${'-- why that column is there\n'.repeat(1_000)}select 1 as a`, 'a\n1\n'],
    ['select unnest([null, 1]) as a', 'a\n""\n1\n'],
    ['select\u2003count(*) as deals from\u00a0core.deal', 'deals\n60\n'],
    ['from core.deal select count(*) as deals', 'deals\n60\n'],
    ['with duckdb as (values (1)) from duckdb', 'col0\n1\n'],
    ['select $$;\' "$$ as a', 'a\n";\' """\n'],
    ['(select 2 as a union all select 1) order by a', 'a\n1\n2\n'],
    ["pivot (select 'x' as a, 1 as b) on a in ('x') using sum(b)", 'x\n1\n'],
    ['describe (select 1 as a); -- x', 'column_name,column_type,null,key,default,extra\na,INTEGER,YES,,,\n'],
    ["select count(*) as a from duckdb_columns() where table_name = 'nothing'", 'a\n0\n'],
  ] as const) {
    expect(await read('/data/query.csv', {q}), q).toBe(csv)
    expect(await read('/sql', {q}), q).not.toContain('<pre class="failed"')
  }
})

test.each([
  'from duckdb_tables()',
  'from duckdb_views()',
  'from duckdb_functions()',
  'from information_schema.tables',
  'from sqlite_master',
  'from pg_catalog.pg_database',
  'show databases',
  'show all tables',
])('%s names no file', async (q) => {
  const answer = await get('/data/query.csv', {q, part: 'open'})
  expect(answer.status).toBe(200)
  expect(await answer.text()).not.toMatch(/loantape-|\.duckdb/)
})

test('a download begins before it is complete, may take its time, and frees its place if the caller hangs up', async () => {
  using aside = mkdtempDisposableSync(join(tmpdir(), 'loantape-downloads-'))
  vi.stubEnv('TMPDIR', aside.path)
  onTestFinished(() => void vi.unstubAllEnvs())
  await using hasty = await serveLab(lab, {questionTimeoutSeconds: 1})
  const ask = (path: string, q: string) => hasty.get(`${path}?${new URLSearchParams({q})}`)
  const slow = `select sleep_ms(1500) is null as slept`
  expect(await (await ask('/sql', slow)).text()).toContain('it took too long')
  expect(await (await ask('/data/query.csv', slow)).text()).toBe('slept\ntrue\n')
  await using hurried = await serveLab(lab, {pageTimeoutSeconds: 0.001})
  const late = await hurried.get('/')
  expect([late.status, await late.text()]).toEqual([503, expect.stringContaining('it took too long')])

  const large = await ask('/data/query.csv', 'select range as number from range(200000)')
  expect((await large.text()).split('\n')).toHaveLength(200_002)

  const leftFiles = () =>
    readdirSync(aside.path, {recursive: true, encoding: 'utf8'}).filter((name) => /\.(csv|xlsx)$/.test(name))
  const endless = new URLSearchParams({q: 'select range from range(1e12::bigint)'})
  for (let index = 0; index < 3; index += 1) {
    const caller = new AbortController()
    const begun = await fetch(`${hasty.url}/data/query.csv?${endless}`, caller)
    expect(begun.headers.get('content-disposition')).toContain('query-2026-03-02.csv')
    expect(begun.headers.get('content-length')).toBeNull()
    caller.abort()
    await until(() => leftFiles().length === 0)
  }
  expect((await hasty.get('/data/query.xlsx?q=select+1+as+one')).status).toBe(200)
})

test('a download that fails after it has begun is cut off', async () => {
  const read = async (rows = 1_000_000): Promise<string> => {
    const q = `select if(range = ${rows - 1}, error('boom'), range) as number from range(${rows})`
    const answer = await get('/data/query.json', {q})
    // This one failed before it had begun.
    return answer.status === 400 ? read(4 * rows) : answer.text()
  }
  // The download may be cut off before its first bytes are sent.
  await expect(read()).rejects.toThrow(/terminated|fetch failed/)
})

test('a query is saved under a name, opened by it, and stays as it is', async () => {
  const page = await open({q: 'select 1 as one', part: 'funded'})
  const save = async (name: string) => {
    await page.locator('summary:has-text("Save this query")').click()
    await page.getByLabel('Name', {exact: true}).fill(name)
    await page.getByRole('button', {name: 'Save'}).click()
  }
  const file = join(lab.folder.queries, 'all_one.sql')
  await save('all_one')
  expect(readFileSync(file, 'utf8')).toBe('select 1 as one\n')
  expect(page.url()).toBe(`${side.url}/sql?part=funded&saved=all_one&as=table`)
  await page.goto(`${side.url}/sql`)
  await page.getByRole('link', {name: 'all one'}).click()
  expect(await page.locator('thead').textContent()).toBe('one')
  await follow(page, '/sql?q=select+2+as+two')
  await save('all_one')
  expect(await page.locator('.notice').textContent()).toContain(
    "there is a query 'all_one' already; take another name",
  )
  await page.getByRole('link', {name: 'Back'}).click()
  await save('two')
  expect(readdirSync(lab.folder.queries)).toEqual(['all_one.sql', 'two.sql'])
  expect(readFileSync(file, 'utf8')).toBe('select 1 as one\n')
  expect((await lab.run(['query', '--file', file])).stdout).toContain('one')
  await follow(page, '/sql?saved=two')
  await page.locator('summary:has-text("Remove")').click()
  await page.getByRole('button', {name: 'Remove'}).click()
  expect(page.url()).toBe(`${side.url}/sql`)
  expect(readdirSync(lab.folder.queries)).toEqual(['all_one.sql'])
  expect(await read('/runs', {})).toMatch(/remove query two.*href="\/sql\?q=select\+2\+as\+two">Look at it/s)
  expect((await side.post('/sql/queries', {remove: 'two'})).status).toBe(404)
  expect((await side.post('/sql/queries', {remove: '../state'})).status).toBe(404)
  expect((await get('/sql', {saved: 'nothing'})).status).toBe(404)
  expect((await get('/sql', {saved: '../state'})).status).toBe(404)
  // The server must not wait for somebody to write into a pipe.
  execFileSync('mkfifo', [join(lab.folder.queries, 'pipe.sql')])
  expect((await get('/sql', {saved: 'pipe'})).status).toBe(500)
  expect((await get('/sql', {saved: 'all_one'})).status).toBe(200)
  // What cannot be saved is not said to be.
  rmSync(lab.folder.queries, {recursive: true})
  writeFileSync(lab.folder.queries, '')
  expect((await side.post('/sql/queries', {name: 'three', q: 'select 3'})).status).toBe(500)
  expect(await read('/runs', {})).not.toContain('save query three')
})
