import {request as ask} from 'node:http'
import {expect, onTestFinished, test} from 'vitest'
import {startTestServer} from '../source/test-server.ts'
import {FEW_TABLES} from '../support/data.ts'
import {someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {startBrowser} from './browser.ts'
import {type LabSide, OPERATOR, openPage, serveLab, VIEWER} from './side.ts'

/** Its answer shows that it was run: neither the query's text nor a (hexadecimal) release id contains it. */
const ASKED = `q=${encodeURIComponent('select repeat(chr(122), 6) as answer')}`

const FORMULA = '=HYPERLINK("http://stranger.example","1 Main St")'

/** The page that the stranger's server serves. */
let strangersPage = ''

const lab = await useLab({
  tables: FEW_TABLES,
  deals: someDeals(3, {property_address: FORMULA}),
  releasedAt: '2026-06-01T16:00:00Z',
})
const open = await serveLab(lab)
const guarded = await serveLab(lab, {webToken: OPERATOR, webViewerToken: VIEWER})
const stranger = lab.beside.use(
  await startTestServer((_request, response) => {
    response.setHeader('content-type', 'text/html').end(`<!doctype html>${strangersPage}`)
  }),
)
/** The addresses of the watchers in front of our servers. */
const watched = {open: await watch(open), guarded: await watch(guarded)}
const browser = await startBrowser()

/** The stranger's page, under the name of another site, or of the same site with another origin. */
const STRANGERS = {'cross-site': 'localhost', 'same-site': '127.0.0.1'} as const

/** The answers that left our servers: a browser does not report everything it blocks. */
let answers: {path: string; status: number}[] = []

/** Passes every request on to a server unchanged, and records its answer. */
async function watch(side: LabSide): Promise<string> {
  const watcher = await startTestServer(({incoming}, outgoing) => {
    const {method, headers, url: path = ''} = incoming
    const passed = ask(side.url + path, {method, headers}, (answer) => {
      answers.push({path, status: answer.statusCode ?? 0})
      outgoing.writeHead(answer.statusCode ?? 0, answer.headers)
      answer.pipe(outgoing)
    })
    incoming.pipe(passed)
    outgoing.once('close', () => passed.destroy())
    passed.once('error', () => outgoing.destroy())
  })
  return new URL(lab.beside.use(watcher).url).origin
}

/** Opens the stranger's page, and records how our server answered its requests. */
async function visit(
  body: (url: string) => string,
  {site = 'cross-site', as = 'open'}: {site?: keyof typeof STRANGERS; as?: keyof typeof watched} = {},
) {
  const url = watched[as]
  strangersPage = body(url)
  answers = []
  const context = await browser.newContext({
    // Credentials that a viewer's browser has stored.
    ...(as === 'guarded' && {httpCredentials: {username: 'me', password: VIEWER}}),
  })
  onTestFinished(() => context.close())
  context.setDefaultTimeout(0)
  const page = await context.newPage()
  const {port} = new URL(stranger.url)
  await page.goto(`http://${STRANGERS[site]}:${port}/`, {waitUntil: 'commit'})
  return {context, page}
}

/** Ways to leave a page: a link, a link to a window, an address, a form. Pages may be opened so, data may not. */
const LEADING = [
  '<a id="a" href="URL">x</a><script>a.click()</script>',
  '<a id="a" href="URL" target="_blank">x</a><script>a.click()</script>',
  '<script>location = "URL"</script>',
  '<form id="f" method="post" action="URL"></form><script>f.submit()</script>',
]

/** Ways to embed or request something; `by` in the address names the way. */
const EMBEDDED: Record<string, (url: string) => string> = {
  frame: (url) => `<iframe src="${url}"></iframe>`,
  image: (url) => `<img src="${url}">`,
  script: (url) => `<script src="${url}"></script>`,
  style: (url) => `<link rel="stylesheet" href="${url}">`,
  video: (url) => `<video src="${url}" autoplay></video>`,
  request: (url) => `<script>fetch("${url}", {mode: "no-cors", credentials: "include"})</script>`,
  reading: (url) => `<script>fetch("${url}", {credentials: "include"}).catch(() => 0)</script>`,
  form: (url) =>
    `<iframe name="inner"></iframe><form id="f" target="inner" action="${url.split('?')[0]}"><input name="q" value="select repeat(chr(122), 6) as answer"><input name="by" value="form"></form><script>f.submit()</script>`,
}

test.each([
  ['cross-site', 'guarded', '/sql'],
  ['same-site', 'open', '/data/query.csv'],
] as const)('a %s page reads nothing of an %s server at %s by what it embeds', async (site, as, path) => {
  const embed = (url: string) =>
    Object.entries(EMBEDDED).map(([by, body]) => body(`${url}${path}?${ASKED}&by=${by}`))
  await visit((url) => embed(url).join(''), {site, as})
  const answeredBy = () => new Set(answers.map(({path}) => /by=(\w+)/.exec(path)?.[1]))
  await until(() => answeredBy().size === Object.keys(EMBEDDED).length)
  expect(new Set(answers.map(({status}) => status))).toEqual(new Set([403]))
})

test('a page of another site downloads nothing by leading to it', async () => {
  for (const way of LEADING) {
    const {context} = await visit((url) => way.replace('URL', `${url}/data/query.csv?${ASKED}`))
    await until(() => answers.length > 0)
    expect(answers.map(({status}) => status)).toEqual([403])
    await context.close()
  }
})

test('a link of another site leads to a query that is not run until somebody runs it', async () => {
  const {page} = await visit((url) => `<a href="${url}/sql?${ASKED}">x</a>`, {as: 'guarded'})
  await page.getByRole('link').click()
  await page.waitForURL(/\/sql/)
  expect(await page.getByRole('textbox').textContent()).toContain('select repeat(chr(122), 6) as answer')
  expect(await page.locator('main').textContent()).not.toContain('zzzzzz')
  expect(await page.locator('.notice').textContent()).toContain('not been run')
  await page.getByRole('button', {name: 'Run'}).click()
  expect(await page.locator('tbody td').textContent()).toBe('zzzzzz')
  await page.reload()
  expect(await page.locator('tbody td').textContent()).toBe('zzzzzz')
})

test('a page of another site learns nothing of our page that it opens in a window', async () => {
  const {context, page} = await visit(
    (url) => `<button onclick="opened = window.open('${url}/sql?${ASKED}')">open</button>`,
  )
  const opening = context.waitForEvent('page')
  await page.getByRole('button').click()
  const ours = await opening
  await ours.waitForLoadState()
  expect(await ours.locator('main').textContent()).not.toContain('zzzzzz')
  await until(() => page.evaluate('opened.closed'))
  expect(await ours.evaluate('window.opener')).toBeNull()
})

test('a typed address shows its query, a download address leads to that page, and our own pages ask as before', async () => {
  const {page} = await openPage(`${open.url}/tables`)
  for (const path of [`/sql?${ASKED}`, `/data/query.csv?${ASKED}&part=funded`]) {
    await page.goto(open.url + path)
    expect(new URL(page.url()).pathname).toBe('/sql')
    expect(await page.locator('main').textContent()).not.toContain('zzzzzz')
    expect(await page.getByRole('textbox').textContent()).toContain('repeat(')
  }
  expect(new URL(page.url()).searchParams.get('part')).toBe('funded')
  await page.goto(`${open.url}/tables`)
  expect(await page.evaluate(`fetch('/data/query.csv?${ASKED}').then((answer) => answer.text())`)).toBe(
    'answer\nzzzzzz\n',
  )
  expect(
    await page.evaluate(`fetch('/data/core.deal.csv', {method: 'HEAD'}).then(({status}) => status)`),
  ).toBe(200)
})

const ELSEWHERE = 'http://example.com/'
const AS_A_BROWSER = {
  'user-agent': 'Mozilla/5.0 (X11; Linux x86_64)',
  'accept-language': 'en',
  accept: 'text/html',
}

test.each([
  ['a tool', {}, 200, true],
  ['a tool with a token', {...AS_A_BROWSER, authorization: 'Bearer x'}, 200, true],
  ['a page of ours', {...AS_A_BROWSER, referer: 'HERE/sql'}, 200, true],
  ['nobody says who', AS_A_BROWSER, 200, false],
  ['a link of another site', {...AS_A_BROWSER, referer: ELSEWHERE}, 200, false],
  ['an image of another site', {...AS_A_BROWSER, accept: 'image/*', referer: ELSEWHERE}, 403, false],
  ['a page of another port', {...AS_A_BROWSER, accept: '*/*', referer: 'http://127.0.0.1:1/'}, 403, false],
  ['a request of a hidden origin', {...AS_A_BROWSER, accept: '*/*', origin: 'null'}, 403, false],
])('without TLS, browsers do not say which site asks: %s', async (_, headers, status, isRun) => {
  const said = Object.entries(headers).map(([name, value]) => [name, value.replace('HERE', open.url)])
  const answer = await open.get(`/sql?${ASKED}`, Object.fromEntries(said))
  expect(answer.status).toBe(status)
  expect((await answer.text()).includes('zzzzzz</td>')).toBe(isRun)
})

test.each(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])(
  'a %s of another site is refused wherever it goes',
  async (method) => {
    const ours = ['/', '/healthz', '/readyz', '/metrics', '/%64ata/core.deal.csv', '/assets/workbench.js']
    for (const site of ['cross-site', 'same-site', 'anything-new'])
      for (const path of [...ours, '/nowhere']) {
        const headers = {'sec-fetch-site': site, accept: '*/*'}
        const {status} = await fetch(open.url + path, {method, headers})
        expect(status, `${site} ${path}`).toBe(403)
      }
  },
)

test('a text that is a formula is escaped in CSV that people download, and exact for a program that asks for it', async () => {
  const quoted = FORMULA.replaceAll('"', '""')
  for (const path of ['/data/core.deal.csv', '/data/core.deal.csv?status=draft']) {
    expect(await open.read(path)).toContain(`,"'${quoted}",`)
    expect(await open.read(`${path}${path.includes('?') ? '&' : '?'}exact=1`)).toContain(`,"${quoted}",`)
  }
  const columns = `'=1+1' as a_id, '=1'::enum('=1') as choice, '=1'::blob as bytes, ['=1'] as list, -5.5::decimal(9, 2) as amount`
  const asked = encodeURIComponent(`select ${columns}`)
  const rowOf = async (path: string) => (await open.read(`${path}q=${asked}`)).split('\n')[1]
  expect(await rowOf('/data/query.csv?')).toBe(`'=1+1,'=1,'=1,['=1'],-5.50`)
  expect(await rowOf('/data/query.csv?exact=1&')).toBe(`=1+1,=1,=1,['=1'],-5.50`)
  expect(await rowOf('/data/query.json?')).toContain('"=1+1"')
})
