import {
  chmodSync,
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, beforeEach, expect, test} from 'vitest'
import type {World} from '../../src/core/types.ts'
import {goOn} from '../../src/record/record-compare.ts'
import {changeTape, listTapes} from '../../src/store/recorded.ts'
import {findCurrentRelease} from '../../src/store/release.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {rebuildWarehouse} from '../../src/sync/rebuild.ts'
import {openTapes} from '../../src/sync/tapes.ts'
import {createLab, failureOf, type Lab, someDeals, startProcess} from '../support/lab.ts'

const KILLED_RUN = join(import.meta.dirname, '../proof/killed-run.ts')
const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
const DAY_3 = '2026-02-04T23:30:00-05:00'

let lab: Lab
let goBack: () => void

beforeAll(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(40))
  await lab.walk(DAY_1)
  goBack = lab.remember()
})

beforeEach(() => goBack())

afterAll(() => lab[Symbol.asyncDispose]())

const rebuild = () => rebuildWarehouse(lab.config, {isApplied: true}, lab.createWorld(DAY_2))

const historyOf = (deal: string) =>
  lab.query(
    `select version, change, status from core.deal_history where deal_id = '${deal}' order by version`,
  )

test.each<[string, (path: string) => void]>([
  ['a truncated', (path) => truncateSync(path, 9000)],
  ['a foreign', (path) => writeFileSync(path, 'this is no database '.repeat(1000))],
])('%s warehouse is named, kept, and rebuilt from the tapes', async (_kind, damage) => {
  damage(lab.folder.warehouse)
  const damaged = readFileSync(lab.folder.warehouse)
  const failure = await failureOf(lab.sync(DAY_2))
  expect(failure).toMatchObject({code: 'WAREHOUSE_UNREADABLE', exitCode: 1})
  expect(failure.message).toContain('`loantape rebuild --apply`')
  const {set_aside} = await rebuild()
  expect(readFileSync(set_aside[0]!)).toEqual(damaged)

  lab.service.store.update('deal_000001', {status: 'underwriting'})
  lab.service.store.remove('deal_000002')
  expect((await lab.sync(DAY_2)).changes).toMatchObject({created: 0, updated: 1, vanished: 1, unchanged: 38})
  expect(await historyOf('deal_000001')).toEqual([
    {version: '1', change: 'created', status: 'draft'},
    {version: '2', change: 'updated', status: 'underwriting'},
  ])
})

test('a lost warehouse is rebuilt from the tapes by the next command, whichever it is', async () => {
  const before = await lab.queryHistory('select * from settle')
  rmSync(lab.folder.warehouse)
  expect((await lab.run(['build'])).code).toBe(0)
  expect(await lab.queryHistory('select * from settle')).toEqual(before)
  expect((await lab.walk(DAY_2)).changes).toMatchObject({created: 0, unchanged: 40})
})

test('the data of a lost tape is given up, but not what came after it', async () => {
  const saved = join(lab.folder.root, '../saved')
  copyFileSync(lab.folder.warehouse, saved)
  for (const [day, status] of [
    [DAY_2, 'underwriting'],
    [DAY_3, 'approved'],
    ['2026-02-05T23:30:00-05:00', 'funded'],
  ] as const) {
    lab.service.store.update('deal_000001', {status})
    await lab.walk(day)
  }
  const tapes = listTapePaths()
  for (const tape of [tapes[1], tapes[3]]) rmSync(tape!)
  copyFileSync(saved, lab.folder.warehouse)
  expect((await lab.run(['build'])).stderr).toContain('STORES_DISAGREE')
  expect((await lab.run(['tape', 'go-on', '--why', 'a disk died'])).code).toBe(0)
  expect((await lab.run(['build'])).code).toBe(0)
  expect(await historyOf('deal_000001')).toEqual([
    {version: '1', change: 'created', status: 'draft'},
    {version: '2', change: 'updated', status: 'approved'},
  ])
  expect(await rebuildWarehouse(lab.config, {}, lab.createWorld(DAY_3))).toMatchObject({outcome: 'equal'})
  expect((await lab.walk('2026-02-06T23:30:00-05:00')).changes).toMatchObject({updated: 1, unchanged: 39})
  expect(JSON.parse((await lab.run(['status', '--json'])).stdout)).toMatchObject({
    disagreements: [],
    given_up: 2,
  })
  expect((await lab.run(['build'])).code).toBe(0)
  const wentOn = [{at: expect.any(String), why: 'a disk died', given_up: 2}]
  expect(findCurrentRelease(lab.folder)?.manifest.went_on).toEqual(wentOn)
  expect((await lab.run(['export', 'csv'])).code).toBe(0)
  const [batch] = readdirSync(join(lab.folder.exports, 'csv'))
  const manifest = readFileSync(join(lab.folder.exports, 'csv', batch!, 'manifest.json'), 'utf8')
  expect(JSON.parse(manifest)).toMatchObject({went_on: wentOn})
})

test('giving up a lost tape counts once it is on the tape, even if the command then dies', async () => {
  await lab.walk(DAY_2)
  rmSync(listTapePaths()[1]!)
  const dying: World = {
    ...lab.createWorld(DAY_3),
    onStep(step) {
      if (step === 'act written') throw new Error('killed')
    },
  }
  expect((await failureOf(goOn(lab.config, 'a disk died', dying))).message).toBe('killed')
  expect((await lab.run(['tape', 'go-on', '--why', 'again'])).stderr).toContain('RECORD_WHOLE')
  expect(JSON.parse((await lab.run(['status', '--json'])).stdout)).toMatchObject({
    disagreements: [],
    given_up: 1,
  })
  expect((await lab.walk(DAY_3)).changes).toMatchObject({unchanged: 40})
})

test("a warehouse is replaced by one without a lost tape's data only if somebody gives it up", async () => {
  const [older, whole] = ['older', 'whole'].map((name) => join(lab.folder.root, '..', name))
  copyFileSync(lab.folder.warehouse, older!)
  await walkOn()
  const exportDeals = async () => {
    rmSync(lab.folder.exports, {recursive: true, force: true})
    expect((await lab.run(['export', 'csv'])).code).toBe(0)
    const [batch] = readdirSync(join(lab.folder.exports, 'csv')).filter((name) => !name.startsWith('.'))
    return readFileSync(join(lab.folder.exports, 'csv', batch!, 'manifest.json'), 'utf8')
  }
  expect((await lab.run(['build'])).code).toBe(0)
  const exported = await exportDeals()
  rmSync(listTapePaths()[1]!)
  expect((await lab.run(['tape', 'go-on', '--why', 'a disk died'])).code).toBe(0)
  expect((await lab.run(['verify'])).stdout).toContain('1 tape was given up by `loantape tape go-on`.')
  // The release is still the previous one, and so is its batch, to the last byte.
  expect(await exportDeals()).toBe(exported)
  copyFileSync(lab.folder.warehouse, whole!)
  const refused = /warehouse\.duckdb: .*lacks unit 2 of the record.* go-on.*STORES_DISAGREE/
  for (const lose of [() => copyFileSync(older!, lab.folder.warehouse), () => rmSync(lab.folder.warehouse)]) {
    lose()
    expect((await lab.run(['build'])).stderr).toMatch(refused)
    copyFileSync(whole!, lab.folder.warehouse)
    expect((await lab.run(['build'])).code).toBe(0)
  }
  rmSync(lab.folder.warehouse)
  expect((await lab.run(['tape', 'go-on', '--why', 'the next one, too'])).code).toBe(0)
  const history = [
    {version: '1', change: 'created', status: 'draft'},
    {version: '2', change: 'updated', status: 'approved'},
  ]
  expect((await lab.run(['build'])).code).toBe(0)
  expect(await historyOf('deal_000001')).toEqual(history)
  writeFileSync(lab.folder.warehouse, 'damaged'.repeat(1000))
  expect(await rebuild()).toMatchObject({outcome: 'rebuilt', units: 2})
  expect((await lab.run(['build'])).code).toBe(0)
  expect(await historyOf('deal_000001')).toEqual(history)
  expect(JSON.parse((await lab.run(['status', '--json'])).stdout)).toMatchObject({
    disagreements: [],
    given_up: 1,
  })
})

test('data that neither tapes nor state database know is given up twice: for the record, then for a lost warehouse', async () => {
  await walkOn()
  rmSync(listTapePaths()[1]!)
  for (const name of readdirSync(lab.folder.root).filter((file) => file.startsWith('state.sqlite')))
    rmSync(join(lab.folder.root, name))
  expect((await lab.run(['build'])).stderr).toContain('STORES_DISAGREE')
  expect((await lab.run(['tape', 'go-on', '--why', 'a disk died'])).code).toBe(0)
  expect((await lab.run(['build'])).code).toBe(0)
  expect(await historyOf('deal_000001')).toHaveLength(3)
  rmSync(lab.folder.warehouse)
  expect((await lab.run(['build'])).stderr).toMatch(/lacks unit 2 of the record.*STORES_DISAGREE/)
  expect((await lab.run(['tape', 'go-on', '--why', 'and the next'])).code).toBe(0)
  expect((await lab.run(['build'])).code).toBe(0)
  expect(await historyOf('deal_000001')).toHaveLength(2)
})

test('a tape that lost its end before it was closed can be given up, too', async () => {
  await lab.walk(DAY_2)
  const [, tape] = listTapePaths()
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    changeTape(stateDb, listTapes(stateDb)[1]!.unit, {
      ended_at: null,
      outcome: null,
      head: null,
      sha256: null,
    })
  }
  chmodSync(tape!, 0o600)
  truncateSync(tape!)
  expect((await lab.run(['build'])).stderr).toContain('its end')
  expect((await lab.run(['tape', 'go-on', '--why', 'a disk died'])).code).toBe(0)
  expect((await lab.walk(DAY_3)).changes).toMatchObject({unchanged: 40})
})

/** Two nights on which a deal changes its status. */
async function walkOn(): Promise<void> {
  for (const [day, status] of [
    [DAY_2, 'underwriting'],
    [DAY_3, 'approved'],
  ] as const) {
    lab.service.store.update('deal_000001', {status})
    await lab.walk(day)
  }
}

test('an older warehouse catches up over more units than are settled at once, even if they store nothing', async () => {
  const saved = join(lab.folder.root, '../saved')
  copyFileSync(lab.folder.warehouse, saved)
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    await using tapes = openTapes(lab.config, {folder: lab.folder, stateDb}, lab.createWorld(DAY_2))
    const said = {kind: 'without', walk: 'w_none', why: 'nothing'}
    for (let unit = 0; unit < 45; unit += 1)
      await tapes.settleOfDay('2026-02-02', said, ({conclude}) => conclude(BigInt(Date.parse(DAY_1)) * 1000n))
  }
  await walkOn()
  const before = await lab.queryHistory('select history_id from settle order by seq')
  copyFileSync(saved, lab.folder.warehouse)
  expect((await lab.run(['build'])).code).toBe(0)
  expect(await lab.queryHistory('select history_id from settle order by seq')).toEqual(before)
})

/** The tapes in the order of their walks. */
function listTapePaths(): string[] {
  using stateDb = openStateDb(lab.folder.stateDb)
  return listTapes(stateDb).map(({path}) => join(lab.folder.root, path))
}

test('after pruning, a restored older warehouse catches up from the tapes since', async () => {
  const saved = join(lab.folder.root, '../saved')
  copyFileSync(lab.folder.warehouse, saved)
  for (const day of [DAY_2, DAY_3]) {
    lab.service.store.update('deal_000001', {status: day === DAY_2 ? 'underwriting' : 'funded'})
    await lab.walk(day)
  }
  const settles = 'select history_id from settle order by seq'
  const before = await lab.queryHistory(settles)
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    const [first] = listTapes(stateDb)
    rmSync(join(lab.folder.root, first!.path))
    changeTape(stateDb, first!.unit, {removed_at: DAY_3})
  }
  writeFileSync(lab.folder.warehouse, 'damaged'.repeat(1000))
  const failure = await failureOf(rebuild())
  expect(failure).toMatchObject({code: 'REBUILD_BASE', exitCode: 1})
  expect(failure.message).toContain('warehouse.duckdb of a backup')
  copyFileSync(saved, lab.folder.warehouse)
  expect(await rebuild()).toMatchObject({outcome: 'rebuilt', units: 2})
  expect(await lab.queryHistory(settles)).toEqual(before)
})

test('a write-ahead log that cannot be replayed is set aside, and the walk is repeated', async () => {
  const env = {...lab.env, LOANTAPE_PAGE_SIZE: '1', LOANTAPE_NOW: DAY_2, KILL_STEP: 'changes applied'}
  using killed = startProcess([process.execPath, KILLED_RUN], env)
  expect(await killed.ended).toMatchObject({signal: 'SIGKILL'})
  const log = `${lab.folder.warehouse}.wal`
  const bytes = readFileSync(log)
  for (let at = 200; at < 260; at++) bytes[at] = (bytes[at] ?? 0) ^ 0xff
  writeFileSync(log, bytes)
  expect(await lab.sync(DAY_2)).toMatchObject({walk: {records: 40, distinct: 40}, changes: {unchanged: 40}})
  expect(readdirSync(lab.folder.root).filter((name) => name.includes('.wal.damaged-'))).toHaveLength(1)
  expect(existsSync(log)).toBe(false)
})
