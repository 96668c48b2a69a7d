import {rmSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {buildRelease} from '../../src/build/build.ts'
import {readMovedBetween} from '../../src/build/movement.ts'
import {dealStream} from '../../src/contract/deal.ts'
import {replayQuarantine} from '../../src/pipeline.ts'
import {requireRelease} from '../../src/store/release.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, DAY_1, DAY_2, DAY_3, DAY_4, day, failureOf, someDeals} from '../support/lab.ts'
import {readFieldAs} from '../support/schema.ts'
import {changeRecords, dyingAt, useLab} from '../support/set-up.ts'

const WITHOUT_DETAILS = {config: {detail: 'off'}} as const

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(40)})

/** Makes the amounts of the first deals of a page unreadable. */
const spoil = (deals: number) =>
  changeRecords(lab, '/deals?', (page) => {
    for (const deal of page.slice(0, deals)) deal.loan_amount = 'much'
  })

await lab.walk(DAY_1, WITHOUT_DETAILS)
spoil(1)
/** The walk whose first record is unreadable. */
const spoilt = (await lab.walk(DAY_2, WITHOUT_DETAILS)).certificate.walk_id
beforeEach(lab.remember())

const giveUpTape = async (walkId = spoilt) => {
  rmSync(join(lab.folder.tapes, '2026/02', `${walkId}.jsonl.zst`))
  expect((await lab.run(['tape', 'go-on', '--why', 'a disk died'])).code).toBe(0)
}

/** Makes all tapes over a year old, makes a backup, and walks once more. */
async function ageTapes(): Promise<void> {
  lab.ageTapes(401)
  const backup = join(lab.folder.root, '../backup')
  rmSync(backup, {recursive: true, force: true})
  expect((await lab.run(['backup', backup])).code).toBe(0)
  await lab.walk(DAY_4, WITHOUT_DETAILS)
}

const replay = (now: string) => replayQuarantine(lab.config, lab.createWorld(now))

/** Replays the record whose amount is 'much', with a schema fix that reads it. */
async function replayMended(now: string): ReturnType<typeof replay> {
  using _mended = readFieldAs(dealStream, 'loan_amount', 'much', 360_000)
  return await replay(now)
}

test('a replay corrects a released day, one that died is released by the next, and later changes are no correction', async () => {
  await lab.run(['build'], {LOANTAPE_NOW: DAY_2})
  const before = lab.currentReleaseId()!
  {
    using _mended = readFieldAs(dealStream, 'loan_amount', 'much', 360_000)
    const dying = {...lab.createWorld(DAY_3), ...dyingAt('history copied')}
    await failureOf(replayQuarantine(lab.config, dying))
  }
  expect(lab.currentReleaseId()).toBe(before)
  expect(await replay(DAY_3)).toMatchObject({outcome: 'released', replayed: 0})
  expect(lab.currentReleaseId()).not.toBe(before)
  expect(await replay(DAY_3)).toMatchObject({outcome: 'unchanged', release_id: null})

  lab.service.store.update('deal_000001', {loan_amount_cents: 360_000_00n})
  lab.service.store.update('deal_000002', {loan_amount_cents: 400_000_00n})
  await lab.sync(DAY_3, WITHOUT_DETAILS)
  const {stdout} = await lab.run(['diff', before, 'current'])
  expect(stdout).toMatch(/^deal_000002 +loan amount 350,000\.00 → 400,000\.00 +\+50,000\.00$/m)
  expect(stdout).toMatch(
    /^deal_000001 +loan amount 350,000\.00 → 360,000\.00, corrected later +\+10,000\.00$/m,
  )
  // So on pages, which look up the listed deals alone.
  for (const which of [{}, {offset: 1, limit: 1}, {beyond: 1, limit: 1}]) {
    const {moved} = await readMovedBetween(
      requireRelease(lab.folder, before),
      requireRelease(lab.folder),
      which,
    )
    expect(moved.at(-1)?.what).toBe('$350,000.00 → $360,000.00, corrected later')
  }
})

test('later truth is never overwritten by a replay: a record takes its place in time, once', async () => {
  const waits = {outcome: 'unchanged', replayed: 0, waiting: 1, appended: 0}
  expect(await replay(DAY_3)).toMatchObject(waits)
  lab.service.store.update('deal_000001', {loan_amount_cents: 370_000_00n})
  await lab.walk(DAY_3, WITHOUT_DETAILS)
  expect(await replayMended(DAY_4)).toMatchObject({outcome: 'released', replayed: 1, waiting: 0, appended: 1})
  expect(
    await lab.query(
      `select version, loan_amount, business_date from core.deal_history where deal_id = 'deal_000001' order by version`,
    ),
  ).toEqual([
    {version: '1', loan_amount: '350000.00', business_date: '2026-02-02'},
    {version: '2', loan_amount: '360000.00', business_date: '2026-02-03'},
    {version: '3', loan_amount: '370000.00', business_date: '2026-02-04'},
  ])
  expect(await replay(DAY_4)).toMatchObject({...waits, waiting: 0})
  const next = await lab.walk(DAY_4, WITHOUT_DETAILS)
  expect(next.changes).toMatchObject({updated: 0, unchanged: 40})
})

test.each([
  ['the next night', []],
  ['after a night without it', [DAY_3]],
])('a list that shows again what it did before a replayed record is believed %s', async (_, without) => {
  for (const night of without) {
    lab.service.store.remove('deal_000001')
    await lab.walk(night, WITHOUT_DETAILS)
    lab.service.store.insert([aDeal(1)])
  }
  await replayMended(DAY_3)
  await lab.walk(DAY_4, WITHOUT_DETAILS)
  const amount = `select kind, loan_amount from deal_head where deal_id = 'deal_000001'`
  expect(await lab.queryHistory(amount)).toEqual([{kind: 'seen', loan_amount: '350000.00'}])
})

test('a deal that was never readable and is gone by now is replayed as one that vanished', async () => {
  const deal = {...aDeal(0), id: 'deal_000000'}
  lab.service.store.insert([deal])
  changeRecords(lab, '/deals?', (page) => {
    for (const one of page) if (one.id === deal.id) one.loan_amount = 'much'
  })
  await lab.walk(day(3, '23:40'), WITHOUT_DETAILS)
  const {walk_id} = (await lab.walk(day(3, '23:50'), WITHOUT_DETAILS)).certificate
  lab.service.store.remove(deal.id)
  for (const night of [DAY_3, DAY_4]) await lab.walk(night, WITHOUT_DETAILS)
  using _mended = readFieldAs(dealStream, 'loan_amount', 'much', 360_000)
  await replay(DAY_4)
  const versions = `select kind, business_date from deal_version where deal_id = '${deal.id}' order by observed_at`
  expect(await lab.queryHistory(versions)).toEqual([
    {kind: 'seen', business_date: '2026-02-03'},
    {kind: 'seen', business_date: '2026-02-03'},
    {kind: 'vanished', business_date: '2026-02-05'},
  ])
  expect(await lab.query(`select deal_id from core.deal where deal_id = '${deal.id}'`)).toEqual([])
  expect((await lab.walk(DAY_4, WITHOUT_DETAILS)).changes).toMatchObject({missing: 0, vanished: 0})
  expect(await lab.run(['verify'])).toMatchObject({code: 0})
  await giveUpTape(walk_id)
  expect(await lab.run(['verify', '--rebuild'])).toMatchObject({code: 0})
})

test('a record that several walks could not read is one record', async () => {
  spoil(1)
  await lab.walk(DAY_3, WITHOUT_DETAILS)
  lab.service.faults.clear()
  expect(await replay(DAY_4)).toMatchObject({replayed: 0, waiting: 1})
  expect(await replayMended(DAY_4)).toMatchObject({replayed: 1, waiting: 0})
})

test('a record whose tape is missing keeps waiting and is shown without its content', async () => {
  await giveUpTape()
  expect(await replayMended(DAY_3)).toMatchObject({outcome: 'unchanged', replayed: 0, waiting: 1})
  const {records} = JSON.parse((await lab.run(['quarantine', 'list', '--json'])).stdout)
  const shown = await lab.run(['quarantine', 'show', records[0].quarantine_id])
  expect(shown).toMatchObject({code: 0, stdout: expect.stringContaining('record: not at hand')})
})

test('a rebuild replays a record whose walk no longer has a tape, though the clock stood still since', async () => {
  using _mended = readFieldAs(dealStream, 'loan_amount', 'much', 360_000)
  await replay(DAY_2)
  await giveUpTape()
  expect(await lab.run(['verify', '--rebuild'])).toMatchObject({code: 0})
})

test('a release made before a replay is remade byte for byte, after the replay and after a prune', async () => {
  lab.service.store.update('deal_000001', {status: 'funded'})
  const {release_id} = await lab.sync(DAY_3, WITHOUT_DETAILS)
  const before = requireRelease(lab.folder, release_id ?? '')
  const funded = `select funded_after from core.deal where deal_id = 'deal_000001'`
  expect(await lab.query(funded, release_id ?? '')).toEqual([{funded_after: '2026-02-02'}])

  const remake = async () => {
    rmSync(before.dir, {recursive: true})
    const {known_at} = before.manifest
    const knownAt = known_at.replace('T', ' ').replace('Z', '')
    const made = await buildRelease(lab.config, {asOf: '2026-02-04', knownAt}, lab.createWorld(DAY_4))
    expect(requireRelease(lab.folder, made.release_id).manifest.tables).toEqual(before.manifest.tables)
    expect(made.release_id).toBe(release_id)
  }
  expect(await replayMended(DAY_4)).toMatchObject({outcome: 'released', replayed: 1})
  expect(await lab.query(funded)).toEqual([{funded_after: '2026-02-03'}])
  await remake()
  await ageTapes()
  expect(JSON.parse((await lab.run(['prune', '--json'])).stdout)).toMatchObject({quarantined: 1})
  await remake()
})

test('a record is shown as its own page sent it, though its id begins with that of another deal', async () => {
  const id = 'deal_0000010'
  lab.service.store.insert([{...aDeal(41), id, status: 'funded'}])
  changeRecords(lab, `/deals/${id}`, ([deal]) => Object.assign(deal ?? {}, {loan_amount: 'much'}))
  await lab.walk(DAY_3)
  const {records} = JSON.parse((await lab.run(['quarantine', 'list', '--json'])).stdout)
  expect(records.at(-1)).toMatchObject({record_id: id})
  const {stdout} = await lab.run(['quarantine', 'show', records.at(-1).quarantine_id, '--json'])
  expect(JSON.parse(JSON.parse(stdout).record)).toMatchObject({id, loan_amount: 'much'})
})

test('the rejected records of a refused walk can be viewed until pruned, and matter until a later walk is applied', async () => {
  spoil(40)
  const walk = () => failureOf(lab.walk(DAY_3))
  expect(await walk()).toMatchObject({code: 'SOURCE_QUARANTINE', exitCode: 7})
  const listed = await lab.run(['quarantine', 'list', '--json'])
  const {records} = JSON.parse(listed.stdout) as {records: {quarantine_id: string; record_id: string}[]}
  expect(records).toHaveLength(41)
  const shown = await lab.run(['quarantine', 'show', records[0]!.quarantine_id, '--json'])
  expect(JSON.parse(shown.stdout)).toMatchObject({
    path: 'loan_amount',
    record: expect.stringContaining('"loan_amount":"much"'),
  })

  // Met twice, they are still 40 records.
  await walk()
  expect(await replay(DAY_3)).toMatchObject({replayed: 0, waiting: 40, pruned: 0})
  lab.service.faults.clear()
  await ageTapes()
  const print = async (...args: string[]) => (await lab.run(args, {LOANTAPE_NOW: DAY_4})).stdout
  expect(await print('prune')).toContain('the content of 40 quarantined records')
  expect(await print('prune')).toBe('Nothing to remove.\n')
  const pruned = '1 more was never read; the content has been pruned.'
  expect(await print('quarantine', 'list')).toContain(`No record waits in quarantine.\n${pruned}`)
  expect(await print('quarantine', 'replay')).toContain(`0 still wait.\n${pruned}`)
  expect(await print('quarantine', 'show', records[0]!.quarantine_id)).toContain('record: not at hand')
  expect(
    await lab.queryHistory('select count(*) as rows, count(recorded_at) as settled from raw.quarantine'),
  ).toEqual([{rows: '81', settled: '1'}])
})
