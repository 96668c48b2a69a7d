import {expect, test} from 'vitest'
import type {WireRecord} from '../../src/core/types.ts'
import {listDetailCandidates, listLastKnown} from '../../src/sync/details.ts'
import {anyRow} from '../support/data.ts'
import {aRecord} from '../support/record.ts'
import {useWarehouse} from '../support/set-up.ts'
import {applyStaged, type DetailSpec, forgetAll, micros, stageWalk, stream, walk} from '../support/walks.ts'

const DAY_1 = '2026-02-02T23:30:00Z'
const DAY_2 = '2026-02-03T23:30:00Z'

const record = (id: string, fields = {}) => aRecord({id, ...fields})

const db = await useWarehouse()

/** Returns the ids whose own pages a walk at `at` asks for. */
async function candidatesAt(
  at: string,
  records: unknown[],
  details?: DetailSpec[],
  {
    limit = 1000,
    mode = 'auto',
    describedSince = 0n,
  }: Partial<Parameters<typeof listDetailCandidates>[2]> = {},
): Promise<string[]> {
  await stageWalk(db, {at, pages: [records], ...(details && {details})})
  const found = await listDetailCandidates(db, stream, {now: micros(at), limit, mode, describedSince})
  return found.map(({id}) => id)
}

const ALL_THREE = [record('a'), record('b'), record('c')]

/** Makes a list row with every field of the contract. */
const wholeRecord = (id: string) => record(id, {property_value: 500_000, loan_program: null})

/** Walks deals whose own pages were all fetched at the given times; their list rows are unchanged. */
async function walkWithDetails(at: string, deals: Record<string, string>): Promise<void> {
  const details = Object.entries(deals).map(([id, fetchedAt]) => {
    return {id, at: fetchedAt, record: record(id, {property_value: 1, loan_program: 'bridge'})}
  })
  await walk(db, {at, pages: [Object.keys(deals).map((id) => record(id))], details})
}

test('every deal of the first walk is asked for, funded ones first, then by id, up to the limit', async () => {
  const [funded, spelt] = [{status: 'funded'}, {status: ' Funded'}]
  const records = [record('a'), record('b', spelt), record('c'), record('d', funded)]
  expect(await candidatesAt(DAY_1, records, undefined, {limit: 3})).toEqual(['b', 'd', 'a'])
  expect(await candidatesAt(DAY_1, records)).toEqual(['b', 'd', 'a', 'c'])
})

test('a deal fetched or found gone in this walk is not asked for again', async () => {
  await walk(db, {at: DAY_1, pages: [[record('a'), record('b'), record('c')]]})
  const details: DetailSpec[] = [
    {id: 'a', at: DAY_2, record: record('a', {property_value: 1})},
    {id: 'b', at: DAY_2, record: 'gone'},
  ]
  expect(await candidatesAt(DAY_2, [record('a'), record('c')], details)).toEqual(['c'])
})

test.each<[string, string, WireRecord[], string[]]>([
  [
    'absent ones before new and changed ones, but a listed one with a page of its own proves the path first',
    DAY_2,
    [record('a', {loan_amount: 1}), record('b'), record('d')],
    ['b', 'c', 'd', 'a'],
  ],
  ['one unchanged deal to prove the path of absent ones', DAY_2, [record('a'), record('b')], ['a', 'c']],
  ['none while the thirty-day round is on schedule', '2026-02-03T12:00:00Z', ALL_THREE, []],
  ['each that was not looked at for thirty days', '2026-03-05T23:30:00Z', ALL_THREE, ['a', 'b', 'c']],
])('of three fetched deals are asked for: %s', async (_, at, records, expected) => {
  await walkWithDetails(DAY_1, {a: DAY_1, b: DAY_1, c: DAY_1})
  expect(await candidatesAt(at, records)).toEqual(expected)
})

test('of a complete list a deal is asked for only if all are, or to prove the path when another is absent', async () => {
  const records = [wholeRecord('a'), record('b', {property_value: 1}), wholeRecord('c')]
  expect(await candidatesAt(DAY_1, records)).toEqual(['b'])
  expect(await candidatesAt(DAY_1, records, undefined, {mode: 'on'})).toEqual(['a', 'b', 'c'])
  await forgetAll(db)
  await walk(db, {at: DAY_1, pages: [[wholeRecord('a'), wholeRecord('b'), wholeRecord('c')]]})
  expect(await candidatesAt(DAY_2, [wholeRecord('b'), wholeRecord('c')])).toEqual(['b', 'a'])
})

test.each([
  ['a day later', '2026-02-04T00:30:00Z', ['d00', 'd17']],
  ['if the night begins some minutes sooner than the one before', '2026-02-03T23:20:00Z', ['d00', 'd17']],
])('%s a thirtieth is asked for again, those longest unseen', async (_, at, expected) => {
  const ids = Array.from({length: 31}, (_, index) => `d${String(index).padStart(2, '0')}`)
  const fetchedAt = (index: number) => (index === 17 ? '2026-02-02T23:30:00Z' : '2026-02-02T23:31:00Z')
  await walkWithDetails(DAY_1, Object.fromEntries(ids.map((id, index) => [id, fetchedAt(index)])))
  const records = ids.map((id) => record(id))
  expect(await candidatesAt(at, records)).toEqual(expected)
})

test('deals that their lists contradict hold up neither new ones nor the round of all', async () => {
  const details = ['a', 'b'].map((id): DetailSpec => {
    return {id, at: '2026-02-02T23:31:00Z', record: record(id, {property_value: 1, loan_amount: 1})}
  })
  await walk(db, {at: DAY_1, pages: [ALL_THREE], details})
  const asked = await candidatesAt('2026-02-03T12:00:00Z', [...ALL_THREE, record('d')])
  expect(asked).toEqual(['a', 'd', 'c', 'b'])
})

test('an unreadable detail is quarantined under the id that was asked for', async () => {
  const bad = {id: 'a', at: DAY_1, record: record('b', {loan_amount: 'much'})}
  await walk(db, {at: DAY_1, pages: [[record('a')]], details: [bad]})
  expect(await db.all(anyRow, 'select record_id, source, path from history.raw.quarantine')).toEqual([
    {record_id: 'a', source: 'detail', path: 'loan_amount'},
  ])
})

test('an answer that holds the value but changes nothing is kept; one that omits it is not', async () => {
  await walkWithDetails(DAY_1, {a: '2026-02-02T23:31:00Z', b: '2026-02-02T23:31:00Z'})
  const [known] = (await listLastKnown(db, stream, ['a'])).values()
  expect(known).not.toHaveProperty('property_value')
  const at = '2026-02-03T23:31:00Z'
  const details = [
    {id: 'a', at, record: record('a', {property_value: 1, loan_program: 'bridge'})},
    {id: 'b', at, record: record('b', {loan_program: 'bridge'})},
  ]
  const staged = await stageWalk(db, {at: DAY_2, pages: [[record('a'), record('b')]], details})
  expect(staged.plan.appended).toBe(0)
  await applyStaged(db, staged, DAY_2)
  const confirmed = 'select seq, deal_id, observed_at, business_date from history.raw.deal_confirmation'
  expect(await db.all(anyRow, confirmed)).toEqual([
    {seq: '1', deal_id: 'a', observed_at: '2026-02-03 23:31:00', business_date: '2026-02-03'},
  ])
  expect(await db.all(anyRow, 'select kind from history.raw.settle')).toHaveLength(2)
})
