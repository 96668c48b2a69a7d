import {chmodSync, cpSync, realpathSync, rmSync} from 'node:fs'
import {expect, test} from 'vitest'
import {verifyRelease} from '../../src/build/verify-release.ts'
import {openDatabase} from '../../src/store/database.ts'
import {RELEASE_NEXT, type ReleaseManifest, requireRelease} from '../../src/store/release.ts'
import {FEW_TABLES} from '../support/data.ts'
import {DAY_1, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'

const lab = await useLab({
  tables: `${FEW_TABLES} +core.field_change`,
  deals: someDeals(100),
  releasedAt: DAY_1,
})

const intact = requireRelease(lab.folder)

const changes: [behaviour: string, sql: string, words: RegExp][] = [
  [
    'a second current version',
    `insert into deal_history from deal_history where deal_id = 'deal_000007'`,
    /Table 'core\.deal_history' of release .* differs from core\.deal_history\.parquet by 1 row: deal_000007\./,
  ],
  [
    'a changed amount',
    `update deal set loan_amount = loan_amount + 0.01 where deal_id = 'deal_000007'`,
    /Table 'core\.deal' of release .* differs from core\.deal\.parquet by 2 rows: deal_000007\./,
  ],
  [
    'a changed type',
    'alter table deal alter loan_amount type varchar',
    /Table 'core\.deal' of release .* differs from core\.deal\.parquet by 0 rows: other types\.$/,
  ],
  [
    'a lost table',
    'drop table field_change',
    /Table 'core\.field_change' of release .* cannot be read \(.*does not exist/,
  ],
]

test.each(changes)('%s is found', async (behaviour, sql, words) => {
  const release = requireRelease(lab.copyFolder(behaviour))
  chmodSync(release.database, 0o644)
  {
    await using db = await openDatabase({attach: [{path: release.database, alias: 'victim'}]})
    await db.run(`use victim.core; ${sql}`)
  }
  expect(await verifyRelease(release)).toEqual([
    expect.objectContaining({problem: expect.stringMatching(words), next: RELEASE_NEXT}),
  ])
})

test.each<[changed: Partial<ReleaseManifest>, problem: RegExp]>([
  [{as_of: '2026-02-01'}, /^The manifest of release/],
  [{as_of: '2026-02'}, /^The manifest of release/],
  [{release_id: '2026-02-02-0123456789ab'}, /^The manifest of release/],
  [
    {source: {...intact.manifest.source, amount_total: '1.00'}},
    /Table 'mart\.run' .* does not hold the last walk as the manifest has it/,
  ],
  [
    {tables: intact.manifest.tables.map((one) => (one.name === 'core.deal' ? {...one, rows: 7} : one))},
    /Table 'core\.deal' .* has 100 rows: its manifest says 7\./,
  ],
])('a changed manifest is found, case %#', async (changed, problem) => {
  expect(await verifyRelease({...intact, manifest: {...intact.manifest, ...changed}})).toEqual([
    expect.objectContaining({problem: expect.stringMatching(problem)}),
  ])
})

test('a copy that made a folder of the link to the release is told so', async () => {
  const copy = lab.copyFolder('without-links')
  const dir = realpathSync(copy.current)
  rmSync(copy.current)
  cpSync(dir, copy.current, {recursive: true})
  expect(await verifyRelease(requireRelease(copy))).toEqual([
    expect.objectContaining({problem: expect.stringContaining(`'current' is a folder`)}),
  ])
})
