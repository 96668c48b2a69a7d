import {rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {buildRelease} from '../../src/build/build.ts'
import {applyEvents} from '../../src/pipeline.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import {pruneData} from '../../src/record/prune.ts'
import {ingestRates} from '../../src/sync/rates.ts'
import {rebuildWarehouse} from '../../src/sync/rebuild.ts'
import {aDeal, day, failureOf, someDeals} from '../support/lab.ts'
import {changeRecords, dyingAt, useLab} from '../support/set-up.ts'
import {receiveEvents} from '../support/webhooks.ts'

const FIELDS = {
  note_rate: {path: 'terms.note_rate', type: 'decimal(9,6)', meaning: 'interest, as a ratio'},
  maturity_date: {type: 'date'},
}

/** What the source shows of a deal beyond the contract's fields; null if nothing. */
type Said = {rate?: unknown; maturity?: unknown} | null

const NIGHTS = 3

const lab = await useLab({tables: '+core.deal* +mart.run'})
beforeEach(lab.remember())

/** What the list, and what the own page, shows at present, by deal. */
let listed: Map<string, Said>
let own: Map<string, Said>

/** Adds what is shown of a deal. */
function tell(deal: object, says: Map<string, Said>): void {
  const said = says.get((deal as {id: string}).id)
  if (said && said.rate === null) Object.assign(deal, {terms: null})
  else if (said && 'rate' in said) Object.assign(deal, {terms: {note_rate: said.rate}})
  if (said && 'maturity' in said) Object.assign(deal, {maturity_date: said.maturity})
}

beforeEach(() => {
  listed = new Map()
  own = new Map()
  for (const [path, says] of [
    [/^\/deals\?/, listed],
    [/^\/deals\/deal_\d+$/, own],
  ] as const) {
    changeRecords(lab, path, (data) => {
      for (const deal of data) tell(deal, says)
    })
  }
})

const writeFields = (fields: object) => writeFileSync(lab.folder.fields, JSON.stringify(fields))

const rebuild = (now: string, request = {isApplied: true}) =>
  rebuildWarehouse(lab.config, request, lab.createWorld(now))
const build = (now: string, request = {}) => buildRelease(lab.config, request, lab.createWorld(now))
const listSettles = () => lab.queryHistory('select history_id from settle order by seq')
const EXTRA = 'select deal_id, note_rate, maturity_date, unreadable from core.deal_extra order by deal_id'

test('a newly mapped field appears with its past, and leaves no trace once it is unmapped', async () => {
  lab.service.store.insert(someDeals(3))
  /** The rates of three deals, night by night. */
  const rates = [
    [0.051, 0.052, 0.053],
    [0.061, 0.052, 0.053],
    [0.071, 0.072, 0.053],
  ]
  for (const [night, shown] of rates.entries()) {
    for (const [index, rate] of shown.entries()) listed.set(aDeal(index + 1).id, {rate})
    await lab.walk(day(night + 1), {config: {detail: 'off'}})
  }
  const before = await build(day(NIGHTS))
  const settles = await listSettles()

  writeFields(FIELDS)
  expect(JSON.parse((await lab.run(['doctor', '--json'])).stdout)).toMatchObject({
    findings: expect.arrayContaining([expect.objectContaining({check: 'fields', ok: false})]),
  })
  const rebuilt = await rebuild(day(NIGHTS))
  expect(rebuilt.outcome).toBe('rebuilt')
  expect(rebuilt.differences?.map(({table}) => table)).toEqual(['deal_extra', 'mapped_field'])
  expect(await listSettles()).toEqual(settles)
  const mapped = await build(day(NIGHTS))
  expect(mapped.release_id).not.toBe(before.release_id)
  const history = await lab.query(
    `select deal_id || ' ' || business_date || ' ' || note_rate as told from core.deal_extra_history order by told`,
  )
  expect(history.map(({told}) => told)).toEqual([
    'deal_000001 2026-02-01 0.051000',
    'deal_000001 2026-02-02 0.061000',
    'deal_000001 2026-02-03 0.071000',
    'deal_000002 2026-02-01 0.052000',
    'deal_000002 2026-02-03 0.072000',
    'deal_000003 2026-02-01 0.053000',
  ])
  const past = await build(day(NIGHTS), {asOf: '2026-02-02'})
  const second = await lab.query(EXTRA, past.release_id)
  expect(second.map(({note_rate}) => note_rate)).toEqual(['0.061000', '0.052000', '0.053000'])

  writeFileSync(lab.folder.fields, '{"note_rate": ')
  await lab.walk(day(NIGHTS, '23:50'), {config: {detail: 'off'}})
  expect(await failureOf(rebuild(day(NIGHTS)))).toMatchObject({code: 'FIELDS_FILE'})
  rmSync(lab.folder.fields)
  expect(await rebuild(day(NIGHTS))).toMatchObject({outcome: 'rebuilt'})
  expect(await failureOf(build(day(NIGHTS)))).toMatchObject({code: 'MODEL_CONTRACT'})
  expect((await build(day(NIGHTS), {accept: 'columns'})).release_id).toBe(before.release_id)
  expect(await lab.queryHistory('from deal_extra')).toEqual([])
  await failureOf(lab.query('from core.deal_extra'))
})

test('fields are mapped from the first night on, even if rates were stored before it, whatever their names; one that changes alone makes a release', async () => {
  writeFields({order: {path: 'terms.note_rate', type: 'text'}, group: {path: 'maturity_date', type: 'date'}})
  const [csv, ratesFile] = ['sofr.csv', 'rates.json'].map((name) => join(lab.folder.root, name))
  writeFileSync(csv!, 'date,value\n2026-02-01,4.31\n')
  writeFileSync(ratesFile!, JSON.stringify({feeds: [{name: 'sofr', rate: 'SOFR', csv}]}))
  const rates = await ingestRates({...lab.config, ratesFile}, lab.createWorld(day(1)))
  expect(rates.outcome).toBe('appended')
  lab.service.store.insert(someDeals(1))
  listed.set(aDeal(1).id, {rate: 'first', maturity: '2027-03-01'})
  await lab.sync(day(2))
  expect(await lab.query('select "order", "group" from core.deal_extra')).toEqual([
    {order: 'first', group: '2027-03-01'},
  ])
  expect((await lab.run(['export', 'csv', 'parquet', 'xlsx'])).code).toBe(0)
  listed.set(aDeal(1).id, {rate: 'second', maturity: '2027-03-01'})
  expect(await lab.sync(day(2, '23:50'))).toMatchObject({outcome: 'released'})
  expect(await lab.query('select "order" from core.deal_extra')).toEqual([{order: 'second'}])
  expect(await lab.sync(day(2, '23:55'))).toMatchObject({outcome: 'unchanged'})
  // Another field moves the columns of the others, which nobody has to accept.
  const text = {path: 'rate', type: 'text'}
  writeFields({first: text, order: text, group: {path: 'maturity_date', type: 'date'}})
  expect(await rebuild(day(3))).toMatchObject({outcome: 'rebuilt'})
  expect(await build(day(3))).toMatchObject({outcome: 'released', is_current: true})
})

test('mapped fields come from lists, own pages and looks, and a rebuild or a lost warehouse finds them all again', async () => {
  writeFields(FIELDS)
  lab.service.store.insert(someDeals(4))
  const [first = '', second = '', third = '', fourth = ''] = someDeals(4).map(({id}) => id)
  listed.set(first, {rate: 0.05})
  own.set(first, {maturity: '2027-03-01T00:00:00Z'})
  own.set(second, {rate: '0.061', maturity: null})
  own.set(third, {rate: 'six', maturity: '2028-01-01'})
  await lab.sync(day(2))
  expect(await lab.query(EXTRA)).toEqual([
    {deal_id: first, note_rate: '0.050000', maturity_date: '2027-03-01', unreadable: null},
    {deal_id: second, note_rate: '0.061000', maturity_date: null, unreadable: null},
    {deal_id: third, note_rate: null, maturity_date: '2028-01-01', unreadable: 'note_rate'},
    {deal_id: fourth, note_rate: null, maturity_date: null, unreadable: null},
  ])
  const status = await lab.run(['status', '--json'])
  expect(status.stdout).toContain('mapped_fields_are_readable')

  // A run that dies has read another rate. The next run takes it from the tape.
  listed.set(first, {rate: 0.055})
  await failureOf(lab.walk(day(3), {config: {pageSize: 2}, world: dyingAt('pages stored')}))
  listed.set(first, {rate: 0.99})
  await lab.walk(day(3), {config: {pageSize: 2}})
  const rates = `select value from deal_extra where deal_id = '${first}' and name = 'note_rate' order by seq`
  expect(await lab.queryHistory(rates)).toEqual([{value: '0.050000'}, {value: '0.055000'}])

  // An event's look at the deal shows another date, and nothing else new.
  listed.set(first, {rate: 0.055})
  own.set(second, {rate: '0.061', maturity: '2029-09-09'})
  receiveEvents(lab.folder, second)
  expect((await applyEvents(lab.config, lab.createWorld(day(4, '12:00')))).outcome).toBe('applied')
  await build(day(4, '12:01'))
  expect((await lab.query(EXTRA))[1]).toMatchObject({note_rate: '0.061000', maturity_date: '2029-09-09'})

  // Nothing is left within null.
  listed.set(first, {rate: null})
  await lab.sync(day(5))
  expect((await lab.query(EXTRA))[0]).toMatchObject({note_rate: null, unreadable: null})

  expect((await rebuild(day(6), {isApplied: false})).outcome).toBe('equal')
  const before = await lab.queryHistory('from deal_extra order by seq')
  rmSync(lab.folder.warehouse)
  await bringUpToDate(lab.config, lab.createWorld(day(6)))
  expect(await lab.queryHistory('from deal_extra order by seq')).toEqual(before)
})

test('what is no longer on any tape is known only for fields that were mapped before', async () => {
  writeFields({note_rate: FIELDS.note_rate})
  lab.service.store.insert(someDeals(2))
  const [deal] = [aDeal(1).id]
  own.set(deal, {rate: 0.05, maturity: '2027-01-01'})
  await lab.walk(day(2))
  lab.ageTapes(401)
  await lab.run(['backup', join(lab.folder.root, '..', 'backup')])
  own.set(deal, {rate: 0.06, maturity: '2028-02-02'})
  listed.set(deal, {maturity: '2028-02-02'})
  await lab.walk(day(3))
  expect((await pruneData(lab.config, {isDryRun: false}, lab.createWorld(day(3)))).tapes).toHaveLength(1)
  writeFields(FIELDS)
  expect(await rebuild(day(3))).toMatchObject({outcome: 'rebuilt', units: 1})
  await build(day(3))
  expect(
    await lab.query(
      `select note_rate, maturity_date, cast(business_date as varchar) as day from core.deal_extra_history order by version`,
    ),
  ).toEqual([
    {note_rate: '0.050000', maturity_date: null, day: '2026-02-02'},
    {note_rate: '0.060000', maturity_date: '2028-02-02', day: '2026-02-03'},
  ])
  const expectSince = async (column: string, since: string) => {
    const comments = `select comment from duckdb_columns() where column_name = '${column}' and table_name = 'deal_extra'`
    const comment = expect.stringContaining(`known for what was stored since ${since}`)
    expect(await lab.query(comments)).toEqual([{comment}])
    expect((await lab.run(['verify', '--rebuild'])).code).toBe(0)
  }
  await expectSince('maturity_date', '2026-02-04 04:30:00')
  rmSync(lab.env.LOANTAPE_TAPE_KEY_FILE ?? '')
  expect((await lab.run(['tape', 'new-key', '--why', 'lost'])).code).toBe(0)
  writeFields({...FIELDS, fund: {type: 'text'}})
  expect(await rebuild(day(3))).toMatchObject({outcome: 'rebuilt', units: 0})
  await build(day(3))
  await expectSince('fund', '2026-02-04 04:30:00.000001')
})
