import {rmSync} from 'node:fs'
import {beforeEach, expect, test} from 'vitest'
import type {StoredDeal} from '../../src/service/deals.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, createLab, DAY_1, DAY_2, failureOf, someDeals} from '../support/lab.ts'
import {dyingAt, useLab} from '../support/set-up.ts'

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(40)})
const first = await lab.sync(DAY_1)
beforeEach(lab.remember())

/** Starts over: no deal is known, and the source has these. */
function beginAnew(deals: StoredDeal[]): void {
  rmSync(lab.folder.root, {recursive: true})
  for (const id of lab.service.store.ids()) lab.service.store.remove(id)
  lab.service.store.insert(deals)
}

const countVersions = () => lab.queryHistory('select count(*) as versions from raw.deal_version')

test('an unchanged walk adds no version and is released only for a new day; what own pages repeat is confirmed', async () => {
  const again = await lab.sync(DAY_1)
  expect(again).toMatchObject({outcome: 'unchanged', release_id: first.release_id, changes: {unchanged: 40}})
  expect(await lab.sync('2026-03-10T23:30:00-04:00')).toMatchObject({outcome: 'released'})
  const confirmed = 'select distinct value_confirmed_on from core.deal'
  expect(await lab.query(confirmed)).toEqual([{value_confirmed_on: '2026-03-10'}])
  expect(await countVersions()).toEqual([{versions: '40'}])
})

test('a run that died between apply and release is finished by the next', async () => {
  lab.service.store.insert([aDeal(41)])
  const broken = await failureOf(lab.sync(DAY_2, {config: {sqlDir: '/nowhere/at/all'}}))
  expect(broken.message).toBeTruthy()
  const next = await lab.sync(DAY_2)
  expect(next).toMatchObject({outcome: 'released', changes: {created: 0, unchanged: 41}})
  expect(await lab.query('select deals from mart.portfolio_summary')).toEqual([{deals: '41'}])
})

test('a dry run says what would change or be refused, and changes nothing', async () => {
  lab.service.store.update('deal_000001', {status: 'underwriting'})
  const readSuccess = async () => {
    const {run_id} = JSON.parse((await lab.run(['status', '--json'])).stdout).last_success
    return run_id
  }
  const success = await readSuccess()
  const dry = await lab.sync(DAY_2, {isDryRun: true})
  expect(await readSuccess()).toEqual(success)
  expect(dry).toMatchObject({outcome: 'dry_run', release_id: null, changes: {updated: 1, unchanged: 39}})
  const tape = await lab.run(['tape', 'cat', dry.walk.walk_id])
  expect(tape.stdout).toContain('"outcome":"dry run"')
  expect(lab.currentReleaseId()).toBe(first.release_id)
  expect(await countVersions()).toEqual([{versions: '40'}])
  lab.service.store.remove(aDeal(2).id)
  const {stdout} = await lab.run(['sync', '--dry-run'], {LOANTAPE_NOW: DAY_2})
  expect(stdout).toMatch(/ 1 missing\.\n.* their own pages that missing deals have vanished\.\n$/)
  for (let number = 3; number <= 9; number++) lab.service.store.remove(aDeal(number).id)
  expect(await failureOf(lab.sync(DAY_2, {isDryRun: true}))).toMatchObject({
    code: 'GUARD_SHRINK',
    exitCode: 8,
  })
  const {changes} = await lab.walk(DAY_2, {accept: ['shrink']})
  expect(changes).toMatchObject({updated: 1, vanished: 8, unchanged: 31})
})

test('a dry run binds the folder to no source, envelope or day', async () => {
  await using elsewhere = await createLab()
  beginAnew(someDeals(3))
  elsewhere.service.store.insert(someDeals(3))
  elsewhere.service.faults.add({fault: {kind: 'envelope', shape: 'meta'}})
  const config = {baseUrl: elsewhere.service.url}
  await lab.sync('2036-01-01T23:30:00-05:00', {isDryRun: true, config})
  expect((await lab.walk(DAY_1)).certificate).toMatchObject({business_date: '2026-02-02', records: 3})
})

test.each([100, 7])(
  'a walk that a dead run had read keeps who accepted it and why, even if pages of %d are asked for now',
  async (pageSize) => {
    for (let number = 2; number <= 9; number++) lab.service.store.remove(aDeal(number).id)
    await failureOf(lab.walk(DAY_2, {world: dyingAt('walk read')}))
    await lab.walk(DAY_2, {accept: ['shrink'], why: 'a pool was sold', config: {pageSize}})
    const shrunk = `select accepted, accepted_by <> '' as is_named, accepted_why, resumed from walk
    where missing + vanished = 8 order by recorded_at limit 1`
    const accepted = {accepted: 'shrink', is_named: true, accepted_why: 'a pool was sold'}
    expect(await lab.queryHistory(shrunk)).toEqual([{...accepted, resumed: '1'}])
  },
)

test('a dry run continues a walk that ended at its second page, and leaves it to the next sync', async () => {
  beginAnew(someDeals(30))
  const config = {pageSize: 10, detail: 'off' as const}
  lab.service.faults.add({match: {path: '/deals', nth: 2}, fault: {kind: 'status', status: 403}})
  await failureOf(lab.walk(DAY_1, {config}))
  const dry = await lab.sync(DAY_1, {isDryRun: true, config})
  expect(dry).toMatchObject({changes: {created: 30}, walk: {resumed: 1}})
  const asked = lab.service.requests.count
  const {certificate} = await lab.walk(DAY_1, {config})
  expect(certificate).toMatchObject({walk_id: dry.walk.walk_id, resumed: 2, records: 30})
  expect(lab.service.requests.count).toBe(asked)
})

test('a dry run neither applies nor loses the walk of a run that died before applying it, even if it refuses it', async () => {
  beginAnew(someDeals(10))
  await lab.walk(DAY_1)
  for (const {id} of someDeals(10).slice(4)) lab.service.store.remove(id)
  await failureOf(lab.walk(DAY_2, {world: dyingAt('walk read')}))
  const other = lab.sync(DAY_2, {isDryRun: true, config: {pageSize: 7}})
  expect(await failureOf(other)).toMatchObject({code: 'WALK_WAITING', exitCode: 2})
  expect(await failureOf(lab.sync(DAY_2, {isDryRun: true}))).toMatchObject({code: 'GUARD_SHRINK'})
  const {certificate} = await lab.walk(DAY_2, {accept: ['shrink']})
  expect(certificate).toMatchObject({resumed: 2, business_date: '2026-02-03', records: 4})
})
