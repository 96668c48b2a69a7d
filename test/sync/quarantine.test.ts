import {expect, test} from 'vitest'
import type {Database} from '../../src/store/database.ts'
import {requireBoundedQuarantine} from '../../src/sync/settle.ts'
import {failureOf} from '../support/lab.ts'
import {aRecord} from '../support/record.ts'
import {stageWalk} from '../support/walks.ts'
import {useWarehouse} from './warehouse.ts'

let db: Database

useWarehouse((opened) => {
  db = opened
})

/** A walk with some unreadable records. */
async function walkWith(records: number, bad: number): Promise<number> {
  const page = Array.from({length: records}, (_, index) =>
    aRecord({id: `deal_${index}`, ...(index < bad && {loan_amount: 'about 4711'})}),
  )
  const {walk} = await stageWalk(db, {at: '2026-02-02T23:30:00Z', pages: [page]})
  await requireBoundedQuarantine(db, walk)
  return walk.quarantined
}

test.each([
  [3, 3],
  [80, 4],
  [100, 5],
])('of %i records, %i unreadable ones are let through', async (records, bad) => {
  expect(await walkWith(records, bad)).toBe(bad)
})

test.each([
  [4, 4],
  [79, 4],
  [100, 6],
])(
  'of %i records, %i unreadable ones are refused with their place, never with a value',
  async (records, bad) => {
    const refusal = await failureOf(walkWith(records, bad))
    expect(refusal).toMatchObject({code: 'SOURCE_QUARANTINE', exitCode: 7})
    expect(refusal.message).toContain(`${bad} of ${records} records could not be read`)
    expect(refusal.message).toContain(`loan_amount (${bad}:`)
    expect(refusal.message).not.toContain('4711')
  },
)
