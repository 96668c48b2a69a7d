import {existsSync, mkdirSync, readdirSync, rmSync, utimesSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {pruneReleases} from '../../src/build/build-folder.ts'
import {DAY_MS} from '../../src/core/clock.ts'
import {parseConfig} from '../../src/core/config.ts'
import {writeBatch} from '../../src/export/table-files.ts'
import {exportRelease} from '../../src/outputs.ts'
import {pruneData} from '../../src/record/prune.ts'
import {runJob} from '../../src/schedule/run-job.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {aJob} from '../support/jobs.ts'
import {DAY_1, failureOf, someDeals} from '../support/lab.ts'
import {publishTables} from '../support/releases.ts'
import {useLab} from '../support/set-up.ts'

const lab = await useLab({deals: someDeals(3), releasedAt: DAY_1})
for (let number = 1; number <= 4; number++) {
  const release = await publishTables(lab.folder, {release_id: `r_${number}`})
  const {dir} = await writeBatch(lab.folder, release, {profile: 'csv'})
  for (const path of [release.dir, join(dir, 'manifest.json')]) utimesSync(path, number, number)
}
{
  using stateDb = openStateDb(lab.folder.stateDb)
  stateDb.db.exec(`
    insert into closed_period values ('2026-01', '{"release_id": "r_1"}', '{}', 'h_1', '[]', 0, 0, '0', x'', x'')`)
}
const said = {...lab.env, LOANTAPE_BATCHES_KEPT: '1'}
const config = {...parseConfig(said, {readFile: () => ''}), releasesKept: 2}
const prune = (isDryRun: boolean) => pruneData(config, {isDryRun}, lab.createWorld('2026-02-03T12:00:00Z'))

test('releases and batches beyond those the operator keeps go, but not the current release, what a closed period needs or what is damaged', async () => {
  const damaged = join(lab.folder.exports, 'csv/damaged')
  mkdirSync(damaged)
  writeFileSync(join(damaged, 'manifest.json'), '{')
  utimesSync(join(damaged, 'manifest.json'), 0, 0)
  const before = [readdirSync(lab.folder.releases), readdirSync(join(lab.folder.exports, 'csv'))]
  const listed = await prune(true)
  expect(listed).toMatchObject({outcome: 'dry_run', releases: ['r_3', 'r_2']})
  expect(listed.batches).toHaveLength(2)
  expect([readdirSync(lab.folder.releases), readdirSync(join(lab.folder.exports, 'csv'))]).toEqual(before)

  expect(await prune(false)).toMatchObject({...listed, outcome: 'pruned'})
  const left = readdirSync(lab.folder.releases)
  expect(left).toEqual(expect.arrayContaining(['r_1', 'r_4']))
  expect(left).toHaveLength(3)
  expect(lab.currentReleaseId()).toBe('r_4')
  expect(listed.batches.some((batch) => existsSync(join(lab.folder.exports, batch)))).toBe(false)
  expect(existsSync(damaged)).toBe(true)
  rmSync(damaged, {recursive: true})
  expect(readdirSync(join(lab.folder.exports, 'csv'))).toHaveLength(2)
  const {steps} = await runJob(config, {job: aJob({steps: [{do: 'prune'}]})}, lab.createWorld())
  expect(steps).toMatchObject([{do: 'prune', result: {outcome: 'unchanged', releases: [], batches: []}}])
})

test('a clock 500 days ahead of the last walk makes nothing old', async () => {
  const ahead = lab.createWorld('2027-06-18T12:00:00Z')
  ahead.realClock = {...ahead.realClock, now: () => Date.now() + 500 * DAY_MS}
  expect(await pruneData({...config, tapeDays: 400}, {isDryRun: true}, ahead)).toMatchObject({tapes: []})
})

test('a folder with 130,000 tapes is pruned like any other', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  stateDb.run(`
    insert into tape (name, path, fingerprint, begun_at, ended_at, removed_at)
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 130000)
    select 'w_' || i, 'tape/w_' || i, 'f', '2020-01-01T00:00:00Z', '2020-01-01T00:00:00Z', '2021-01-01T00:00:00Z' from n`)
  expect(await prune(true)).toMatchObject({outcome: 'dry_run', tapes: []})
  stateDb.run(`delete from tape where fingerprint = 'f'`)
})

test("a closed period's needs do not count toward the releases kept, and batches of periods stay", async () => {
  pruneReleases(lab.folder, {releasesKept: 1, pastReleasesKept: 2}, new Set(['r_1']))
  expect(readdirSync(lab.folder.releases).sort()).toEqual(['r_1', 'r_4'])
  rmSync(lab.folder.exports, {recursive: true})
  expect(await prune(true)).toMatchObject({batches: []})
  const release = await publishTables(lab.folder, {release_id: 'r_6'})
  for (const period of ['2026-01', '2026-02', '2026-03'])
    await writeBatch(lab.folder, release, {profile: 'xlsx', period: {period, isComplete: true}})
  expect((await prune(true)).batches.filter((batch) => batch.startsWith('xlsx/'))).toEqual([])
})

test('a release removed during its export is named, and no batch is left', async () => {
  const {dir} = await publishTables(lab.folder, {release_id: 'r_5'})
  const exporting = exportRelease(lab.config, {profiles: ['parquet']}, lab.createWorld())
  rmSync(dir, {recursive: true})
  const failure = await failureOf(exporting)
  expect(failure).toMatchObject({code: 'RELEASE_PRUNED', exitCode: 6})
  expect(failure.message).toContain("'r_5'")
  expect(readdirSync(join(lab.folder.exports, 'parquet'))).toEqual([])
})
