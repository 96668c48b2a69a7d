import {createHash} from 'node:crypto'
import {mkdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {applyEvents, type SyncResult} from '../../src/pipeline.ts'
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

/** Returns an example's words for our statuses. */
function wordsOf(example: string) {
  const text = readFileSync(join(EXAMPLES, `${example}.json`), 'utf8')
  const ours = JSON.parse(text).deals.fields.status.values as Record<string, string>
  const theirs = new Map(Object.entries(ours).map(([word, status]) => [status, word]))
  return (status: unknown) => theirs.get(String(status))
}
const stageOf = wordsOf('harbor')
const stateOf = wordsOf('plaza')

const REQUESTS_PER_TOKEN = 9

/** Creates a dialect with tokens that end early, links, nested names, cents and local times. */
function createHarbor(): Dialect & {tokens: string[]} {
  const tokens: string[] = []
  let left = 0
  return {
    tokens,
    deals: '/v2/loans',
    children: {parties: 'borrowers'},
    size: 'per_page',
    token({url, headers, body}) {
      if (url.pathname !== '/token') return undefined
      const form = new URLSearchParams(body)
      const isKnown = headers.authorization === `Basic ${Buffer.from(`loantape:${KEY}`).toString('base64')}`
      if (!isKnown || form.get('grant_type') !== 'client_credentials' || form.get('scope') !== 'loans.read')
        return {status: 401, body: {error: 'invalid_client'}}
      left = REQUESTS_PER_TOKEN
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
      stage: stageOf(status),
      openedAt: inNewYork(created_at),
    }),
    child: (_kind, {id, deal_id, email, first_name, created_at}) => ({
      partyId: id,
      loan: deal_id,
      contact: {mail: email, given: first_name},
      linkedAt: inNewYork(created_at),
    }),
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
    state: stateOf(status),
    createdMs: Date.parse(String(created_at)),
  }),
  child: (_kind, {id, deal_id, category, created_at}) => ({
    fileNo: id,
    facility: deal_id,
    kind: category,
    storedAt: created_at,
  }),
}

const DEALS = [
  ...someDeals(23, {loan_amount_cents: 350_000_01n}),
  aDeal(24, {status: 'funded', property_value_cents: null, loan_program: null}),
  aDeal(25, {loan_amount_cents: 0n, property_address: 'Straße 1, “Köln”'}),
]

/** What plaza lists as changed since an instant is read by `events apply`. */
const withHints = (text: string) =>
  text.replace('"filter": "state",', '"filter": "state", "changedSince": "since",')

/** Describes a source to a lab with an example, changed as given. */
function describe(
  {folder}: Lab,
  example: string,
  origin: string,
  change: (text: string) => string = (text) => text,
) {
  const text = withHints(readFileSync(join(EXAMPLES, `${example}.json`), 'utf8'))
  mkdirSync(folder.root, {recursive: true})
  writeFileSync(folder.source, change(text.replace('https://login.harbor.example', origin)))
}

const CONFIG = {pageSize: 10, streams: 'deals,borrowers,documents'}
const WITHOUT_PAGES = {config: {detail: 'off'}} as const

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

/** Creates a lab whose deals are also served in a dialect, described with an example, after its first night. */
async function openForeign(example: string, dialect: Dialect) {
  const lab = await useShared(createFilled())
  const foreign = lab.beside.use(await serveForeign(dialect, {base: lab.config.baseUrl ?? '', key: KEY}))
  lab.config.baseUrl = foreign.origin
  lab.env.LOANTAPE_BASE_URL = foreign.origin
  const describeAs = (change?: (text: string) => string) => describe(lab, example, foreign.origin, change)
  describeAs()
  const first = await lab.walk(DAY_1, {config: CONFIG})
  beforeEach(lab.remember())
  beforeEach(() => void foreign.asked.splice(0))
  const beginAnew = (change?: (text: string) => string) => {
    rmSync(lab.folder.root, {recursive: true})
    describeAs(change)
  }
  return Object.assign(lab, {foreign, first, describeAs, beginAnew})
}

/** Syncs the second night of a lab after its first one; returns its tables. */
async function readTables(lab: Lab, first: {certificate: SyncResult['walk']}) {
  lab.service.store.update('deal_000003', {status: 'underwriting', loan_amount_cents: 400_000_99n})
  lab.service.store.remove('deal_000007')
  const {walk} = await lab.sync(DAY_2, {config: CONFIG})
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
    walks: [first.certificate, walk].map(({pages, records, quarantined}) => ({records, quarantined, pages})),
  }
}

/** What plaza says at present. */
const spoken = {...plaza}
beforeEach(() => void Object.assign(spoken, plaza))
const lab = await openForeign('plaza', spoken)
const harbor = createHarbor()
const harborLab = await openForeign('harbor', harbor)

async function readOwn(description: boolean) {
  await using own = await createFilled()
  if (description) describe(own, 'service', '')
  return await readTables(own, await own.walk(DAY_1, {config: CONFIG}))
}
const expected = await readOwn(false)
const without = (table: string) =>
  Object.fromEntries(Object.entries(expected.tables).filter(([name]) => name !== table))

test('the service as it is, described, gives the same tables', async () => {
  expect(await readOwn(true)).toEqual(expected)
})

test('a source that differs in everything gives the same tables, its tokens are renewed when they end, and a rebuild reads the same from tapes without people', async () => {
  const {tables, walks} = await readTables(harborLab, harborLab.first)
  expect(tables).toMatchObject(without('core.document'))
  expect(walks).toEqual(expected.walks)
  expect(harbor.tokens.length).toBeGreaterThan(3)
  writeFileSync(harborLab.folder.source, 'no longer read')
  expect(await harborLab.run(['verify', '--rebuild'])).toMatchObject({code: 0})
  const ids = await harborLab.queryHistory('select walk_id from walk')
  const tapes = await Promise.all(ids.map(({walk_id}) => harborLab.run(['tape', 'cat', String(walk_id)])))
  const said = tapes.map(({stdout}) => stdout).join('')
  expect(said).toMatch(/"frame":"received".*minor\\?":\\?"40000099/)
  expect(said).not.toMatch(/Adalbert|ann@example/)
  expect(await harborLab.query('select distinct length(email_hash) as length from core.borrower')).toEqual([
    {length: '64'},
  ])
})

test('so does another one; page numbers end at an empty page', async () => {
  const {tables, walks} = await readTables(lab, lab.first)
  expect(tables).toMatchObject(without('core.borrower'))
  expect(walks.map(({records}) => records)).toEqual(expected.walks.map(({records}) => records))
  expect(lab.foreign.asked).toContain('/facilities?rows=10&pageNumber=3')
})

test('a walk cut off goes on at its link, and begins anew once source.json says something else', async () => {
  const {foreign} = harborLab
  const config = {pageSize: 10, detail: 'off' as const, changeLimitPct: 100}
  const cutOff = async () => {
    foreign.serveOnly(2)
    expect(await failureOf(harborLab.walk(DAY_2, {config}))).toMatchObject({code: 'SOURCE_FAILING'})
    foreign.serveOnly(Number.POSITIVE_INFINITY)
  }
  await cutOff()
  expect(await harborLab.walk(DAY_2, {config})).toMatchObject({certificate: {resumed: 1, records: 25}})
  expect(foreign.asked).toHaveLength(3)
  await cutOff()
  harborLab.describeAs((text) => text.replace('"NEW": "draft"', '"NEW": "submitted"'))
  const anew = await harborLab.walk(DAY_2, {config})
  expect(anew).toMatchObject({certificate: {resumed: 0, records: 25}, changes: {updated: 24}})
})

test('an error of a list names the path and the parameters that the source was asked with', async () => {
  let status = 400
  spoken.startOf = () => 0
  spoken.page = (records) => (status === 200 ? {body: records.slice(0, 1)} : {status, body: {}})
  const fail = async () => (await failureOf(lab.walk(DAY_2, WITHOUT_PAGES))).message
  expect(await fail()).toMatch(/^Status 400 .* GET \/facilities \(rows, pageNumber\): .*source\.json/)
  status = 200
  expect(await fail()).toMatch(/^3 pages in a row of GET \/facilities hold/)
})

test('a source that ignores the filter by status is found out at its first page, by the name that it has there', async () => {
  lab.beginAnew()
  const failure = await failureOf(lab.walk(DAY_1, {config: {detail: 'off', stage: 'funded'}}))
  expect(failure).toMatchObject({code: 'SOURCE_REQUEST_REFUSED', exitCode: 7})
  expect(failure.message).toMatch(/^24 of 25 records at .*, state, .* than 'funded'.*`filter`/)
  expect(lab.foreign.asked).toHaveLength(1)
})

test('without its source.json a folder asks for nothing, and pushes nothing with one', async () => {
  const described = readFileSync(lab.folder.source)
  const rows = join(lab.folder.root, '../rows.csv')
  writeFileSync(rows, 'external_reference,property_address,loan_amount\n1,A,1\n')
  expect((await lab.run(['push', 'deals', rows])).stderr).toContain('SOURCE_FILE')
  lab.beginAnew()
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
  for (const command of [['doctor'], ['push', 'deals', rows]]) {
    const {stdout, stderr} = await lab.run(command)
    expect(stdout + stderr).toContain('it is missing')
  }
  writeFileSync(lab.folder.source, '{')
  expect(await failureOf(lab.walk(DAY_1))).toMatchObject({code: 'SOURCE_FILE', exitCode: 2})
  rmSync(lab.folder.source)
  // Nor after the state database was made again from the tapes.
  rmSync(lab.folder.stateDb)
  expect(await failureOf(lab.walk(DAY_2))).toMatchObject({code: 'SOURCE_FILE'})
  expect(lab.foreign.asked).toEqual([])
})

test('doctor shows how the first deal is read', async () => {
  const tryIt = async () => (await lab.run(['doctor', '--try'])).stdout
  spoken.deal = (deal) => ({...plaza.deal(deal), terms: {rate: 0.095, due: 'soon'}})
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
  expect(shown).toMatch(/status +state +"Draft" +"draft"\n/)
  lab.describeAs((text) => text.replace('"commitment"', '"commitmint"'))
  expect(await tryIt()).toContain('It cannot be read: loan_amount: ')
  lab.describeAs((text) => text.replace('"/facilities/{id}"', '"/facility/{id}"'))
  expect(await tryIt()).toContain('Its own page cannot be read: GET /facility/{id}: status 404.')
  writeFileSync(lab.folder.fields, JSON.stringify({amount: {path: 'commitment', type: 'text'}}))
  expect(await tryIt()).toContain("'commitment' is a column of core.deal already")
})

test('lists of deals read half under another source.json are dropped', async () => {
  harborLab.beginAnew((text) => text.replace('"contact.mail"', '"contact.given"'))
  const config = {detail: 'off' as const, streams: 'deals,borrowers'}
  await failureOf(harborLab.walk(DAY_1, {config, world: dyingAt('lists stored')}))
  harborLab.describeAs()
  expect(await harborLab.walk(DAY_1, {config})).toMatchObject({streams: [{outcome: 'applied', listed: 25}]})
})

test('own pages and lists of deals are all read anew once source.json reads them otherwise, and the guard judges what that changes', async () => {
  const config = {streams: 'deals,documents'}
  const inCents = (text: string) =>
    text.replace('"appraisedValue"', '{"path": "appraisedValue", "unit": "cents"}')
  lab.describeAs(inCents)
  expect(await failureOf(lab.walk(DAY_2, {config}))).toMatchObject({
    code: 'GUARD_CHANGE',
    message: expect.stringContaining('change their property_value'),
  })
  expect(await lab.walk(DAY_2, {config, accept: ['change']})).toMatchObject({
    certificate: {details: {fetched: 25}},
    streams: [{listed: 25}],
  })
  lab.describeAs()
  await lab.walk(DAY_2, {config, isDryRun: true})
  lab.describeAs((text) => inCents(text).replace('"filter": "state", "changedSince": "since",', ''))
  // A dry run under a trial file makes nothing to be read anew, nor does another filter or size of pages.
  expect(await lab.walk(DAY_3, {config: {...config, pageSize: 9}})).toMatchObject({
    certificate: {details: {fetched: 1}},
    streams: [{listed: 1}],
  })
  // So it is once a walk under a clock that was ahead is taken back: they are read anew once, not each night until then.
  lab.describeAs()
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
  spoken.isAllowed = ({url}) => url.searchParams.get('key') === KEY
  spoken.page = (records, {url}) => ({body: {asked: url.search, records}})
  lab.describeAs((text) =>
    text
      .replace('{"by": "header", "name": "X-Plaza-Key"}', '{"by": "query", "name": "key"}')
      .replaceAll('"list": ', '"records": "records", "list": '),
  )
  lab.service.store.update('deal_000001', {status: 'underwriting'})
  const {walk_id} = (await lab.walk(DAY_2, WITHOUT_PAGES)).certificate
  expect((await lab.run(['tape', 'cat', walk_id])).stdout).not.toContain(KEY)
  const version = (await traceDeal(lab.config, 'deal_000001', {}, lab.createWorld())).at(-1)
  expect(version).toMatchObject({request: '/facilities?rows=100&pageNumber=0', sha256: null, record: null})
  expect(version?.read).toContain('"loan_amount":"350000.01"')
})

test('a version leads to the record that the source sent, with its page, and shows how it was read beside', async () => {
  harborLab.service.store.update('deal_000012', {status: 'underwriting'})
  await harborLab.sync(DAY_2, {config: {pageSize: 10, detail: 'off'}})
  const {stdout} = await harborLab.run(['trace', 'deal_000012', '--json'])
  const versions = JSON.parse(stdout).versions as Trace[]
  expect(versions).toMatchObject([
    {source: 'detail', request: '/v2/loans/deal_000012'},
    {source: 'list', request: expect.stringMatching(/^\/v2\/loans\?next=sha256%3A\w+$/)},
  ])
  for (const {tape, line, sha256, record, read} of versions) {
    const cat = await harborLab.run(['tape', 'cat', /([^/]+)\.jsonl/.exec(tape ?? '')?.[1] ?? ''])
    const {frame, body} = JSON.parse(cat.stdout.split('\n')[(line ?? 0) - 1] ?? '')
    expect([frame, createHash('sha256').update(body).digest('hex')]).toEqual(['received', sha256])
    expect(body).toContain(record)
    expect(record).toMatch(/^\{"loanId":"deal_000012",.*"minor":"35000001"/)
    expect(JSON.parse(read ?? '')).toMatchObject({id: 'deal_000012', loan_amount: '350000.01'})
  }
  await using side = await serveLab(harborLab, {now: DAY_2})
  const page = await side.readText('/deals/deal_000012/received')
  expect(page).toMatch(/&quot;minor&quot;:&quot;35000001&quot;.* As loantape read it, not as received /)
})

test('records that a wrong source.json made unreadable are read anew once it is right, or by the next walk', async () => {
  lab.beginAnew((text) =>
    text
      .replace('appraisedValue', 'x')
      .replace('programCode', 'appraisedValue')
      .replace('"x"', '"programCode"'),
  )
  const env = {LOANTAPE_NOW: DAY_2}
  const run = async (...args: string[]) => JSON.parse((await lab.run([...args, '--json'], env)).stdout)
  await lab.walk(DAY_1)
  const {records} = await run('quarantine', 'list')
  expect(records).toHaveLength(24)
  expect(await run('quarantine', 'show', records[0].quarantine_id)).toMatchObject({
    record: expect.stringContaining('"programCode":"bridge'),
    read: expect.stringContaining('"property_value":"bridge'),
  })
  lab.describeAs()
  expect(await run('quarantine', 'replay')).toMatchObject({replayed: 24, waiting: 0})
  expect(await lab.queryHistory('select count(property_value) as known from deal_head')).toEqual([
    {known: '24'},
  ])
  expect(await lab.run(['verify', '--rebuild'])).toMatchObject({code: 0})

  lab.describeAs((text) => text.replace('"commitment"', '"commitmint"'))
  expect(await failureOf(lab.walk(DAY_2))).toMatchObject({code: 'SOURCE_QUARANTINE'})
  expect((await run('quarantine', 'list')).records).toHaveLength(25)
  lab.describeAs()
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
  const config = {apiKey: 'an_old_key', nextApiKey: KEY, detail: 'off' as const}
  expect(await lab.walk(DAY_2, {config})).toMatchObject({certificate: {records: 25}})
  // One is refused, and two pages are read.
  expect(lab.foreign.asked).toHaveLength(3)
  const refused = await failureOf(lab.walk(DAY_2, {config: {...config, nextApiKey: 'neither'}}))
  expect(refused).toMatchObject({code: 'SOURCE_UNAUTHORIZED', exitCode: 5})
  expect(refused.message).not.toMatch(/an_old_key|neither/)
})

const applyAt = (now: string, changes = {}) => applyEvents({...lab.config, ...changes}, lab.createWorld(now))
const countWalks = async () => (await lab.queryHistory(`select 1 from walk where stream = 'deal'`)).length

test('between walks, events apply looks at what the source lists as changed, and concludes nothing from the rest', async () => {
  const told = new Set<unknown>()
  spoken.page = (records, {url}) => {
    if (!url.searchParams.has('since')) return {body: records}
    const isFirst = url.searchParams.get('pageNumber') === '0'
    return {body: isFirst ? [...told].map((facilityNo) => ({facilityNo})) : []}
  }
  const nothing = {outcome: 'unchanged', events: 0, deals: 0, appended: 0}
  for (const detail of ['auto', 'off'])
    expect(await applyAt('2026-02-03T12:00:00-05:00', {detail})).toEqual(nothing)

  for (const id of ['deal_000002', 'deal_000003']) lab.service.store.update(id, {loan_amount_cents: 1_00n})
  lab.service.store.remove('deal_000005')
  lab.service.store.insert([aDeal(26)])
  for (const id of ['deal_000002', 'deal_000004', 'deal_000026']) told.add(id)
  const noon = '2026-02-04T12:00:00-05:00'
  expect(await applyAt(noon)).toEqual({outcome: 'applied', events: 0, deals: 3, appended: 2})
  expect(lab.foreign.asked).toContain('/facilities?rows=100&since=2026-02-03T03%3A30%3A00.000Z&pageNumber=0')
  expect(await countWalks()).toBe(1)
  const heads = `select kind from deal_head where deal_id in ('deal_000003', 'deal_000005')`
  expect(await lab.queryHistory(heads)).toEqual([{kind: 'seen'}, {kind: 'seen'}])

  const again = await lab.run(['events', 'apply'], {LOANTAPE_NOW: '2026-02-04T12:30:00-05:00'})
  expect(again.stdout).toBe('3 deals that the source lists as changed: 0 versions appended.\n')

  // Only a walk may conclude that a deal is gone.
  told.add('deal_000005')
  expect(await applyAt('2026-02-04T13:00:00-05:00')).toMatchObject({outcome: 'walked', deals: 4})
  expect(await countWalks()).toBe(2)
})

test('a list of changes without end is left, and a walk made instead', async () => {
  spoken.page = (records, {url}) => {
    const number = url.searchParams.has('since') ? url.searchParams.get('pageNumber') : null
    return {body: number ? Array.from({length: 40_000}, (_, n) => ({facilityNo: `${number}_${n}`})) : records}
  }
  expect(await applyAt(DAY_2, {detailBudgetMinutes: 0})).toMatchObject({outcome: 'walked', appended: 0})
  expect(await countWalks()).toBe(2)
})

test('a source without own pages is asked for none, and lacks none', async () => {
  lab.beginAnew((text) => text.replace(/"page": "[^"]*",/, '').replace('"changedSince": "since",', ''))
  const unread = {certificate: {records: 25, details: {fetched: 0, failed: 0}}}
  expect(await lab.walk(DAY_1)).toMatchObject(unread)
  receiveEvents(lab.folder, 'deal_000002')
  expect(await applyAt(DAY_2)).toMatchObject({outcome: 'walked'})
})

test('a source that cannot list what changed keeps nobody from following webhooks', async () => {
  let status = 200
  spoken.page = (records, {url}) =>
    url.searchParams.has('since') ? {status, body: {rows: 'none'}} : {body: records}
  lab.service.store.update('deal_000002', {loan_amount_cents: 1_00n})
  expect(await failureOf(applyAt(DAY_2))).toMatchObject({code: 'SOURCE_ENVELOPE'})
  status = 422
  expect((await failureOf(applyAt(DAY_2))).message).toMatch(
    /GET \/facilities \(rows, since, .*`changedSince`/,
  )
  receiveEvents(lab.folder, 'deal_000002')
  expect(await applyAt(DAY_2)).toEqual({outcome: 'applied', events: 1, deals: 1, appended: 1})
})
