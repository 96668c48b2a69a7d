import {execFileSync} from 'node:child_process'
import {hash} from 'node:crypto'
import {
  appendFileSync,
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import {basename, dirname, join, relative} from 'node:path'
import {setImmediate as turn} from 'node:timers/promises'
import {beforeEach, expect, test} from 'vitest'
import {writeNote} from '../../src/accounting/notes.ts'
import {HOST, temporaryBeside} from '../../src/core/process.ts'
import {countOf, type World} from '../../src/core/types.ts'
import {backUp, backUpDated, restoreBackup} from '../../src/record/backup.ts'
import {verifyAll} from '../../src/record/verify.ts'
import {listAlarms} from '../../src/schedule/alarms.ts'
import {claimRun, recordSlot} from '../../src/schedule/job-runs.ts'
import {performJob, runJob} from '../../src/schedule/run-job.ts'
import {createScheduler} from '../../src/schedule/scheduler.ts'
import {listNames, RESTORING} from '../../src/store/data-folder.ts'
import {listFilesBelow, takeFileLock, writeFileAtomically} from '../../src/store/files.ts'
import {findHead} from '../../src/store/recorded.ts'
import {findLockHolder} from '../../src/store/runs.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {flipBit, readFiles} from '../support/data.ts'
import {aJob} from '../support/jobs.ts'
import {DAY_1, DAY_2, failureOf, runKilledAt, someDeals} from '../support/lab.ts'
import {linkBorrower, useLab} from '../support/set-up.ts'

const lab = await useLab({deals: someDeals(30)})
lab.config.detail = 'off'
await lab.walk(DAY_1)
beforeEach(lab.remember())

/** The folder for a test's backups, and that of the first one. */
const to = join(lab.folder.root, '../backups')
const dir = join(to, 'first')
beforeEach(() => rmSync(to, {recursive: true, force: true}))

const save = () => backUp(lab.config, dir, lab.createWorld(DAY_1))
const restore = (backup: string, isTrusted = false) => restoreBackup(lab.config, backup, isTrusted)
const inFolder = (name: string) => join(lab.folder.root, name)

async function saveAndLose(): Promise<void> {
  await save()
  rmSync(lab.folder.root, {recursive: true})
}

/** Returns a path that the test overwrites, and its whole content. */
function openFile(name: string) {
  const path = join(dir, name)
  return {path, whole: readFileSync(path)}
}

test('a backup restores everything that cannot be rebuilt, readable by its owner alone, and the next night continues from there', async () => {
  const config = {streams: 'deals,borrowers'}
  linkBorrower(lab, 'deal_000001')
  const {release_id} = await lab.sync(DAY_1, {config})
  await lab.run(['export', 'csv'])
  mkdirSync(lab.folder.queries)
  writeFileSync(inFolder('../mine.sql'), 'select 1\n')
  symlinkSync('../../mine.sql', join(lab.folder.queries, 'mine.sql'))
  const world = lab.createWorld(DAY_1)
  const told: string[] = []
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    const onProgress: World['onProgress'] = (progress) => {
      told.push(`${progress.step} ${countOf(progress)}`, findLockHolder(stateDb, world)?.progress ?? '')
    }
    const {files, tape_key} = await backUp(lab.config, dir, {...world, onProgress})
    expect(told).toEqual(expect.arrayContaining(['copying', `copying ${files - 1} of ${files} files`]))
    expect(tape_key).toMatch(/^[0-9a-f]{16}$/)
  }
  const kept = readFiles(dir)
  const names = ['warehouse.duckdb', 'hash.key', 'state.sqlite', 'manifest.json']
  expect(Object.keys(kept)).toEqual(expect.arrayContaining(names))
  const key = readFileSync(lab.env.LOANTAPE_TAPE_KEY_FILE ?? '', 'utf8').trim()
  for (const [path, bytes] of Object.entries(kept)) expect(bytes.includes(key), path).toBe(false)

  const exported = readFiles(lab.folder.exports)
  rmSync(lab.folder.root, {recursive: true})
  // As after a download.
  for (const file of listFilesBelow(dir)) chmodSync(file, 0o644)
  expect((await lab.run(['restore', dir])).code).toBe(0)
  const isOpen = ({mode, size}: Stats) => (mode & 0o077) > 0 && size > 0
  expect(listFilesBelow(lab.folder.root).filter((file) => isOpen(statSync(file)))).toEqual([])
  // Each database is one file, which a reader need not change.
  expect(listNames(lab.folder.root).filter((name) => /\.(wal|sqlite-.*)$/.test(name))).toEqual([])
  expect(readFiles(lab.folder.exports)).toEqual(exported)
  expect(readFileSync(join(lab.folder.queries, 'mine.sql'), 'utf8')).toBe('select 1\n')
  expect(JSON.parse((await lab.run(['build', '--json'])).stdout)).toMatchObject({release_id})
  expect((await lab.run(['verify'])).code).toBe(0)
  lab.service.store.update('deal_000002', {status: 'funded'})
  const night = await lab.walk(DAY_2, {config})
  expect(night.changes).toMatchObject({updated: 1, unchanged: 29})
})

test('whatever a person calls a query or a page, a backup with it can be restored, or says what it lacks', async () => {
  const below = join(lab.folder.queries, 'a folder')
  mkdirSync(below, {recursive: true})
  const names = ['reports\\monthly.sql', '..\\up.sql', '...sql', 'a folder/a\nb".sql', "dépôt '1'.sql"]
  for (const name of names) writeFileSync(join(lab.folder.queries, name), 'select 1\n')
  writeFileSync(Buffer.concat([Buffer.from(`${below}/caf`), Buffer.from([0xe9])]), '')
  const {code, stderr} = await lab.run(['backup', dir])
  expect([code, stderr]).toEqual([0, expect.stringContaining('queries/a folder/caf\ufffd')])
  rmSync(lab.folder.root, {recursive: true})
  expect(await lab.run(['restore', dir])).toMatchObject({code: 0})
  expect(Object.keys(readFiles(lab.folder.queries)).sort()).toEqual(names.sort())
  mkdirSync(inFolder('accounting.json'))
  writeFileSync(inFolder('accounting.json/mine'), '')
  const again = backUp(lab.config, join(to, 'second'), lab.createWorld(DAY_1))
  expect((await failureOf(again)).message).toContain("accounting.json/mine'")
})

test('a backup is checked before any of it is restored, and of a forged one nothing but what a data folder holds', async () => {
  await saveAndLose()
  const [warehouse, manifest] = [openFile('warehouse.duckdb'), openFile('manifest.json')]
  const fields = JSON.parse(String(manifest.whole))
  const list = (path: string, content = '') => {
    const files = [...fields.files, {path, bytes: content.length, sha256: hash('sha256', content)}]
    writeFileSync(manifest.path, JSON.stringify({...fields, files}))
  }
  const forge = (path: string) => () => {
    mkdirSync(dirname(join(dir, path)), {recursive: true})
    writeFileSync(join(dir, path), 'x')
    list(path, 'x')
  }
  const own = join(dir, 'fields.json')
  const pipe = () => {
    list('fields.json')
    execFileSync('mkfifo', [own])
  }
  const endless = (path: string) => () => {
    list('fields.json')
    rmSync(own, {force: true})
    writeFileSync(path, '')
    truncateSync(path, 2 ** 33)
  }
  const spoilt: [what: string, code: string, spoil: () => void][] = [
    ['longer', 'BACKUP_DAMAGED', () => appendFileSync(warehouse.path, 'x')],
    ['missing', 'BACKUP_DAMAGED', () => rmSync(warehouse.path)],
    ['settings', 'BACKUP_DAMAGED', forge('.env')],
    ['a program', 'BACKUP_DAMAGED', forge('jobs/evil.js')],
    ['settings in disguise', 'BACKUP_DAMAGED', forge('exports/../.env')],
    ['a link', 'BACKUP_DAMAGED', forge('current')],
    ['no name', 'BACKUP_DAMAGED', () => list('tape/a\0b')],
    ['a long name', 'BACKUP_DAMAGED', () => list(`exports/${'a'.repeat(5000)}`)],
    ['a pipe', 'BACKUP_DAMAGED', pipe],
    ['endless', 'BACKUP_DAMAGED', endless(own)],
    ['an endless manifest', 'BACKUP_UNREADABLE', endless(manifest.path)],
    ['no manifest', 'BACKUP_UNREADABLE', () => writeFileSync(manifest.path, '{}')],
    ['later', 'DATA_NEWER', () => writeFileSync(manifest.path, '{"format": "loantape backup 2"}')],
  ]
  for (const [what, code, spoil] of spoilt) {
    spoil()
    expect(await failureOf(restore(dir, true)), what).toMatchObject({code})
    expect(existsSync(lab.folder.root), what).toBe(false)
    for (const {path, whole} of [warehouse, manifest]) writeFileSync(path, whole)
  }
  expect(await restore(dir)).toMatchObject({outcome: 'restored'})
  expect(await failureOf(restore(dir))).toMatchObject({code: 'RESTORE_NOT_EMPTY'})
})

test('a backup without the MAC of the tape key at hand, as one that was changed, is restored only if trusted', async () => {
  const [elsewhere, other] = ['no.key', 'other.key'].map((name) => ({
    LOANTAPE_TAPE_KEY_FILE: inFolder(`../${name}`),
  }))
  writeFileSync(other!.LOANTAPE_TAPE_KEY_FILE, `${'1'.repeat(64)}\n`)
  const unsigned = join(to, 'unsigned')
  expect((await lab.run(['backup', join(to, 'other')], other)).stdout).toContain('carries no MAC')
  expect((await lab.run(['backup', unsigned], elsewhere)).stdout).toContain('carries no MAC')
  await save()
  const [manifest, state] = [openFile('manifest.json'), openFile('state.sqlite')]
  const {mac, ...fields} = JSON.parse(String(manifest.whole))
  const verify = (env = {}) => lab.run(['verify', '--backup', dir, '--json'], env)
  expect(JSON.parse((await verify()).stdout)).toMatchObject({outcome: 'whole', authenticated: true})
  rmSync(lab.folder.root, {recursive: true})

  expect(await failureOf(restore(unsigned))).toMatchObject({code: 'BACKUP_NOT_AUTHENTIC', exitCode: 1})
  appendFileSync(state.path, 'x')
  const forged = {
    path: 'state.sqlite',
    bytes: state.whole.length + 1,
    sha256: hash('sha256', readFileSync(state.path)),
  }
  const files = [...fields.files.filter(({path}: {path: string}) => path !== 'state.sqlite'), forged]
  for (const changed of [
    {...fields, mac, files},
    {...fields, mac: null, tape_key: null, files},
    {...fields, mac, made_at: '2030-01-01T00:00:00.000Z'},
  ]) {
    writeFileSync(manifest.path, JSON.stringify(changed))
    expect(await failureOf(restore(dir))).toMatchObject({code: 'BACKUP_NOT_AUTHENTIC'})
    expect((await verify()).code).toBe(1)
  }
  for (const {path, whole} of [state, manifest]) writeFileSync(path, whole)
  expect((await lab.run(['verify', '--backup', dir], elsewhere)).stdout).toContain('It may have been changed')
  const refused = await lab.run(['restore', dir, '--json'], elsewhere)
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('BACKUP_NOT_AUTHENTIC')])
  expect(existsSync(lab.folder.warehouse)).toBe(false)
  const trusted = await lab.run(['restore', unsigned, '--trust'])
  expect(trusted.stdout).toContain('It may have been changed')
  rmSync(lab.folder.root, {recursive: true})
  expect((await lab.run(['restore', dir])).stdout).toContain('Its manifest has the MAC of the key of tapes')
})

test('a restore killed at any point, also while it removes what a killed one left, leaves nothing a command opens; the next one restores everything', async () => {
  await save()
  const {'manifest.json': _, ...kept} = readFiles(dir)
  const staging = inFolder(RESTORING)
  let refused = 0
  for (let nth = 1; ; nth += nth < 14 ? 2 : 14) {
    rmSync(lab.folder.root, {recursive: true, force: true})
    mkdirSync(staging, {recursive: true})
    cpSync(join(dir, 'tape'), lab.folder.tapes, {recursive: true})
    const {signal, code, stderr} = await runKilledAt(nth, ['restore', dir], lab.env)
    if (signal === null) {
      expect(code, stderr).toBe(0)
      break
    }
    for (const args of existsSync(staging) ? [['sync'], ['status'], ['verify']] : []) {
      const {code, stderr} = await lab.run([...args, '--json'])
      expect([nth, args, code, stderr]).toEqual([nth, args, 2, expect.stringContaining('RESTORE_UNFINISHED')])
      refused += 1
    }
    expect(existsSync(lab.folder.tapes) && !existsSync(staging), `before change ${nth}`).toBe(false)
    await restore(dir)
    expect(readFiles(lab.folder.root)).toMatchObject(kept)
  }
  expect(refused).toBeGreaterThan(2)
  expect((await lab.run(['verify'])).code).toBe(0)
})

test('a restore is refused beside a log of a database that is gone, and while another is under way', async () => {
  await saveAndLose()
  mkdirSync(lab.folder.root)
  for (const log of ['warehouse.duckdb.wal', 'state.sqlite-wal', 'state.sqlite-shm'].map(inFolder)) {
    writeFileSync(log, '')
    expect(await failureOf(restore(dir)), log).toMatchObject({code: 'RESTORE_NOT_EMPTY'})
    rmSync(log)
  }
  mkdirSync(inFolder(RESTORING))
  {
    // A restore in progress holds this lock.
    using _held = await takeFileLock(lab.folder.warehouseLock, 'write', 0)
    expect((await lab.run(['status'])).stderr).toContain('its restore is under way, or died')
    expect(await failureOf(restore(dir))).toMatchObject({code: 'RUN_IN_PROGRESS', exitCode: 4})
    expect(readdirSync(lab.folder.root)).toContain(RESTORING)
  }
  expect(await restore(dir)).toMatchObject({outcome: 'restored'})
})

test('a backup goes into a folder of its own, outside the data, holds no pipe, and leaves nothing of a killed one', async () => {
  const world = lab.createWorld(DAY_1)
  const inside = backUp(lab.config, inFolder('backup'), world)
  expect(await failureOf(inside)).toMatchObject({code: 'OUT_PLACE'})
  execFileSync('mkfifo', [inFolder('accounting.json')])
  expect((await failureOf(save())).message).toContain("accounting.json': expected a file to copy")
  expect(existsSync(dir)).toBe(false)
  mkdirSync(dir, {recursive: true})
  writeFileSync(join(dir, 'mine'), '')
  expect(await failureOf(save())).toMatchObject({code: 'OUT_PLACE'})
  expect(readdirSync(dir)).toEqual(['mine'])
  for (const path of [join(dir, 'mine'), inFolder('accounting.json')]) rmSync(path)
  mkdirSync(join(to, `.writing-killed@${HOST}-999999999`))
  writeFileSync(join(to, '.writing-mine'), '')
  symlinkSync(dir, join(to, 'link'))
  expect(await backUp(lab.config, join(to, 'link'), world)).toMatchObject({outcome: 'backed_up', dir})
  expect(readdirSync(to).sort()).toEqual(['.writing-mine', 'first', 'link'])
})

const BEGUN = Date.now()

/** Creates a world whose real clock is stopped some minutes later. */
function worldAfter(minutes: number) {
  const world = lab.createWorld(DAY_1)
  return {...world, realClock: {...world.realClock, now: () => BEGUN + minutes * 60_000}}
}

/** Makes a dated backup. */
const back = (minutes: number, kept = 2) => backUpDated(lab.config, {to, kept}, worldAfter(minutes))

/** The dated backups below `to`, each as `<id of its data folder>/<name>`. */
const listMade = () =>
  readdirSync(to, {recursive: true, encoding: 'utf8'})
    .filter((path) => /^[0-9a-f]{16}\/loantape-[^/]+$/.test(path))
    .sort()

/** Runs a job that rehearses a restore, and returns its outcome. */
async function rehearse(minutes: number) {
  const job = aJob({steps: [{do: 'restore_drill', from: to}]})
  const {steps} = await runJob(lab.config, {job}, worldAfter(minutes))
  return steps[0]?.result
}

test('a job backs up and keeps the given number; what else is there, also of a clock that was ahead, stays and does not count', async () => {
  const [foreign, ahead] = ['loantape-20200101T000000Z', 'loantape-20990101T000000Z']
  mkdirSync(join(to, foreign), {recursive: true})
  const job = aJob({steps: [{do: 'backup', to, kept: 2}]})
  const {steps} = await runJob(lab.config, {job}, worldAfter(0))
  expect(steps).toMatchObject([{do: 'backup', result: {outcome: 'backed_up', removed: []}}])
  const second = await back(1)
  const place = dirname(second.dir)
  mkdirSync(join(place, foreign))
  // Whatever stands there, nothing but a backup is replaced.
  writeFileSync(join(place, '.unsent'), '..')
  cpSync(second.dir, join(place, ahead), {recursive: true})
  expect(await rehearse(1)).toMatchObject({backup: second.dir})
  const third = await back(2)
  expect(third.removed).toHaveLength(1)
  expect(readdirSync(to).sort()).toEqual([basename(place), foreign].sort())
  // Names tell seconds apart: another one of the same second takes the next.
  const fourth = await back(2)
  const kept = [second, third, fourth].map((made) => basename(made.dir))
  expect(readdirSync(place)).toEqual([foreign, ...kept, ahead])
})

test('what a job brought back from its own backup shows no run of it as crashed, and runs none of its slots again', async () => {
  const job = aJob({steps: [{do: 'backup', to, kept: 1}, {do: 'notify'}]})
  const world = worldAfter(0)
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    recordSlot(stateDb, {job: job.name, instant: BEGUN, state: 'queued', reason: null}, BEGUN)
    const claim = claimRun(stateDb, BEGUN, [job.name])
    await performJob(lab.config, {job, claim}, world)
  }
  const [made = ''] = listMade()
  rmSync(lab.folder.root, {recursive: true})
  await restore(join(to, made))
  using stateDb = openStateDb(lab.folder.stateDb)
  // The process that ran it has ended.
  stateDb.run('update job_run set pid = 999999999')
  const startRun = () => Promise.reject(new Error('started'))
  const scheduler = createScheduler({stateDb, jobs: [job], startRun}, worldAfter(1))
  scheduler.tick()
  expect(scheduler.current()).toBeUndefined()
  const watched = {config: lab.config, release: undefined, jobs: [job]}
  expect(listAlarms(stateDb, watched, BEGUN + 60_000)).toEqual([])
})

test('a folder put back from an older copy, or a copy that goes on elsewhere, is told by the backups of the other', async () => {
  const {root} = lab.folder
  const earlier = inFolder('../earlier')
  const note = (text: string, minutes: number) =>
    writeNote(lab.config, {about: 'day', subject: '2026-06-01', text}, worldAfter(minutes))
  await back(0, 1)
  cpSync(root, earlier, {recursive: true})
  note('only in the lost time', 1)
  const lost = await back(2, 1)
  rmSync(root, {recursive: true})
  cpSync(earlier, root, {recursive: true})
  note('only since', 3)
  const failure = await failureOf(back(4, 1))
  expect(failure).toMatchObject({code: 'BACKUP_AHEAD', exitCode: 1})
  expect(failure.message).toContain(`: ${basename(lost.dir)}: of this data folder`)
  expect(listMade()).toHaveLength(2)
  renameSync(lost.dir, join(to, 'elsewhere'))
  expect(await back(5, 1)).toMatchObject({removed: [expect.any(String)]})
})

/** Runs a job that backs up and sends the backup to some of these folders. */
function backUpAndDeliver(targets: Record<string, string>, deliver: string[], minutes: number) {
  const targetsFile = inFolder('../targets.json')
  const folders = Object.entries(targets).map(([name, path]) => [name, {kind: 'folder', path}])
  writeFileSync(targetsFile, JSON.stringify(Object.fromEntries(folders)))
  const job = aJob({steps: [{do: 'backup', to, kept: 2, deliver}]})
  return runJob({...lab.config, targetsFile}, {job}, worldAfter(minutes))
}

test('a backup is sent to targets, the manifest last, and comes back from there; a target that fails does not stop the others', async () => {
  const [near, far] = [join(to, 'near'), join(to, 'far')]
  const run = (...deliver: string[]) => backUpAndDeliver({near, far}, deliver, 3)
  expect(await failureOf(run('nowhere'))).toMatchObject({code: 'UNKNOWN_NAME'})
  expect(existsSync(to)).toBe(false)
  mkdirSync(near, {recursive: true})
  expect(await failureOf(run('far', 'near'))).toMatchObject({code: 'TARGET_REFUSED'})
  const [made = ''] = listMade()
  const sent = join(near, 'backup', made)
  expect(readFiles(sent)).toEqual(readFiles(join(to, made)))
  expect(statSync(join(sent, 'state.sqlite')).mode & 0o077, 'nobody else reads it').toBe(0)
  expect(statSync(sent).mode & 0o077).toBe(0)
  rmSync(lab.folder.root, {recursive: true})
  expect(await restore(sent)).toMatchObject({outcome: 'restored', authenticated: true})
  expect((await verifyAll(lab.config, lab.createWorld(DAY_1))).outcome).toBe('whole')
})

test('however often a backup cannot be sent, the nights before it stay', async () => {
  const far = join(to, 'gone')
  const run = (minutes: number) => backUpAndDeliver({far}, ['far'], minutes)
  for (const minutes of [0, 1]) await back(minutes)
  const [first, second] = listMade()
  for (const minutes of [2, 3]) expect(await failureOf(run(minutes))).toMatchObject({code: 'TARGET_REFUSED'})
  expect(listMade()).toEqual([first, second, expect.anything()])
  mkdirSync(far)
  await run(4)
  expect(listMade()).toEqual([second, expect.anything()])
})

test('lenders that back up into one folder at one instant remove and rehearse nothing of each other', async () => {
  const other = {...lab.config, dataDir: inFolder('../other')}
  const ours = await back(0, 1)
  const theirs = await backUpDated(other, {to, kept: 1}, worldAfter(0))
  expect(basename(theirs.dir)).toBe(basename(ours.dir))
  writeFileSync(join(theirs.dir, 'manifest.json'), 'torn')
  expect(await rehearse(1)).toMatchObject({backup: ours.dir})
  rmSync(ours.dir, {recursive: true})
  expect(await failureOf(rehearse(1))).toMatchObject({code: 'BACKUP_NONE'})
  // Nor does a backup that cannot be read hold up those after it.
  const next = await backUpDated(other, {to, kept: 1}, worldAfter(2))
  expect(next.removed).toEqual([basename(theirs.dir)])
})

test('a page that is saved while it is copied, being written or removed does not fail the backup', async () => {
  const pages = inFolder('pages')
  const [saved, begun, removed] = ['a.md', 'b.md', 'c.md'].map((name) => join(pages, name))
  mkdirSync(pages)
  // So long that the comparison takes several turns of the event loop.
  writeFileSync(saved!, 'x'.repeat(3_000_000))
  writeFileSync(temporaryBeside(begun!), 'half')
  writeFileSync(removed!, '')
  let isOver = false
  const made = save().finally(() => {
    isOver = true
  })
  const names = () => (existsSync(dirname(dir)) ? readdirSync(dirname(dir), {recursive: true}) : [])
  while (!isOver && !names().some((path) => String(path).endsWith('pages/a.md'))) await turn()
  writeFileAtomically(saved!, 'saved')
  rmSync(removed!)
  await made
  expect(readFiles(join(dir, 'pages'))).toEqual({'a.md': 'saved'})
})

test('a backup ends although others write the state database all the time', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  const fact = (name: string, value: string) => stateDb.insert('record_fact', {name, value}, 'or replace')
  // So long that the engine's own backup copies it in several steps, and begins again if it was written between two.
  fact('long', '-'.repeat(1 << 20))
  let [isOver, writes] = [false, 0]
  const saving = save().finally(() => {
    isOver = true
  })
  const names = () => (existsSync(to) ? readdirSync(to) : [])
  const isBegun = () => names().some((name) => existsSync(join(to, name, 'state.sqlite')))
  for (; !isOver; await turn()) {
    if (!isBegun()) continue
    writes += 1
    fact('often', String(writes))
  }
  await saving
  expect(writes).toBeGreaterThan(0)
})

test('a job rehearses a restore: what a backup brings back is examined and compared, and a backup that lies fails', async () => {
  expect(await failureOf(rehearse(0))).toMatchObject({code: 'BACKUP_NONE'})
  const {release_id} = await lab.sync(DAY_1)
  await back(0)
  const [one, other] = [rehearse(0), failureOf(rehearse(0))]
  expect(await other).toMatchObject({code: 'RUN_IN_PROGRESS', exitCode: 4})
  expect(await one).toMatchObject({outcome: 'restored', release_id, compared: 'equal', walks: 2})
  const manifest = join(lab.folder.releases, String(release_id), 'manifest.json')
  const said = readFileSync(manifest, 'utf8')
  rmSync(manifest)
  expect(await rehearse(0)).toMatchObject({release_id, compared: 'not kept'})
  writeFileSync(manifest, said.replace(/"sha256": "[0-9a-f]/, '"sha256": "x'))
  expect(await failureOf(rehearse(0))).toMatchObject({code: 'DRILL_FAILED', exitCode: 1})
  writeFileSync(manifest, said)
  const stray = join(lab.folder.tapes, 'notes.txt')
  writeFileSync(stray, '')
  await back(1)
  expect(await failureOf(rehearse(1))).toMatchObject({
    code: 'DRILL_FAILED',
    message: expect.stringContaining('1 problem, such as tape/notes.txt: it is no tape.'),
  })
  rmSync(stray)
  const newest = listMade().at(-1)!
  truncateSync(join(to, newest, 'warehouse.duckdb'), 5000)
  expect(await failureOf(rehearse(1))).toMatchObject({code: 'BACKUP_DAMAGED'})
  expect(readdirSync(lab.folder.cache)).not.toContain('drill')
  expect(await verifyAll(lab.config, lab.createWorld(DAY_2))).toMatchObject({outcome: 'whole'})
})

test('a tape on which a dead run was writing is no damage', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  stateDb.db.exec('update tape set ended_at = null')
  const [path = ''] = listFilesBelow(lab.folder.tapes)
  appendFileSync(path, 'half of a line')
  expect(await save()).toMatchObject({outcome: 'backed_up', units: findHead(stateDb).no})
})

test('a damaged state database is not saved, so that it pushes out no whole one', async () => {
  await back(0, 1)
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    for (let number = 1; number <= 100; number += 1)
      stateDb.insert('record_fact', {name: `${number}.`, value: `${'-'.repeat(500)} ${number}.`})
  }
  const bytes = readFileSync(lab.folder.stateDb)
  // The page that holds a row in the middle, which nothing reads.
  const page = Math.floor(bytes.indexOf(' 50.') / 4096) * 4096
  writeFileSync(lab.folder.stateDb, bytes.fill(0, page, page + 4096))
  const failure = await failureOf(back(1, 1))
  expect(failure).toMatchObject({code: 'BACKUP_DIFFERS'})
  expect(failure.message).toMatch(/is damaged: Tree .*Run `loantape verify`/)
  expect((await lab.run(['verify'])).stdout).toContain('Move state.sqlite elsewhere')
  expect(listMade()).toHaveLength(1)
})

test('a damaged tape ends a backup by name, and older backups with the whole tape stay', async () => {
  await back(0, 1)
  const [path = ''] = listFilesBelow(lab.folder.tapes)
  flipBit(path)
  const failure = await failureOf(back(1, 1))
  expect(failure).toMatchObject({code: 'TAPE_DAMAGED', exitCode: 1})
  expect(failure.message).toContain(relative(lab.folder.root, path))
  const backups = listMade().map((path) => join(to, path))
  expect(backups).toHaveLength(2)
  rmSync(lab.folder.root, {recursive: true})
  await restore(backups[0]!)
  expect(await verifyAll(lab.config, lab.createWorld(DAY_1))).toMatchObject({outcome: 'whole'})
})
