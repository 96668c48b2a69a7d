import {chmodSync, copyFileSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {dealStream} from '../../src/contract/deal.ts'
import {applyEvents, replayQuarantine} from '../../src/pipeline.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import {openDatabase} from '../../src/store/database.ts'
import {listTapes} from '../../src/store/recorded.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {readEnd} from '../../src/store/tape.ts'
import {requireReadKey} from '../../src/store/tape-key.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {listUnits, settleAgain} from '../../src/sync/catch-up.ts'
import {openIntake} from '../../src/sync/intake.ts'
import {ingestRates} from '../../src/sync/rates.ts'
import {rebuildWarehouse} from '../../src/sync/rebuild.ts'
import {BESIDE, createStage} from '../../src/sync/stream-tables.ts'
import {listReadableTapes} from '../../src/sync/tapes.ts'
import {anyRow} from '../support/data.ts'
import {aDeal, createLab, day, failureOf, type Lab, someDeals} from '../support/lab.ts'
import {aRecord} from '../support/record.ts'
import {readFieldAs} from '../support/schema.ts'
import {changeRecords, dyingAt, linkBorrower, useLab} from '../support/set-up.ts'
import {receiveEvents} from '../support/webhooks.ts'

const lab = await useLab({deals: someDeals(30)})
const idOf = (number: number) => aDeal(number).id
const change = (number: number, fields: Parameters<Lab['service']['store']['update']>[1]) =>
  lab.service.store.update(idOf(number), fields)

await lab.walk(day(2))
change(1, {status: 'funded'})
/** The second walk, which saw a deal funded. */
const {certificate} = await lab.walk(day(3))
const withPages = {...lab.config}
// Later walks ask for no own pages; looks at single deals do.
lab.config.detail = 'off'
beforeEach(lab.remember())

const rebuild = (request = {}, now = day(28), dying = {}) =>
  rebuildWarehouse(lab.config, request, {...lab.createWorld(now), ...dying})

async function look(number: number, now: string): Promise<void> {
  receiveEvents(lab.folder, idOf(number))
  expect((await applyEvents(withPages, lab.createWorld(now))).outcome).toBe('applied')
}

async function readRates(value: string, now: string): Promise<void> {
  const root = join(lab.folder.root, '..')
  const file = join(root, 'rates.csv')
  writeFileSync(file, `day,percent\n2026-02-02,${value}\n`)
  const feed = {name: 'fed', csv: file, rate: 'sofr', date: 'day', value: 'percent'}
  writeFileSync(join(root, 'rates.json'), JSON.stringify({feeds: [feed]}))
  const config = {...lab.config, ratesFile: join(root, 'rates.json')}
  expect((await ingestRates(config, lab.createWorld(now))).outcome).toBe('appended')
}

const spoil = (...places: number[]) =>
  changeRecords(lab, /^\/deals\?(?!.*cursor)/, (deals) => {
    for (const place of places) Object.assign(deals[place] ?? {}, {loan_amount: 'much'})
  })

/** Brings the stores up to date with the tapes, as every command does first. */
const catchUp = () => bringUpToDate(lab.config, lab.createWorld(day(28)))

const DIFFERENCES = [{table: 'deal_version', only_now: 1, only_rebuilt: 1}]
const listSettles = () => lab.queryHistory('select history_id from settle order by seq')

/** Plays eventful nights: walks are refused or die, deals are looked at, come and go. */
async function liveThroughMuch(): Promise<void> {
  const config = {streams: 'deals,borrowers', pageSize: 7, detail: 'auto' as const}
  const all = {...config, streams: 'deals,borrowers,documents'}
  rmSync(lab.folder.root, {recursive: true})
  const [, second] = [1, 2, 3].map((number) => linkBorrower(lab, idOf(number)))
  spoil(3)
  for (const path of [/^\/deals\?/, /borrowers/])
    lab.service.faults.add({match: {path, times: 1}, fault: {kind: 'status', status: 429}})
  await lab.walk(day(2), {config: all})
  lab.service.faults.clear()
  change(5, {status: 'funded', property_value_cents: 90_000_000n})
  await look(5, day(3, '12:00'))
  await readRates('4.30', day(3, '13:00'))
  await failureOf(lab.walk(day(3), {config, world: dyingAt('pages stored')}))
  await look(6, day(4, '01:00'))
  await lab.walk(day(4, '01:10'), {config})
  await lab.walk(day(4, '02:00'), {config, isDryRun: true})
  spoil(1, 2, 4, 5, 6)
  await failureOf(lab.walk(day(4), {config}))
  lab.service.faults.clear()
  spoil(1)
  for (const number of [7, 8, 9, 10, 11, 12]) change(number, {loan_amount_cents: 100n})
  await failureOf(lab.walk(day(5), {config: {...config, changeLimitPct: 5}}))
  lab.service.faults.clear()
  await lab.walk(day(5, '23:40'), {
    config: {...config, changeLimitPct: 5},
    accept: ['change'],
    why: 'a pool was sold',
  })
  lab.service.store.remove(idOf(20))
  await failureOf(lab.walk(day(6), {config, world: dyingAt('walk read')}))
  await lab.walk(day(7), {config: all})
  lab.service.database.run('delete from borrower where id = ?', [second ?? ''])
  await failureOf(lab.walk(day(8), {config, world: dyingAt('lists stored')}))
  await readRates('4.31', day(8, '23:50'))
  await lab.walk(day(9), {config: {...config, streams: 'deals'}})
  await lab.walk(day(10), {config: {...config, detail: 'off'}})
}

test('a warehouse rebuilt from the tapes is the same to the last row, whatever happened to it', async () => {
  await liveThroughMuch()
  const before = await listSettles()
  await changeAmount()
  expect(await rebuild({isApplied: true})).toMatchObject({
    outcome: 'rebuilt',
    differences: DIFFERENCES,
    set_aside: [expect.stringContaining(lab.folder.warehouse)],
  })
  expect(await listSettles()).toEqual(before)
  const waited = 'select distinct stream from walk where waited_ms > 0 order by all'
  expect(await lab.queryHistory(waited)).toEqual([{stream: 'borrower'}, {stream: 'deal'}])
  const accepted = `select accepted, accepted_why from walk where accepted_by is not null and stream = 'deal'`
  expect(await lab.queryHistory(accepted)).toEqual([{accepted: 'change', accepted_why: 'a pool was sold'}])
  expect(await lab.walk(day(11))).toMatchObject({outcome: 'walked'})
})

/** Adds one cent to the warehouse that was never observed. */
async function changeAmount(): Promise<void> {
  await using db = await openWarehouse(lab.folder, lab.createWorld())
  await db.run('update history.raw.deal_version set loan_amount = loan_amount + 0.01 where seq = 17')
}

test('what was read again of the quarantine of a walk is undone with it', async () => {
  spoil(0)
  const {walk_id: walk} = (await lab.walk(day(4))).certificate
  using _mended = readFieldAs(dealStream, 'loan_amount', 'much', 360_000)
  expect(await replayQuarantine(lab.config, lab.createWorld(day(5)))).toMatchObject({replayed: 1})
  const replayed = `select count(*) as versions from deal_version where source = 'replay'`
  expect(await lab.queryHistory(replayed)).toEqual([{versions: '1'}])
  expect(await rebuild({without: {walk, why: 'wrong'}, isApplied: true})).toMatchObject({outcome: 'rebuilt'})
  expect(await lab.queryHistory(replayed)).toEqual([{versions: '0'}])
})

test('one walk is undone as if it had never been, for every later rebuild', async () => {
  change(2, {status: 'funded'})
  await lab.walk(day(4))
  await changeAmount()
  const verified = await lab.run(['verify', '--rebuild', '--json'])
  expect(verified.code).toBe(1)
  expect(JSON.parse(verified.stdout).rebuilt).toMatchObject({outcome: 'different', differences: DIFFERENCES})
  const without = {walk: certificate.walk_id, why: 'the clock was wrong'}
  expect(await rebuild({without, isApplied: true})).toMatchObject({outcome: 'rebuilt'})
  const sql = `select walk_id, deal_id from deal_version where status = 'funded' order by deal_id`
  const versions = await lab.queryHistory(sql)
  expect(versions.map(({deal_id}) => deal_id)).toEqual([idOf(1), idOf(2)])
  expect(new Set(versions.map(({walk_id}) => walk_id)).size).toBe(1)
  expect(
    await lab.queryHistory(`select state, ended_how from walk where walk_id = '${certificate.walk_id}'`),
  ).toEqual([{state: 'abandoned', ended_how: 'taken back: the clock was wrong'}])
  expect(await rebuild()).toMatchObject({outcome: 'equal'})
  expect((await lab.walk(day(5))).changes).toMatchObject({unchanged: 30})
  const again = await failureOf(rebuild({without: {walk: 'w_nobody', why: 'x'}}))
  expect(again).toMatchObject({code: 'UNKNOWN_NAME'})
})

test('a folder whose only walk was of another service, and is undone, belongs to none', async () => {
  await using other = await createLab({deals: someDeals(3)})
  const {baseUrl, apiKey} = other.config
  rmSync(lab.folder.root, {recursive: true})
  const {walk_id: walk} = (await lab.walk(day(2), {config: {baseUrl, apiKey}})).certificate
  expect(await failureOf(lab.walk(day(3)))).toMatchObject({code: 'SOURCE_PINNED'})
  await rebuild({without: {walk, why: 'another service'}, isApplied: true})
  expect((await lab.walk(day(3))).changes).toMatchObject({created: 30})
})

test('a walk that was taken back stays so, whichever run dies and whichever warehouse is put back', async () => {
  change(2, {status: 'funded'})
  const {certificate: wrong} = await lab.walk(day(4))
  const older = readFileSync(lab.folder.warehouse)
  const without = {walk: wrong.walk_id, why: 'the clock was wrong'}
  const countFunded = async () => {
    await catchUp()
    return lab.queryHistory(
      `select count(distinct deal_id) as deals from deal_version where status = 'funded'`,
    )
  }
  expect(await countFunded()).toEqual([{deals: '2'}])
  await failureOf(rebuild({without, isApplied: true}, day(28), dyingAt('outcome written')))
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    // As if the run had died before it ended the day's tape.
    stateDb.db.exec(`update tape set ended_at = null where name not like 'w_%'`)
  }
  // The next run finds what the dead one wrote to its tape.
  expect(await failureOf(lab.walk(day(5)))).toMatchObject({code: 'STORES_DISAGREE'})
  expect(await countFunded()).toEqual([{deals: '1'}])
  // A rebuild over an older file is stopped; the tape of a dead run is left to the next one.
  await failureOf(lab.walk(day(5), {world: dyingAt('walk begun')}))
  writeFileSync(lab.folder.warehouse, older)
  const stopped = await failureOf(rebuild({isApplied: true}, day(28), {signal: AbortSignal.abort()}))
  expect(stopped).toMatchObject({code: 'INTERRUPTED'})
  expect(await countFunded()).toEqual([{deals: '1'}])
  expect(await rebuild()).toMatchObject({outcome: 'equal'})
  expect((await lab.walk(day(5))).changes).toMatchObject({updated: 1})
  rmSync(join(lab.folder.tapes, '2026/02', `${wrong.walk_id}.jsonl.zst`))
  expect((await lab.run(['tape', 'go-on', '--why', 'a disk died'])).code).toBe(0)
  writeFileSync(lab.folder.warehouse, older)
  expect((await failureOf(catchUp())).message).toContain('and tapes of that time are gone. Put a later')
})

test('a day is taken back up to then: what is read on it afterwards stays, and can be taken back in its turn', async () => {
  // The first unit of the day was refused.
  for (const number of [7, 8, 9, 10, 11, 12]) change(number, {loan_amount_cents: 100n})
  receiveEvents(lab.folder, ...[7, 8, 9, 10, 11, 12].map(idOf))
  const strict = {...withPages, changeLimitPct: 5}
  await failureOf(applyEvents(strict, lab.createWorld(day(4, '09:00'))))
  await readRates('9.99', day(4, '10:00'))
  const older = readFileSync(lab.folder.warehouse)
  const without = {walk: '2026-02-04', why: 'a wrong file'}
  const takeBack = (now: string) => rebuild({without, isApplied: true}, now)
  expect(await takeBack(day(4, '11:00'))).toMatchObject({outcome: 'rebuilt'})
  await readRates('4.30', day(4, '12:00'))
  const expectRates = async (...rates: string[]) => {
    await catchUp()
    expect((await lab.queryHistory('select value from rate')).map(({value}) => value)).toEqual(rates)
  }
  await expectRates('4.30000000')
  rmSync(lab.folder.warehouse)
  await expectRates('4.30000000')
  writeFileSync(lab.folder.warehouse, older)
  await expectRates('4.30000000')
  expect(await rebuild()).toMatchObject({outcome: 'equal'})
  expect(await takeBack(day(4, '13:00'))).toMatchObject({outcome: 'rebuilt'})
  await expectRates()
})

test('a walk whose run died while settling is settled once, even with a damaged warehouse', async () => {
  change(2, {status: 'funded'})
  await failureOf(lab.walk(day(4), {world: dyingAt('changes applied')}))
  using stateDb = openStateDb(lab.folder.stateDb)
  // As if the run had died before it ended the tape.
  stateDb.db.exec('update tape set ended_at = null')
  writeFileSync(lab.folder.warehouse, 'damaged'.repeat(1000))
  expect(await rebuild({isApplied: true})).toMatchObject({outcome: 'rebuilt', units: 3})
  const funded = `select count(*) as versions from deal_version where status = 'funded' and deal_id = '${idOf(2)}'`
  await lab.walk(day(5))
  expect(await lab.queryHistory(funded)).toEqual([{versions: '1'}])
})

test('a tape that cannot be staged, as when memory runs out, is not said to be of another version', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  const key = requireReadKey(lab.config, lab.folder)
  const {units} = listUnits(stateDb, listReadableTapes(lab.folder, stateDb, key))
  await using db = await openWarehouse(lab.folder, lab.createWorld())
  await createStage(db)
  await db.run('create or replace temp table staged_deal (deal_id varchar)')
  expect(await failureOf(settleAgain(db, units[0]!))).not.toHaveProperty('code', 'DATA_NEWER')
})

test('what only unreadable tapes hold is carried over; a rebuild that would lose it is refused', async () => {
  rmSync(lab.env.LOANTAPE_TAPE_KEY_FILE ?? '')
  expect((await lab.run(['tape', 'new-key', '--why', 'lost'])).code).toBe(0)
  change(2, {status: 'funded'})
  await lab.walk(day(4))
  expect(await rebuild()).toMatchObject({outcome: 'equal', units: 1})
  for (const number of [3, 4]) {
    change(number, {status: 'funded'})
    await lab.walk(day(number + 2))
  }
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    const [lost] = listTapes(stateDb).slice(-2)
    rmSync(join(lab.folder.root, lost!.path))
    expect(await rebuild()).toMatchObject({outcome: 'equal', units: 1})
    for (const table of ['tape_unit where tape', 'tape where name'])
      stateDb.run(`delete from ${table} = ?`, [lost!.name])
  }
  expect(await failureOf(rebuild({isApplied: true}))).toMatchObject({code: 'REBUILD_LOSES'})
})

test.each(['cut at its last group', 'overwritten by another of its length'])(
  'a tape that was %s is named before anything is computed from it',
  async (how) => {
    const before = await listSettles()
    using stateDb = openStateDb(lab.folder.stateDb)
    const [one = '', two = ''] = listTapes(stateDb).map(({path}) => join(lab.folder.root, path))
    chmodSync(two, 0o600)
    if (how === 'cut at its last group') {
      truncateSync(two, statSync(two).size - 1)
      truncateSync(two, readEnd(two, requireReadKey(lab.config, lab.folder)).bytes)
    } else {
      copyFileSync(one, two)
      stateDb.run('update tape set bytes = ?', [statSync(two).size])
    }
    for (const args of [['rebuild'], ['rebuild', '--apply']]) {
      const {code, stderr} = await lab.run(args)
      expect(stderr).toMatch(/\btape\b/i)
      expect(code).not.toBe(0)
    }
    expect(await listSettles()).toEqual(before)
  },
)

/** The fields of deals that came after version 1.0.0, each with a value. */
const LATER: object = {}

test('of a tape is read what its version read, so that the history stays the same: a field that came later is not', async () => {
  await using db = await openDatabase()
  const known = aRecord({property_value: 500_000, loan_program: 'bridge'})
  const all = {...known, ...LATER}
  expect(Object.keys(all).sort(), 'LATER has each').toEqual([...dealStream.wireFields].sort())
  const begin = {
    kind: 'look',
    version: '1.0.0',
    stream: 'deal',
    businessDate: '2026-02-02',
    isWalkOpen: false,
  }
  const read = async (data: object) => {
    const intake = openIntake(db, [dealStream], {frame: 'begin', ...begin})!
    intake.take({frame: 'look', requested_at: '2026-02-02T12:00:00Z', id: 'deal_000001'}, {data})
    await intake.stage()
    return db.all(anyRow, `select * exclude (unknown_fields) from temp.${BESIDE}`)
  }
  expect(await read(all), "as the unit's first line says (CONTRIBUTING.md, What is stored)").toEqual(
    await read(known),
  )
})
