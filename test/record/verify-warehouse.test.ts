import {expect, test} from 'vitest'
import {verifyWarehouse} from '../../src/record/verify.ts'
import {openDatabase} from '../../src/store/database.ts'
import {createSeenLab} from '../support/lab.ts'
import {useShared} from '../support/set-up.ts'

const lab = await useShared(createSeenLab())

test('a history as stored breaks no rule', async () => {
  expect(await verifyWarehouse(lab.folder, lab.createWorld())).toEqual({walks: 2, faults: []})
})

const changes: [behaviour: string, sql: string, words: RegExp[]][] = [
  [
    'a repeated version row',
    'insert into deal_version from deal_version where seq = 7',
    [
      /Numbers that are not 1, 2, … of .*'raw\.deal_version'.*: 1 wrong, 7 \(copies=2\)\./,
      /Versions stored twice/,
    ],
  ],
  [
    'a version row repeated under another number',
    `insert into deal_version select * replace ((select max(seq) + 1 from deal_version) as seq)
     from deal_version where deal_id = 'deal_000007'`,
    [/Versions stored twice in table 'raw\.deal_version' in 'warehouse\.duckdb': 1 wrong, deal_000007 /],
  ],
  [
    'a lost version row',
    'delete from deal_version where seq = 7',
    [
      /Latest states that are not those of/,
      /Numbers that are not 1, 2, …/,
      /Certificate of the last walk that/,
    ],
  ],
  [
    'a latest state that is not the last version',
    `update deal_head set kind = 'missing' where deal_id = 'deal_000007'`,
    [/Latest states .*'raw\.deal_version' .*: 1 wrong, deal_000007 \(version=seen, head=missing\)/],
  ],
  [
    'a changed amount',
    'update deal_version set loan_amount = loan_amount + 0.01 where seq = 7',
    [/Certificate of the last walk .*present_amount=350000000\.00, amount=350000000\.01/],
  ],
  [
    'a certificate with changed records',
    'update walk set records = records + 1 where created > 0',
    [/Certificates whose records do not add up, table 'raw\.walk' .*records=1001, explained=1000/],
  ],
  [
    'a certificate with a changed bridge',
    'update walk set kept_missing_amount = kept_missing_amount + 0.01 where created = 0',
    [/Certificates whose bridge to the present deals does not add up, .*explained_amount=350000000\.01/],
  ],
  [
    'a lost walk',
    'delete from walk where created > 0',
    [/Versions of no applied walk in table 'raw\.deal_version'.*versions=1000/],
  ],
  [
    'a list of a lost walk',
    `insert into listing values ('w_0', 'borrower', 'deal_000007', 'listed', now(), 1, 1, 0, 0)`,
    [/Lists of no applied walk in table 'raw\.listing' in 'warehouse\.duckdb': 1 wrong, w_0 \(lists=1\)/],
  ],
  [
    'a rate stored twice, and one lost',
    `insert into rate select unnest([1, 3]), 'fed', 'SOFR', date '2026-02-02', 4.31, now(), now(), now()`,
    [
      /Numbers that are not .*'raw\.rate'.*: 1 wrong, 3 /,
      /Values stored twice in table 'raw\.rate' .*: 1 wrong, fed /,
    ],
  ],
]

test.each(changes)('%s is found', async (behaviour, sql, words) => {
  const folder = lab.copyFolder(behaviour)
  {
    await using db = await openDatabase({attach: [{path: folder.warehouse, alias: 'victim'}]})
    await db.run(`use victim.raw; ${sql}`)
  }
  const next = expect.stringContaining('`loantape rebuild`')
  const expected = words.map((pattern) => ({problem: expect.stringMatching(pattern), next}))
  expect((await verifyWarehouse(folder, lab.createWorld())).faults).toMatchObject(expected)
})
