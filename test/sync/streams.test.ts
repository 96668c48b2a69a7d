import {mkdirSync, readFileSync, rmdirSync, rmSync, symlinkSync, writeFileSync} from 'node:fs'
import {beforeEach, expect, test, vi} from 'vitest'
import {borrowerStream} from '../../src/contract/borrower.ts'
import {realClock} from '../../src/core/clock.ts'
import type {WireRecord} from '../../src/core/types.ts'
import {replayQuarantine} from '../../src/pipeline.ts'
import {readTape} from '../../src/record/verify.ts'
import {listTapes} from '../../src/store/recorded.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {rebuildHead} from '../../src/sync/stream-tables.ts'
import {storeEvent} from '../../src/sync/webhook-events.ts'
import type {Fault} from '../support/faults.ts'
import {aDeal, DAY_1, DAY_2, DAY_3, DAY_4, day, failureOf, type Row, someDeals} from '../support/lab.ts'
import {readFieldAs} from '../support/schema.ts'
import {changeRecords, dyingAt, linkBorrower, useLab} from '../support/set-up.ts'

const ALL = {config: {streams: 'deals,borrowers,documents', detail: 'off' as const}}
const BORROWERS = {config: {streams: 'deals,borrowers', detail: 'off' as const}}

const lab = await useLab({tables: '+core.borrower +core.document +mart.run'})
beforeEach(lab.remember())

/** Reads the known borrowers by deal, with what the last list of their deal says of each. */
const readBorrowers = async (where = 'true') => {
  const sql = `select deal_id, borrower_id, kind from borrower_head where ${where} order by deal_id, borrower_id`
  return (await lab.queryHistory(sql)).map(({deal_id, borrower_id, kind}) => [deal_id, borrower_id, kind])
}

const spoilLists = (deal: number, what: string, change: Parameters<typeof changeRecords>[2]) =>
  changeRecords(lab, new RegExp(`${aDeal(deal).id}/${what}`), change)

const link = (deal: number, email?: string): string => linkBorrower(lab, aDeal(deal).id, email)

const attach = (deal: number) =>
  lab.service.database.run(
    `insert into document (id, deal_id, category, name, file_name, media_type, bytes, sha256, created_at)
     values (?, ?, 'appraisal', 'Appraisal for Adalbert Querfeldein', 'querfeldein.pdf', 'application/pdf', 9, '00', 1768046400000)`,
    [`doc_${deal}`, aDeal(deal).id],
  )

function linkEach(count: number): void {
  lab.service.store.insert(someDeals(count))
  for (let number = 1; number <= count; number++) link(number)
}

const advance = (numbers: readonly number[], status = 'underwriting') => {
  for (const number of numbers) lab.service.store.update(aDeal(number).id, {status})
}
const unlink = (id: string) => lab.service.database.run('delete from borrower where id = ?', [id])

const listRequests = (what: string) =>
  lab.service.requests.entries.filter(({path}) => new RegExp(`^/deals/[^/]+/${what}`).test(path)).length

test('only deals are synced by default; borrowers and documents of every deal are read with their first walk', async () => {
  lab.service.store.insert(someDeals(4, {status: 'underwriting'}))
  link(1, ' Pat@Example.com ')
  link(2, 'pat@example.com')
  link(3)
  link(3)
  attach(3)
  attach(4)
  const counted = `select (select count(*) from core.borrower) as links,
    (select count(distinct person) from core.borrower) as people, (select count(*) from core.document) as documents`
  expect(await lab.sync(DAY_1)).toMatchObject({streams: []})
  expect(listRequests('borrowers') + listRequests('documents')).toBe(0)
  expect(await lab.query(counted)).toEqual([{links: '0', people: '0', documents: '0'}])

  const read = {outcome: 'applied', listed: 4, failed: 0, ended: 'done'}
  expect((await lab.sync(DAY_2, ALL)).streams).toMatchObject([
    {...read, stream: 'borrowers', changes: {created: 4}},
    {...read, stream: 'documents', changes: {created: 2}},
  ])
  expect(await lab.query(counted)).toEqual([{links: '4', people: '3', documents: '2'}])
})

test('the next night reads the lists of deals that changed or that a webhook named, and a thirtieth of the others', async () => {
  lab.service.store.insert(someDeals(30))
  link(1)
  await lab.walk(DAY_1, ALL)
  expect(listRequests('borrowers')).toBe(30)
  advance([25])
  for (let number = 1; number <= 12; number++) link(25)
  attach(20)
  using stateDb = openStateDb(lab.folder.stateDb)
  const event = {eventId: 'evt_1', type: 'document.uploaded', dealId: aDeal(20).id}
  storeEvent(stateDb, event, Date.parse(DAY_1) + 3_600_000)
  expect((await lab.walk(DAY_2, ALL)).streams).toMatchObject([
    {listed: 3, changes: {created: 12}},
    {listed: 3, changes: {created: 1}},
  ])
  expect((await lab.walk(DAY_2, ALL)).streams).toMatchObject([
    {outcome: 'unchanged', listed: 0},
    {outcome: 'unchanged', listed: 0},
  ])
  // This night begins some minutes sooner than the one before.
  expect((await lab.walk(day(4, '23:20'), ALL)).streams).toMatchObject([{listed: 1}, {listed: 1}])
})

test('a borrower absent from a whole list is missing, still counts, and vanishes if absent the next day', async () => {
  lab.service.store.insert(someDeals(2))
  const gone = link(1)
  link(2)
  await lab.walk(DAY_1, BORROWERS)
  unlink(gone)
  advance([1])
  expect((await lab.walk(DAY_2, BORROWERS)).streams[0]).toMatchObject({changes: {missing: 1, vanished: 0}})
  // Another list of the same day proves nothing more.
  advance([1], 'approved')
  await lab.walk('2026-02-03T23:31:00-05:00', BORROWERS)
  const ofFirst = `deal_id = '${aDeal(1).id}'`
  expect(await readBorrowers(ofFirst)).toEqual([[aDeal(1).id, gone, 'missing']])
  expect((await lab.walk(DAY_3, BORROWERS)).streams[0]).toMatchObject({changes: {missing: 0, vanished: 1}})
  expect(await readBorrowers(ofFirst)).toEqual([[aDeal(1).id, gone, 'vanished']])
})

test('a path of borrowers that fails or is gone loses no walk and makes nothing vanish', async () => {
  linkEach(6)
  await lab.walk(DAY_1, ALL)
  lab.service.database.run('delete from borrower')
  for (const [now, status, step] of [
    [DAY_2, 500, 'underwriting'],
    [DAY_3, 404, 'draft'],
  ] as const) {
    advance([1, 2, 3, 4, 5, 6], step)
    lab.service.faults.clear()
    lab.service.faults.add({match: {path: /\/borrowers/}, fault: {kind: 'status', status}})
    const result = await lab.walk(now, {config: {...ALL.config, retries: 0}})
    expect(result.changes).toMatchObject({updated: 6})
    expect(result.streams).toMatchObject([
      {listed: 0, changes: {missing: 0, vanished: 0}},
      {listed: 6, failed: 0},
    ])
  }
  expect(await readBorrowers(`kind = 'seen'`)).toHaveLength(6)
  // What failed was asked for, too.
  expect(await lab.queryHistory('select walk_id from walk where ended_at is null')).toEqual([])
})

test('a deal whose list cannot be read concludes nothing for itself and holds up no other', async () => {
  lab.service.store.insert(someDeals(8))
  const [second, last] = [link(2), link(8)]
  await lab.walk(DAY_1, BORROWERS)
  lab.service.database.run('delete from borrower')
  advance([2, 3, 8])
  lab.service.faults.add({
    match: {path: new RegExp(`${aDeal(8).id}/borrowers`)},
    fault: {kind: 'status', status: 500},
  })
  const config = {...BORROWERS.config, retries: 0, detailConcurrency: 1}
  const {streams} = await lab.walk(DAY_2, {config})
  expect(streams[0]).toMatchObject({failed: 1, changes: {missing: 1}})
  expect(await readBorrowers()).toEqual([
    [aDeal(2).id, second, 'missing'],
    [aDeal(8).id, last, 'seen'],
  ])
  await failureOf(lab.walk(DAY_4, {config, world: dyingAt('changes planned', 2)}))
  expect(lab.service.requests.entries.at(-1)?.path).toContain(aDeal(8).id)
  const third = await lab.walk(DAY_4, {config})
  expect(third.streams[0]).toMatchObject({listed: 0, changes: {vanished: 1}})
  const whole = `select is_complete from raw.walk where stream = 'borrower' order by recorded_at`
  expect((await lab.queryHistory(whole)).map(({is_complete}) => is_complete)).toEqual([true, false, false])
})

test('lists that lose more than a day can explain are refused alone until accepted', async () => {
  linkEach(10)
  const more = Array.from({length: 90}, (_, index) => link((index % 10) + 1))
  await lab.walk(DAY_1, ALL)
  // Four of the forty in the lists that are read, but of all a hundred less than the limit.
  for (const id of more.slice(0, 4)) unlink(id)
  advance([1, 2, 3, 4])
  const refused = await lab.walk(DAY_2, ALL)
  expect(refused).toMatchObject({changes: {updated: 4}})
  expect(refused.streams).toMatchObject([
    {stream: 'borrowers', outcome: 'refused', reason: 'GUARD_SHRINK'},
    {stream: 'documents', outcome: 'applied'},
  ])
  expect(await readBorrowers(`kind = 'seen'`)).toHaveLength(100)
  const accepted = await lab.walk(DAY_2, {...ALL, accept: ['shrink']})
  expect(accepted.streams[0]).toMatchObject({outcome: 'applied'})
  expect(accepted.streams[0]?.changes.missing).toBe(4)
})

test('lists of a dead run that are refused the next day cost none of the lists of that day', async () => {
  linkEach(10)
  await lab.walk(DAY_1, BORROWERS)
  advance([1, 2, 3, 4, 5, 6])
  lab.service.database.run(`update borrower set id = id || '_x'`)
  await failureOf(lab.walk(DAY_2, {...BORROWERS, world: dyingAt('changes planned', 2)}))
  lab.service.database.run(`update borrower set id = replace(id, '_x', '')`)
  advance([7])
  link(7)
  const warned: unknown[] = []
  const {log} = lab.createWorld()
  const world = {log: {...log, warn: (...said: unknown[]) => warned.push(said)} as unknown as typeof log}
  const {streams} = await lab.walk(DAY_3, {...BORROWERS, world})
  expect(JSON.stringify(warned)).toContain('GUARD_SHRINK')
  expect(streams[0]).toMatchObject({outcome: 'applied', changes: {created: 1, missing: 0}})
})

test('a record that names another deal, or cannot be read, is quarantined sealed, proves no absence, and is replayed', async () => {
  linkEach(3)
  const bad = link(1)
  link(3, 'SECRET.person@example.com')
  await lab.walk(DAY_1, BORROWERS)
  advance([1, 2])
  lab.service.database.run(`update borrower set email = 'secret.person@example.com' where id = ?`, [bad])
  spoilLists(1, 'borrowers', (data) => {
    for (const record of data) if (record.id === bad) record.created_at = 'some time ago'
  })
  spoilLists(2, 'borrowers', (data) => {
    for (const record of data) record.deal_id = aDeal(3).id
  })
  const {streams} = await lab.walk(DAY_2, BORROWERS)
  expect(streams[0]).toMatchObject({outcome: 'applied', changes: {missing: 0, vanished: 0}})
  const kept = 'select quarantine_id, record_id, path, reason from raw.quarantine order by path'
  const [first, second] = await lab.queryHistory(kept)
  const show = async (row: Row | undefined) =>
    (await lab.run(['quarantine', 'show', String(row?.quarantine_id)])).stdout
  expect(first).toMatchObject({record_id: `${aDeal(1).id}/${bad}`, path: 'created_at'})
  expect(await show(first)).toContain('"email":"hmac-sha256:')
  expect(second).toMatchObject({
    record_id: null,
    path: 'deal_id',
    reason: 'expected the deal whose list it is in',
  })
  expect(await show(second)).not.toContain('Querfeldein')

  using _mended = readFieldAs(borrowerStream, 'created_at', 'some time ago', '2026-01-10')
  const replayed = await replayQuarantine(lab.config, lab.createWorld(DAY_2))
  expect(replayed).toMatchObject({replayed: 1, waiting: 1, appended: 1})
  const people = 'select count(*) as links, count(distinct email_hash) as people from core.borrower'
  expect(await lab.query(people)).toEqual([{links: '5', people: '4'}])
  const readHeads = () => lab.queryHistory('from borrower_head order by link_id')
  const before = await readHeads()
  {
    await using db = await openWarehouse(lab.folder, lab.createWorld())
    await rebuildHead(db, borrowerStream)
  }
  expect(await readHeads()).toEqual(before)
})

test('under another key nothing is synced, for it would make one person two', async () => {
  lab.service.store.insert(someDeals(2))
  for (const put of [
    mkdirSync,
    (path: string) => symlinkSync('nowhere', path),
    (path: string) => writeFileSync(path, '\n'),
  ]) {
    put(lab.folder.hashKey)
    expect(await failureOf(lab.walk(DAY_1, BORROWERS))).toMatchObject({code: 'NOT_WRITABLE'})
    rmSync(lab.folder.hashKey, {recursive: true})
  }
  await lab.walk(DAY_1, BORROWERS)
  const key = readFileSync(lab.folder.hashKey)
  writeFileSync(lab.folder.hashKey, 'another-key-of-mine')
  const refusal = await failureOf(lab.sync(DAY_2, BORROWERS))
  expect(refusal).toMatchObject({code: 'HASH_KEY_CHANGED', exitCode: 2})
  rmSync(lab.folder.hashKey)
  // As a container does for a mounted file that does not exist.
  mkdirSync(lab.folder.hashKey)
  expect((await failureOf(lab.sync(DAY_2, BORROWERS))).message).toContain("hash.key': it is missing")
  const env = {LOANTAPE_NOW: DAY_2, LOANTAPE_STREAMS: 'deals,borrowers'}
  expect((await lab.run(['doctor'], env)).stdout).toMatch(/✗ history: .*hash\.key': it is missing/)
  rmdirSync(lab.folder.hashKey)
  writeFileSync(lab.folder.hashKey, key)
  const {changes} = await lab.walk(DAY_2, {config: {detail: 'off'}})
  expect(changes).toMatchObject({unchanged: 2})
})

test('a run that dies between two groups of lists resumes with the next deal', async () => {
  lab.service.store.insert(someDeals(210))
  for (let number = 1; number <= 210; number += 10) link(number)
  await failureOf(lab.walk(DAY_1, {...BORROWERS, world: dyingAt('lists stored')}))
  const stored = countTapedLists()
  expect(stored).toBeGreaterThan(0)
  const before = listRequests('borrowers')
  const {streams} = await lab.walk(DAY_1, BORROWERS)
  expect(streams[0]).toMatchObject({outcome: 'applied', changes: {created: 21}})
  expect(listRequests('borrowers') - before).toBe(210 - stored)
  expect(await lab.queryHistory(`select resumed from raw.walk where stream = 'borrower'`)).toEqual([
    {resumed: '1'},
  ])
  expect(await readBorrowers()).toHaveLength(21)
})

const budget = new AbortController()
const spendBudget = (page: unknown) => {
  budget.abort()
  return page
}
const LIMITED: Fault = {kind: 'status', status: 429, headers: {'retry-after': '3600'}}

const AMID_LISTS: [string, string, Fault][] = [
  ['the time budget', 'budget', {kind: 'mutate', change: spendBudget}],
  ['the rate-limit wait', 'rate_limited', LIMITED],
]

test.each(AMID_LISTS)(
  'when %s ends between the pages of a list, nothing is concluded for that deal and later ones, and the next run resumes there',
  async (_, end, fault) => {
    lab.service.store.insert(someDeals(6))
    const numbers = [1, 2, 3, 4, 5, 6]
    const firstOfEach = numbers.map((number) => [1, 2, 3, 4].map(() => link(number))[0] ?? '')
    const config = {...BORROWERS.config, detailConcurrency: 1, pageSize: 2, shrinkLimitPct: 100}
    await lab.walk(DAY_1, {config})
    firstOfEach.forEach(unlink)
    advance(numbers)
    lab.service.faults.add({match: {path: /deal_000003\/borrowers\?.*cursor=/}, fault})

    if (end === 'budget') vi.spyOn(AbortSignal, 'timeout').mockReturnValueOnce(budget.signal)
    const {streams} = await lab.walk(DAY_2, {config: {...config, maxWaitMinutes: 1}})
    vi.restoreAllMocks()
    const listed = streams[0]?.listed ?? 0
    expect(listed).toBeLessThan(3)
    expect(streams).toMatchObject([
      {outcome: 'applied', ended: end, failed: 0, changes: {missing: listed, vanished: 0}},
    ])
    const missingUpTo = (upTo: number) =>
      numbers.slice(0, upTo).map((number, index) => [aDeal(number).id, firstOfEach[index], 'missing'])
    expect(await readBorrowers(`kind = 'missing'`)).toEqual(missingUpTo(listed))

    lab.service.faults.clear()
    const before = listRequests('borrowers')
    const anHourLater = {...realClock, now: () => Date.now() + 3_601_000}
    const next = await lab.walk(DAY_2, {config, world: {realClock: anHourLater}})
    expect(next.streams).toMatchObject([
      {ended: 'done', listed: 6 - listed, changes: {missing: 6 - listed, vanished: 0}},
    ])
    expect(listRequests('borrowers') - before).toBe(2 * (6 - listed))
    expect(await readBorrowers(`kind = 'missing'`)).toEqual(missingUpTo(6))
  },
)

test('borrowers spend no more than their share of the budget, so that documents are read as well', async () => {
  lab.service.store.insert(someDeals(30))
  let passed = 0
  const timers: {endsAt: number; timer: AbortController}[] = []
  vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => {
    const timer = new AbortController()
    timers.push({endsAt: passed + ms, timer})
    return timer.signal
  })
  const spendMinute = (page: WireRecord) => {
    passed += 60_000
    for (const {endsAt, timer} of timers) if (endsAt <= passed) timer.abort()
    return page
  }
  lab.service.faults.add({match: {path: /borrowers|documents/}, fault: {kind: 'mutate', change: spendMinute}})
  const slow = {...realClock, now: () => Date.now() + passed}
  const config = {...ALL.config, detailConcurrency: 1}
  const {streams} = await lab.walk(DAY_1, {config, world: {realClock: slow}})
  vi.restoreAllMocks()
  expect(streams).toMatchObject([{ended: 'budget'}, {ended: 'budget'}])
  for (const {listed} of streams) expect(listed).toBeGreaterThan(5)
})

function countTapedLists(): number {
  using stateDb = openStateDb(lab.folder.stateDb)
  const lines = readTape(lab.config, listTapes(stateDb).at(-1)?.name ?? '')
  return [...lines].filter(({frame}) => frame === 'children').length
}
