import {chmodSync, readdirSync} from 'node:fs'
import {join, parse} from 'node:path'
import {expect, test} from 'vitest'
import {readModels} from '../../src/build/read-models.ts'
import type {WireRecord} from '../../src/core/types.ts'
import {openDatabase} from '../../src/store/database.ts'
import {requireRelease} from '../../src/store/release.ts'
import {SQL_DIR} from '../../src/store/sql.ts'
import {html} from '../../src/web/html.ts'
import {renderDigest, renderReport} from '../../src/web/report.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {aDeal, someDeals} from '../support/lab.ts'
import {tellSizes} from '../support/releases.ts'
import {useLab} from '../support/set-up.ts'
import {expectNumbersToLead} from './page-numbers.ts'
import {type LabSide, serveLab} from './side.ts'

const BARE = 'deal_000001'

/** Ids that an address cannot hold unencoded. */
const ODD_IDS = [
  ...'. .. ... ~ ~. a/b / a?b#c %2F %2e%2e "<b>'.split(' '),
  ...[' ', `\ufeff${BARE}`, 'x'.repeat(200)],
]

const TURNED = '\u202e123 tS niaM\u202c\u200b'

/** Texts a source may send; pages must show them only as text. */
const HOSTILE = [
  '<script>document.title="stolen"</script>',
  '"><img src=x onerror=alert(1)>',
  `' or 1=1 --`,
  '`; drop table core.deal; --`',
  '=HYPERLINK("http://example.com","x")',
  TURNED,
  '\u2066\u2067rtl\u2069',
  'שלום 12, תל אביב',
  '\u0001\u0008\u001b[31m\u007f\u0085',
  '👩‍👩‍👧‍👦 🏚️',
  '%00 %2e%2e/ \\ {{1}}',
  'x'.repeat(8192),
  'y'.repeat(10_000),
  '\ud800 half',
  '   ',
]

const READABLE = HOSTILE.filter((text) => text.length <= 8192)

const idOf = (text: string) => `deal_${String(HOSTILE.indexOf(text) + 100).padStart(6, '0')}`

/** Pages that call things by their texts. */
const NAMING = ['/portfolio', '/pipeline', '/checks', '/deals?sort=property_address']

/** The parameters for the pages behind numbers. */
const BEHIND =
  'against=2026-03-02&month=2026-03&term=found&in_status=funded&age_band=x&from=x&to=y&top=2&by=state&age=1&outcome=funded'

const PAGES = [
  ...NAMING,
  ...['/', '/?against=2026-03-02', '/deals', '/deals?part=open&q=1', '/compare', '/quarantine', '/runs'],
  '/portfolio?by=status&show=funded_wa_ltv',
  '/portfolio?part=funded&loan_program=unknown',
  ...['/books', '/books/2026-03', '/pages/own', '/pages/data_quality', '/pages/first_page'],
  ...['/tables', '/tables/core.deal', '/tables/mart.portfolio_breakdown', '/sql?q=from core.deal'],
  ...readdirSync(join(import.meta.dirname, '../../pages/behind')).map(
    (file) => `/behind/${parse(file).name}?${BEHIND}`,
  ),
  ...[`/deals/${idOf(TURNED)}`, `/deals/${idOf(TURNED)}/received`],
]

const lab = await useLab({tables: 'all'})
const {store, faults} = lab.service
store.insert([
  ...someDeals(80, {status: 'funded'}),
  ...HOSTILE.map((text, index) => aDeal(index + 100, {property_address: text, loan_program: text})),
  ...ODD_IDS.map((id, index) => aDeal(index + 200, {id, property_address: id, loan_amount_cents: 7n})),
])
// Makes data that the local service would not store: no address, and any text as a status.
const spoil = (deal: WireRecord): WireRecord => ({
  ...deal,
  ...(deal.id === BARE && {property_address: null}),
  ...(HOSTILE.includes(String(deal.property_address)) && {status: deal.property_address}),
})
const spoilBody = ({data, ...rest}: WireRecord) => ({
  ...rest,
  data: Array.isArray(data) ? data.map(spoil) : spoil(data as WireRecord),
})
faults.add({match: {path: '/deals'}, fault: {kind: 'mutate', change: spoilBody}})
await lab.sync('2026-03-02T23:30:00-05:00')
store.update('deal_000002', {loan_amount_cents: 1n})
await lab.sync('2026-03-03T23:30:00-05:00')
const own = lab.beside.use(
  writeSqlFolder({
    'pages/own.md':
      '# Own\n\n```sql\nselect * from core.deal\n```\n\n```sql bar\nselect property_address, loan_amount from core.deal\n```\n',
  }),
)

const side = await serveLab(lab, {sqlDir: own.path})

/** Reads a page that opens and shows all of its blocks. */
async function read(path: string, from: LabSide = side): Promise<string> {
  const answer = await from.get(path)
  const text = await answer.text()
  expect(answer.status, `${path}: ${text.replaceAll(/<style>.*?<\/style>/gs, '').slice(0, 3000)}`).toBe(200)
  expect(text, path).not.toMatch(/Unexpected|Not shown|invalid_type|\.md, line/)
  return text
}

test('every page opens and shows its texts as texts, cut to a sensible length, and none of their characters moves others', async () => {
  for (const path of [...PAGES, '/deals?page=2', ...READABLE.map((text) => `/deals/${idOf(text)}`)]) {
    const text = await read(path)
    expect(text, path).not.toMatch(/<script>|<img|<b>x/)
    const shown = text.replaceAll(/<(style|script|textarea)\b.*?<\/\1>/gs, '').replaceAll(/<[^>]*>/g, '')
    expect(shown, path).not.toMatch(/[[\p{Cc}\p{Bidi_Control}]--[\t\n\r]]/v)
    if (NAMING.includes(path)) expect(text, path).toContain('(blank)')
    if (NAMING.includes(path) || /^\/deals\b(?!\/)/.test(path)) expect(text, path).not.toMatch(/>[^<]*x{100}/)
  }
  expect(await read(`/deals/${idOf(TURNED)}`)).toContain('⟨U+202E⟩123 tS niaM⟨U+202C⟩⟨U+200B⟩')
})

test.each(['/portfolio', '/portfolio?status=', '/pipeline'])(
  'every linked number of %s leads to its deals, whatever their status is called',
  async (path) => {
    expect(await expectNumbersToLead(side.url, path)).toBeGreaterThan(2)
  },
)

test('a deal says between which days something began, and with signs how it moved', async () => {
  const deal = await read('/deals/deal_000003')
  expect(deal).toContain('<h1>3 Main St, Austin, TX 78701</h1>')
  expect(deal).toMatch(/funded on<\/dt><dd><bdi>by 2026-03-02</)
  expect(deal).toMatch(/status since<\/dt><dd><bdi>between 2026-01-05 and 2026-03-02</)
  expect(deal).not.toMatch(/is exact|at earliest|is missing/)
  const moved = await read('/behind/moved?against=2026-03-02&page=9')
  expect(moved).toContain('pipeline –')
  expect(moved.replaceAll(/<\/?bdi>/g, '')).toContain('$350,000.00 → $0.01')
  expect(moved).not.toMatch(/\$0\.00|page 1 of 1/)
})

test('whatever the id of a deal is, the list and its records lead to its page', async () => {
  const links = (text: string) =>
    [...text.matchAll(/href="(\/deals\/[^"?]+)"/g)].map(([, href = '']) => href.replaceAll('&#39;', "'"))
  const listed = links(await read('/deals?sort=loan_amount')).slice(1, ODD_IDS.length + 1)
  const found = await Promise.all(
    listed.map(async (href) => {
      const [, id] = /<p class="lead">(?:<bdi>)?(.*?)(?:<\/bdi>)?<\/p>/s.exec(await read(href)) ?? []
      expect(links(await read(`${href}/received`)), href).toEqual([href])
      return id
    }),
  )
  expect(found.sort()).toEqual(ODD_IDS.map((id) => html`${id}`.html).sort())
})

test('a deal without an address is called by its id, in the list, on its own page and in the report', async () => {
  expect(await lab.query('select deal_id from core.deal where property_address is null')).toEqual([
    {deal_id: BARE},
  ])
  expect(await read(`/deals/${BARE}`)).toContain(`<h1>${BARE}</h1>`)
  expect(await read('/deals')).toContain(BARE)
  expect((await renderReport(requireRelease(lab.folder), lab.config)).text).toContain('Portfolio report')
})

test('of a release in which everything nullable is null, every page opens, and report, digest, diff and trace say what is known', async () => {
  const folder = lab.copyFolder('nulls')
  const release = requireRelease(folder)
  chmodSync(release.database, 0o644)
  {
    await using db = await openDatabase({attach: [{path: release.database, alias: 'release'}]})
    for (const {name: table, columns, checks, isPublished} of readModels([SQL_DIR])) {
      const filled = checks.filter(({rule}) => rule === 'not_null').flatMap(({args}) => args)
      const nulls = columns.flatMap(({name}) => (filled.includes(name) ? [] : `"${name}" = null`))
      if (isPublished && nulls.length > 0) await db.run(`update release.${table} set ${nulls.join(', ')}`)
    }
    await db.run('checkpoint release')
  }
  tellSizes(release)
  await using empty = await serveLab(lab, {folder, dataDir: folder.root, sqlDir: own.path})
  for (const path of PAGES) await read(path, empty)

  expect((await renderReport(release, lab.config)).text).not.toContain('.md, line')
  const digest = await renderDigest(release, lab.config, {do: 'digest', page: 'morning'})
  expect(digest?.words).toContain('Weighted loan-to-value: –')
  const env = {LOANTAPE_DATA_DIR: folder.root}
  for (const args of [
    'diff current 2026-03-02',
    'trace deal_000100',
    'trace mart.portfolio_summary.open_amount',
  ])
    expect(await lab.run(args.split(' '), env), args).toMatchObject({code: 0})
  const {code, stdout} = await lab.run(['status'], env)
  expect({code, stdout}).toEqual({code: 1, stdout: expect.stringContaining('13 deals of 108 in no class')})
})
