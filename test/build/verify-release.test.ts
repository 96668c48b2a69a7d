import {chmodSync} from 'node:fs'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {RELEASE_NEXT, verifyReleaseTables} from '../../src/build/verify-release.ts'
import {openDatabase} from '../../src/store/database.ts'
import {requireRelease} from '../../src/store/release.ts'
import {FEW_TABLES} from '../support/data.ts'
import {createLab, type Lab, someDeals} from '../support/lab.ts'

let lab: Lab

beforeAll(async () => {
  lab = await createLab({tables: `${FEW_TABLES} +core.field_change`})
  lab.service.store.insert(someDeals(100))
  await lab.sync('2026-02-02T23:30:00-05:00')
})

afterAll(() => lab[Symbol.asyncDispose]())

test('a release as published matches its manifest', async () => {
  expect(await verifyReleaseTables(requireRelease(lab.folder))).toEqual([])
})

const changes: [behaviour: string, sql: string, words: RegExp[]][] = [
  [
    'a second current version',
    `insert into victim.core.deal_history from victim.core.deal_history where deal_id = 'deal_000007'`,
    [
      /Histories that are broken, .*deal_000007 \(versions=2, last=1, current=2\)/,
      /Table 'core\.deal_history' .*manifest says/,
    ],
  ],
  [
    'a changed certificate',
    `update victim.mart.run set amount_total = 1, present_deals = 2`,
    [
      /Control totals of table 'mart\.run' that are not the manifest's .*amount_total \(found=1\.00, manifest=35000000\.00\)/,
    ],
  ],
  [
    'a changed amount',
    `update victim.core.deal set loan_amount = loan_amount + 0.01 where deal_id = 'deal_000007'`,
    [/Totals of table 'mart\.portfolio_summary' that are not those of 'core\.deal'/],
  ],
  [
    'a lost table',
    'drop table victim.core.field_change',
    [/Table 'core\.field_change' of release .* is not there: its manifest says/],
  ],
]

for (const [index, [behaviour, sql, words]] of changes.entries()) {
  test(`${behaviour} is found`, async () => {
    const release = requireRelease(lab.copyFolder(`release-${index}`))
    chmodSync(release.database, 0o644)
    {
      await using db = await openDatabase({attach: [{path: release.database, alias: 'victim'}]})
      await db.run(sql)
    }
    expect(await verifyReleaseTables(release)).toEqual(
      words.map((pattern) =>
        expect.objectContaining({problem: expect.stringMatching(pattern), next: RELEASE_NEXT}),
      ),
    )
  })
}
