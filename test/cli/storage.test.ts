import {chmodSync, existsSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import type {DataFolder} from '../../src/warehouse/data-folder.ts'
import {createLab, type Ended, type Lab, MAIN, someDeals, startProcess} from '../support/lab.ts'
import {readFailure, readJson, readStanding, type Standing} from './outcome.ts'

const DAY_2 = '2026-02-03T23:30:00-05:00'

let lab: Lab
let before: Standing

beforeAll(async () => {
  lab = await createLab({tables: '+core.deal +mart.portfolio_summary'})
  lab.service.store.insert(someDeals(300))
  await lab.sync('2026-02-02T23:30:00-05:00', {config: {detail: 'off'}})
  before = await readStanding(lab.folder)
  lab.service.store.insert(someDeals(1200).slice(300))
})

afterAll(() => lab[Symbol.asyncDispose]())

function environmentOf(folder: DataFolder): Record<string, string> {
  return {
    ...lab.env,
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_NOW: DAY_2,
    LOANTAPE_LOG_LEVEL: 'error',
    LOANTAPE_DETAIL: 'off',
  }
}

/** Syncs on a disk that takes no file longer than this: writing on fails as on a full one. */
function syncOnSmallDisk(folder: DataFolder, kib: number): Promise<Ended> {
  const script = `trap '' XFSZ; ulimit -f ${kib * 2}; exec "$0" "$@"`
  const program = [process.execPath, MAIN, 'sync', '--accept', 'growth', '--json']
  const env = {...environmentOf(folder), NODE_COMPILE_CACHE: ''}
  return startProcess(['sh', '-c', script, ...program], env).ended
}

const disks: [behaviour: string, kib: number, code: string][] = [
  ['the state database does not fit', 4, 'DISK_FAULT'],
  ['what the walk stores does not fit', 400, 'DISK_FULL'],
  ['the checkpoint does not fit', 1600, 'DISK_FULL'],
]

for (const [behaviour, kib, code] of disks) {
  test.concurrent(`a disk that fills up where ${behaviour} ends the run, and the next completes it`, async () => {
    const folder = lab.copyFolder(`disk-${kib}`)
    const failure = readFailure(await syncOnSmallDisk(folder, kib))
    expect(failure).toMatchObject({code, exitCode: 1})
    expect(failure.message).toMatch(/disk .*is intact, and so is the current release\. .*run again/)
    expect(await readStanding(folder)).toEqual(before)

    expect(
      readJson(await lab.run(['sync', '--accept', 'growth', '--json'], environmentOf(folder))),
    ).toMatchObject({
      outcome: 'released',
      walk: {records: 1200, distinct: 1200},
    })
    expect((await readStanding(folder)).summary).toMatchObject([{deals: '1200', amount: '420000000.00'}])
  })
}

test.concurrent('a data folder that cannot be written is refused', async () => {
  const parent = join(lab.folder.root, '../read-only')
  writeFileSync(parent, 'a file where a folder should be')
  chmodSync(parent, 0o444)
  const folders = [parent, join(parent, 'data'), '/proc/loantape']
  for (const folder of folders) {
    const failure = readFailure(await lab.run(['sync', '--json', '--data', folder]))
    expect(failure).toMatchObject({code: 'NOT_WRITABLE', exitCode: 2})
    expect(failure.message).toContain(`Data folder '${folder}' cannot be written`)
    expect(failure.message).toMatch(/Nothing was started; .* --data or LOANTAPE_DATA_DIR/)
  }
})

test.concurrent('a warehouse that is no database is named and left alone, and the release still answers', async () => {
  const folder = lab.copyFolder('damaged')
  writeFileSync(folder.warehouse, 'not a database')
  const failure = readFailure(await lab.run(['sync', '--accept', 'growth', '--json'], environmentOf(folder)))
  expect(failure).toMatchObject({code: 'WAREHOUSE_UNREADABLE', exitCode: 1})
  expect(failure.message).toMatch(/warehouse\.duckdb' does not open: .*The file was not changed; releases/)
  expect(await readStanding(folder)).toEqual(before)
  expect(existsSync(folder.warehouse)).toBe(true)
})
