import {existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, utimesSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import type {Page} from 'playwright-core'
import {beforeEach, expect, test} from 'vitest'
import {z} from 'zod'
import {someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {basic, block, OPERATOR, openPage, PAGE_TABLES, serveLab, VIEWER} from './side.ts'

const lab = await useLab({
  tables: PAGE_TABLES,
  deals: someDeals(4, {status: 'funded'}),
  releasedAt: '2026-03-02T23:30:00-05:00',
})
const {pages} = lab.folder
const side = await serveLab(lab)
beforeEach(() => rmSync(pages, {recursive: true, force: true}))

const SECOND = `---
title: Cohorts
order: 2
needs: [core.deal]
---

${block('bar title="Amount"', 'select state, sum(loan_amount) as amount from core.deal group by all')}`.trimEnd()

/** Opens a page, by default without JavaScript. */
const open = async (path: string, javaScriptEnabled = false) =>
  (await openPage(side.url + path, {width: 390, javaScriptEnabled})).page

const press = (page: Page, name: string) => page.getByRole('button', {name, exact: true}).click()

const post = (fields: Record<string, string>) => side.post('/edit', fields)

async function makePage(sql: string, name: string, title: string) {
  const page = await open('/sql', true)
  await page.locator('.cm-content').fill(sql)
  await press(page, 'Run')
  await page.locator('summary:has-text("Save this query")').click()
  await page.getByLabel('Name', {exact: true}).fill(name)
  await page.getByLabel('Title').fill(title)
  await press(page, 'Make this query a page')
  return page
}

test('a query becomes a page, which is edited, previewed, saved and brought back', async () => {
  const page = await makePage('select count(*) as deals from core.deal', 'cohorts', 'First: "try"')
  await page.waitForURL(`${side.url}/pages/cohorts`)
  expect(await page.locator('h1').textContent()).toBe('First: "try"')
  const file = join(pages, 'cohorts.md')
  const first = readFileSync(file, 'utf8')

  const editor = await open('/pages/cohorts')
  await editor.getByRole('link', {name: 'Edit this page'}).click()
  await editor.getByRole('textbox').fill(SECOND)
  await press(editor, 'Preview')
  expect(await editor.locator('figure.chart').count()).toBe(1)
  expect(readFileSync(file, 'utf8'), 'a preview saves nothing').toBe(first)
  await press(editor, 'Save')
  expect(editor.url()).toBe(`${side.url}/pages/cohorts`)
  expect(readFileSync(file, 'utf8')).toBe(`${SECOND}\n`)
  expect(await editor.locator('nav[aria-label=Pages] [aria-current]').textContent()).toBe('Cohorts')

  await editor.getByRole('link', {name: 'Edit this page'}).click()
  await editor.locator('.needs a').last().click()
  expect(await editor.getByRole('textbox').inputValue()).toBe(first)
  expect(await editor.locator('.figure, table td.number').first().textContent()).toBe('4')
  await press(editor, 'Save')
  expect(readFileSync(file, 'utf8')).toBe(first)
  expect(await side.readText('/runs')).toMatch(/page cohorts Saved/)
})

test('a parameter keeps its value when its query is saved and when it becomes a page, and has a field there', async () => {
  const page = await open('/sql', true)
  await page
    .locator('.cm-content')
    .fill('select count(*) as deals from core.deal where status = $with_status')
  await press(page, 'Run')
  await page.getByLabel('$with_status').fill('funded')
  await press(page, 'Run')
  const save = async (as: string) => {
    await page.locator('summary:has-text("Save this query")').click()
    await page.getByLabel('Name', {exact: true}).fill('by_status')
    await press(page, as)
    expect(await page.locator('td.number').textContent()).toBe('4')
  }
  await save('Save')
  await page.waitForURL(`${side.url}/sql?saved=by_status&as=table&%24with_status=funded`)
  await save('Make this query a page')
  await page.waitForURL(`${side.url}/pages/by_status?with_status=funded`)
  await page.getByLabel('with status').fill('draft')
  await press(page, 'Show')
  expect(await page.locator('td.number').textContent()).toBe('0')
  await page.getByLabel('with status').fill('')
  await press(page, 'Show')
  await page.waitForURL(`${side.url}/pages/by_status?`)
  // What choices offer needs no field.
  writeFileSync(
    join(pages, 'by.md'),
    block('choices', 'select $by as by') + block('number', 'select $by as by'),
  )
  expect(await side.read('/pages/by?by=x')).not.toContain('<label>by <input')
})

test('a query for a page that there is already stands at its end, to be saved', async () => {
  const query = {name: 'board', as: 'number', do: 'save'}
  expect((await post({...query, q: 'select 1 as one'})).status).toBe(303)
  const file = join(pages, 'board.md')
  const first = readFileSync(file, 'utf8')
  const page = await makePage('select 2 as two', 'board', 'Two')
  await page.getByText('nothing is saved yet').waitFor()
  expect(readFileSync(file, 'utf8')).toBe(first)
  expect(await page.locator('.written').first().textContent()).toMatch(/One\s*1\s*Two\s*Two\s*2/)
  await press(page, 'Save')
  await page.waitForURL(`${side.url}/pages/board`)
  const added = block('table', 'select 2 as two').trimEnd()
  expect(readFileSync(file, 'utf8')).toBe(`${first}\n## Two\n\n${added}\n`)
})

test('a text that was only previewed is not left behind unasked, one that was saved is', async () => {
  const editor = await open('/pages', true)
  await editor.getByLabel('Name').fill('left')
  await press(editor, 'Begin a page')
  let asked = 0
  editor.on('dialog', async (dialog) => {
    asked += 1
    await dialog.dismiss()
  })
  await editor.getByRole('textbox').fill('# Left')
  await press(editor, 'Preview')
  await editor.getByRole('link', {name: 'SQL', exact: true}).click()
  await until(async () => asked > 0)
  await press(editor, 'Save')
  await editor.goto(`${side.url}/edit?name=left`)
  await editor.getByRole('textbox').fill('# Left, too')
  await press(editor, 'Save')
  await editor.waitForURL(`${side.url}/pages/left`)
  await editor.goBack()
  await editor.getByRole('link', {name: 'SQL', exact: true}).click()
  await editor.waitForURL(`${side.url}/sql`)
  expect(asked).toBe(1)
})

test('a page that somebody else has saved meanwhile is not replaced unseen, and every text is kept', async () => {
  const one = await open('/edit?name=shared')
  const other = await open('/edit?name=shared')
  await one.getByRole('textbox').fill('mine')
  await press(one, 'Save')
  await other.getByRole('textbox').fill('yours')
  await press(other, 'Preview')
  await press(other, 'Save')
  expect(await other.locator('.notice').textContent()).toContain('Somebody else has saved the page since.')
  expect(await other.getByRole('textbox').inputValue()).toBe('yours')
  expect(readFileSync(join(pages, 'shared.md'), 'utf8')).toBe('mine\n')
  await press(other, 'Save')
  expect(readFileSync(join(pages, 'shared.md'), 'utf8')).toBe('yours\n')
  await other.goto(`${side.url}/edit?name=shared`)
  rmSync(join(pages, 'shared.md'))
  await press(other, 'Save')
  expect(await other.locator('.notice').textContent()).toContain('The page has been removed since.')
  await press(other, 'Save')
  // Saved by hand, with the clock of another machine.
  writeFileSync(join(pages, 'shared.md'), 'by hand\n')
  utimesSync(join(pages, 'shared.md'), new Date('2031-01-01'), new Date('2031-01-01'))
  const third = await open('/edit?name=shared')
  await third.getByRole('textbox').fill('\n# <b>x</b> </textarea>')
  await press(third, 'Save')
  await third.goto(`${side.url}/edit?name=shared`)
  expect(await third.getByRole('textbox').inputValue()).toBe('\n# <b>x</b> </textarea>\n')
  const authors = (await third.locator('.needs li').allTextContents()).map((version) =>
    /by hand|web 127\.0\.0\.1/.exec(version)?.at(0),
  )
  expect(authors).toEqual(['web 127.0.0.1', 'by hand', ...Array(3).fill('web 127.0.0.1')])
})

test('a page that somebody saves while an earlier version is previewed is not replaced unseen', async () => {
  const earlier = block('number', 'select 4 as deals')
  expect((await post({name: 'shared', text: earlier, do: 'save', from: 'none'})).status).toBe(303)
  const {action_id} = side.stateDb.one(
    z.object({action_id: z.number()}),
    'select max(action_id) as action_id from page_action',
  )
  const opened = await side.readWhile(`/edit?name=shared&version=${action_id}`, () =>
    writeFileSync(join(pages, 'shared.md'), 'theirs\n'),
  )
  const [, from = ''] = /name="from" value="([^"]*)"/.exec(opened) ?? []
  expect((await post({name: 'shared', text: earlier, do: 'save', from})).status).toBe(409)
  expect(readFileSync(join(pages, 'shared.md'), 'utf8')).toBe('theirs\n')
})

test('what is no page, no name, too long or taken is refused, and nothing is written', async () => {
  expect((await post({name: 'portfolio', q: 'select 1', do: 'save'})).status).toBe(409)
  for (const name of ['', '../x', 'a/b', 'parts/needs', 'a b'])
    expect((await post({name, text: 'x', do: 'save', from: 'none'})).status, name).toBe(400)
  expect((await post({name: 'long', text: 'x'.repeat(70_000), do: 'save', from: 'none'})).status).toBe(413)
  expect((await post({name: 'x', text: 'x', do: 'save'})).status, 'without what it was made from').toBe(409)
  expect((await side.get('/edit?name=x&do=save&from=none&text=x')).status).toBe(200)
  expect(existsSync(pages)).toBe(false)
})

test('a page is written only if it can be noted who did, and noted only if it can be written', async () => {
  const post = () => side.post('/edit', {name: 'noted', text: '# Noted', do: 'save', from: 'none'})
  const count = () => side.stateDb.all(z.unknown(), "select 1 from page_action where command = 'page noted'")
  const {db} = side.stateDb
  db.exec("create temp trigger full before insert on page_action begin select raise(abort, 'no room'); end")
  const unnoted = await post()
  db.exec('drop trigger full')
  expect([unnoted.status, existsSync(join(pages, 'noted.md'))]).toEqual([409, false])
  expect(await unnoted.text()).toContain('no room')
  symlinkSync('/nowhere/at/all', pages)
  expect([(await post()).status, count()]).toEqual([409, []])
  rmSync(pages)
  expect([(await post()).status, count().length]).toEqual([303, 1])
})

test('viewers neither see nor edit what is for operators, and are told what they cannot read', async () => {
  const tokens = {webToken: OPERATOR, webViewerToken: VIEWER}
  await using guarded = await serveLab(lab, {...tokens, viewerTables: 'mart.*'})
  mkdirSync(pages, {recursive: true})
  const write = (name: string, text: string) => writeFileSync(join(pages, `${name}.md`), text)
  write('secret', '---\nfor: operators\norder: 1\ntitle: Secret\n---\n')
  write('odd', '---\norder: 2\nfor: oprators\ncolour: red\n---\n')
  write('broken', '---\ntitle: a: b\n---\n')
  write('deals', `---\norder: 3\nneeds: [core.deal]\n---\n${block('table', 'from core.deal')}`)
  write('gone', '---\nneeds: [core.nothing]\n---\n')
  write('spaced', '\n--- \r\nfor: operators\r\n---\n')
  write('endless', '---\nfor: operators\n----\nText\n')
  for (const name of ['secret', 'odd', 'broken', 'spaced', 'endless']) {
    expect((await guarded.get(`/pages/${name}`, VIEWER)).status, name).toBe(404)
    expect((await guarded.get(`/pages/${name}`, OPERATOR)).status, name).toBe(200)
  }
  expect((await guarded.get('/edit?name=secret', OPERATOR)).status).toBe(200)
  expect(await guarded.read('/pages', VIEWER)).not.toMatch(
    /Secret|Odd|Broken|Spaced|Endless|method="post"|action="\/edit/,
  )
  expect(await guarded.read('/pages', OPERATOR)).toMatch(/Secret.*Odd.*Deals/s)
  expect(await guarded.read('/pages/odd', OPERATOR)).toMatch(
    /odd\.md, line 3: &#39;for: oprators.*odd\.md, line 4: &#39;colour: red/s,
  )
  expect(await guarded.read('/pages/broken', OPERATOR)).toContain('pages/broken.md, line 2: a second colon: ')
  const shown = await guarded.read('/pages/deals', VIEWER)
  expect(shown).toContain('Table &#39;core.deal&#39;, which is needed here, is not for viewers.')
  expect(shown).not.toMatch(/class="failed"|\/edit/)
  expect(await guarded.read('/pages/gone', OPERATOR)).toContain('has no table &#39;core.nothing&#39;')
  expect(await guarded.read('/pages/endless', OPERATOR)).toContain('line 1: front matter without an end')
  mkdirSync(join(pages, 'parts'))
  write('parts/needs', 'Tell Ann.\n')
  expect(await guarded.read('/', OPERATOR)).toMatch(
    /What needs a person<\/h2>\s*(<div class="written">)+<p>Tell Ann\.<\/p>/,
  )
  write('largest', block('deals', 'select deal_id, 1.00::decimal(18, 2) as amount from core.deal'))
  write('none', block('deals', "select 'deal_000001' as deal_id, 1.00::decimal(18, 2) as amount"))
  await using some = await serveLab(lab, {...tokens, viewerTables: 'mart.*, core.deal'})
  expect(await some.readText('/pages/largest', VIEWER)).toMatch(/4 deals, \$4\.00 .*deal_000001 \S+ 1 /)
  const none = await guarded.readText('/pages/none', VIEWER)
  expect(none).toContain('1 deal, $1.00')
  expect(none).not.toContain('Property')
  expect((await guarded.get('/edit?name=deals', VIEWER)).status).toBe(403)
  const form = {name: 'signed', text: 'x', do: 'save', from: 'none'}
  const ann = `ann ${'x'.repeat(56)}`
  const credentials = basic(`\u001b${ann}, and more`, OPERATOR)
  expect((await guarded.post('/edit', form, {origin: guarded.url, ...credentials})).status).toBe(303)
  expect(await guarded.readText('/edit?name=signed', OPERATOR)).toContain(`, ${ann} (web 127.0.0.1): look`)
  expect(await guarded.readText('/runs', OPERATOR)).toContain(`${ann} (web 127.0.0.1) page signed`)
})
