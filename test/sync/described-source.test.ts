import {createHash} from 'node:crypto'
import {mkdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {applyEvents} from '../../src/pipeline.ts'
import {type Trace, traceDeal} from '../../src/record/trace.ts'
import {type Dialect, serveForeign} from '../support/foreign-service.ts'
import {aDeal, createLab, DAY_1, DAY_2, DAY_3, day, failureOf, type Lab, someDeals} from '../support/lab.ts'
import {dyingAt, linkBorrower, useShared} from '../support/set-up.ts'
import {receiveEvents} from '../support/webhooks.ts'
import {serveLab} from '../web/side.ts'

const EXAMPLES = join(import.meta.dirname, '../../docs/sources')
const KEY = 'sk_test_lab'

const centsOf = (dollars: unknown) =>
  dollars === undefined || dollars === null ? dollars : Math.round(Number(dollars) * 100)

/** Converts an instant of January 2026 to New York time. */
const inNewYork = (instant: unknown) =>
  new Date(Date.parse(String(instant)) - 5 * 3_600_000).toISOString().replace('T', ' ').replace('Z', '')

/** Returns an example's words for our statuses, and the reverse. */
function wordsOf(example: string) {
  const text = readFileSync(join(EXAMPLES, `${example}.json`), 'utf8')
  const ours = JSON.parse(text).deals.fields.status.values as Record<string, string>
  const theirs = new Map(Object.entries(ours).map(([word, status]) => [status, word]))
  return {theirs: (status: unknown) => theirs.get(String(status)), ours: (word: string) => ours[word] ?? word}
}
const STAGES = wordsOf('harbor')
const STATES = wordsOf('plaza')

/** Creates a dialect with expiring tokens, links, nested names, cents and local times. */
function createHarbor(requestsPerToken = Number.POSITIVE_INFINITY): Dialect & {tokens: string[]} {
  const tokens: string[] = []
  let left = 0
  return {
    tokens,
    deals: '/v2/loans',
    children: {parties: 'borrowers'},
    size: 'per_page',
    filter: 'stage',
    token({url, headers, body}) {
      if (url.pathname !== '/token') return undefined
      const form = new URLSearchParams(body)
      const isKnown = headers.authorization === `Basic ${Buffer.from(`loantape:${KEY}`).toString('base64')}`
      if (!isKnown || form.get('grant_type') !== 'client_credentials' || form.get('scope') !== 'loans.read')
        return {status: 401, body: {error: 'invalid_client'}}
      left = requestsPerToken
      tokens.push(`t${tokens.length}`)
      return {body: {access_token: tokens.at(-1), token_type: 'Bearer', expires_in: 3600}}
    },
    isAllowed({headers}) {
      left -= 1
      return headers.authorization === `Bearer ${tokens.at(-1)}` && left >= 0
    },
    startOf: (url) => Number(url.searchParams.get('from') ?? 0),
    page(records, {url, next}) {
      const link = new URL(url)
      link.searchParams.set('from', String(next))
      const first = `<${url.pathname}>; rel="first"`
      const said =
        next === null ? first : `${first}, <${link.pathname}${link.search}>; title="a, b"; rel="next"`
      return {body: {result: {items: records, total: 'unknown'}}, headers: {link: said}}
    },
    own: (result) => ({result}),
    deal: ({id, property_address, loan_amount, property_value, loan_program, status, created_at}) => ({
      loanId: id,
      property: {
        line: property_address,
        ...(property_value !== undefined && {worth: centsOf(property_value)}),
      },
      principal: {minor: String(centsOf(loan_amount))},
      ...(loan_program !== undefined && {product: loan_program}),
      stage: STAGES.theirs(status),
      openedAt: inNewYork(created_at),
    }),
    child: (_kind, {id, deal_id, email, first_name, created_at}) => ({
      partyId: id,
      loan: deal_id,
      contact: {mail: email, given: first_name},
      linkedAt: inNewYork(created_at),
    }),
    status: STAGES.ours,
  }
}

function partsOf(address: unknown) {
  const [street = null, ...rest] = address === null ? [] : String(address).split(', ')
  return {street, town: rest.length > 0 ? rest.join(', ') : null}
}

/**
 * A dialect with a key in a header, page numbers, a list that is the whole answer, addresses in parts, amounts as text, and
 * milliseconds.
 */
const plaza: Dialect = {
  deals: '/facilities',
  children: {files: 'documents'},
  size: 'rows',
  filter: 'state',
  isAllowed: ({headers}) => headers['x-plaza-key'] === KEY,
  startOf: ({searchParams}) => Number(searchParams.get('pageNumber')) * Number(searchParams.get('rows')),
  page: (records) => ({body: records}),
  own: (record) => record,
  deal: ({id, property_address, loan_amount, property_value, loan_program, status, created_at}) => ({
    facilityNo: id,
    site: partsOf(property_address),
    commitment: String(loan_amount),
    ...(property_value !== undefined && {
      appraisedValue: property_value === null ? null : String(property_value),
    }),
    ...(loan_program !== undefined && {programCode: loan_program}),
    state: STATES.theirs(status),
    createdMs: Date.parse(String(created_at)),
  }),
  child: (_kind, {id, deal_id, category, created_at}) => ({
    fileNo: id,
    facility: deal_id,
    kind: category,
    storedAt: created_at,
  }),
  status: STATES.ours,
}

const DEALS = [
  ...someDeals(23, {loan_amount_cents: 350_000_01n}),
  aDeal(24, {status: 'funded', property_value_cents: null, loan_program: null}),
  aDeal(25, {loan_amount_cents: 0n, property_address: 'Straße 1, “Köln”'}),
]

/** Describes a source to a lab with an example, changed as given. */
function describe(
  {folder}: Lab,
  example: string,
  origin: string,
  change: (text: string) => string = (text) => text,
) {
  const text = readFileSync(join(EXAMPLES, `${example}.json`), 'utf8')
  mkdirSync(folder.root, {recursive: true})
  writeFileSync(folder.source, change(text.replace('https://login.harbor.example', origin)))
}

/**
 * Syncs two nights of a lab.
 *
 * @returns its tables
 */
async function readTables(lab: Lab) {
  const config = {pageSize: 10, streams: 'deals,borrowers,documents'}
  const {certificate} = await lab.walk(DAY_1, {config})
  lab.service.store.update('deal_000003', {status: 'underwriting', loan_amount_cents: 400_000_99n})
  lab.service.store.remove('deal_000007')
  const {walk} = await lab.sync(DAY_2, {config})
  const tables: Record<string, unknown> = {}
  for (const [name, omitted] of Object.entries({
    'core.deal': 'first_seen_at, last_changed_at, value_confirmed_on',
    'core.deal_history': 'valid_from, valid_to',
    'core.borrower': 'first_seen_at, borrower_id, email_hash, person',
    'core.document': 'first_seen_at',
  }))
    tables[name] = await lab.query(`select * exclude (${omitted}) from ${name} order by all`)
  return {
    tables,
    walks: [certificate, walk].map(({pages, records, quarantined}) => ({records, quarantined, pages})),
  }
}

const createFilled = async () => {
  const lab = await createLab({
    tables: '+core.deal +core.deal_history +core.borrower +core.document',
    deals: DEALS,
  })
  linkBorrower(lab, 'deal_000001', 'ann@example.com')
  linkBorrower(lab, 'deal_000024', 'bob@example.com')
  lab.service.database.run('update borrower set created_at = ?', [Date.parse('2026-01-10T12:00:00.123Z')])
  return lab
}

/** Creates a lab whose deals are also served in a dialect, and describes that source with an example, changed as given. */
async function openForeign(example: string, dialect: Dialect, change?: (text: string) => string) {
  const lab = await createFilled()
  const foreign = lab.beside.use(await serveForeign(dialect, {base: lab.config.baseUrl ?? '', key: KEY}))
  lab.config.baseUrl = foreign.origin
  lab.env.LOANTAPE_BASE_URL = foreign.origin
  describe(lab, example, foreign.origin, change)
  return Object.assign(lab, {foreign})
}

const WITHOUT_PAGES = {config: {detail: 'off'}} as const

/** Creates a lab that can ask for what changed since an instant; `page` answers. */
const openHinting = (page: Dialect['page']) =>
  openForeign('plaza', {...plaza, page}, (text) =>
    text.replace('"filter": "state",', '"filter": "state", "changedSince": "since",'),
  )

const plain = await useShared(createFilled())
const expected = await readTables(plain)
const without = (table: string) =>
  Object.fromEntries(Object.entries(expected.tables).filter(([name]) => name !== table))

test('the service as it is, described, gives the same tables', async () => {
  await using lab = await createFilled()
  describe(lab, 'service', '')
  expect(await readTables(lab)).toEqual(expected)
})

test('a source that differs in everything gives the same tables, its tokens are renewed when they end, and a rebuild reads the same from tapes without people', async () => {
  const harbor = createHarbor(9)
  await using lab = await openForeign('harbor', harbor)
  const {tables, walks} = await readTables(lab)
  expect(tables).toMatchObject(without('core.document'))
  expect(walks).toEqual(expected.walks)
  expect(harbor.tokens.length).toBeGreaterThan(3)
  expect(lab.foreign.asked).toContainEqual(expect.stringMatching(/^\/v2\/loans\?.*from=20/))
  writeFileSync(lab.folder.source, 'no longer read')
  expect(await lab.run(['verify', '--rebuild'])).toMatchObject({code: 0})
  const ids = await lab.queryHistory('select walk_id from walk')
  const tapes = await Promise.all(ids.map(({walk_id}) => lab.run(['tape', 'cat', String(walk_id)])))
  const said = tapes.map(({stdout}) => stdout).join('')
  expect(said).toMatch(/"frame":"received".*minor\\?":\\?"40000099/)
  expect(said).not.toMatch(/Adalbert|ann@example/)
  expect(await lab.query('select distinct length(email_hash) as length from core.borrower')).toEqual([
    {length: '64'},
  ])
})

test('so does another one; page numbers end at an empty page', async () => {
  await using lab = await openForeign('plaza', plaza)
  const {tables, walks} = await readTables(lab)
  expect(tables).toMatchObject(without('core.borrower'))
  expect(walks.map(({records}) => records)).toEqual(expected.walks.map(({records}) => records))
  expect(lab.foreign.asked).toContain('/facilities?rows=10&pageNumber=3')
})

test('a walk cut off goes on at its link, and begins anew once source.json says something else', async () => {
  await using lab = await openForeign('harbor', createHarbor())
  const config = {pageSize: 10, detail: 'off' as const}
  lab.foreign.serveOnly(2)
  expect(await failureOf(lab.walk(DAY_1, {config}))).toMatchObject({code: 'SOURCE_FAILING'})
  lab.foreign.serveOnly(Number.POSITIVE_INFINITY)
  expect(await lab.walk(DAY_1, {config})).toMatchObject({certificate: {resumed: 1, records: 25}})
  expect(lab.foreign.asked).toHaveLength(3)
  lab.foreign.serveOnly(2)
  await failureOf(lab.walk(DAY_2, {config}))
  lab.foreign.serveOnly(Number.POSITIVE_INFINITY)
  describe(lab, 'harbor', lab.foreign.origin, (text) => text.replace('"NEW": "draft"', '"NEW": "submitted"'))
  const anew = await lab.walk(DAY_2, {config: {...config, changeLimitPct: 100}})
  expect(anew).toMatchObject({certificate: {resumed: 0, records: 25}, changes: {updated: 24}})
})

test('a token server that is busy or says nothing of use is asked again, and the second secret once it refuses the first', async () => {
  const harbor = createHarbor()
  const faults = [
    {status: 503, body: 'busy', headers: {'retry-after': '7'}},
    {status: 429, body: {}},
    {status: 200, body: '<html>maintenance</html>'},
    {status: 404, body: 'no such page'},
  ]
  const token: Dialect['token'] = (got) =>
    got.url.pathname === '/token' && faults.length > 0 ? faults.shift() : harbor.token?.(got)
  await using lab = await openForeign('harbor', {...harbor, token})
  const config = {detail: 'off' as const, retries: 4}
  const keys = {apiKey: 'an_old_secret', nextApiKey: KEY}
  const waits: number[] = []
  const realClock = {
    ...lab.createWorld(DAY_1).realClock,
    sleep: async (ms: number) => {
      waits.push(ms)
    },
  }
  expect(await lab.walk(DAY_1, {config: {...config, ...keys}, world: {realClock}})).toMatchObject({
    certificate: {records: 25},
  })
  expect(waits).toContain(7000)
  const refused = await failureOf(
    lab.walk(DAY_2, {config: {...config, apiKey: 'neither', nextApiKey: 'nor'}}),
  )
  expect(refused).toMatchObject({code: 'SOURCE_UNAUTHORIZED', exitCode: 5})
  expect(refused.message).not.toMatch(/neither|nor_/)
  faults.push({status: 302, body: {}})
  const moved = await failureOf(lab.walk(DAY_2, {config}))
  expect(moved).toMatchObject({code: 'SOURCE_REDIRECTED', message: expect.stringContaining('tokenUrl')})
})

test('the second secret is used once the source refuses the tokens given for the first', async () => {
  const harbor = createHarbor()
  const first = `Basic ${Buffer.from('loantape:an_old_secret').toString('base64')}`
  const token: Dialect['token'] = (got) =>
    got.headers.authorization === first ? {body: {access_token: 'old'}} : harbor.token?.(got)
  await using lab = await openForeign('harbor', {...harbor, token})
  const config = {detail: 'off' as const, apiKey: 'an_old_secret'}
  expect(await lab.walk(DAY_1, {config: {...config, nextApiKey: KEY}})).toMatchObject({
    certificate: {records: 25},
  })
  expect(lab.foreign.refusals()).toBe(2)
  expect(await failureOf(lab.walk(DAY_2, {config}))).toMatchObject({code: 'SOURCE_UNAUTHORIZED', exitCode: 5})
})

test('a source that ignores the filter by status is found out at its first page', async () => {
  const misname = (text: string) => text.replace('"filter": "state"', '"filter": "status"')
  await using lab = await openForeign('plaza', plaza, misname)
  const config = {detail: 'off' as const, stage: 'funded'}
  const failure = await failureOf(lab.walk(DAY_1, {config}))
  expect(failure).toMatchObject({code: 'SOURCE_REQUEST_REFUSED', exitCode: 7})
  expect(failure.message).toMatch(/^24 of 25 records at .*, status, .* than 'funded'.*`filter`/)
  expect(lab.foreign.asked).toHaveLength(1)
  describe(lab, 'plaza', lab.foreign.origin)
  expect(await lab.walk(DAY_1, {config})).toMatchObject({certificate: {records: 1}})
})

test('an error of a list names the path and the parameters that the source was asked with', async () => {
  let status = 400
  const page: Dialect['page'] = (records) =>
    status === 200 ? {body: records.slice(0, 1)} : {status, body: {}}
  await using lab = await openForeign('plaza', {...plaza, startOf: () => 0, page})
  const fail = async () => (await failureOf(lab.walk(DAY_1, WITHOUT_PAGES))).message
  expect(await fail()).toMatch(/^Status 400 .* GET \/facilities \(rows, pageNumber\): .*source\.json/)
  status = 404
  expect(await fail()).toMatch(/^Status 404 .* GET \/facilities /)
  status = 200
  expect(await fail()).toMatch(/^3 pages in a row of GET \/facilities hold/)
})

test('without its source.json a folder asks for nothing, and pushes nothing with one', async () => {
  await using lab = await openForeign('plaza', plaza)
  const described = readFileSync(lab.folder.source)
  await lab.walk(DAY_1, {isDryRun: true})
  rmSync(lab.folder.source)
  // A dry run filled nothing.
  expect(await failureOf(lab.walk(DAY_1))).toMatchObject({code: 'SOURCE_UNAUTHORIZED'})
  writeFileSync(lab.folder.source, described)
  // One that died has filled it with pages.
  await failureOf(lab.walk(DAY_1, {world: dyingAt('pages stored')}))
  rmSync(lab.folder.source)
  lab.foreign.asked.splice(0)
  expect(await failureOf(lab.walk(DAY_1))).toMatchObject({code: 'SOURCE_FILE'})
  expect(lab.foreign.asked).toEqual([])
  writeFileSync(lab.folder.source, described)
  await lab.walk(DAY_1)
  const rows = join(lab.folder.root, '../rows.csv')
  writeFileSync(rows, 'external_reference,property_address,loan_amount\n1,A,1\n')
  expect((await lab.run(['push', 'deals', rows])).stderr).toContain('SOURCE_FILE')
  rmSync(lab.folder.source)
  lab.foreign.asked.splice(0)
  expect(await failureOf(lab.walk(DAY_2))).toMatchObject({code: 'SOURCE_FILE'})
  for (const command of [['doctor'], ['push', 'deals', rows]]) {
    const {stdout, stderr} = await lab.run(command)
    expect(stdout + stderr).toContain('it is missing')
  }
  // Nor after the state database was made again from the tapes.
  rmSync(lab.folder.stateDb)
  expect(await failureOf(lab.walk(DAY_2))).toMatchObject({code: 'SOURCE_FILE'})
  expect(lab.foreign.asked).toEqual([])
})

test('doctor shows how the first deal is read', async () => {
  const tryIt = async () => (await lab.run(['doctor', '--try'])).stdout
  const rated = (deal: Parameters<typeof plaza.deal>[0]) => ({
    ...plaza.deal(deal),
    terms: {rate: 0.095, due: 'soon'},
  })
  await using lab = await openForeign('plaza', {...plaza, deal: rated})
  const mapping = {
    note_rate: {path: 'terms.rate', type: 'decimal(9,6)'},
    maturity_date: {path: 'terms.due', type: 'date'},
    fund: {type: 'text'},
  }
  writeFileSync(lab.folder.fields, JSON.stringify(mapping))
  const shown = await tryIt()
  expect(shown).toMatch(/note_rate +terms.rate +0.095 +"0.095000"\n/)
  expect(shown).toMatch(/maturity_date +terms.due +"soon" +unreadable as date\n/)
  expect(shown).toMatch(/fund +fund +\(nothing\) +\(nothing\)\n/)
  expect(shown).toMatch(/created_at +createdMs +1767625201000 +"2026-01-05T15:00:01/)
  expect(shown).toMatch(/property_value +appraisedValue, on its own page +"\d+" +"\d+"\n/)
  expect(shown).toMatch(/loan_amount +commitment +"350000.01" +"350000.01"\n/)
  expect(shown).toMatch(/status +state +"Draft" +"draft"\n/)
  describe(lab, 'plaza', lab.foreign.origin, (text) => text.replace('"commitment"', '"commitmint"'))
  expect(await tryIt()).toContain('It cannot be read: loan_amount: ')
  describe(lab, 'plaza', lab.foreign.origin, (text) => text.replace('"/facilities/{id}"', '"/facility/{id}"'))
  expect(await tryIt()).toContain('Its own page cannot be read: GET /facility/{id}: status 404.')
  writeFileSync(lab.folder.fields, JSON.stringify({amount: {path: 'commitment', type: 'text'}}))
  expect(await tryIt()).toContain("'commitment' is a column of core.deal already")
})

test('lists of deals read half under another source.json are dropped', async () => {
  await using lab = await openForeign('harbor', createHarbor(), (text) =>
    text.replace('"contact.mail"', '"contact.given"'),
  )
  const config = {detail: 'off' as const, streams: 'deals,borrowers'}
  await failureOf(lab.walk(DAY_1, {config, world: dyingAt('lists stored')}))
  describe(lab, 'harbor', lab.foreign.origin)
  expect(await lab.walk(DAY_1, {config})).toMatchObject({streams: [{outcome: 'applied', listed: 25}]})
})

test('own pages and lists of deals are all read anew once source.json reads them otherwise, and the guard judges what that changes', async () => {
  await using lab = await openForeign('plaza', plaza)
  const config = {streams: 'deals,documents'}
  await lab.walk(DAY_1, {config})
  describe(lab, 'plaza', lab.foreign.origin, (text) =>
    text.replace('"appraisedValue"', '{"path": "appraisedValue", "unit": "cents"}'),
  )
  expect(await failureOf(lab.walk(DAY_2, {config}))).toMatchObject({
    code: 'GUARD_CHANGE',
    message: expect.stringContaining('change their property_value'),
  })
  expect(await lab.walk(DAY_2, {config, accept: ['change']})).toMatchObject({
    certificate: {details: {fetched: 25}},
    streams: [{listed: 25}],
  })
  const otherSize = {...config, pageSize: 9}
  describe(lab, 'plaza', lab.foreign.origin, (text) =>
    text
      .replace('"appraisedValue"', '{"path": "appraisedValue", "unit": "cents"}')
      .replace('"filter": "state",', ''),
  )
  const described = readFileSync(lab.folder.source, 'utf8')
  describe(lab, 'plaza', lab.foreign.origin)
  await lab.walk(DAY_2, {config, isDryRun: true})
  writeFileSync(lab.folder.source, described)
  // A dry run under a trial file makes nothing to be read anew.
  expect(await lab.walk(DAY_3, {config: otherSize})).toMatchObject({
    certificate: {details: {fetched: 1}},
    streams: [{listed: 1}],
  })
  // So it is once a walk under a clock that was ahead is taken back: they are read anew once, not each night until then.
  describe(lab, 'plaza', lab.foreign.origin)
  const change = {accept: ['change' as const]}
  const {walk_id} = (await lab.walk('2027-02-02T23:30:00-05:00', change)).certificate
  const without = ['rebuild', '--apply', '--without', walk_id, '--why', 'the clock was ahead']
  expect(await lab.run(without)).toMatchObject({code: 0})
  for (const [night, fetched] of [
    [5, 25],
    [6, 1],
  ] as const)
    expect(await lab.walk(day(night), change)).toMatchObject({certificate: {details: {fetched}}})
})

test('an answer that repeats the key is not kept as it came', async () => {
  const echo: Dialect = {
    ...plaza,
    isAllowed: ({url}) => url.searchParams.get('key') === KEY,
    page: (records, {url}) => ({body: {asked: url.search, records}}),
  }
  const byQuery = (text: string) =>
    text
      .replace('{"by": "header", "name": "X-Plaza-Key"}', '{"by": "query", "name": "key"}')
      .replaceAll('"list": ', '"records": "records", "list": ')
  await using lab = await openForeign('plaza', echo, byQuery)
  await lab.walk(DAY_1)
  const [walk] = await lab.queryHistory('select walk_id from walk')
  const tape = await lab.run(['tape', 'cat', String(walk?.walk_id)])
  expect(tape.stdout).not.toContain(KEY)
  expect(tape.stdout.match(/"frame":"received".*"body":/g)).toHaveLength(25)
  lab.service.store.update('deal_000001', {status: 'underwriting'})
  await lab.walk(DAY_2, WITHOUT_PAGES)
  const version = (await traceDeal(lab.config, 'deal_000001', {}, lab.createWorld())).at(-1)
  expect(version).toMatchObject({request: '/facilities?rows=100&pageNumber=0', sha256: null, record: null})
  expect(version?.read).toContain('"loan_amount":"350000.01"')
})

test('a version leads to the record that the source sent, with its page, and shows how it was read beside', async () => {
  await using lab = await openForeign('harbor', createHarbor())
  await lab.walk(DAY_1, {config: {pageSize: 10}})
  lab.service.store.update('deal_000012', {status: 'underwriting'})
  await lab.sync(DAY_2, {config: {pageSize: 10, detail: 'off'}})
  const {stdout} = await lab.run(['trace', 'deal_000012', '--json'])
  const versions = JSON.parse(stdout).versions as Trace[]
  expect(versions).toMatchObject([
    {source: 'detail', request: '/v2/loans/deal_000012'},
    {source: 'list', request: expect.stringMatching(/^\/v2\/loans\?next=sha256%3A\w+$/)},
  ])
  for (const {tape, line, sha256, record, read} of versions) {
    const cat = await lab.run(['tape', 'cat', /([^/]+)\.jsonl/.exec(tape ?? '')?.[1] ?? ''])
    const {frame, body} = JSON.parse(cat.stdout.split('\n')[(line ?? 0) - 1] ?? '')
    expect([frame, createHash('sha256').update(body).digest('hex')]).toEqual(['received', sha256])
    expect(body).toContain(record)
    expect(record).toMatch(/^\{"loanId":"deal_000012",.*"minor":"35000001"/)
    expect(read).toMatch(
      /"loan_amount":"350000\.01".*"id":"deal_000012"|"id":"deal_000012".*"loan_amount":"350000\.01"/,
    )
  }
  await using side = await serveLab(lab, {now: DAY_2})
  const page = await side.readText('/deals/deal_000012/received')
  expect(page).toMatch(/&quot;minor&quot;:&quot;35000001&quot;.* As loantape read it, not as received /)
})

test('records that a wrong source.json made unreadable are read anew once it is right, or by the next walk', async () => {
  const swap = (text: string) =>
    text
      .replace('appraisedValue', 'x')
      .replace('programCode', 'appraisedValue')
      .replace('"x"', '"programCode"')
  await using lab = await openForeign('plaza', plaza, swap)
  const env = {LOANTAPE_NOW: DAY_2}
  const run = async (...args: string[]) => JSON.parse((await lab.run([...args, '--json'], env)).stdout)
  await lab.walk(DAY_1)
  const {records} = await run('quarantine', 'list')
  expect(records).toHaveLength(24)
  const shown = await run('quarantine', 'show', records[0].quarantine_id)
  expect(shown).toMatchObject({
    record: expect.stringContaining('"programCode":"bridge'),
    read: expect.stringContaining('"property_value":"bridge'),
  })
  describe(lab, 'plaza', lab.foreign.origin)
  expect(await run('quarantine', 'replay')).toMatchObject({replayed: 24, waiting: 0})
  expect(await lab.queryHistory('select count(property_value) as known from deal_head')).toEqual([
    {known: '24'},
  ])
  expect(await lab.run(['verify', '--rebuild'])).toMatchObject({code: 0})

  describe(lab, 'plaza', lab.foreign.origin, (text) => text.replace('"commitment"', '"commitmint"'))
  expect(await failureOf(lab.walk(DAY_2))).toMatchObject({code: 'SOURCE_QUARANTINE'})
  expect((await run('quarantine', 'list')).records).toHaveLength(25)
  describe(lab, 'plaza', lab.foreign.origin)
  expect(await run('quarantine', 'replay')).toMatchObject({replayed: 0, waiting: 25})
  await lab.walk(DAY_3)
  expect(await run('quarantine', 'list')).toEqual({records: [], pruned: 0})
  expect(await run('quarantine', 'reasons')).toMatchObject({reasons: [], records: []})
  expect(await run('status')).toMatchObject({quarantine_waiting: 0})
  env.LOANTAPE_NOW = DAY_3
  expect(await run('quarantine', 'replay')).toMatchObject({replayed: 0, waiting: 0})

  await run('build')
  const proveSince = (...[day = '', ...options]: string[]) =>
    run('evidence', 'current', `${lab.folder.root}-evidence${options}`, '--from', day, ...options)
  const {answers} = await proveSince('2026-02-01')
  expect(answers).toBeGreaterThan(24)
  expect(await proveSince('2026-02-01', '--all-fields')).toMatchObject({answers: 2 * answers, reduced: 0})
})

test('the second key is used once the first is refused, and goes to nobody else', async () => {
  await using lab = await openForeign('plaza', plaza)
  const config = {apiKey: 'an_old_key', nextApiKey: KEY, detail: 'off' as const}
  expect(await lab.walk(DAY_1, {config})).toMatchObject({certificate: {records: 25}})
  expect(lab.foreign.refusals()).toBe(1)
  const refused = await failureOf(lab.walk(DAY_2, {config: {...config, nextApiKey: 'neither'}}))
  expect(refused).toMatchObject({code: 'SOURCE_UNAUTHORIZED', exitCode: 5})
  expect(refused.message).not.toMatch(/an_old_key|neither/)
})

test('between walks, events apply looks at what the source lists as changed, and concludes nothing from the rest', async () => {
  const told = new Set<unknown>()
  const page: Dialect['page'] = (records, {url}) => {
    if (!url.searchParams.has('since')) return {body: records}
    return {
      body: url.searchParams.get('pageNumber') === '0' ? [...told].map((facilityNo) => ({facilityNo})) : [],
    }
  }
  await using lab = await openHinting(page)
  const apply = (at: string, detail: 'auto' | 'off' = 'auto') =>
    applyEvents({...lab.config, detail}, lab.createWorld(at))
  const nothing = {outcome: 'unchanged', events: 0, deals: 0, appended: 0}
  await lab.walk(DAY_1)
  for (const detail of ['auto', 'off'] as const)
    expect(await apply('2026-02-03T12:00:00-05:00', detail)).toEqual(nothing)

  for (const id of ['deal_000002', 'deal_000003']) lab.service.store.update(id, {loan_amount_cents: 1_00n})
  lab.service.store.remove('deal_000005')
  lab.service.store.insert([aDeal(26)])
  for (const id of ['deal_000002', 'deal_000004', 'deal_000026']) told.add(id)
  const noon = '2026-02-04T12:00:00-05:00'
  expect(await apply(noon)).toEqual({outcome: 'applied', events: 0, deals: 3, appended: 2})
  expect(lab.foreign.asked).toContain('/facilities?rows=100&since=2026-02-03T03%3A30%3A00.000Z&pageNumber=0')
  expect(await lab.queryHistory('select walk_id from walk')).toHaveLength(1)
  const heads = `select deal_id, kind from deal_head where deal_id in ('deal_000003', 'deal_000005') order by 1`
  expect(await lab.queryHistory(heads)).toEqual([
    {deal_id: 'deal_000003', kind: 'seen'},
    {deal_id: 'deal_000005', kind: 'seen'},
  ])

  const again = await lab.run(['events', 'apply'], {LOANTAPE_NOW: '2026-02-04T12:30:00-05:00'})
  expect(again.stdout).toBe('3 deals that the source lists as changed: 0 versions appended.\n')

  // Only a walk may conclude that a deal is gone.
  told.add('deal_000005')
  expect(await apply('2026-02-04T13:00:00-05:00')).toMatchObject({outcome: 'walked', deals: 4})
  expect(await lab.queryHistory('select walk_id from walk')).toHaveLength(2)
})

test('a list of changes without end is left, and a walk made instead if it names any', async () => {
  let id = 'facilityNo'
  const page: Dialect['page'] = (records, {url}) => {
    const number = url.searchParams.has('since') ? url.searchParams.get('pageNumber') : null
    return {body: number ? Array.from({length: 40_000}, (_, n) => ({[id]: `${number}_${n}`})) : records}
  }
  await using lab = await openHinting(page)
  const config = {...lab.config, detailBudgetMinutes: 0}
  await lab.walk(DAY_1, {config})
  expect(await applyEvents(config, lab.createWorld(DAY_2))).toMatchObject({outcome: 'walked', appended: 0})
  expect(await lab.queryHistory('select walk_id from walk')).toHaveLength(2)
  id = 'of_nobody'
  expect(await applyEvents(config, lab.createWorld(DAY_3))).toMatchObject({outcome: 'unchanged'})
})

test('a source without own pages is asked for none, and lacks none', async () => {
  await using lab = await openForeign('plaza', plaza, (text) => text.replace(/"page": "[^"]*",/, ''))
  const unread = {certificate: {records: 25, details: {fetched: 0, failed: 0}}}
  expect(await lab.walk(DAY_1)).toMatchObject(unread)
  receiveEvents(lab.folder, 'deal_000002')
  expect(await applyEvents(lab.config, lab.createWorld(DAY_2))).toMatchObject({outcome: 'walked'})
})

test('a source that cannot list what changed keeps nobody from following webhooks', async () => {
  let answer = 200
  const page: Dialect['page'] = (records, {url}) => ({
    status: url.searchParams.has('since') ? answer : 200,
    body: url.searchParams.has('since') ? {rows: 'none'} : records,
  })
  await using lab = await openHinting(page)
  await lab.walk(DAY_1)
  lab.service.store.update('deal_000002', {loan_amount_cents: 1_00n})
  const apply = () => applyEvents(lab.config, lab.createWorld(DAY_2))
  expect(await failureOf(apply())).toMatchObject({code: 'SOURCE_ENVELOPE'})
  answer = 422
  expect((await failureOf(apply())).message).toMatch(/GET \/facilities \(rows, since, .*`changedSince`/)
  receiveEvents(lab.folder, 'deal_000002')
  expect(await apply()).toEqual({outcome: 'applied', events: 1, deals: 1, appended: 1})
})

const OPENLY = {auth: {by: 'oauth2', tokenUrl: 'http://a.example/t', clientId: 'x'}}
const NOWHERE = {auth: {...OPENLY.auth, tokenUrl: 'a.example/t'}}
const withDeals = (deals: object, more: object = {}) =>
  JSON.stringify({...more, paging: {by: 'link'}, deals: {list: '/a', ...deals}})

test.each([
  ['no JSON', '{', /expected JSON/],
  ['nothing of use', '{}', /paging: .*; deals: /s],
  ['a page without an id', withDeals({page: '/b'}), /deals\.page: expected \{id\}/],
  ['a hint that leads nowhere', withDeals({changedSince: 'since'}), /changedSince: expected `page`/],
  ['a field of nobody', withDeals({fields: {rate: 'x'}}), /deals\.fields/],
  ['a token asked for nowhere', withDeals({}, NOWHERE), /auth\.tokenUrl: expected a URL\. /],
  ['a token asked for openly', withDeals({}, OPENLY), /auth\.tokenUrl: expected https/],
])('a source.json with %s is refused before anything is asked', async (_what, text, problem) => {
  writeFileSync(plain.folder.source, text)
  expect(await failureOf(plain.walk(DAY_3))).toMatchObject({
    code: 'SOURCE_FILE',
    exitCode: 2,
    message: expect.stringMatching(problem),
  })
})
