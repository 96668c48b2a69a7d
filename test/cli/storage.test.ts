import {chmodSync, mkdirSync, readdirSync, rmdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {DAY_1, DAY_2, type Ended, MAIN, someDeals, startProcess} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {expectRefused, readFailure, readJson, readStanding} from './outcome.ts'

const lab = await useLab({tables: '+core.deal +mart.portfolio_summary', deals: someDeals(300)})
await lab.sync(DAY_1, {config: {detail: 'off'}})
const before = await readStanding(lab.folder)
lab.service.store.insert(someDeals(1200).slice(300))

function environmentOf(folder: DataFolder): Record<string, string> {
  return {
    ...lab.env,
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_NOW: DAY_2,
    LOANTAPE_LOG_LEVEL: 'error',
    LOANTAPE_DETAIL: 'off',
  }
}

/** Syncs in a process with these shell limits. */
function syncWithin(folder: DataFolder, limits: string, env: Record<string, string> = {}): Promise<Ended> {
  const program = [process.execPath, MAIN, 'sync', '--accept', 'growth', '--json']
  const command = ['sh', '-c', `${limits}; exec "$0" "$@"`, ...program]
  return startProcess(command, {...environmentOf(folder), ...env}).ended
}

/** Syncs on a disk that takes no file longer than this; further writes fail as on a full disk. */
const syncOnSmallDisk = (folder: DataFolder, kib: number) =>
  syncWithin(folder, `trap '' XFSZ; ulimit -f ${kib * 2}`, {NODE_COMPILE_CACHE: ''})

test.each([
  ['the state database does not fit', 4, 'DISK_FAULT', 'state.sqlite'],
  ['the stored walk does not fit', 400, 'DISK_FULL', 'warehouse.duckdb'],
])('a disk on which %s ends the run, and the next completes it', async (_, kib, code, file) => {
  const folder = lab.copyFolder(`disk-${kib}`)
  const words = new RegExp(`disk .*/${file}.*is intact, and so is the current release\\. .*run .*again`)
  await expectRefused(syncOnSmallDisk(folder, kib), code, words, 1)
  expect(await readStanding(folder)).toEqual(before)
  const next = readJson(await lab.run(['sync', '--accept', 'growth', '--json'], environmentOf(folder)))
  expect(next).toMatchObject({outcome: 'released', walk: {records: 1200, distinct: 1200}})
  expect((await readStanding(folder)).summary).toMatchObject([{deals: '1200', amount: '420000000.00'}])
})

test('a served folder is read on a full disk', async () => {
  const folder = lab.copyFolder('full')
  // As a server does: it keeps the file through which several processes read the database.
  using _served = openStateDb(folder.stateDb)
  for (const [args, answer] of [
    [['status'], {disagreements: []}],
    [['verify'], {problems: []}],
    [['query', 'select deals from mart.portfolio_summary'], {rows: [{deals: 300}]}],
  ] as const) {
    const program = [process.execPath, MAIN, ...args, '--json']
    const full = ['sh', '-c', `trap '' XFSZ; ulimit -f 0; exec "$0" "$@"`, ...program]
    const ended = await startProcess(full, {...environmentOf(folder), NODE_COMPILE_CACHE: ''}).ended
    expect(readJson(ended), args[0]).toMatchObject(answer)
  }
})

test('a run whose log cannot be written goes on; a result that cannot be written is an error in one line', async () => {
  const folder = lab.copyFolder('no-log')
  const tryOut = (to: string, env = {}) => syncWithin(folder, `exec ${to}; set -- "$@" --dry-run`, env)
  expect(await tryOut('2>/dev/full', {LOANTAPE_LOG_LEVEL: 'debug'})).toMatchObject({code: 0})
  expect(await tryOut('>/dev/full')).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^loantape: The output could not be written.* \[DISK_FULL\]\n$/),
  })
})

test('a folder of temporary files that cannot be written is named, with its variable', async () => {
  const folder = lab.copyFolder('no-temporary')
  const env = {...environmentOf(folder), LOANTAPE_WEB_PORT: '0', TMPDIR: folder.stateDb}
  const {ended} = startProcess([process.execPath, MAIN, 'serve', '--json'], env)
  const words = /temporary files '.*state\.sqlite' cannot be written \(ENOTDIR\)\. .*Set another TMPDIR\./
  await expectRefused(ended, 'NOT_WRITABLE', words)
})

test('a data folder that cannot be written is refused', async () => {
  const parent = join(lab.folder.root, '../read-only')
  writeFileSync(parent, 'a file where a folder should be')
  chmodSync(parent, 0o444)
  const folders = [parent, join(parent, 'data'), '/proc/loantape']
  for (const folder of folders) {
    const words = [
      `Data folder '${folder}' cannot be written`,
      /Nothing was started; .* name one that it may read and write/,
    ]
    await expectRefused(lab.run(['sync', '--json', '--data', folder]), 'NOT_WRITABLE', words)
  }
})

test('too few open files are reported as such, wherever the next one is opened', async () => {
  const folder = lab.copyFolder('few-files')
  const codes = new Set<string>()
  for (let files = 22; files < 40; files += 6) {
    const ended = await syncWithin(folder, `ulimit -n ${files}`)
    if (ended.code === 0) break
    // Node itself could not start.
    if (ended.stderr.includes('Node.js v')) continue
    const failure = readFailure(ended)
    expect(failure.message).toMatch(/open no more files: .*ulimit -n/)
    codes.add(failure.code)
  }
  expect([...codes]).toEqual(['TOO_MANY_FILES'])
})

test('a read-only warehouse is reported as such, and nobody is told to rebuild it', async () => {
  const folder = lab.copyFolder('read-only-warehouse')
  // Without these capabilities file modes apply to root, too; it stays root, because only root may be able to read the checkout.
  const drop = process.getuid?.() === 0 ? ['setpriv', '--bounding-set=-dac_override,-dac_read_search'] : []
  const run = (...args: string[]) =>
    startProcess([...drop, process.execPath, MAIN, ...args], environmentOf(folder)).ended
  chmodSync(folder.warehouse, 0o400)
  const words =
    /warehouse\.duckdb' may not be written.*Nothing was started.*as the user that the folder belongs to/
  const {message} = await expectRefused(run('sync', '--json'), 'NOT_WRITABLE', words)
  expect(message).not.toContain('rebuild')
  chmodSync(folder.warehouseLock, 0)
  const ofRoot = /^Lock '.*warehouse\.lock' .*cannot be opened/
  await expectRefused(run('sync', '--json'), 'NOT_WRITABLE', ofRoot)
  chmodSync(folder.warehouseLock, 0o600)
  const locked = join(folder.root, '../locked')
  mkdirSync(locked, {mode: 0o500})
  const lacking =
    /^This user lacks a right: EACCES.*locked.*What was stored before is intact.*name one that it may.*chown -R/
  await expectRefused(run('backup', join(locked, 'mine'), '--json'), 'NOT_WRITABLE', lacking)
  chmodSync(folder.root, 0)
  const ofOther = /EACCES.*as the user that the folder belongs to/
  await expectRefused(run('query', '1', '--json'), 'NOT_WRITABLE', ofOther)
  expect((await run('doctor')).stdout).toMatch(/^✗ data folder: .* cannot be written \(EACCES\)\..*\n$/)
  chmodSync(folder.root, 0o700)
})

test('a folder in place of a tape or of the state database is reported as such', async () => {
  const folder = lab.copyFolder('folder-for-tape')
  const [tape = ''] = readdirSync(folder.tapes, {recursive: true, encoding: 'utf8'}).filter((path) =>
    path.endsWith('.zst'),
  )
  rmSync(join(folder.tapes, tape))
  mkdirSync(join(folder.tapes, tape))
  const env = environmentOf(folder)
  expect((await lab.run(['verify'], env)).stdout).toContain('it is not a file')
  expect((await lab.run(['status'], env)).stdout).toContain('ago): not healthy, stores disagree.')
  await expectRefused(lab.run(['rebuild', '--json'], env), 'STORES_DISAGREE', /is not there.*from a backup/)
  rmSync(folder.stateDb)
  mkdirSync(folder.stateDb)
  const status = () => lab.run(['status', '--json'], env)
  await expectRefused(status(), 'STATE_UNREADABLE', /Move state.sqlite elsewhere/, 1)
  rmdirSync(folder.stateDb)
  writeFileSync(`${folder.stateDb}-wal`, '')
  await expectRefused(status(), 'STATE_UNREADABLE', /is not there.*-wal and -shm/, 1)
})
