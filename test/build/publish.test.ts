import {execFileSync, spawn} from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {markPast, moveCurrent, noteUse, pruneReleases} from '../../src/build/build-folder.ts'
import {HOST} from '../../src/core/process.ts'
import {digestFile} from '../../src/store/files.ts'
import {findCurrentRelease, readRelease, requireRelease} from '../../src/store/release.ts'
import {failureOf} from '../support/lab.ts'
import {aManifest, publishTables} from '../support/releases.ts'
import {useFolder} from '../support/set-up.ts'

const {folder} = useFolder()

test('a published release holds its files, all read-only, and a manifest that names each table with rows, bytes and digest', async () => {
  const {dir, manifest} = await publishTables(folder)
  expect(readdirSync(dir).sort()).toEqual([
    'checks.json',
    'core.deal.parquet',
    'manifest.json',
    'mart.portfolio_summary.parquet',
    'models.json',
    'portfolio.duckdb',
    'work.duckdb',
  ])
  for (const file of readdirSync(dir)) expect(statSync(join(dir, file)).mode & 0o777).toBe(0o400)
  expect(readdirSync(folder.releases)).toEqual([aManifest().release_id])
  const {tables, files, ...about} = manifest
  expect({...about, tables: [], files: []}).toEqual(aManifest())
  for (const {file, bytes} of files) expect([file, bytes]).toEqual([file, statSync(join(dir, file)).size])
  expect(files.map(({file}) => file)).toEqual([
    'checks.json',
    'models.json',
    'portfolio.duckdb',
    'work.duckdb',
  ])
  expect(tables.map(({name, rows}) => [name, rows])).toEqual([
    ['core.deal', 3],
    ['mart.portfolio_summary', 1],
  ])
  for (const {file, bytes, sha256} of tables) {
    const path = join(dir, file)
    expect([bytes, sha256]).toEqual([statSync(path).size, await digestFile(path)])
  }
})

test('an existing release stays; anything else under its name is replaced by the same bytes', async () => {
  const {dir, manifest: first} = await publishTables(folder)
  const manifest = join(dir, 'manifest.json')
  const {ino} = statSync(manifest)
  await publishTables(folder)
  expect(statSync(manifest).ino).toBe(ino)
  rmSync(manifest)
  expect(readRelease(dir)).toBeUndefined()
  expect((await publishTables(folder)).manifest).toEqual(first)
  expect(readdirSync(folder.releases)).toEqual([aManifest().release_id])
})

test.each([
  ['is of another version', '{"schema_version": 2}', 'schema_version'],
  ['is torn', '{"schema_version": 1, "gen', 'expected object'],
])('a manifest that %s is named with its fault', async (_, text, words) => {
  mkdirSync(join(folder.releases, 'odd'), {recursive: true})
  writeFileSync(join(folder.releases, 'odd', 'manifest.json'), text)
  const refusal = await failureOf((async () => requireRelease(folder, 'odd'))())
  expect(refusal).toMatchObject({code: 'RELEASE_DAMAGED'})
  expect(refusal.message).toContain(join(folder.releases, 'odd', 'manifest.json'))
  expect(refusal.message).toContain(words)
})

test('current is a relative link that follows the release it is pointed to, whatever a dead swap left', async () => {
  symlinkSync('nowhere', join(folder.root, `.writing-current@${HOST}-${process.pid}`))
  await publishTables(folder, {release_id: 'first'})
  expect(readlinkSync(folder.current)).toBe('releases/first')
  await publishTables(folder, {release_id: 'second'})
  expect(readlinkSync(folder.current)).toBe('releases/second')
  expect(findCurrentRelease(folder)?.manifest.release_id).toBe('second')
  expect(readdirSync(folder.root).sort()).toEqual(['current', 'releases'])
})

test('a release that a build replaces and removes while it is read is not taken for a damaged one', async () => {
  const {dir} = await publishTables(folder, {release_id: 'first'})
  const manifest = join(dir, 'manifest.json')
  await publishTables(folder, {release_id: 'second'})
  moveCurrent(folder, dir)
  // Whoever reads this manifest waits until a build has ended.
  const text = join(folder.root, 'text')
  renameSync(manifest, text)
  execFileSync('mkfifo', [manifest])
  const build = `exec 3> ${manifest}; ln -s releases/second next; mv -T next current; rm -f ${dir}/core.deal.parquet; cat ${text} >&3`
  spawn('sh', ['-c', build], {cwd: folder.root})
  expect(findCurrentRelease(folder)?.manifest.release_id).toBe('second')
})

/** Release folders, each an hour older than the one before. */
function someReleases(names: readonly string[]): void {
  names.forEach((name, index) => {
    const dir = join(folder.releases, name)
    mkdirSync(dir, {recursive: true})
    if (name.startsWith('past')) markPast(dir)
    utimesSync(dir, 0, 1_770_000_000 - index * 3600)
  })
}

const prune = (releasesKept: number, pastReleasesKept: number) =>
  pruneReleases(folder, {releasesKept, pastReleasesKept}, new Set())

test('releases of past dates are counted separately, and the least recently used go first', () => {
  someReleases(['night_2', 'past_3', 'night_1', 'past_2', 'past_1'])
  noteUse(join(folder.releases, 'past_1'), false, Date.now())
  expect(prune(2, 2)).toEqual(['past_2'])
  expect(readdirSync(folder.releases).sort()).toEqual(['night_1', 'night_2', 'past_1', 'past_3'])
  noteUse(join(folder.releases, 'past_3'), true, Date.now())
  expect(prune(3, 1)).toEqual([])
})

test('a release that was just used is not the one to go, though others were used under a clock that was ahead', () => {
  someReleases(['past_1', 'past_2', 'night_1', 'night_2'])
  const ahead = 4_000_000_000
  for (const name of ['past_1', 'night_1']) utimesSync(join(folder.releases, name), ahead, ahead)
  noteUse(join(folder.releases, 'past_2'), false, Date.now())
  noteUse(join(folder.releases, 'night_2'), true, Date.now())
  expect(prune(1, 1).sort()).toEqual(['night_1', 'past_1'])
})

test('builds that died are removed, even one of a process with our pid, and one still running is not', () => {
  const left = [4194999, process.pid, process.ppid].map((pid) =>
    join(folder.releases, `.writing-x@${HOST}-${pid}`),
  )
  for (const dir of left) mkdirSync(dir, {recursive: true})
  expect(prune(7, 2)).toEqual([])
  expect(left.map((dir) => existsSync(dir))).toEqual([false, false, true])
})
