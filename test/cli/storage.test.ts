import {chmodSync, mkdirSync, readdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import type {DataFolder} from '../../src/store/data-folder.ts'
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

/** Syncs on a disk that takes no file longer than this: further writes fail as on a full one. */
function syncOnSmallDisk(folder: DataFolder, kib: number): Promise<Ended> {
  const script = `trap '' XFSZ; ulimit -f ${kib * 2}; exec "$0" "$@"`
  const program = [process.execPath, MAIN, 'sync', '--accept', 'growth', '--json']
  const env = {...environmentOf(folder), NODE_COMPILE_CACHE: ''}
  return startProcess(['sh', '-c', script, ...program], env).ended
}

const disks: [behaviour: string, kib: number, code: string][] = [
  ['the state database does not fit', 4, 'DISK_FAULT'],
  ['the stored walk does not fit', 400, 'DISK_FULL'],
  ['the checkpoint does not fit', 1600, 'DISK_FULL'],
]

for (const [behaviour, kib, code] of disks) {
  test.concurrent(`a disk on which ${behaviour} ends the run, and the next completes it`, async () => {
    const folder = lab.copyFolder(`disk-${kib}`)
    const failure = readFailure(await syncOnSmallDisk(folder, kib))
    expect(failure).toMatchObject({code, exitCode: 1})
    expect(failure.message).toMatch(/disk .*is intact, and so is the current release\. .*run again/)
    expect(await readStanding(folder)).toEqual(before)

    const next = readJson(await lab.run(['sync', '--accept', 'growth', '--json'], environmentOf(folder)))
    expect(next).toMatchObject({outcome: 'released', walk: {records: 1200, distinct: 1200}})
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

/** Syncs in a process limited to this many open files. */
function syncWithFiles(folder: DataFolder, files: number): Promise<Ended> {
  const program = [process.execPath, MAIN, 'sync', '--accept', 'growth', '--json']
  const script = `ulimit -n ${files}; exec "$0" "$@"`
  return startProcess(['sh', '-c', script, ...program], environmentOf(folder)).ended
}

test.concurrent('too few open files are reported as such, wherever the next one is opened', async () => {
  const folder = lab.copyFolder('few-files')
  const codes = new Set<string>()
  for (let files = 22; files < 40; files += 4) {
    const ended = await syncWithFiles(folder, files)
    if (ended.code === 0) break
    // The runtime itself could not start.
    if (ended.stderr.includes('Node.js v')) continue
    const failure = readFailure(ended)
    expect(failure.message).toMatch(/open no more files: .*ulimit -n/)
    codes.add(failure.code)
  }
  expect([...codes]).toEqual(['TOO_MANY_FILES'])
})

/** Runs a command as a user other than root, who is bound by file modes. */
const asOther = (folder: DataFolder, args: readonly string[]) => {
  const owner = process.getuid?.() === 0 ? 65534 : undefined
  const script = `chmod 400 "$FILE"${owner ? ` && chown -R ${owner} "$LOANTAPE_DATA_DIR" "$KEY" && chmod 755 "$BESIDE"` : ''}`
  const env = {
    ...environmentOf(folder),
    FILE: folder.warehouse,
    KEY: lab.env.LOANTAPE_TAPE_KEY_FILE ?? '',
    BESIDE: join(folder.root, '..'),
  }
  const drop = owner ? ['setpriv', `--reuid=${owner}`, `--regid=${owner}`, '--clear-groups'] : []
  return startProcess(
    ['sh', '-c', `${script} && exec "$@"`, 'sh', ...drop, process.execPath, MAIN, ...args],
    env,
  ).ended
}

test.concurrent('a read-only warehouse is reported as such, and nobody is told to rebuild it', async () => {
  const folder = lab.copyFolder('read-only-warehouse')
  const failure = readFailure(await asOther(folder, ['sync', '--json']))
  expect(failure).toMatchObject({code: 'WAREHOUSE_NOT_WRITABLE', exitCode: 2})
  expect(failure.message).toMatch(
    /warehouse\.duckdb' may not be written.*Nothing was started.*as the user that the data folder belongs to/,
  )
  expect(failure.message).not.toContain('rebuild')
})

test.concurrent('a folder in place of a tape is reported as such', async () => {
  const folder = lab.copyFolder('folder-for-tape')
  const [tape = ''] = readdirSync(folder.tapes, {recursive: true, encoding: 'utf8'}).filter((path) =>
    path.endsWith('.zst'),
  )
  rmSync(join(folder.tapes, tape))
  mkdirSync(join(folder.tapes, tape))
  const env = environmentOf(folder)
  expect((await lab.run(['verify'], env)).stdout).toContain('it is not a file')
  for (const command of ['rebuild', 'trace deal_000001']) {
    const failure = readFailure(await lab.run([...command.split(' '), '--json'], env))
    expect(failure).toMatchObject({
      code: 'STORES_DISAGREE',
      message: expect.stringMatching(/is not there.*from a backup/),
    })
  }
})
