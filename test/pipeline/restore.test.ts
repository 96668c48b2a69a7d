import {existsSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync} from 'node:fs'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {restoreWarehouse} from '../../src/pipeline/restore.ts'
import {createLab, failureOf, type Lab, someDeals} from '../support/lab.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
const DAY_3 = '2026-02-04T23:30:00-05:00'

let lab: Lab

beforeEach(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(40))
  await lab.walk(DAY_1)
})

afterEach(() => lab[Symbol.asyncDispose]())

const restore = (isForced = false) => restoreWarehouse(lab.config, {isForced}, lab.createWorld(DAY_2))

const historyOf = (deal: string) =>
  lab.query(
    `select version, change, status from core.deal_history where deal_id = '${deal}' order by version`,
  )

test.each<[string, (path: string) => void]>([
  ['a truncated', (path) => truncateSync(path, 9000)],
  ['a foreign', (path) => writeFileSync(path, 'this is no database '.repeat(1000))],
])('%s warehouse is named, kept, and brought back from the last good copy', async (_kind, damage) => {
  damage(lab.folder.warehouse)
  const damaged = readFileSync(lab.folder.warehouse)
  const failure = await failureOf(lab.sync(DAY_2))
  expect(failure).toMatchObject({code: 'WAREHOUSE_UNREADABLE', exitCode: 1})
  expect(failure.message).toContain('loantape restore')
  const {from, set_aside} = await restore()
  expect(from).toBe(lab.folder.history)
  expect(readFileSync(set_aside[0]!)).toEqual(damaged)

  lab.service.store.update('deal_000001', {status: 'underwriting'})
  lab.service.store.remove('deal_000002')
  expect((await lab.sync(DAY_2)).changes).toMatchObject({created: 0, updated: 1, vanished: 1, unchanged: 38})
  expect(await historyOf('deal_000001')).toEqual([
    {version: '1', change: 'created', status: 'draft'},
    {version: '2', change: 'updated', status: 'underwriting'},
  ])
})

test('what the last good copy had not seen is walked again', async () => {
  lab.service.store.update('deal_000001', {status: 'underwriting'})
  await lab.walk(DAY_2)
  rmSync(lab.folder.warehouse)
  writeFileSync(lab.folder.history, 'damaged, too')
  const {from, set_aside} = await restore()
  expect(from).toBe(lab.folder.previousHistory)
  expect(set_aside.map((file) => readFileSync(file, 'utf8'))).toEqual(['damaged, too'])
  // Who only reads is served at once.
  expect(await lab.queryHistory('select count(*) as deals from deal_version')).toEqual([{deals: '40'}])
  expect((await lab.walk(DAY_3)).changes).toMatchObject({updated: 1, unchanged: 39})
})

test('in place of a warehouse that is lost no new one is begun: its history would go with it', async () => {
  rmSync(lab.folder.warehouse)
  expect(await failureOf(lab.walk(DAY_2))).toMatchObject({code: 'WAREHOUSE_MISSING', exitCode: 1})
  const doctor = await lab.run(['doctor', '--deep'])
  expect(doctor).toMatchObject({code: 1, stdout: expect.stringContaining('`loantape restore`')})
  await restore()
  expect((await lab.walk(DAY_2)).changes).toMatchObject({created: 0, unchanged: 40})
})

test('a walk under a clock that was ahead is taken back by putting warehouse and history aside', async () => {
  await lab.walk('2027-02-02T23:30:00-05:00')
  expect(await failureOf(lab.walk(DAY_2))).toMatchObject({code: 'CLOCK_BACKWARDS', exitCode: 2})
  for (const file of [lab.folder.warehouse, lab.folder.history]) rmSync(file)
  expect((await restore()).from).toBe(lab.folder.previousHistory)
  expect((await lab.sync(DAY_2)).changes).toMatchObject({unchanged: 40})
  expect(await lab.query('select business_date from mart.run order by all')).toEqual([
    {business_date: '2026-02-02'},
    {business_date: '2026-02-03'},
  ])
})

test('a healthy warehouse is not replaced', async () => {
  const before = readFileSync(lab.folder.warehouse)
  expect(await failureOf(restore())).toMatchObject({code: 'RESTORE_HEALTHY', exitCode: 2})
  expect(readFileSync(lab.folder.warehouse)).toEqual(before)
})

test('without a readable copy nothing is touched', async () => {
  writeFileSync(lab.folder.warehouse, 'damaged')
  for (const copy of [lab.folder.history, lab.folder.previousHistory]) rmSync(copy, {force: true})
  expect(await failureOf(restore())).toMatchObject({code: 'RESTORE_NO_COPY', exitCode: 1})
  expect(readFileSync(lab.folder.warehouse, 'utf8')).toBe('damaged')
})

test('a write-ahead log that cannot be replayed is set aside, and the walk is made again', async () => {
  const killed = await lab.start(['sync'], {
    LOANTAPE_PAGE_SIZE: '1',
    LOANTAPE_NOW: DAY_2,
    NODE_OPTIONS: `--import ${KILL_AT_EXIT}`,
  }).ended
  expect(killed.signal).toBe('SIGKILL')
  const log = `${lab.folder.warehouse}.wal`
  const bytes = readFileSync(log)
  for (let at = 200; at < 260; at++) bytes[at] = (bytes[at] ?? 0) ^ 0xff
  writeFileSync(log, bytes)
  expect(await lab.sync(DAY_2)).toMatchObject({walk: {records: 40, distinct: 40}, changes: {unchanged: 40}})
  expect(readdirSync(lab.folder.root).filter((name) => name.includes('.wal.damaged-'))).toHaveLength(1)
  expect(existsSync(log)).toBe(false)
})

/** Ends a process by SIGKILL as soon as a write-ahead log has some length: nothing is checkpointed. */
const KILL_AT_EXIT = `data:text/javascript,${encodeURIComponent(`
  import {statSync} from 'node:fs'
  setInterval(() => {
    const log = statSync(process.env.LOANTAPE_DATA_DIR + '/warehouse.duckdb.wal', {throwIfNoEntry: false})
    if (log && log.size > 2000) process.kill(process.pid, 'SIGKILL')
  }, 1)
`)}`
