import {readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {fileURLToPath} from 'node:url'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {borrowerStream} from '../../src/contract/borrower.ts'
import type {Config} from '../../src/core/config.ts'
import {replayQuarantine} from '../../src/pipeline.ts'
import {readTape} from '../../src/record/verify.ts'
import {listTapes} from '../../src/store/recorded.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {rebuildHead} from '../../src/sync/stream-tables.ts'
import {storeEvent} from '../../src/sync/webhook-events.ts'
import type {Fault} from '../support/faults.ts'
import {aDeal, createLab, failureOf, type Lab, someDeals, startProcess} from '../support/lab.ts'
import {readFieldAs} from '../support/schema.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
const DAY_3 = '2026-02-04T23:30:00-05:00'
const KILLED_RUN = fileURLToPath(new URL('../proof/killed-run.ts', import.meta.url))
const ALL = {config: {streams: 'deals,borrowers,documents'}}
const BORROWERS = {config: {streams: 'deals,borrowers'}}

let lab: Lab

beforeEach(async () => {
  lab = await createLab({tables: '+core.borrower +core.document +mart.portfolio_summary +mart.run'})
})

afterEach(() => lab[Symbol.asyncDispose]())

/** The known borrowers by deal, with what the last list of their deal says of each. */
const readBorrowers = async (where = 'true') =>
  (
    await lab.queryHistory(
      `select deal_id, borrower_id, kind from borrower_head where ${where} order by deal_id, borrower_id`,
    )
  ).map(({deal_id, borrower_id, kind}) => [deal_id, borrower_id, kind])

/** Spoils the records of a deal's lists. */
function spoilLists(
  dealNumber: number,
  what: string,
  change: (data: Record<string, unknown>[]) => void,
): void {
  lab.service.faults.add({
    match: {path: new RegExp(`${aDeal(dealNumber).id}/${what}`)},
    fault: {
      kind: 'mutate',
      change(body) {
        change((body as {data: Record<string, unknown>[]}).data)
        return body
      },
    },
  })
}

let linked = 0

function link(dealNumber: number, fields: {id?: string; email?: string} = {}): string {
  linked += 1
  const id = fields.id ?? `bor_${String(linked).padStart(6, '0')}`
  lab.service.database.run(
    `insert into borrower (id, deal_id, first_name, last_name, email, has_ssn_last_four, created_at)
     values (?, ?, 'Adalbert', 'Querfeldein', ?, 1, ?)`,
    id,
    aDeal(dealNumber).id,
    fields.email ?? `person${linked}@example.com`,
    Date.parse('2026-01-10T12:00:00Z') + linked,
  )
  return id
}

function attach(dealNumber: number, category = 'appraisal'): string {
  linked += 1
  const id = `doc_${String(linked).padStart(6, '0')}`
  lab.service.database.run(
    `insert into document (id, deal_id, category, name, file_name, media_type, bytes, sha256, created_at)
     values (?, ?, ?, 'Appraisal for Adalbert Querfeldein', 'querfeldein.pdf', 'application/pdf', 9, '00', ?)`,
    id,
    aDeal(dealNumber).id,
    category,
    Date.parse('2026-01-10T12:00:00Z') + linked,
  )
  return id
}

const unlink = (id: string) => lab.service.database.run('delete from borrower where id = ?', id)

const listRequests = (what: string) =>
  lab.service.requests.entries.filter(({path}) => new RegExp(`^/deals/[^/]+/${what}`).test(path)).length

test('only deals are synced by default: the tables of other streams exist and are empty', async () => {
  lab.service.store.insert(someDeals(3, {status: 'funded'}))
  link(1)
  attach(1)
  const select =
    '+core.borrower +core.document +mart.document_coverage +mart.concentration +mart.top_exposure'
  expect(await lab.sync(DAY_1, {world: {select}})).toMatchObject({streams: []})
  expect(listRequests('borrowers') + listRequests('documents')).toBe(0)
  for (const table of ['core.borrower', 'core.document', 'mart.document_coverage'])
    expect(await lab.query(`select count(*) as rows from ${table}`)).toEqual([{rows: '0'}])
  expect(await lab.query('select dimension from mart.concentration order by all')).toEqual([
    {dimension: 'deal'},
    {dimension: 'loan_program'},
    {dimension: 'state'},
  ])
  expect(await lab.query('select distinct dimension, person from mart.top_exposure')).toEqual([
    {dimension: 'deal', person: null},
  ])
})

test('borrowers and documents of every deal are read with the first walk, and show who owes and what is lacking', async () => {
  lab.service.store.insert(someDeals(4, {status: 'underwriting'}))
  lab.service.store.update(aDeal(1).id, {status: 'funded'})
  lab.service.store.update(aDeal(2).id, {status: 'funded'})
  for (const number of [1, 2]) link(number, {email: ` Pat@Example.com${number === 1 ? ' ' : ''}`})
  link(3)
  link(3)
  attach(3)
  attach(4, 'title')
  const select = '+core.borrower +mart.document_coverage +mart.concentration +mart.top_exposure'
  const result = await lab.sync(DAY_1, {...ALL, world: {select}})
  expect(result.streams).toMatchObject([
    {stream: 'borrowers', outcome: 'applied', listed: 4, failed: 0, ended: 'done', changes: {created: 4}},
    {stream: 'documents', outcome: 'applied', listed: 4, failed: 0, ended: 'done', changes: {created: 2}},
  ])
  expect(
    await lab.query(
      `select rank, deals, loan_amount, share_pct from mart.top_exposure where dimension = 'borrower'`,
    ),
  ).toEqual([{rank: '1', deals: '2', loan_amount: '700000.00', share_pct: 100}])
  expect(
    await lab.query(`select open_top_1_pct, funded_hhi from mart.concentration where dimension = 'borrower'`),
  ).toEqual([{open_top_1_pct: 50, funded_hhi: 10000}])
  expect(
    await lab.query('select count(*) as links, count(distinct person) as people from core.borrower'),
  ).toEqual([{links: '4', people: '3'}])
  expect(
    await lab.query(
      `select deal_id, documents from mart.document_coverage where status = 'underwriting' and not has_appraisal`,
    ),
  ).toEqual([{deal_id: aDeal(4).id, documents: '1'}])
})

test('the next night reads the lists of deals that changed or that a webhook named, and a thirtieth of the others', async () => {
  lab.service.store.insert(someDeals(30))
  link(1)
  await lab.walk(DAY_1, ALL)
  expect(listRequests('borrowers')).toBe(30)
  lab.service.store.update(aDeal(25).id, {status: 'underwriting'})
  link(25)
  attach(20)
  using stateDb = openStateDb(lab.folder.stateDb)
  const event = {eventId: 'evt_1', type: 'document.uploaded', dealId: aDeal(20).id}
  storeEvent(stateDb, event, Date.parse(DAY_1) + 3_600_000)
  expect((await lab.walk(DAY_2, ALL)).streams).toMatchObject([
    {listed: 3, changes: {created: 1}},
    {listed: 3, changes: {created: 1}},
  ])
  expect((await lab.walk(DAY_2, ALL)).streams).toMatchObject([
    {outcome: 'unchanged', listed: 0},
    {outcome: 'unchanged', listed: 0},
  ])
  expect((await lab.walk(DAY_3, ALL)).streams).toMatchObject([{listed: 1}, {listed: 1}])
})

test('a borrower absent from a whole list is missing, still counts, and vanishes if absent the next day', async () => {
  lab.service.store.insert(someDeals(2))
  const gone = link(1)
  link(2)
  await lab.walk(DAY_1, BORROWERS)
  unlink(gone)
  lab.service.store.update(aDeal(1).id, {status: 'underwriting'})
  expect((await lab.walk(DAY_2, BORROWERS)).streams[0]).toMatchObject({changes: {missing: 1, vanished: 0}})
  // Asking again on the same day would prove nothing more.
  lab.service.store.update(aDeal(1).id, {status: 'approved'})
  await lab.sync('2026-02-03T23:31:00-05:00', BORROWERS)
  const missing = `select borrower_id, is_missing from core.borrower where deal_id = '${aDeal(1).id}'`
  expect(await lab.query(missing)).toEqual([{borrower_id: gone, is_missing: true}])
  expect((await lab.sync(DAY_3, BORROWERS)).streams[0]).toMatchObject({changes: {missing: 0, vanished: 1}})
  expect(await lab.query(missing)).toEqual([])
})

test('a path of borrowers that fails, is gone or is refused loses no walk and makes nothing vanish', async () => {
  const numbers = [1, 2, 3, 4, 5, 6]
  lab.service.store.insert(someDeals(6))
  for (const number of numbers) link(number)
  await lab.walk(DAY_1, ALL)
  lab.service.database.run('delete from borrower')
  for (const [index, status] of [500, 404, 403].entries()) {
    const [from, to] = index % 2 === 0 ? ['draft', 'underwriting'] : ['underwriting', 'draft']
    for (const id of lab.service.store.ids(from)) lab.service.store.update(id, {status: to})
    lab.service.faults.clear()
    lab.service.faults.add({match: {path: /\/borrowers/}, fault: {kind: 'status', status}})
    const now = `2026-02-0${index + 3}T23:30:00-05:00`
    const result = await lab.walk(now, {config: {...ALL.config, retries: 0}})
    expect(result.changes).toMatchObject({updated: 6})
    expect(result.streams).toMatchObject([
      {listed: 0, changes: {missing: 0, vanished: 0}},
      {listed: 6, failed: 0},
    ])
  }
  expect(await readBorrowers(`kind = 'seen'`)).toHaveLength(6)
})

test('a deal whose list cannot be read concludes nothing for itself and holds up no other', async () => {
  lab.service.store.insert(someDeals(8))
  const [first, second] = [link(1), link(2)]
  await lab.walk(DAY_1, BORROWERS)
  lab.service.database.run('delete from borrower')
  for (const number of [1, 2, 3]) {
    lab.service.store.update(aDeal(number).id, {status: 'underwriting'})
  }
  lab.service.faults.add({
    match: {path: new RegExp(`${aDeal(1).id}/borrowers`)},
    fault: {kind: 'status', status: 500},
  })
  const config = {...BORROWERS.config, retries: 0}
  const {streams} = await lab.walk(DAY_2, {config})
  expect(streams[0]).toMatchObject({failed: 1, changes: {missing: 1}})
  expect(await readBorrowers()).toEqual([
    [aDeal(1).id, first, 'seen'],
    [aDeal(2).id, second, 'missing'],
  ])
  const third = await lab.walk(DAY_3, {config})
  expect(third.streams[0]).toMatchObject({changes: {vanished: 1}})
})

test('lists that lose more than a day can explain are refused alone until accepted', async () => {
  lab.service.store.insert(someDeals(40))
  for (let number = 1; number <= 40; number++) link(number)
  await lab.walk(DAY_1, ALL)
  lab.service.database.run('delete from borrower')
  for (let number = 1; number <= 8; number++) {
    lab.service.store.update(aDeal(number).id, {status: 'underwriting'})
  }
  const refused = await lab.walk(DAY_2, ALL)
  expect(refused).toMatchObject({changes: {updated: 8}})
  expect(refused.streams).toMatchObject([
    {stream: 'borrowers', outcome: 'refused', reason: 'GUARD_SHRINK'},
    {stream: 'documents', outcome: 'applied'},
  ])
  expect(await readBorrowers(`kind = 'seen'`)).toHaveLength(40)
  const accepted = await lab.walk(DAY_2, {...ALL, accept: ['shrink']})
  expect(accepted.streams[0]).toMatchObject({outcome: 'applied'})
  expect(accepted.streams[0]?.changes.missing).toBeGreaterThan(7)
})

test('a record that names another deal, or cannot be read, is quarantined sealed and proves no absence', async () => {
  lab.service.store.insert(someDeals(3))
  for (const number of [1, 2, 3]) link(number)
  const bad = link(1, {email: 'secret.person@example.com'})
  await lab.walk(DAY_1, BORROWERS)
  lab.service.store.update(aDeal(1).id, {status: 'underwriting'})
  lab.service.store.update(aDeal(2).id, {status: 'underwriting'})
  spoilLists(1, 'borrowers', (data) => {
    for (const record of data) if (record.id === bad) record.created_at = 'some time ago'
  })
  spoilLists(2, 'borrowers', (data) => {
    for (const record of data) record.deal_id = aDeal(3).id
  })
  const {streams} = await lab.walk(DAY_2, BORROWERS)
  expect(streams[0]).toMatchObject({outcome: 'applied', changes: {missing: 0, vanished: 0}})
  const kept = 'select quarantine_id, record_id, path from raw.quarantine order by path'
  const [first, second] = await lab.queryHistory(kept)
  const show = async (row: unknown) =>
    (await lab.run(['quarantine', 'show', (row as {quarantine_id: string}).quarantine_id])).stdout
  expect([
    {...first, record: await show(first)},
    {...second, record: await show(second)},
  ]).toMatchObject([
    {
      record_id: `${aDeal(1).id}/${bad}`,
      path: 'created_at',
      record: expect.stringContaining('"email":"hmac-sha256:'),
    },
    {record_id: null, path: 'deal_id', record: expect.not.stringContaining('Querfeldein')},
  ])
})

test('a quarantined borrower is replayed from its sealed record, and restored with the deals', async () => {
  lab.service.store.insert(someDeals(2))
  link(1, {email: 'pat@example.com'})
  link(2, {email: 'PAT@example.com'})
  spoilLists(1, 'borrowers', (data) => {
    for (const record of data) record.created_at = 'some time ago'
  })
  await lab.walk(DAY_1, BORROWERS)
  const world = lab.createWorld(DAY_1)
  using _mended = readFieldAs(borrowerStream, 'created_at', 'some time ago', '2026-01-10')
  expect(await replayQuarantine(lab.config, world)).toMatchObject({replayed: 1, waiting: 0, appended: 1})
  const people = 'select count(*) as links, count(distinct email_hash) as people from core.borrower'
  expect(await lab.query(people)).toEqual([{links: '2', people: '1'}])
  const readHeads = () => lab.queryHistory('from borrower_head order by link_id')
  const before = await readHeads()
  {
    await using db = await openWarehouse(lab.folder)
    await rebuildHead(db, borrowerStream)
  }
  expect(await readHeads()).toEqual(before)
})

/** Every byte in a folder. */
function readWhole(root: string): {name: string; text: string}[] {
  return readdirSync(root, {recursive: true, withFileTypes: true})
    .filter((entry) => entry.isFile())
    .map((entry) => ({
      name: entry.name,
      text: readFileSync(join(entry.parentPath, entry.name)).toString('latin1'),
    }))
}

test('no name, address or digit of a person reaches the data folder, whatever the source sends', async () => {
  lab.service.store.insert(someDeals(20))
  for (let number = 1; number <= 20; number++) link(number, {email: `Needle.${number}@Haystack.example`})
  attach(1)
  spoilLists(1, '(borrowers|documents)', (data) => {
    for (const [index, record] of data.entries()) {
      Object.assign(record, {
        ssn_last_four: index % 2 === 0 ? '987-65-4329' : 'needle',
        phone: 'needle-phone',
        spouse: {name: 'needle-spouse'},
      })
    }
    data.push({...data[0], id: 7, email: 'needle.other@haystack.example'})
    data.push({...data[0], id: 'x', email: {address: 'needle.third@haystack.example'}})
  })
  await lab.sync(DAY_1, {...ALL, world: {select: '+core.borrower +core.document +mart.data_quality'}})
  expect(
    await lab.queryHistory(`select path from raw.drift where stream = 'borrower' order by path`),
  ).toEqual([{path: 'phone'}, {path: 'spouse'}])
  expect(
    await lab.query(
      `select concat_ws(' ', scope, metric, field) as metric, deals from mart.data_quality
       where scope <> 'deals' and (metric like 'drift%' or metric = 'quarantined' or metric = 'coverage' and field is null and scope = 'borrowers')
       order by all`,
    ),
  ).toEqual([
    {metric: 'borrowers coverage', deals: '0'},
    {metric: 'borrowers drift_new_field phone', deals: '2'},
    {metric: 'borrowers drift_new_field spouse', deals: '2'},
    {metric: 'borrowers quarantined', deals: '1'},
    {metric: 'documents drift_new_field email', deals: '1'},
    {metric: 'documents drift_new_field phone', deals: '2'},
    {metric: 'documents drift_new_field spouse', deals: '2'},
    {metric: 'documents drift_new_field ssn_last_four', deals: '2'},
    {metric: 'documents quarantined', deals: '1'},
  ])
  const {stdout} = await lab.run(['status'])
  expect(stdout).toContain('Drift: new_field borrowers: phone in 2 records.')
  expect(stdout).not.toMatch(/needle|haystack/i)
  const [walk] = await lab.queryHistory(`select walk_id from walk where stream = 'borrower'`)
  const tape = await lab.run(['tape', 'cat', String(walk?.walk_id)])
  expect(tape.stdout).toContain('bor_')
  expect(tape.stdout).not.toMatch(/needle|haystack|querfeldein|adalbert/i)
  const leaks = readWhole(lab.folder.root).filter(({text}) =>
    /needle|haystack|querfeldein|adalbert|987-?65-?4329/i.test(text),
  )
  expect(leaks.map(({name}) => name)).toEqual([])
})

test('under another key nothing is synced, for it would make one person two', async () => {
  lab.service.store.insert(someDeals(2))
  await lab.walk(DAY_1, BORROWERS)
  const key = readFileSync(lab.folder.hashKey)
  writeFileSync(lab.folder.hashKey, 'another-key-of-mine')
  const refusal = await failureOf(lab.sync(DAY_2, BORROWERS))
  writeFileSync(lab.folder.hashKey, key)
  expect(refusal).toMatchObject({code: 'HASH_KEY_CHANGED', exitCode: 2})
  expect(await failureOf(lab.sync(DAY_2, {config: {streams: 'deals,tenants'}}))).toMatchObject({
    code: 'CONFIG_INVALID',
    message: expect.stringContaining("'tenants'"),
  })
  expect((await lab.walk(DAY_2)).changes).toMatchObject({unchanged: 2})
})

test('a process killed between two groups of lists resumes with the next deal', async () => {
  lab.service.store.insert(someDeals(210))
  for (let number = 1; number <= 210; number += 10) link(number)
  const env = {
    ...lab.env,
    LOANTAPE_STREAMS: 'deals,borrowers',
    LOANTAPE_DETAIL: 'off',
    LOANTAPE_NOW: DAY_1,
    KILL_STEP: 'lists stored',
  }
  using killed = startProcess([process.execPath, KILLED_RUN], env)
  expect(await killed.ended).toMatchObject({signal: 'SIGKILL'})
  const stored = countTapedLists()
  expect(stored).toBeGreaterThan(0)
  const before = listRequests('borrowers')
  const config = {streams: 'deals,borrowers', detail: 'off' as const}
  const {streams} = await lab.walk(DAY_1, {config})
  expect(streams[0]).toMatchObject({outcome: 'applied', changes: {created: 21}})
  expect(listRequests('borrowers') - before).toBe(210 - stored)
  expect(await lab.queryHistory(`select resumed from raw.walk where stream = 'borrower'`)).toEqual([
    {resumed: '1'},
  ])
  expect(await readBorrowers()).toHaveLength(21)
})

const AMID_LISTS: [string, string, Fault, Partial<Config>][] = [
  ['the time budget', 'budget', {kind: 'delay', ms: 60_000}, {detailBudgetMinutes: 2 / 60}],
  [
    'the rate-limit wait',
    'rate_limited',
    {kind: 'status', status: 429, headers: {'retry-after': '3600'}},
    {maxWaitMinutes: 1},
  ],
]

test.each(AMID_LISTS)(
  'when %s ends between the pages of a list, nothing is concluded for that deal and later ones, and the next run resumes there',
  async (_, end, fault, limits) => {
    lab.service.store.insert(someDeals(6))
    const numbers = [1, 2, 3, 4, 5, 6]
    const firstOfEach = numbers.map(
      (number) => [link(number), link(number), link(number), link(number)][0] ?? '',
    )
    const config = {
      streams: 'deals,borrowers',
      detail: 'off' as const,
      detailConcurrency: 1,
      pageSize: 2,
      shrinkLimitPct: 100,
    }
    await lab.walk(DAY_1, {config})
    firstOfEach.forEach(unlink)
    for (const id of lab.service.store.ids()) lab.service.store.update(id, {status: 'underwriting'})
    lab.service.faults.add({match: {path: /deal_000003\/borrowers\?.*cursor=/}, fault})

    const {streams} = await lab.walk(DAY_2, {config: {...config, ...limits}})
    const listed = streams[0]?.listed ?? 0
    expect(listed).toBeLessThan(3)
    expect(streams).toMatchObject([
      {outcome: 'applied', ended: end, failed: 0, changes: {missing: listed, vanished: 0}},
    ])
    const missingUpTo = (upTo: number) =>
      numbers.slice(0, upTo).map((number, index) => [aDeal(number).id, firstOfEach[index], 'missing'])
    expect(await readBorrowers(`kind = 'missing'`)).toEqual(missingUpTo(listed))
    expect(
      await lab.queryHistory(
        `select ended_at is null as is_endless from walk where stream = 'borrower' order by recorded_at`,
      ),
    ).toEqual([{is_endless: false}, {is_endless: listed === 0}])

    lab.service.faults.clear()
    const before = listRequests('borrowers')
    const next = await lab.walk(DAY_2, {config})
    expect(next.streams).toMatchObject([
      {ended: 'done', listed: 6 - listed, changes: {missing: 6 - listed, vanished: 0}},
    ])
    expect(listRequests('borrowers') - before).toBe(2 * (6 - listed))
    expect(await readBorrowers(`kind = 'missing'`)).toEqual(missingUpTo(6))
  },
)

function countTapedLists(): number {
  using stateDb = openStateDb(lab.folder.stateDb)
  const lines = readTape(lab.config, listTapes(stateDb).at(-1)?.unit ?? '')
  return [...lines].filter(({frame}) => frame === 'children').length
}
