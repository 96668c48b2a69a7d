import {hash} from 'node:crypto'
import {readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {gunzipSync} from 'node:zlib'
import {fastify} from 'fastify'
import {beforeEach, expect, test} from 'vitest'
import {z} from 'zod'
import {FIELD_NAME} from '../../src/core/text.ts'
import {openDatabase} from '../../src/store/database.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {addWebhooks} from '../../src/web/web-server.ts'
import {startTestServer} from '../source/test-server.ts'
import {FEW_TABLES} from '../support/data.ts'
import {DAY_1, DAY_2, type Ended} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {signEvent} from '../support/webhooks.ts'

const lab = await useLab({tables: FEW_TABLES})
beforeEach(lab.remember())

/** Reads a file as text: every value of a database or a Parquet file. */
async function readText(path: string): Promise<string> {
  const bytes = readFileSync(path)
  if (path.endsWith('.gz')) return gunzipSync(bytes).toString('latin1')
  const texts = [bytes.toString('latin1')]
  if (!/\.(duckdb|parquet)$/.test(path)) return texts.join()
  const isDatabase = path.endsWith('.duckdb')
  await using db = await openDatabase(isDatabase ? {attach: [{path, alias: 'one', readOnly: true}]} : {})
  const names = `select 'one.' || schema_name || '.' || table_name from duckdb_tables() where database_name = 'one'`
  for (const table of isDatabase ? await db.column(z.string(), names) : [`'${path}'`])
    texts.push(...(await db.column(z.string(), `select t::varchar from ${table} as t`)))
  return texts.join('\n')
}

/** A name, an address or a number for each place where a source can put one. */
const CANARIES = {
  'a title': 'Zebulon Quackenbush not found',
  'a code': 'zebulon_quackenbush',
  'a detail': 'Wilhelmina Featherstonehaugh has no such deal',
  'the path of an error': 'borrowers.Peregrine Oglethorpe',
  'the message of an error': 'Peregrine Oglethorpe has no address',
  'the type of a problem': 'Thaddeus Vandersloot',
  'a content type': 'bartholomew/throckmorton',
  'an entity tag': 'W/"hortensia-underhill"',
  'the id of a request': 'req-for-ignatius-pumblechook',
  'another header': 'Araminta Entwistle',
  'a cursor': 'after:lucretia.m@example.com',
  'the name of a list': 'Deals of Cornelius Ravensworth',
  'a field': 'Euphemia Blatherwick',
  'a field of a field': 'Zephyrine Wolstenholme',
  'the name of a field': 'Archibald Snodgrass',
  'the name of a field of a field': 'Algernon Snodgrass',
  'an amount that is none': 'owed by Gwendolyn Fotheringay',
  'a status that is none': 'Mortimer Higginbottom',
  'a field that comes twice': 'Philomena Cadwallader',
  'a name that comes twice': 'Septimus Crumpsall',
  'the type of a webhook': 'deal.updated.by.Rosamund Petherbridge',
  'a field of a webhook': 'Lysander Quarrington',
  'the name of a document': 'passport of Clementine Osbaldeston.pdf',
  'a borrower': 'Hieronymus Abernathy',
  'the address of a borrower': 'Leopoldina Warburton',
  'a new field of a borrower': 'Ottoline Featherstone',
} as const

type Place = keyof typeof CANARIES

const digitsOf = (text: string, count: number) =>
  BigInt(`0x${hash('sha256', text).slice(0, 24)}`)
    .toString()
    .slice(0, count)

/** The forms in which a source may write a person. No report of an answer may reveal any. */
const SHAPES: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => text.toUpperCase(),
  (text) => text.toLowerCase().replace(/[^a-z]+/g, '_'),
  (text) => text.toLowerCase().replace(/[^a-z]+/g, '-'),
  (text) => text.replace(/[^A-Za-z]+/g, ''),
  (text) => text.replace(/[^A-Za-z]+/g, '.'),
  (text) => `${text.toLowerCase().replace(/[^a-z]+/g, '.')}@example.com`,
  (text) => `https://example.com/people/${encodeURIComponent(text)}`,
  (text) => `+1 ${digitsOf(text, 3)} ${digitsOf(text, 10).slice(3)}`,
  (text) => digitsOf(text, 9),
  (text) => digitsOf(text, 9).replace(/(...)(..)(....)/, '$1-$2-$3'),
  (text) => `DE${digitsOf(`account of ${text}`, 20)}`,
  (text) => `deal_${text.toLowerCase().replace(/[^a-z]+/g, '_')}`,
  (text) => Buffer.from(text).toString('base64'),
  (text) => Buffer.from(text).toString('hex'),
  (text) => `${text} `.repeat(40).trim(),
  (text) => `"${text}"; drop table`,
  (text) => `${text}\nFrom: a line of its own`,
  (text) => text.replace(/[aeo]/g, (letter) => ({a: '\u00e4', e: '\u0435', o: '\u05d5'})[letter] ?? letter),
  (text) => `Dear Mr. ${text} (born 1948-02-29), `,
]

/** Returns the text of a place in one of the shapes. */
const canary = (place: Place, shape = 0) => SHAPES[shape % SHAPES.length]!(CANARIES[place])
const inHeader = (place: Place, shape: number) => encodeURI(canary(place, shape))

const namingHeaders = (shape: number) => ({
  etag: inHeader('an entity tag', shape),
  'x-request-id': inHeader('the id of a request', shape),
  'x-borrower': inHeader('another header', shape),
})

/** Renders a deal that names people beside its fields. */
const formatDeal = (number: number, more: object = {}) =>
  JSON.stringify({
    id: `deal_${number}`,
    property_address: '12 Ocean Ct, Stamford, CT 06902',
    loan_amount: 350000,
    status: 'draft',
    created_at: '2026-01-05T15:00:00Z',
    owner: {
      name: canary('a field', number),
      [canary('the name of a field of a field', number)]: [canary('a field of a field', number)],
    },
    [canary('the name of a field', number)]: canary('a field', number),
    ...more,
  })

/** An address is a text, except of one borrower; the digits are written in one of two ways. */
const describeBorrower = (shape: number) => {
  const address = canary('the address of a borrower', shape)
  return {
    last_name: canary('a borrower', shape),
    email: shape === 0 ? {address} : address,
    ssn_last_four: shape % 2 === 0 ? '987-65-4329' : '987654329',
    phone: canary('a new field of a borrower', shape),
    spouse: {name: canary('a new field of a borrower', shape)},
  }
}

const listUnreadable = (shape: number) => [
  formatDeal(100 + shape, {loan_amount: canary('an amount that is none', shape)}),
  formatDeal(200 + shape, {status: {is: canary('a status that is none', shape)}}),
]
const listTwice = (shape: number) => {
  const status = JSON.stringify(canary('a field that comes twice', shape))
  const named = `${JSON.stringify(canary('a name that comes twice', shape))}:1`
  return [
    formatDeal(300 + shape).replace('"status":"draft"', () => `"status":${status},"status":"draft"`),
    formatDeal(400 + shape).replace('"loan_amount"', () => `${named},${named},"loan_amount"`),
  ]
}

const formatPage = (deals: readonly string[], next: string | null) =>
  `{"data":[${deals}],"has_more":${next !== null},"next_cursor":${JSON.stringify(next)}}`
const formatFirst = (shape: number) =>
  formatPage(
    Array.from({length: 20}, (_, index) => formatDeal(index + 1)),
    canary('a cursor', shape),
  )
const formatRefusal = (shape: number) =>
  JSON.stringify({
    type: canary('the type of a problem', shape),
    title: canary('a title', shape),
    code: canary('a code', shape),
    detail: canary('a detail', shape),
    errors: [
      {path: canary('the path of an error', shape), message: canary('the message of an error', shape)},
    ],
  })

async function listTexts(root: string): Promise<[string, string][]> {
  const files = readdirSync(root, {recursive: true, withFileTypes: true})
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
  return Promise.all(files.map(async (file) => [file, await readText(file)]))
}

test('wherever a source names people, only the sealed tapes hold it: no file, log line, message or evidence does', async () => {
  let shape = 0
  const pages = (last: readonly string[]) => (path: string, cursor: string | null) => {
    if (path === '/deals') return cursor === null ? formatFirst(shape) : formatPage(last, null)
    if (path === '/deals/deal_1') return `{"data":${formatDeal(1)}}`
    const children = (fieldsOf: (shape: number) => object) =>
      JSON.stringify({data: SHAPES.map((_, one) => ({id: `c_${one}`, ...fieldsOf(one)})), has_more: false})
    if (path.endsWith('/documents')) return children((one) => ({name: canary('the name of a document', one)}))
    if (path.endsWith('/borrowers')) return children(describeBorrower)
    return path === '/deals/deal_2' ? 404 : 422
  }
  let answer: (path: string, cursor: string | null) => string | number
  let type = 'application/json'
  await using server = await startTestServer(({path, query}, response) => {
    const said = answer(path.replace('/v1', ''), query.get('cursor'))
    response.writeHead(typeof said === 'number' ? said : 200, {'content-type': type, ...namingHeaders(shape)})
    response.end(typeof said === 'number' ? formatRefusal(shape) : said)
  })
  const env = {
    LOANTAPE_BASE_URL: server.url,
    LOANTAPE_LOG_LEVEL: 'debug',
    LOANTAPE_STREAMS: 'deals,borrowers,documents',
    LOANTAPE_NOW: DAY_1,
  }
  const printed: [string, string][] = []
  const run = async (...args: string[]): Promise<Ended> => {
    const ended = await lab.run(args, env, {retries: 0})
    printed.push([args.join(' '), ended.stdout + ended.stderr])
    return ended
  }

  for (const [status, code] of [
    [404, 'SOURCE_NOT_FOUND'],
    [422, 'SOURCE_REQUEST_REFUSED'],
  ] as const) {
    answer = () => status
    expect((await run('sync')).stderr).toContain(code)
  }
  for (shape = 0; shape < SHAPES.length; shape += 1) {
    const isPage = shape % 2 === 0
    if (!isPage) type = inHeader('a content type', shape)
    answer = (_path, cursor) => (!isPage ? '<html>' : cursor === null ? formatFirst(shape) : 410)
    expect((await run('sync')).stderr).toContain(isPage ? 'SOURCE_CURSOR_REFUSED' : 'SOURCE_NOT_JSON')
    type = 'application/json'
  }
  const emptyList = (name: string) => JSON.stringify({data: {[name]: []}, [name]: {has_more: false}})
  answer = () => emptyList(canary('the name of a list'))
  expect((await run('sync')).code).toBe(0)
  answer = () => emptyList('deals')
  expect((await run('sync')).stderr).toContain('SOURCE_ENVELOPE_CHANGED')
  const rows = join(lab.folder.root, '../rows.csv')
  writeFileSync(
    rows,
    'external_reference,property_address,loan_amount\nr1,"1 Main St, Austin, TX 78701",1000\n',
  )
  for (const status of [401, 422, 503]) {
    answer = () => status
    expect((await run('push', 'deals', rows, '--result', `${rows}.${status}`)).code).not.toBe(0)
  }

  answer = pages(SHAPES.flatMap((_, one) => [...listUnreadable(one), ...listTwice(one)]))
  expect((await run('sync', '--accept', 'envelope')).stderr).toContain('SOURCE_QUARANTINE')
  const {records} = JSON.parse((await run('quarantine', 'list', '--json')).stdout) as {
    records: {path: string; quarantine_id: string; record_id: string | null}[]
  }
  const told = new Set(records.map(({path}) => path).filter((path) => !FIELD_NAME.test(path)))
  expect([...told]).toEqual([...told].map(() => expect.stringMatching(/^sha256:/)))
  expect(told.size).toBeGreaterThan(SHAPES.length / 2)
  for (const [now, last] of [
    [DAY_1, listUnreadable(0)],
    [DAY_2, listTwice(0)],
  ] as const) {
    env.LOANTAPE_NOW = now
    answer = pages(last)
    const synced = await run('sync', '--accept', 'envelope')
    expect(synced.code, synced.stderr).toBe(0)
  }
  const drift = `select distinct path from drift where stream = 'borrower' order by path`
  expect(await lab.queryHistory(drift)).toEqual([{path: 'phone'}, {path: 'spouse'}])
  const ofPeople = await lab.queryHistory(`select walk_id from walk where stream <> 'deal' and records > 0`)
  expect(ofPeople.length).toBeGreaterThan(1)
  for (const {walk_id} of ofPeople)
    expect((await run('tape', 'cat', String(walk_id))).stdout).toContain('c_1')

  const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    const receiver = fastify()
    addWebhooks(receiver, {...lab.config, webhookSecret: secret}, stateDb, lab.createWorld())
    const events = SHAPES.flatMap((_, one) => {
      const [type, field] = [canary('the type of a webhook', one), canary('a field of a webhook', one)]
      const owner = {name: field}
      return [
        {type, data: {id: 'deal_1', owner}, owner},
        {type: type.slice(5), data: {id: field}},
      ]
    })
    for (const [index, event] of events.entries()) {
      const payload = JSON.stringify(event)
      const headers = signEvent(secret, `evt_${index}`, payload)
      const {statusCode} = await receiver.inject({method: 'POST', url: '/webhooks/deals', headers, payload})
      expect([202, 400]).toContain(statusCode)
    }
    await receiver.close()
  }
  await run('events', 'apply')
  // By id: a name of digits only would come first in its object.
  const one = records.find(({record_id}) => record_id === 'deal_100')?.quarantine_id
  const looks = ['status', 'doctor', 'quarantine list', 'verify', 'trace deal_1 --json', 'docs']
  for (const command of ['quarantine replay', 'export csv parquet', `quarantine show ${one}`, ...looks])
    await run(...command.split(' '))
  const beside = (name: string) => join(lab.folder.root, '..', name)
  expect((await run('backup', beside('backup'))).code).toBe(0)
  expect((await run('evidence', 'current', beside('evidence'), '--from', '2026-01-01')).code).toBe(0)
  expect((await run('evidence', 'current', beside('all'), '--all-fields')).code).toBe(0)

  const kept = (
    await Promise.all([lab.folder.root, beside('backup'), beside('evidence')].map(listTexts))
  ).flat()
  expect(kept.length).toBeGreaterThan(20)
  // A field's name is reported if it looks like a real name; an amount of digits only is no secret.
  const isTold = (place: Place, text: string) =>
    place === 'an amount that is none' ? /^\d+$/.test(text) : /name/.test(place) && FIELD_NAME.test(text)
  const people = (Object.keys(CANARIES) as Place[]).flatMap((place) =>
    SHAPES.flatMap((_, one) => [canary(place, one), inHeader(place, one)])
      .filter((text) => !isTold(place, text))
      .map((text) => [place, text] as const),
  )
  const isMeant = ([what]: [string, string]) => /^(trace|quarantine show) /.test(what)
  // By text, because a backup holds the same files again.
  const texts = new Map(
    [...kept, ...printed.filter((one) => !isMeant(one))].map(([where, text]) => [text, where]),
  )
  for (const [text, where] of texts) {
    for (const [what, person] of people)
      expect(text.includes(person), `${what} in ${where}: ${person}`).toBe(false)
    expect(text, where).not.toMatch(/987-?65-?4329/)
  }
  const whole = (await listTexts(beside('all'))).map(([, text]) => text).join()
  expect(whole).toContain(canary('a field'))
  const [shown, traced] = printed.filter(isMeant).map(([, text]) => text)
  expect(shown).toContain('"owner":{"name":')
  expect(traced).toContain(canary('a field', 1))
})

test('a record in quarantine is shown as received: every digit of its numbers, however deeply it nests', async () => {
  const records = [
    '{"id": "exact", "loan_amount": 12345678901234567890.123456789012345678901}',
    `{"id": "deep", "loan_amount": ${'['.repeat(9000)}${']'.repeat(9000)}}`,
  ]
  await using server = await startTestServer((_request, response) => {
    const body = `{"data": [${records}], "has_more": false}`
    response.writeHead(200, {'content-type': 'application/json'}).end(body)
  })
  await lab.walk(DAY_1, {config: {detail: 'off', baseUrl: server.url}})
  const listed = JSON.parse((await lab.run(['quarantine', 'list', '--json'])).stdout).records
  const shown = await Promise.all(
    (listed as {quarantine_id: string}[]).map(async ({quarantine_id}) => {
      const show = ['quarantine', 'show', quarantine_id]
      const {record} = JSON.parse((await lab.run([...show, '--json'])).stdout)
      expect(await lab.run(show)).toMatchObject({code: 0, stdout: expect.stringContaining(record)})
      return record
    }),
  )
  expect(shown.sort()).toEqual(records.sort())
})
