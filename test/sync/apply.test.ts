import {hash} from 'node:crypto'
import {expect, test} from 'vitest'
import type {WireRecord} from '../../src/core/types.ts'
import {storeWalk} from '../../src/sync/apply.ts'
import {measureMovement, requireBoundedQuarantine} from '../../src/sync/guard.ts'
import {findPast} from '../../src/sync/walk.ts'
import {anyRow} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {aRecord} from '../support/record.ts'
import {useWarehouse} from '../support/set-up.ts'
import {
  applyStaged,
  type DetailSpec,
  forgetAll,
  micros,
  readHeads,
  readVersions,
  readWalk,
  stageWalk,
  stream,
  type WalkSpec,
  walk,
} from '../support/walks.ts'

const DAY_1 = '2026-02-02T23:30:00Z'
const DAY_2 = '2026-02-03T23:30:00Z'
const DAY_3 = '2026-02-04T23:30:00Z'
const DAY_4 = '2026-02-05T23:30:00Z'

const record = (id: string, fields: WireRecord = {}) => aRecord({id, ...fields})
const a = (fields = {}) => record('a', fields)
const b = (fields = {}) => record('b', fields)

const db = await useWarehouse()

const countsOf = async (at: string, records: unknown[]) =>
  (await walk(db, {at, pages: [records]})).plan.counts
const countStaged = async () => {
  const sql = `select (select count(*) from temp.staged_deal) + (select count(*) from temp.staged_quarantine) as rows`
  return (await db.one(anyRow, sql)).rows
}
const nothing = {created: 0, updated: 0, missing: 0, vanished: 0, restored: 0, unchanged: 0}

/** The fields of a first and of a second record, whether the second counts as a change, and what is known afterwards. */
const SECOND_RECORDS: [string, object, object, 'changed' | 'same', object?][] = [
  ['nothing new', {}, {}, 'same'],
  ['a field the contract does not know', {}, {borrower: 'someone'}, 'same'],
  ['the amount in another notation', {}, {loan_amount: '350000.00'}, 'same'],
  ['another address', {}, {property_address: '2 Main St'}, 'changed'],
  ['no address any more', {}, {property_address: null}, 'changed'],
  ['an empty address instead of none', {property_address: null}, {property_address: ''}, 'changed'],
  [
    'the last digit of its address as the first of its amount',
    {property_address: 'Suite 12'},
    {property_address: 'Suite 1', loan_amount: 2_350_000},
    'changed',
  ],
  ['a cent more', {}, {loan_amount: 350_000.01}, 'changed'],
  ['a value', {}, {property_value: 1}, 'changed'],
  ['a program', {}, {loan_program: 'bridge'}, 'changed'],
  ['that it has no program', {}, {loan_program: null}, 'same'],
  ['another status', {}, {status: 'underwriting'}, 'changed'],
  ['another instant', {}, {created_at: '2026-01-05T15:00:00.000001Z'}, 'changed'],
  [
    'less than before',
    {property_value: 500_000, loan_program: 'bridge'},
    {},
    'same',
    {property_value: '500000.00', loan_program: 'bridge'},
  ],
  ['no value any more', {property_value: 500_000}, {property_value: null}, 'changed', {property_value: null}],
  [
    'the date of the instant before, in Apia',
    {},
    {created_at: '2026-01-06'},
    'same',
    {created_at: '2026-01-05 15:00:00', created_at_precision: 'instant'},
  ],
  ['another date', {}, {created_at: '2026-01-04'}, 'changed'],
  ['an instant of the date before', {created_at: '2026-01-05'}, {}, 'changed'],
]

test('a deal is updated by each changed field and no other; a field a record omits is carried over', async () => {
  const say = (which: 1 | 2) => SECOND_RECORDS.map((one) => aRecord({id: one[0], ...one[which]}))
  expect(await countsOf(DAY_1, say(1))).toEqual({...nothing, created: SECOND_RECORDS.length})
  const before = await readHeads(db)
  const changed = SECOND_RECORDS.filter(([, , , is]) => is === 'changed').map(([id]) => id)
  const unchanged = SECOND_RECORDS.length - changed.length
  expect(await countsOf(DAY_2, say(2))).toEqual({...nothing, updated: changed.length, unchanged})
  const ids = (await readVersions(db, 'deal_id')).map(({deal_id}) => deal_id)
  expect(ids.slice(SECOND_RECORDS.length).sort()).toEqual(changed.sort())
  // The digest of a list row, which decides whether the own page is asked for, changes with anything the row says or leaves out.
  const after = await readHeads(db)
  const unmoved = SECOND_RECORDS.filter(([id]) => after[id]?.list_hash === before[id]?.list_hash)
  expect(unmoved.map(([id]) => id)).toEqual(SECOND_RECORDS.slice(0, 3).map(([id]) => id))
  const without = say(2).map(({property_value, loan_program, ...record}) => record)
  expect(await countsOf(DAY_3, without)).toEqual({...nothing, unchanged: SECOND_RECORDS.length})
  const heads = await readHeads(db)
  for (const [id, , , , known = {}] of SECOND_RECORDS) expect(heads[id], id).toMatchObject(known)
})

/** What four walks show of a deal (`-` is an absence), and the kinds of version they produce. */
const FATES: [string, (object | '-')[], string[]][] = [
  ['stays', [{}, {}, {}, {}], ['seen']],
  ['is absent once', [{}, '-', {}, {}], ['seen', 'missing', 'seen']],
  ['comes back changed', [{}, '-', {loan_amount: 1}, {loan_amount: 1}], ['seen', 'missing', 'seen']],
  ['goes', [{}, '-', '-', '-'], ['seen', 'missing', 'vanished']],
  ['goes and comes back', [{}, '-', '-', {}], ['seen', 'missing', 'vanished', 'seen']],
  // The deal may have changed meanwhile, so the next readable record is stored.
  ['cannot be read once', [{}, {loan_amount: 'much'}, {}, {}], ['seen', 'seen']],
]

test('a deal absent once is missing, absent twice vanished, then restored; an unreadable one is not absent', async () => {
  const counts = []
  for (const [night, at] of [DAY_1, DAY_2, DAY_3, DAY_4].entries()) {
    const present = FATES.flatMap(([id, says]) => {
      const said = says[night]
      return typeof said === 'object' ? [aRecord({id, ...said})] : []
    })
    counts.push(await countsOf(at, present))
    if (night === 1)
      expect((await readHeads(db)).goes).toMatchObject({kind: 'missing', loan_amount: '350000.00'})
  }
  expect(counts).toEqual([
    {...nothing, created: 6},
    {...nothing, unchanged: 1, missing: 4},
    {...nothing, unchanged: 3, updated: 1, vanished: 2},
    {...nothing, unchanged: 4, restored: 1},
  ])
  const versions = Map.groupBy(await readVersions(db, 'deal_id, kind'), ({deal_id}) => deal_id)
  for (const [id, , kinds] of FATES)
    expect(
      versions.get(id)?.map(({kind}) => kind),
      id,
    ).toEqual(kinds)
})

test('two absences around a walk that proves none do not make a deal vanish', async () => {
  await walk(db, {at: DAY_1, pages: [[a(), b()]]})
  await walk(db, {at: DAY_2, pages: [[a()]]})
  await walk(db, {at: '2026-02-04T10:00:00Z', pages: [[a()]], filter: 'status=draft'})
  expect(await countsOf(DAY_3, [a()])).toEqual({...nothing, unchanged: 1})
  expect((await readHeads(db)).b).toMatchObject({kind: 'missing'})
  expect(await countsOf(DAY_4, [a()])).toEqual({...nothing, vanished: 1, unchanged: 1})
})

test('a deal whose own page says it is gone vanishes at once, listed or not, and the bridge says so', async () => {
  const c = () => aRecord({id: 'c'})
  await walk(db, {at: DAY_1, pages: [[a(), b(), c()]]})
  const gone = {at: '2026-02-03T23:31:00Z', record: 'gone'} as const
  const details = ['b', 'c'].map((id) => ({id, ...gone}))
  // Of a listed deal, only older tapes say so.
  const {plan, walk: second} = await walk(db, {at: DAY_2, pages: [[a(), b()]], details})
  expect(plan).toMatchObject({counts: {...nothing, vanished: 2, unchanged: 2}, newlyAbsent: 2})
  const vanished = {kind: 'vanished', observed_at: '2026-02-03 23:31:00'}
  expect(await readHeads(db)).toMatchObject({a: {kind: 'seen'}, b: vanished, c: vanished})
  expect(await readWalk(db, second.walkId)).toMatchObject({
    distinct_records: '2',
    adjusted_deals: '-1',
    adjusted_amount: '-350000.00',
    present_deals: '1',
    present_amount: '350000.00',
  })
})

test('changes are counted by kind: amounts, settled statuses left and entered, other columns', async () => {
  const known = {property_value: 500_000, loan_program: 'bridge'}
  const funded = ['a', 'b', 'c', 'd'].map((id) => aRecord({id, status: 'Funded', ...known}))
  const open = ['e', 'f', 'g'].map((id) => aRecord({id, status: 'approved', loan_program: ''}))
  await walk(db, {at: DAY_1, pages: [[...funded, ...open, aRecord({id: 'h', status: 'withdrawn'})]]})
  const [a, b, c] = funded
  const [e, f, g] = open
  const {plan} = await stageWalk(db, {
    at: DAY_2,
    pages: [
      [
        {...a, loan_amount: 1, status: 'servicing'},
        {...b, status: 'draft'},
        {...c, property_address: 'elsewhere', property_value: null, status: ' funded'},
        // A value learned for the first time is no change, and neither is another spelling.
        {...e, ...known, status: 'APPROVED'},
        {...f, status: 'funded'},
        {...g, status: 'closing', created_at: '2026-01-07'},
        aRecord({id: 'new', loan_amount: 5}),
      ],
    ],
  })
  expect(plan).toMatchObject({known: 8, newlyAbsent: 2})
  expect(await measureMovement(db, stream)).toEqual({
    before: {records: 8, amountCents: 2_800_000_00n, pipeline: 3},
    after: {records: 9, amountCents: 2_450_006_00n},
    left: 1,
    entered: 1,
    columns: {
      status: 2,
      property_address: 1,
      loan_amount: 1,
      property_value: 1,
      loan_program: 0,
      created_at: 1,
    },
  })
})

test('another spelling is stored and counts as unchanged', async () => {
  const first = {status: 'approved', loan_program: ' '}
  const second = {status: ' Approved', loan_program: ' '}
  const third = {status: ' Approved', loan_program: null}
  await walk(db, {at: DAY_1, pages: [[a(first)]]})
  expect(await countsOf(DAY_2, [a(second)])).toEqual({...nothing, unchanged: 1})
  expect(await countsOf(DAY_3, [a(third)])).toEqual({...nothing, unchanged: 1})
  expect(await readVersions(db, 'status, loan_program')).toEqual([first, second, third])
})

test('the own page of a deal overrides its list row, and counts as looked at even if it shows nothing new', async () => {
  const record = a({property_value: 500_000, loan_program: 'bridge'})
  await walk(db, {at: DAY_1, pages: [[a()]], details: [{id: 'a', at: '2026-02-02T23:31:00Z', record}]})
  await walk(db, {at: DAY_2, pages: [[a()]], details: [{id: 'a', at: DAY_2, record}]})
  expect(await readVersions(db, 'source, observed_at, property_value')).toEqual([
    {source: 'detail', observed_at: '2026-02-02 23:31:00', property_value: '500000.00'},
  ])
  expect((await readHeads(db)).a).toMatchObject({
    detail_at: '2026-02-03 23:30:00',
    observed_at: '2026-02-02 23:31:00',
    list_hash: expect.stringMatching(/^\d+$/),
  })
})

test('an observation older than the latest state is stored and supersedes nothing, not even one that it is gone', async () => {
  await walk(db, {at: DAY_2, pages: [[a({status: 'funded'})]]})
  const before = await readHeads(db)
  const {plan} = await walk(db, {at: DAY_1, pages: [[a({status: 'draft'})]], appliedAt: DAY_3})
  expect(plan.counts).toEqual({...nothing, unchanged: 1})
  const details: DetailSpec[] = [{id: 'a', at: '2026-02-02T23:31:00Z', record: 'gone'}]
  const late = await walk(db, {at: DAY_1, pages: [[]], details, appliedAt: DAY_3})
  expect(late.plan.counts).toEqual(nothing)
  expect(await readHeads(db)).toEqual(before)
  expect(await readVersions(db, 'status, observed_at, business_date')).toEqual([
    {status: 'funded', observed_at: '2026-02-03 23:30:00', business_date: '2026-02-03'},
    {status: 'draft', observed_at: '2026-02-02 23:30:00', business_date: '2026-02-02'},
  ])
})

test('what an older observation says is carried over to an absent deal and to a field that later ones omit', async () => {
  await walk(db, {at: DAY_1, pages: [[a(), b()]]})
  await walk(db, {at: DAY_3, pages: [[b({status: 'funded'})]]})
  const older = {loan_amount: 360_000, property_value: 500_000}
  const filter = 'status=draft'
  await walk(db, {at: DAY_2, pages: [[a(older), b(older)]], filter, appliedAt: DAY_3})
  expect(await readHeads(db)).toMatchObject({
    a: {kind: 'missing', observed_at: '2026-02-04 23:30:00', loan_amount: '360000.00'},
    b: {
      kind: 'seen',
      observed_at: '2026-02-04 23:30:00',
      loan_amount: '350000.00',
      property_value: '500000.00',
    },
  })
  const cleared = b({status: 'funded', property_value: null})
  const rejected = await walk(db, {at: DAY_4, pages: [[a({loan_amount: 'much'}), cleared]]})
  expect(rejected.plan.counts).toEqual({...nothing, updated: 1})
  expect(await readWalk(db, rejected.walk.walkId)).toMatchObject({
    present_amount: '710000.00',
    kept_quarantined_amount: '360000.00',
  })
})

test('a replayed quarantined record no longer forces the next one to be stored', async () => {
  await walk(db, {at: DAY_1, pages: [[a()]]})
  await walk(db, {at: DAY_2, pages: [[a({loan_amount: 'much'})]]})
  await db.run(`update history.raw.quarantine set replayed_at = '2026-02-04 10:00:00'`)
  expect(await countsOf(DAY_3, [a()])).toEqual({...nothing, unchanged: 1})
  expect(await readVersions(db, 'seq')).toHaveLength(1)
})

test('a walk with a record whose id cannot be read proves no absence', async () => {
  await walk(db, {at: DAY_1, pages: [[a(), b()]]})
  expect(await countsOf(DAY_2, [a(), b({id: null})])).toEqual({...nothing, unchanged: 1})
})

test('a deal last observed after the walk began is not absent from it', async () => {
  const begun = '2026-02-03T23:00:00Z'
  await walk(db, {at: DAY_1, pages: [[a(), b()]]})
  await walk(db, {at: DAY_2, pages: [[a(), b({status: 'funded'})]]})
  const {plan} = await walk(db, {at: begun, pages: [[]], appliedAt: DAY_3})
  expect(plan.counts).toEqual({...nothing, missing: 1})
  expect((await readHeads(db)).b).toMatchObject({kind: 'seen'})
})

test('an absence on the day of the first walk counts even if the clock stands still', async () => {
  await walk(db, {at: DAY_1, pages: [[a(), b()]]})
  expect(await countsOf(DAY_1, [a()])).toEqual({...nothing, missing: 1, unchanged: 1})
})

test('recorded_at strictly increases, even if the clock stands still or goes back', async () => {
  const recorded: bigint[] = []
  for (const [at, page] of [
    [DAY_2, []],
    [DAY_2, [a()]],
    [DAY_2, [a()]],
    [DAY_1, [a({status: 'funded'})]],
  ] as const)
    recorded.push((await walk(db, {at, pages: [[...page]]})).recordedAt)
  expect(recorded).toEqual([0n, 1n, 2n, 3n].map((step) => recorded[0]! + step))
})

test('the business date of a deal never decreases', async () => {
  await walk(db, {at: DAY_2, pages: [[a(), b()]]})
  await walk(db, {at: DAY_3, businessDate: '2026-02-01', pages: [[a({status: 'funded'})]]})
  expect(await readVersions(db, 'deal_id, kind, business_date')).toEqual([
    {deal_id: 'a', kind: 'seen', business_date: '2026-02-03'},
    {deal_id: 'b', kind: 'seen', business_date: '2026-02-03'},
    {deal_id: 'a', kind: 'seen', business_date: '2026-02-03'},
    {deal_id: 'b', kind: 'missing', business_date: '2026-02-03'},
  ])
})

test('the bridge explains every present deal and every cent, and nothing stays staged', async () => {
  const c = (fields = {}) => aRecord({id: 'c', loan_amount: 300, ...fields})
  const d = (fields = {}) => aRecord({id: 'd', loan_amount: 4000, ...fields})
  const e = (fields = {}) => aRecord({id: 'e', loan_amount: 50_000, ...fields})
  await walk(db, {at: DAY_1, pages: [[a({loan_amount: 10}), b({loan_amount: 20}), c(), d(), e()]]})
  const {walk: second} = await walk(db, {
    at: DAY_2,
    pages: [
      [a({loan_amount: 11}), b({loan_amount: 'bad'})],
      [d({loan_amount: 4001}), a({loan_amount: 12})],
    ],
    details: [
      {id: 'd', at: '2026-02-03T23:31:00Z', record: d({loan_amount: 5001})},
      {id: 'e', at: '2026-02-03T23:31:00Z', record: e({loan_amount: 'bad'})},
    ],
  })
  expect(await readWalk(db, second.walkId)).toMatchObject({
    records: '4',
    distinct_records: '2',
    duplicates: '1',
    quarantined: '1',
    is_shifted: true,
    amount_total: '4013.00',
    kept_quarantined_deals: '2',
    kept_quarantined_amount: '50020.00',
    kept_missing_deals: '1',
    kept_missing_amount: '300.00',
    adjusted_deals: '0',
    adjusted_amount: '1000.00',
    present_deals: '5',
    present_amount: '55333.00',
    state: 'applied',
    recorded_at: '2026-02-03 23:30:00',
  })
  expect(await countStaged()).toBe('0')
})

test('a failed apply stores nothing', async () => {
  await walk(db, {at: DAY_1, pages: [[a()]]})
  const before = {versions: await readVersions(db, '*'), heads: await readHeads(db)}
  const staged = await stageWalk(db, {at: DAY_2, pages: [[a({status: 'funded'}), b()]]})
  const conclude = () => {
    throw new Error('no tape')
  }
  await expect(applyStaged(db, staged, DAY_2, conclude)).rejects.toThrow('no tape')
  expect({versions: await readVersions(db, '*'), heads: await readHeads(db)}).toEqual(before)
  const walks = await db.all(anyRow, 'select 1 from history.raw.walk where walk_id = $1', [
    staged.walk.walkId,
  ])
  expect(walks).toEqual([])
})

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
    ['abandoned', 0],
    ['refused', 1],
  ] as const) {
    const {walk: walked} = await stageWalk(db, {at: DAY_1, pages: [[a()], [b(), b({id: 'c', status: ''})]]})
    await storeWalk(db, stream, walked, {state, how: 'cursor too old', tapeHead: 'a'})
    expect(await countStaged()).toBe('0')
    expect(await db.all(anyRow, 'from history.raw.quarantine')).toHaveLength(quarantined)
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
