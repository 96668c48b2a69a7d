import {appendFileSync, cpSync, readFileSync} from 'node:fs'
import {join, relative} from 'node:path'
import {expect, test} from 'vitest'
import {requireRelease} from '../../src/store/release.ts'
import {listFiles} from '../../src/store/sql.ts'
import {SHIPPED} from '../../src/web/page-files.ts'
import {renderDigest, renderReport} from '../../src/web/report.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {aDeal, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {expectNumbersToLead} from './page-numbers.ts'
import {block, chartIn, serveLab, textOf} from './side.ts'

/** A folder of models, checks and pages of one's own. */
const OWN = join(import.meta.dirname, 'own')

const lab = await useLab({tables: 'all'})
const {store} = lab.service
store.insert([
  ...someDeals(4, {status: 'funded'}),
  aDeal(5, {property_address: '5 Ocean Ct, Miami, FL 33101', loan_amount_cents: 1n}),
])
const docs = readFileSync(join(import.meta.dirname, '../../docs/workbench.md'), 'utf8')
const [, shown = ''] = /^````markdown\n(.*?)^````$/ms.exec(docs) ?? []
const own = lab.beside.use(writeSqlFolder({'pages/shown.md': shown}))
cpSync(OWN, own.path, {recursive: true})
const tooLong = `select 1 as x -- ${'"'.repeat(4000)}`
appendFileSync(join(own.path, 'pages/asked.md'), block('table', tooLong))
await lab.sync('2026-03-02T23:30:00-05:00', {config: {sqlDir: own.path}})
const side = await serveLab(lab, {sqlDir: own.path})
const release = requireRelease(lab.folder)
const given = {...lab.config, sqlDir: own.path}
/** The page `more`, without filters and of one deal. */
const more = await read('/pages/more')
const moreOfFlorida = await read('/pages/more?state=FL')

async function read(path: string): Promise<string> {
  const answer = await side.get(path)
  expect(answer.status, path).toBe(200)
  const text = await answer.text()
  return text.slice(text.indexOf('<main'), text.indexOf('</main>'))
}

test('a column beside another becomes its link, bar or color, and a total is in the foot', async () => {
  expect(more).toContain('<h1>By state &amp; more</h1>')
  expect(more).toContain('<h2 id="whats-open">What&#39;s open</h2>')
  const [table = ''] = /<table>.*?<\/table>/s.exec(more) ?? []
  expect(textOf(table)).toMatch(/^ Where Amount Deals Closing FL /)
  expect(table).toContain('<a href="/deals?state=FL&amp;part=open">FL</a>')
  expect(table).toContain('<b class="warned"><a href="/deals?state=FL&amp;part=open">1</a></b>')
  expect(table, 'no link leads nowhere').not.toContain('status=closing')
  expect(table.match(/<svg/g), 'a total has no bar').toHaveLength(2)
  expect(table).toMatch(/<tfoot><tr><td><a href="\/deals\?part=open">All<\/a><\/td>.*\$1,400,000\.01/s)
  expect(await expectNumbersToLead(side.url, '/pages/more')).toBeGreaterThan(3)
})

test('links of a page keep the filters of the address; links to all deals do not', async () => {
  const page = await read('/pages/more?state=FL&part=pipeline')
  expect(page).toContain(
    '<a href="/portfolio?part=pipeline&amp;state=TX">Texas</a>, <a href="/runs">runs</a> and elsewhere, up, on, odd,',
  )
  expect(page).toContain('<a href="/deals?part=pipeline&amp;state=FL">1</a>')
  expect(page).toMatch(/All of them<\/h2>.*<a href="\/deals\?part=open">5<\/a>/s)
  expect(await expectNumbersToLead(side.url, '/pages/more?state=FL')).toBe(3)
  const ended = await read('/pages/more?part=ended')
  expect(ended, 'no open deal has ended').not.toContain('href="/deals?part=ended')
})

test('what a check found is an amount only if it is one: an id, a code or a program can look like it', async () => {
  for (const path of ['/', '/checks']) {
    const shown = textOf(await read(path))
    for (const text of [' 1200.10 ', ' 4100.20', ' 12.50']) expect(shown).toContain(text)
    expect(shown).toContain('$3.00')
  }
})

test('parameters of the address are those of its SQL, whatever they contain', async () => {
  expect(more).toContain('asked for nothing, and 1 deal of 61.4 %')
  const chosen = await read('/pages/more?show=b')
  expect(chosen).toContain('asked for b,')
  expect(chosen).toContain(
    'Show <a href="/pages/more?show=a">a</a> <a href="/pages/more?show=b" aria-current="true">b</a>',
  )
  expect(await read(`/pages/more?show=${encodeURIComponent(`' || (select 1) --<b>`)}`)).toContain(
    'asked for &#39; || (select 1) --&lt;b&gt;,',
  )
})

test('a page holds others, ours and its own, with the parameters and filters of its address', async () => {
  const page = await read('/pages/holding?show=us&state=FL&base=%22x&checks=%5B%5D')
  expect(page).toMatch(/<h1>Holding<\/h1>.*<div class="name">Open<\/div>.*\$0\.01.*said by us/s)
  expect(page).toContain('pages/holding.md, line 9: Page &#39;holding&#39; holds itself.')
  expect(page).toContain('line 12: There is no page &#39;nowhere&#39;, or it has nothing to show.')
  expect(page).not.toContain('Held')
  expect(page.match(/Edit this page/g)).toHaveLength(1)
  expect((await renderReport(release, given, 'holding')).problems).toHaveLength(2)
})

test('a list is in the order that its SQL writes, until another is asked for', async () => {
  const ids = async (query: string) => {
    const shown = await read(`/pages/written${query}`)
    return [...shown.matchAll(/>deal_(\d+)</g)].map(([, id]) => Number(id))
  }
  const written = Array.from({length: 120}, (_, id) => id).sort(
    (a, b) => (a % 7) - (b % 7) || (`${a}` < `${b}` ? -1 : 1),
  )
  const pages = [await ids(''), await ids('?page=2'), await ids('?page=3&sort=nothing')]
  expect(pages.flat()).toEqual(written)
  expect(await read('/pages/written')).not.toMatch(/ [↑↓]<|written<\/a>/)
  expect((await ids('?sort=-amount')).slice(0, 2)).toEqual([119, 118])
  const sorted = await read('/pages/written?sort=-amount')
  expect(sorted).toMatch(/<h2>Listed<\/h2>\s*<p class="muted small">As written\.<\/p>.*120 deals.*Amount ↓/s)
})

test('a list counts a deal once, however many rows it has', async () => {
  const page = await read('/pages/twice')
  expect(textOf(page)).toContain(' 2 deals, $4.50 ')
  expect(page, 'a list without rows').not.toMatch(/Hidden|0 deals/)
  expect(page, 'a deal of a record').toContain('<a href="/deals/deal_000001"><code>deal_000001</code></a>')
})

test('a file has its list in one piece, and no link but those within it and to other sites', async () => {
  const {text} = await renderReport(release, given, 'listed?page=2&sort=-deal_id')
  expect(text.match(/>deal_\d+</g)).toHaveLength(1000)
  expect(text).toContain('1,200 deals, $1,200.00')
  expect(text).toContain('The first 1,000 of 1,200.')
  expect(text.match(/<a [^>]*>|<nav/g)).toEqual(['<a href="#there">', '<a href="https://example.com">'])
  const digest = await renderDigest(release, given, {do: 'digest', page: 'listed'})
  expect(digest?.words.match(/deal_\d+/g)).toHaveLength(50)
  expect(digest?.words).toContain('The first 50 of 1,200; the page has more.')
  expect((await renderReport(release, given, 'untitled')).text).toContain('There is nothing to show.')
  for (const more of [{}, {when: 'said'}])
    expect(await renderDigest(release, given, {do: 'digest', page: 'untitled', ...more})).toBeUndefined()
  expect(await read('/pages/listed')).toContain('page 1 of 24')
})

test('the text of a digest has a line for each sentence, fact, heading and entry', async () => {
  const digest = await renderDigest(release, given, {do: 'digest', page: 'said'})
  expect(digest?.words.split('\n')).toEqual([
    ...['Before.', '', 'Three:', 'status: funded', 'deals: 118', 'amount: $1.00', 'After it, bold.'],
    ...[
      '',
      'Four:',
      '- one',
      '- two',
      'quoted',
      'code',
      '',
      'First:',
      '- n 1',
      'why',
      '',
      'Second:',
      '- n 2',
    ],
    ...['–', 'a sentence', 'State · open', 'TX · 3', 'Deals: 7', 'State · Deals', 'TX · 3'],
  ])
})

test('what a page shows is downloaded as it is shown, without totals and links, with its parameters and filters', async () => {
  const download = async (page: string, at: number) => {
    const links = [...page.matchAll(/href="([^"]*\/data\/query\.csv\?[^"]*)"/g)]
    return await side.read(textOf(links.at(at)?.[1] ?? '').replaceAll('&amp;', '&'))
  }
  expect(await download(more, 0)).toBe('where_name,amount,deals,closing\nFL,0.01,1,0\nTX,1400000.00,4,0\n')
  expect(await download(moreOfFlorida, 0)).toBe('where_name,amount,deals,closing\nFL,0.01,1,0\n')
  expect(await download(moreOfFlorida, 1), 'of all deals').toBe('deals\n5\n')
  const asked = await read("/pages/asked?show=it's&größe=9")
  expect(await download(asked, 0)).toBe(`g,a,b,c,d,e,f$show\n9,it's,$show,,$show,'$show,1\n`)
  expect(await download(asked, 1)).toBe('given\n""\n')
  expect(await download(asked, 2)).toBe('x\n1\n')
  expect(await download(asked, 3)).toBe('lines\n"a, b"\n')
  expect(asked.match(/CSV/g), 'of lists alone, or with too long a link, there is none').toHaveLength(4)
  const listed = (await download(await read('/pages/written?sort=-amount'), 0)).split('\n')
  expect(listed.slice(0, 2)).toEqual([
    'deal_id,amount,term,x,property_address',
    'deal_119,119.00,0,order by,',
  ])
  expect(listed).toHaveLength(122)
  expect(await download(await read('/deals?state=FL'), 0)).toMatch(
    /^deal_id,.*,status_since\ndeal_000005,0\.01,.*,between 2026-01-05 and 2026-03-02\n/,
  )
  expect((await renderReport(release, given, 'more')).text).not.toContain('/data/')
})

test('amounts are exact, and rounded only if a note gives the exact ones', async () => {
  expect(textOf(moreOfFlorida)).toContain('Exact $0.01 At a glance $0.01 $0.01')
  const all = textOf(more)
  expect(all).toContain('Exact $1,400,000.01 At a glance $1.4M $1,400,000.01')
  expect(all).toContain('Loss −$1.5K n')
  expect(all).toContain('2026-02 $12,345,678,901,234,567,890,123,456,789,012.34 –')
})

test('a chart leaves totals out, and its values are listed with it, newest first', async () => {
  const [, drawn = ''] = /aria-label="Two months">(.*?)<\/svg>/s.exec(more) ?? []
  expect(drawn.match(/>2026-01</g), 'each month is named once').toHaveLength(1)
  expect(chartIn(more, 'Two months')).toMatchObject({series: [{name: 'a'}]})
  const valuesOf = (called: string) =>
    textOf(more.split(`<summary>${called}</summary>`)[1]?.split('</details>')[0] ?? '')
  expect(valuesOf('Exactly')).toMatch(/^ Month a All 2026-02 \S+ – 2026-01 \$0\.10 \$0\.30 $/)
  expect(valuesOf('Falling')).toBe(' Month A 2026-02 3 2026-01 1 ')
  expect(valuesOf('Numbers')).toBe(' Month A B 2026-02 3 4 2026-01 1 2 ')
})

test('a failing block says where and why, an empty one shows its own text, and the rest is unaffected', async () => {
  const shown = textOf(more)
  const page = readFileSync(join(OWN, 'pages/more.md'), 'utf8')
  const lineOf = (text: string) => page.slice(0, page.indexOf(text)).split('\n').length
  for (const [text, problem] of [
    ['from nowhere', 'Query refused: Catalog Error'],
    ['sql table colour', "Option 'colour': expected one of"],
    ['> from elsewhere', 'Query refused: Catalog Error'],
    [
      'sql table heading=By state',
      "Word 'state': expected option=value, a value with spaces in double quotes.",
    ],
  ] as const)
    expect(shown).toContain(`pages/more.md, line ${lineOf(text)}: ${problem}`)
  for (const problem of [
    "Option 'deals=al': expected deals=all.",
    "'series' has 9 values: a chart can show 8 series. Add the smallest up",
    "Block 'pie': expected one of table, number, line, area, bar,",
    'Query refused: expected one SELECT;',
    'A matrix needs three columns.',
  ])
    expect(shown).toContain(problem)
  expect(shown).toMatch(
    /The release of 2026-\d\d-\d\d has no such table\. Once a model or seed makes it, `loantape build --as-of 2026-\d\d-\d\d`.*needs=/,
  )
  expect(shown).toMatch(
    /pages\/parts\/breakdown\.md, line \d+: .*'stat': expected one of created_month, loan_program,/,
  )
  expect(more).toMatch(/<li><p>two<\/p>\s*<p class="muted small">within a list<\/p>\s*<\/li>/)
  expect(more).toMatch(/<h2>Nothing<\/h2>\s*<p class="empty">None at all\.<\/p>/)
  expect(more).not.toContain('<p class="notice"></p>')
})

test('a page is called by its first heading, however that is written, and not by what stands in its code', async () => {
  expect(await read('/pages/called')).toContain('<h1>Called so</h1>')
  expect(await read('/pages')).toContain('>Called so</a>')
})

test('markup of a page is only text, and its links lead to no script', async () => {
  expect(more).toContain('<strong>bold</strong> &lt;script&gt;alert(1)&lt;/script&gt;')
  expect(more).toContain('<a href="https://example.com">out</a>, bad,')
  expect(more).toContain('{&quot;a&quot;: &quot;&lt;b&gt;&quot;}')
  for (const name of ['nope', '..%2fseeds%2fx', 'parts%2fbooks', 'behind%2fmoved'])
    expect((await side.get(`/pages/${name}`)).status).toBe(404)
})

test("a page named like one of loantape's replaces it, even in the report", async () => {
  expect(await read('/pipeline')).toMatch(/<h1>Our pipeline<\/h1>.*It is <em>empty<\/em>\./s)
  expect(await read('/portfolio')).toContain('Open deals by loan program')
  const report = (await renderReport(release, given)).text
  expect(report).toContain('<h2 class="part">Our pipeline</h2>')
  expect(report).toContain('Open deals by loan program')
  const pages = await read('/pages')
  expect(pages).toContain('>By state &amp; more</a>')
  expect(pages).toMatch(
    /<details>\s*<summary>\d+ pages that come with loantape<\/summary>.*<summary>pages\/portfolio\.md<\/summary>/s,
  )
  expect(pages).not.toContain('<summary>pages/pipeline.md</summary>')
  // The page reads the state database, which pages of users may not.
  expect(pages).toContain('<summary>pages/state/runs.md</summary>')
  expect(await read('/runs')).not.toContain('>Ours<')
  await expect(renderReport(release, given, 'state/runs')).rejects.toThrow(/^Page 'state\/runs': /)
})

test('a copy of a part that the program gives its rows passes the check without them', async () => {
  const files = listFiles(join(SHIPPED, 'parts'), '.md').filter((file) =>
    readFileSync(file, 'utf8').includes('from_json('),
  )
  using copies = writeSqlFolder(
    Object.fromEntries(files.map((file) => [join('pages', relative(SHIPPED, file)), readFileSync(file)])),
  )
  const checked = await lab.run(['pages', 'check'], {LOANTAPE_SQL_DIR: copies.path})
  expect(checked.stdout).toBe(`Checked ${files.length} pages: 0 failed.\n`)
})

test('the page that the documentation shows answers', async () => {
  const page = await read('/pages/shown')
  expect(page).not.toContain('class="failed"')
  expect(page).toMatch(/<tfoot>.*All.*\$1,400,000\.01/)
})

test('a filter narrows an own model of deals that reads raw tables and counts days', async () => {
  const rows = (await side.read('/data/risk.age.csv')).split('\n')
  expect(rows).toEqual(['deal_id,days', ...someDeals(5).map(({id}) => `${id},0`), ''])
  expect(await side.read('/data/risk.age.csv?status=funded')).toBe(rows.toSpliced(5, 1).join('\n'))
})
