import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import {basename, join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {newError} from '../../src/core/errors.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import {changeTape, listTapes} from '../../src/store/recorded.ts'
import {findCurrentRelease} from '../../src/store/release.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {rebuildWarehouse} from '../../src/sync/rebuild.ts'
import {listTapeFiles, openTapes} from '../../src/sync/tapes.ts'
import {changeBlocks} from '../support/data.ts'
import {DAY_1, DAY_2, DAY_3, DAY_4, failureOf, someDeals, startProcess} from '../support/lab.ts'
import {dyingAt, useLab} from '../support/set-up.ts'

const KILLED_RUN = join(import.meta.dirname, '../proof/killed-run.ts')

const lab = await useLab({deals: someDeals(40)})
lab.config.detail = 'off'
await lab.walk(DAY_1)
beforeEach(lab.remember())

const rebuild = () => rebuildWarehouse(lab.config, {isApplied: true}, lab.createWorld(DAY_2))

/** Brings the stores up to date with the tapes, as every command does first. */
const catchUp = () => bringUpToDate(lab.config, lab.createWorld())

/** Lists the statuses that the first deal has had, once the stores are up to date. */
async function listStatuses(): Promise<unknown[]> {
  await catchUp()
  const sql = `select status from deal_version where deal_id = 'deal_000001' order by seq`
  return (await lab.queryHistory(sql)).map(({status}) => status)
}

test('what appears in a folder while its stores are compared is compared by the next command', async () => {
  rmSync(lab.folder.warehouse)
  const foreign = join(lab.folder.exports, 'xero/2026-02-0123456789ab')
  const world = lab.createWorld()
  // The warehouse is missed after all batches have been looked at.
  const warn = () => {
    mkdirSync(foreign, {recursive: true})
    writeFileSync(join(foreign, 'manifest.json'), '{}')
  }
  await bringUpToDate(lab.config, {...world, log: {...world.log, warn}})
  expect(await failureOf(catchUp())).toMatchObject({code: 'STORES_DISAGREE'})
})

const listSettles = () => lab.queryHistory('select history_id from settle order by seq')

async function succeed(...args: string[]): Promise<string> {
  const {code, stdout, stderr} = await lab.run(args)
  expect(code, stderr).toBe(0)
  return stdout
}

const goOnWithout = (why: string) => succeed('tape', 'go-on', '--why', why)
const readVerified = async () => JSON.parse((await lab.run(['verify', '--json'])).stdout)
const readStatus = async () => JSON.parse((await lab.run(['status', '--json'])).stdout)
const refusedBuild = async () => (await lab.run(['build'])).stderr

/** Walks some nights; the first deal changes its status before each. */
async function walkOn(...nights: (readonly [day: string, status: string])[]): Promise<void> {
  for (const [day, status] of nights) {
    lab.service.store.update('deal_000001', {status})
    await lab.walk(day)
  }
}

const UNDERWRITTEN = [DAY_2, 'underwriting'] as const
const APPROVED_NEXT = [DAY_3, 'approved'] as const

function listTapePaths(): string[] {
  using stateDb = openStateDb(lab.folder.stateDb)
  return listTapes(stateDb).map(({path}) => join(lab.folder.root, path))
}

/** Writes units that store nothing onto the tape of a day. */
async function refuseLooks(units: number): Promise<void> {
  using stateDb = openStateDb(lab.folder.stateDb)
  using tapes = openTapes(lab.config, {folder: lab.folder, stateDb}, lab.createWorld(DAY_2))
  const refused = () => {
    throw newError('GUARD_CHANGE', 'Refused.')
  }
  for (let unit = 0; unit < units; unit += 1)
    await failureOf(tapes.settleOfDay('2026-02-02', {kind: 'look'}, refused))
}

const removeTapes = (...numbers: number[]) => {
  for (const path of listTapePaths().filter((_, index) => numbers.includes(index + 1))) rmSync(path)
}

/**
 * Copies the warehouse.
 *
 * @returns a function that puts the copy back
 */
function saveWarehouse(name: string): () => void {
  const saved = join(lab.folder.root, '..', name)
  copyFileSync(lab.folder.warehouse, saved)
  return () => copyFileSync(saved, lab.folder.warehouse)
}

/**
 * Exports anew.
 *
 * @returns the manifest's text
 */
async function exportDeals(): Promise<string> {
  rmSync(lab.folder.exports, {recursive: true, force: true})
  await succeed('export', 'csv')
  const [batch] = readdirSync(join(lab.folder.exports, 'csv')).filter((name) => !name.startsWith('.'))
  return readFileSync(join(lab.folder.exports, 'csv', batch!, 'manifest.json'), 'utf8')
}

test('a changed warehouse is named, kept, and rebuilt from the tapes', async () => {
  const before = await listSettles()
  await changeBlocks(lab.folder.warehouse)
  const damaged = readFileSync(lab.folder.warehouse)
  const failure = await failureOf(lab.walk(DAY_2))
  expect(failure).toMatchObject({code: 'WAREHOUSE_UNREADABLE', exitCode: 1})
  expect(failure.message.split('`loantape rebuild --apply`'), 'once').toHaveLength(2)
  const {set_aside} = await rebuild()
  expect(readFileSync(set_aside[0]!)).toEqual(damaged)
  expect(set_aside[0]).toContain('warehouse.duckdb.damaged-')
  expect(await listSettles()).toEqual(before)
})

test('a sound warehouse that a rebuild replaces is not called damaged, and prune removes it', async () => {
  {
    await using db = await openWarehouse(lab.folder, lab.createWorld())
    await db.run(`update history.raw.deal_version set property_address = 'another'`)
  }
  const {set_aside} = await rebuild()
  expect(set_aside).toEqual([expect.stringContaining('warehouse.duckdb.before-rebuild-')])
  expect(await succeed('prune', '--dry-run')).toContain(basename(set_aside[0]!))
  expect(existsSync(set_aside[0]!)).toBe(true)
  await succeed('prune')
  expect(existsSync(set_aside[0]!)).toBe(false)
  expect(await succeed('prune')).toBe('Nothing to remove.\n')
})

test('a lost warehouse is rebuilt from the tapes by the next command, whichever it is', async () => {
  const before = await listSettles()
  rmSync(lab.folder.warehouse)
  expect((await lab.run(['docs'])).stderr).toContain('Run `loantape rebuild --apply`: it computes it again')
  await succeed('build')
  expect(await listSettles()).toEqual(before)
  expect((await lab.walk(DAY_2)).changes).toMatchObject({created: 0, unchanged: 40})
})

test('a warehouse lost while the first walk was under way is made again by rebuild, a damaged one once it is moved away', async () => {
  for (const name of readdirSync(lab.folder.root)) rmSync(join(lab.folder.root, name), {recursive: true})
  await failureOf(lab.walk(DAY_1, {world: dyingAt('pages stored')}))
  truncateSync(lab.folder.warehouse)
  expect(await failureOf(rebuild())).toMatchObject({code: 'REBUILD_BASE'})
  rmSync(lab.folder.warehouse)
  expect((await failureOf(lab.walk(DAY_1))).message).toContain('`loantape rebuild --apply`')
  await succeed('rebuild', '--apply')
  expect(await lab.walk(DAY_1)).toMatchObject({changes: {created: 40}})
})

test('the data of a lost tape is given up, but not what came after it', async () => {
  const bringBack = saveWarehouse('saved')
  await walkOn(UNDERWRITTEN, APPROVED_NEXT, [DAY_4, 'funded'])
  removeTapes(2, 4)
  bringBack()
  expect(await refusedBuild()).toContain('STORES_DISAGREE')
  const counted = 'Units and batches given up'
  expect(await goOnWithout('a disk died')).toContain(`${counted}: 2.`)
  const {stdout: status} = await lab.run(['status'])
  expect(status).toContain(`${counted} by \`loantape tape go-on\`: 2.`)
  expect(await listStatuses()).toEqual(['draft', 'approved'])
  expect(await rebuildWarehouse(lab.config, {}, lab.createWorld(DAY_3))).toMatchObject({outcome: 'equal'})
  expect((await lab.walk('2026-02-06T23:30:00-05:00')).changes).toMatchObject({updated: 1, unchanged: 39})
  expect(await readStatus()).toMatchObject({disagreements: [], given_up: 2})
  await succeed('build')
  const wentOn = [{at: expect.any(String), why: 'a disk died', given_up: 2}]
  expect(findCurrentRelease(lab.folder)?.manifest.went_on).toEqual(wentOn)
  expect(JSON.parse(await exportDeals())).toMatchObject({went_on: wentOn})
})

test("a warehouse is replaced by one without a lost tape's data only if somebody gives it up", async () => {
  const bringBackOlder = saveWarehouse('older')
  await walkOn(UNDERWRITTEN, APPROVED_NEXT)
  await succeed('build')
  const exported = await exportDeals()
  removeTapes(2)
  await goOnWithout('a disk died')
  expect(await readVerified()).toMatchObject({given_up: 1, removed: 0})
  expect((await lab.run(['verify'])).stdout).toContain('1 tape was given up by `loantape tape go-on`.')
  // The release is still the previous one, and its batch is the same to the last byte.
  expect(await exportDeals()).toBe(exported)
  await succeed('build')
  expect(JSON.parse(await exportDeals())).toMatchObject({went_on: [{why: 'a disk died'}]})
  const bringBackWhole = saveWarehouse('whole')
  const lose = () => rmSync(lab.folder.warehouse)
  for (const change of [bringBackOlder, lose]) {
    change()
    expect(await refusedBuild()).toMatch(
      /warehouse\.duckdb: .*lacks unit 2 of the record.* go-on.*STORES_DISAGREE/,
    )
    bringBackWhole()
    await catchUp()
  }
  lose()
  await goOnWithout('the next one, too')
  expect(await listStatuses()).toEqual(['draft', 'approved'])
  writeFileSync(lab.folder.warehouse, 'damaged'.repeat(1000))
  expect(await rebuild()).toMatchObject({outcome: 'rebuilt', units: 2})
  expect(await listStatuses()).toEqual(['draft', 'approved'])
  expect(await readStatus()).toMatchObject({disagreements: [], given_up: 1})
})

const removeStateDb = () => {
  for (const name of readdirSync(lab.folder.root).filter((file) => file.startsWith('state.sqlite')))
    rmSync(join(lab.folder.root, name))
}

test('data that neither tapes nor state database know is given up for the record and stays; if it is not the last, a lost warehouse is given up in its turn', async () => {
  await walkOn(UNDERWRITTEN, APPROVED_NEXT)
  const asItWas = lab.copyFolder('as it was')
  for (const unit of [3, 2]) {
    rmSync(lab.folder.root, {recursive: true})
    cpSync(asItWas.root, lab.folder.root, {recursive: true, verbatimSymlinks: true})
    removeTapes(unit)
    removeStateDb()
    expect(await refusedBuild()).toContain('STORES_DISAGREE')
    await goOnWithout('a disk died')
    expect(await listStatuses()).toHaveLength(3)
  }
  rmSync(lab.folder.warehouse)
  expect(await refusedBuild()).toMatch(/lacks unit 2 of the record.*STORES_DISAGREE/)
  await goOnWithout('and the next')
  expect(await listStatuses()).toHaveLength(2)
})

test('of tapes of two copies of a folder in one, those that another copy wrote are named; it goes on once they are away', async () => {
  const [copy, others] = [lab.copyFolder('copy'), join(lab.folder.root, '../others')]
  await walkOn(UNDERWRITTEN, APPROVED_NEXT)
  await refuseLooks(2)
  cpSync(lab.folder.tapes, others, {recursive: true})
  rmSync(lab.folder.root, {recursive: true})
  cpSync(copy.root, lab.folder.root, {recursive: true})
  await walkOn([DAY_2, 'draft'], [DAY_3, 'funded'])
  const own = listTapePaths()
  for (const lose of [() => undefined, removeStateDb]) {
    cpSync(others, lab.folder.tapes, {recursive: true})
    lose()
    expect(await refusedBuild()).toMatch(/ tape: .*another copy of this data folder.*STORES_DISAGREE/)
    const verified = await lab.run(['verify', '--rebuild'])
    expect(verified).toMatchObject({code: 1, stdout: expect.stringContaining('another copy of this')})
    const {disagreements} = await readStatus()
    const named = disagreements.map(({problem}: {problem: string}) => problem.split(' ')[0])
    expect(named.length).toBeOneOf([2, 3])
    expect(named, 'each tape once').toEqual([...new Set(named)])
    const foreign = listTapeFiles(lab.folder)
      .keys()
      .map((path) => join(lab.folder.root, path))
      .filter((path) => !own.includes(path))
    for (const path of foreign) rmSync(path)
    await succeed('build')
  }
  expect(await listStatuses()).toEqual(['draft', 'funded'])
})

test('a tape that lost its end before it was closed can be given up, too', async () => {
  await lab.walk(DAY_2)
  const [, tape] = listTapePaths()
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    const open = {ended_at: null, outcome: null, sha256: null}
    changeTape(stateDb, listTapes(stateDb)[1]!.name, open)
  }
  chmodSync(tape!, 0o600)
  truncateSync(tape!)
  expect(await refusedBuild()).toContain('its end')
  await goOnWithout('a disk died')
  expect((await lab.walk(DAY_3)).changes).toMatchObject({unchanged: 40})
})

test('an older warehouse, also beside a lost state database, catches up over more units than are settled at once', async () => {
  const bringBack = saveWarehouse('saved')
  await refuseLooks(45)
  await walkOn(UNDERWRITTEN, APPROVED_NEXT)
  const before = await listSettles()
  const paths = listTapePaths()
  bringBack()
  removeStateDb()
  await catchUp()
  expect(await listSettles()).toEqual(before)
  // Oldest first, although the name of a day comes before those of walks: `verify` says since when there are tapes.
  expect(listTapePaths()).toEqual(paths)
})

test('tapes go once a backup was made since; its stores then take the place of damaged or lost ones', async () => {
  const backup = join(lab.folder.root, '..', 'backup')
  lab.ageTapes(401)
  await walkOn(UNDERWRITTEN)
  expect(await succeed('prune')).toBe('Nothing to remove.\nKept until a backup is made: 1 older tape.\n')
  await succeed('backup', backup)
  expect(await succeed('prune')).toMatch(/^Removed:\n {2}tape \S+\n$/)
  // What was pruned since then is no loss.
  removeStateDb()
  copyFileSync(join(backup, 'state.sqlite'), lab.folder.stateDb)
  await walkOn(APPROVED_NEXT)
  const before = await listSettles()
  writeFileSync(lab.folder.warehouse, 'damaged'.repeat(1000))
  expect((await failureOf(lab.walk(DAY_4))).message).toContain(
    'put the warehouse.duckdb of a backup in its place',
  )
  const failure = await failureOf(rebuild())
  expect(failure).toMatchObject({code: 'REBUILD_BASE', exitCode: 1})
  expect(failure.message).toContain('warehouse.duckdb of a backup')
  copyFileSync(join(backup, 'warehouse.duckdb'), lab.folder.warehouse)
  expect(await rebuild()).toMatchObject({outcome: 'rebuilt', units: 2})
  expect(await listSettles()).toEqual(before)
  rmSync(lab.folder.warehouse)
  for (const command of ['build', 'rebuild'])
    expect((await lab.run([command])).stderr).toMatch(
      /whose tape '\S+' was removed by `prune`\. Put a later warehouse from a backup in its place\..*\[STORES_DISAGREE/,
    )
  copyFileSync(join(backup, 'warehouse.duckdb'), lab.folder.warehouse)
  await catchUp()
  expect(await listSettles()).toEqual(before)
})

test('the tape of a walk that could not be resumed goes with others that are old', async () => {
  await failureOf(lab.walk(DAY_2, {world: dyingAt('pages stored')}))
  const left = listTapePaths().at(-1)!
  writeFileSync(left, 'damaged')
  await lab.walk(DAY_3)
  lab.ageTapes(401)
  await lab.walk(DAY_4)
  await succeed('backup', join(lab.folder.root, '..', 'backup before pruning'))
  expect(await succeed('prune')).toContain(basename(left))
  expect(existsSync(left)).toBe(false)
  expect(await readVerified()).toMatchObject({outcome: 'whole', removed: 3, given_up: 0})
})

test('a write-ahead log that cannot be replayed is set aside, and the walk is repeated', async () => {
  const env = {...lab.env, LOANTAPE_PAGE_SIZE: '1', LOANTAPE_NOW: DAY_2, KILL_STEP: 'changes applied'}
  using killed = startProcess([process.execPath, KILLED_RUN, 'sync'], env)
  expect(await killed.ended).toMatchObject({signal: 'SIGKILL'})
  const log = `${lab.folder.warehouse}.wal`
  const bytes = readFileSync(log)
  for (let at = 200; at < 260; at++) bytes[at] = (bytes[at] ?? 0) ^ 0xff
  writeFileSync(log, bytes)
  expect((await lab.walk(DAY_2)).changes).toMatchObject({unchanged: 40})
  expect(readdirSync(lab.folder.root).filter((name) => name.includes('.wal.damaged-'))).toHaveLength(1)
  expect(existsSync(log)).toBe(false)
})

test('a walk under a clock that was ahead stays taken back, though the tapes before it are pruned', async () => {
  lab.ageTapes(401)
  const {certificate} = await lab.walk('2028-02-03T23:30:00-05:00')
  const bringBack = saveWarehouse('with it')
  await succeed('backup', join(lab.folder.root, '..', 'backup of both'))
  await succeed('prune')
  await succeed('rebuild', '--apply', '--without', certificate.walk_id, '--why', 'the clock was ahead')
  await walkOn(UNDERWRITTEN)
  expect(await rebuild()).toMatchObject({outcome: 'equal', units: 3})
  const before = await listSettles()
  bringBack()
  await catchUp()
  expect(await listSettles()).toEqual(before)
})
