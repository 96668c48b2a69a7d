import {rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {applyEvents} from '../../src/pipeline.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {aDeal, DAY_1, DAY_2, DAY_3, day, failureOf, someDeals} from '../support/lab.ts'
import {dyingAt, useLab} from '../support/set-up.ts'
import {receiveEvents} from '../support/webhooks.ts'

const idOf = (number: number) => aDeal(number).id
const IN_STAGE = {config: {stage: 'underwriting'}}

/** Forty deals of a stage, walked on the first day. */
const lab = await useLab({deals: someDeals(40, {status: 'underwriting'})})
await lab.walk(DAY_1, IN_STAGE)
beforeEach(lab.remember())

/** Starts over, as if nothing had been walked yet. */
const beginAnew = () => rmSync(lab.folder.root, {recursive: true})

function move(status: string, ...numbers: number[]): void {
  for (const number of numbers) lab.service.store.update(idOf(number), {status})
}

/** Lists the deals whose own pages were requested since the last call. */
function listAsked(): number[] {
  const paths = lab.service.requests.entries.splice(0).map(({path}) => path)
  return paths.flatMap((path) => /^\/deals\/deal_0*(\d+)/.exec(path)?.[1] ?? []).map(Number)
}

const countStatuses = async () => {
  const sql = `select concat_ws(' ', status, nullif(kind, 'seen')) as is, count(*) as deals from deal_head
    where kind <> 'vanished' group by all order by all`
  return Object.fromEntries((await lab.queryHistory(sql)).map(({is, deals}) => [is, Number(deals)]))
}
const readLast = async () => (await lab.queryHistory('from walk order by recorded_at desc limit 1'))[0]

test('a deal that leaves the stage is followed on its own page until it has ended, or is gone', async () => {
  move('funded', 1, 2)
  move('withdrawn', 3)
  lab.service.store.remove(idOf(4))
  listAsked()
  const {changes} = await lab.walk(DAY_2, IN_STAGE)
  expect(changes).toMatchObject({unchanged: 36, missing: 0, vanished: 1})
  expect(listAsked()).toEqual(expect.arrayContaining([1, 2, 3, 4]))
  expect(await countStatuses()).toEqual({funded: 2, underwriting: 36, withdrawn: 1})
  expect(await readLast()).toMatchObject({distinct_records: '36', adjusted_deals: '3', present_deals: '39'})

  move('paid_off', 1)
  await lab.walk(DAY_3, IN_STAGE)
  const asked = listAsked()
  expect(asked).toEqual(expect.arrayContaining([1, 2]))
  expect(asked).not.toContain(3)
  move('underwriting', 2)
  expect(await lab.sync(day(5), IN_STAGE)).toMatchObject({outcome: 'released'})
  expect(listAsked()).not.toContain(1)
  expect(await countStatuses()).toEqual({paid_off: 1, underwriting: 37, withdrawn: 1})
  expect((await lab.run(['rebuild'])).stdout).toContain('The warehouse matches them.')
})

test('a webhook brings a deal that enters the stage or left it, and none that never was in it', async () => {
  lab.service.store.insert(someDeals(42, {status: 'draft'}).slice(40))
  move('funded', 1)
  move(' Underwriting', 42)
  receiveEvents(lab.folder, ...[1, 41, 42].map(idOf))
  const config = {...lab.config, ...IN_STAGE.config}
  expect(await applyEvents(config, lab.createWorld(DAY_2))).toEqual({
    outcome: 'applied',
    events: 3,
    deals: 3,
    appended: 2,
  })
  move('underwriting', 41)
  receiveEvents(lab.folder, idOf(41))
  expect(await applyEvents(config, lab.createWorld(DAY_3))).toMatchObject({appended: 1})
})

test("what ends a deal, and what its lender calls funded, is the lender's own seed's to say", async () => {
  const lines =
    'status,class,sort_order,ending\nexpired,pipeline,35,\nDead ,ended_unfunded,200,\nlive,funded,95,\n'
  using own = writeSqlFolder({'seeds/status.csv': lines})
  const config = {...IN_STAGE.config, sqlDir: own.path}
  move('expired', 1)
  move('dead', 2)
  await lab.walk(DAY_2, {config})
  listAsked()
  move('live', 1)
  await lab.walk(DAY_3, {config})
  const asked = listAsked()
  expect(asked).toContain(1)
  expect(asked).not.toContain(2)
  // A wrong seed file does not stop a night.
  writeFileSync(join(own.path, 'seeds/status.csv'), 'status,kind\nx,y\n')
  await lab.walk(day(4), {config})
})

test("the guard of funded deals knows the lender's own word for them", async () => {
  using own = writeSqlFolder({'seeds/status.csv': 'status,like\nlive,funded\n'})
  const config = {sqlDir: own.path}
  beginAnew()
  lab.service.store.insert(someDeals(80, {status: 'live'}).slice(40))
  move('live', ...Array.from({length: 20}, (_, index) => index + 21))
  await lab.walk(DAY_1, {config})
  move('live', ...Array.from({length: 15}, (_, index) => index + 1))
  const refused = await failureOf(lab.walk(DAY_2, {config}))
  expect(refused.message).toContain('15 deals become funded, more than half of the 20 in the pipeline')
})

test('without own pages a deal that left the stage is missing, with one version of that, and never vanishes', async () => {
  const config = {config: {...IN_STAGE.config, detail: 'off' as const}}
  move('funded', 1)
  lab.service.store.remove(idOf(2))
  for (const night of [DAY_2, DAY_3]) await lab.walk(night, config)
  expect(await lab.sync(day(5), config)).toMatchObject({outcome: 'released'})
  expect(await countStatuses()).toEqual({underwriting: 38, 'underwriting missing': 2})
  expect(
    await lab.queryHistory(`select count(*) as missing from deal_version where kind = 'missing'`),
  ).toEqual([{missing: '2'}])
  expect(await readLast()).toMatchObject({kept_missing_deals: '2', adjusted_deals: '0'})
  // Once their own pages are read, it is known what became of them.
  expect((await lab.walk(day(6), IN_STAGE)).changes).toMatchObject({vanished: 1})
  expect(await countStatuses()).toEqual({funded: 1, underwriting: 38})
})

test.each<['auto' | 'off', string]>([
  ['auto', 'followed'],
  ['off', 'missing'],
])('with own pages %s many deals that leave the stage at once are %s, and refuse nothing', async (detail) => {
  const config = {config: {...IN_STAGE.config, detail}}
  move('funded', 1, 2, 3, 4, 5, 6, 7, 8, 9)
  expect((await lab.sync(DAY_2, {...config, isDryRun: true})).changes).toMatchObject({missing: 9})
  expect((await lab.walk(DAY_2, config)).changes).toMatchObject({missing: detail === 'off' ? 9 : 0})
  // The walk of a dead run is applied a night later, without own pages.
  move('funded', 11, 12, 13, 14, 15)
  await failureOf(lab.walk(DAY_3, {...config, world: dyingAt('walk read')}))
  expect((await lab.walk(day(5), config)).changes).toMatchObject({unchanged: 26})
  expect((await lab.sync(day(6), {...config, isDryRun: true})).outcome).toBe('dry_run')
})

test('deals whose own pages say that they are gone still refuse a walk of a stage', async () => {
  for (const number of [1, 2, 3, 4, 5]) lab.service.store.remove(idOf(number))
  const refused = await failureOf(lab.walk(DAY_2, IN_STAGE))
  expect(refused.message).toContain('5 of 40 known deals are absent')
})

test('followed deals are asked for after all others, and stay as they are until then', async () => {
  const config = {config: {...IN_STAGE.config, detailConcurrency: 1}}
  move('funded', 1, 2, 3, 4, 5, 6, 7, 8)
  await lab.walk(DAY_2, config)
  move('funded', 9)
  lab.service.store.update(idOf(10), {loan_amount_cents: 1n})
  lab.service.faults.add({match: {path: `/deals/${idOf(8)}`}, fault: {kind: 'status', status: 422}})
  listAsked()
  await lab.walk(DAY_3, config)
  const asked = listAsked()
  expect(asked.slice(-8).toSorted()).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  expect(asked).toEqual(expect.arrayContaining([9, 10]))
  expect(await countStatuses()).toEqual({funded: 9, underwriting: 31})
  lab.service.faults.clear()
  await lab.walk(day(5), config)
  expect(await countStatuses()).toEqual({funded: 9, underwriting: 31})
  lab.service.store.remove(idOf(1))
  expect((await lab.walk(day(6), config)).changes).toMatchObject({missing: 0, vanished: 1})
})

test('a folder belongs to its stage as it belongs to its source: another one, or none, is refused by name', async () => {
  for (const [stage, words] of [
    [undefined, /^LOANTAPE_STAGE is not set: .*'status=underwriting'/],
    ['funded', /^LOANTAPE_STAGE 'funded': .*'status=underwriting'.*another folder/],
  ] as const) {
    lab.service.requests.entries.splice(0)
    const refused = await failureOf(lab.walk(DAY_2, {config: {stage}, accept: ['source']}))
    expect(refused).toMatchObject({code: 'SOURCE_PINNED', exitCode: 2})
    expect(refused.message).toMatch(words)
    const doctor = await lab.run(['doctor'], stage ? {LOANTAPE_STAGE: stage} : {})
    expect(doctor.stdout).toMatch(/LOANTAPE_STAGE .* this data folder/)
    expect(lab.service.requests.entries).toEqual([])
  }
  expect((await lab.walk(DAY_2, IN_STAGE)).changes).toMatchObject({unchanged: 40})
})

test('a folder of all deals refuses a stage, and a walk that died under another stage is left out', async () => {
  beginAnew()
  await failureOf(lab.walk(DAY_1, {...IN_STAGE, world: dyingAt('walk read')}))
  move('funded', 1)
  expect((await lab.walk(DAY_1)).changes).toMatchObject({created: 40})
  const refused = await failureOf(lab.walk(DAY_2, {config: {stage: 'funded'}}))
  expect(refused.message).toMatch(/^LOANTAPE_STAGE 'funded': this data folder belongs to all deals/)
})
