import {hash} from 'node:crypto'
import {expect, test} from 'vitest'
import type {WireRecord} from '../../src/core/types.ts'
import {storeWalk} from '../../src/sync/apply.ts'
import {requireBoundedQuarantine} from '../../src/sync/guard.ts'
import {findPast} from '../../src/sync/walk.ts'
import {anyRow} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {aRecord} from '../support/record.ts'
import {useWarehouse} from '../support/set-up.ts'
import {forgetAll, micros, readWalk, stageWalk, stream, type WalkSpec, walk} from '../support/walks.ts'

const DAY_1 = '2026-02-02T23:30:00Z'
const DAY_2 = '2026-02-03T23:30:00Z'
const DAY_3 = '2026-02-04T23:30:00Z'

const a = (fields = {}) => aRecord({id: 'a', ...fields})
const b = (fields = {}) => aRecord({id: 'b', ...fields})

const db = await useWarehouse()

const countRows = () =>
  db.one(
    anyRow,
    `select
       (select count(*) from temp.staged_deal) as staged,
       (select count(*) from temp.staged_quarantine) as rejected,
       (select count(*) from history.raw.quarantine) as quarantined`,
  )

test('a certificate has the last request and the cursors; bad records are counted and located on the tape, and nothing they hold is kept', async () => {
  const bad = a({loan_amount: 'much'})
  const {walk: walked} = await walk(db, {
    at: DAY_1,
    pages: [
      [bad, bad],
      [bad, 'no record', a({id: 5})],
    ],
  })
  expect(await readWalk(db, walked.walkId)).toMatchObject({
    ...{quarantined: '5', unreadable_ids: '2'},
    ...{ended_at: '2026-02-02 23:30:01', cursor_digest: hash('sha256', '\nc1')},
  })
  const rows = await db.all(anyRow, 'from history.raw.quarantine order by place')
  const kept = {source: 'list', business_date: '2026-02-02', replayed_at: null}
  expect(rows).toMatchObject([
    ...['1/0', '1/1', '2/0'].map((place) => ({...kept, place, record_id: 'a', path: 'loan_amount'})),
    ...['2/1', '2/2'].map((place) => ({...kept, place, record_id: null})),
  ])
})

test('an abandoned walk leaves the stage, a refused one its bad records, too; only applied walks make the past', async () => {
  expect(await findPast(db, stream)).toMatchObject({startedAt: null, filter: null, baseUrl: null})
  await walk(db, {at: DAY_1, pages: [[a(), b()]]})
  for (const [state, quarantined] of [
    ['abandoned', '0'],
    ['refused', '1'],
  ] as const) {
    const {walk: walked} = await stageWalk(db, {at: DAY_1, pages: [[a()], [b(), b({id: 'c', status: ''})]]})
    await storeWalk(db, stream, walked, {state, how: 'cursor too old', tapeHead: 'a'})
    expect(await countRows()).toEqual({staged: '0', rejected: '0', quarantined})
    const stored = {state, ended_how: 'cursor too old', records: '3'}
    expect(await readWalk(db, walked.walkId)).toMatchObject(stored)
  }
  expect(await findPast(db, stream)).toEqual({
    businessDate: '2026-02-02',
    startedAt: micros(DAY_1),
    filter: '',
    baseUrl: 'http://localhost/v1',
    envelope: 'data | top level',
  })
})

test('a column that a later version adds, and the engine of that version, change no history id', async () => {
  const readIds = async () => {
    await forgetAll(db)
    await walk(db, {at: DAY_1, pages: [[a()], [b({loan_amount: '2.00'}), b({id: 'c', status: ''})]]})
    const {history_id} = await db.one(anyRow, 'select history_id from history.raw.settle')
    const rows = await db.all(anyRow, 'select row_hash, list_hash from history.raw.deal_version order by seq')
    return [history_id, ...rows.flatMap((row) => Object.values(row))]
  }
  // They never change: releases, batches and closed months name them, and a rebuild must find them again.
  const ids = [
    'bd159ec904c3ca1009faa7637134f08a46353a648b02af3dcf0aa549a905b441',
    ...Array(2).fill('173447428438591074012051148440267675358'),
    ...Array(2).fill('192649294262480051707486340702242643607'),
  ]
  expect(await readIds()).toEqual(ids)
  for (const [table, column] of [
    ['deal_version', 'rate decimal(9, 4)'],
    ['deal_version', 'rate_present boolean default false'],
    ['walk', 'kind varchar'],
  ] as const) {
    await db.run(`alter table history.raw.${table} add column ${column}`)
    expect(await readIds()).toEqual(ids)
    await db.run(`alter table history.raw.${table} drop column ${column.split(' ')[0]}`)
  }
})

test('of 80 records four unreadable ones are let through, of any number three; more are refused with their place', async () => {
  const judge = async (records: number, bad: number) => {
    const page = Array.from({length: records}, (_, index) =>
      aRecord({id: `deal_${index}`, ...(index < bad && {loan_amount: 'about 4711'})}),
    )
    await requireBoundedQuarantine(db, (await stageWalk(db, {at: DAY_1, pages: [page]})).walk)
  }
  for (const [records, bad] of [
    [3, 3],
    [80, 4],
    [100, 5],
  ] as const)
    await expect(judge(records, bad)).resolves.toBeUndefined()
  for (const [records, bad] of [
    [4, 4],
    [79, 4],
    [100, 6],
  ] as const) {
    const refusal = await failureOf(judge(records, bad))
    expect(refusal).toMatchObject({code: 'SOURCE_QUARANTINE', exitCode: 7})
    expect(refusal.message).toContain(`${bad} of ${records} records could not be read`)
    expect(refusal.message).toContain(`loan_amount (${bad}:`)
    expect(refusal.message).not.toContain('about 4711')
  }
})

/**
 * Walks.
 *
 * @returns the walk's report of drift
 */
async function walkAndReport(spec: WalkSpec): Promise<Record<string, unknown>[]> {
  const {walkId} = (await walk(db, spec)).walk
  const sql = 'select kind, path, value, records from history.raw.drift where walk_id = $1 order by all'
  return db.all(anyRow, sql, [walkId])
}

/** The report of a field that the contract does not know. */
const newField = (path: string, records = 1) => ({
  kind: 'new_field',
  path,
  value: null,
  records: String(records),
})

const record = (id: string, fields: WireRecord = {}) => aRecord({id, ...fields})
const detail = (id: string, fields: WireRecord) => ({id, at: DAY_1, record: record(id, fields)})

test('unknown fields are reported by name, one level deep, once a record, and never with their content', async () => {
  const odd = {is_new: 1, property_value: 1, loan_program: null}
  const pages = [
    [record('a', {borrower: {name: 'Jane Doe', address: {zip: '1'}}, 'Roe, Jane': [1]})],
    [record('b', {borrower: {name: 'John Doe'}}), record('c', {borrower: null}), record('d')],
    // Cut in the middle of an emoji.
    [record('e', {note: 'cut \ud83d', '\ud83d': {'\ud83d': 1, '\udc00': 2}}), record('f', odd)],
    [record('f', odd)],
  ]
  expect(await walkAndReport({at: DAY_1, pages, details: [detail('f', odd)]})).toEqual([
    newField('borrower'),
    newField('borrower.address'),
    newField('borrower.name', 2),
    newField('is_new'),
    newField('note'),
    newField('sha256:83d544ccc223.sha256:83d544ccc223'),
    newField('sha256:9fea033a85e7'),
  ])
})

test('fields that own pages leave out, and a status outside the contract, are reported in every walk that shows it', async () => {
  const pages = [
    [record('a', {status: 'on_hold'}), record('b', {status: 'On_Hold '}), record('c', {status: 'Draft'})],
  ]
  const details = [detail('a', {}), detail('b', {property_value: null})]
  for (const at of [DAY_1, DAY_2])
    expect(await walkAndReport({at, pages, details})).toEqual([
      {kind: 'missing_field', path: 'loan_program', value: null, records: '2'},
      {kind: 'missing_field', path: 'property_value', value: null, records: '1'},
      {kind: 'unknown_value', path: 'status', value: 'on_hold', records: '2'},
    ])
})

test('a program new since the first walk is reported once, by the walk that shows it', async () => {
  const walkWith = (at: string, ...programs: (string | null)[]) =>
    walkAndReport({at, pages: [programs.map((loan_program, index) => record(`d${index}`, {loan_program}))]})
  expect(await walkWith(DAY_1, 'bridge', 'rental', ' ')).toEqual([])
  expect(await walkWith(DAY_2, 'rental', 'fix_and_flip', null)).toEqual([
    {kind: 'unknown_value', path: 'loan_program', value: 'fix_and_flip', records: '1'},
  ])
  expect(await walkWith(DAY_3, 'bridge', 'fix_and_flip')).toEqual([])
})

test('a source that uses ids as field names does not flood the report', async () => {
  const fields = Object.fromEntries(Array.from({length: 300}, (_, index) => [`field_${index}`, index]))
  const pages = [[record('a', {...fields, often: 1}), record('b', {often: 1})]]
  const report = await walkAndReport({at: DAY_1, pages})
  expect(report).toHaveLength(100)
  expect(report).toContainEqual(newField('often', 2))
})
