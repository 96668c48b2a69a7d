import {expect, test} from 'vitest'
import {listMonths} from '../../src/accounting/periods.ts'
import {addDays} from '../../src/core/clock.ts'
import {requireRelease} from '../../src/store/release.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {aDeal} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {chartIn, PAGE_TABLES, serveLab} from './side.ts'

// Days without a walk repeat the day before, so two walks are enough.
const lab = await useLab({
  tables: `${PAGE_TABLES} +mart.pull_through`,
  deals: [aDeal(1), aDeal(2, {status: 'funded'})],
})
await lab.walk('2026-03-02T23:30:00-05:00')
await lab.sync('2036-03-01T23:30:00-05:00')
const side = await serveLab(lab, {now: '2036-03-02T12:00:00-05:00'})

const readChart = async (path: string) => chartIn(await side.read(path), 'Open amount by day')

test('ten years of days are drawn as at most a thousand, the last among them, and chosen days one by one', async () => {
  const listDays = async (path: string): Promise<string[]> => (await readChart(path)).xAxis.data
  const days = await listDays('/portfolio')
  expect(days.length).toBeLessThanOrEqual(1000)
  expect(days.slice(-2)).toEqual(['2036-02-26', '2036-03-01'])
  const chosen = await listDays('/portfolio?day_from=2034-01-01&day_to=2036-02-29')
  expect([chosen.length, chosen[0], chosen.at(-1)]).toEqual([790, '2034-01-01', '2036-02-29'])
})

test('the pages of months show the last ones, and lead to all', async () => {
  const {history_id} = requireRelease(lab.folder).manifest
  using stateDb = openStateDb(lab.folder.stateDb)
  const at = '2036-03-01T00:00:00Z'
  for (const period of listMonths('2026-03', '2036-01')) {
    const [release, nothing] = [`{"release_id": "r", "known_at": "${at}"}`, new Uint8Array()]
    const register = {loans: 1, amount: '350000.00', lines: nothing, register: nothing}
    const closed = {period, release, mapping: '{}', terms: '[]', history_id, after_batch: 0, ...register}
    stateDb.insert('closed_period', closed)
    stateDb.insert('period_event', {period, action: 'close', at, who: 'ann'})
  }
  const listPeriods = async (path: string) =>
    [...(await side.read(path)).matchAll(/href="\/books\/(\d{4}-\d\d)"/g)].map(([, period]) => period)
  const last = await listPeriods('/books')
  expect([last.length, last[0], last.at(-1)]).toEqual([12, '2036-03', '2035-04'])
  expect((await side.readText('/books')).match(/ann, close/g)).toHaveLength(24)
  expect(await side.read('/books')).toContain('href="/books?months=all"')
  expect(await listPeriods('/books?months=all')).toHaveLength(121)
  expect((await side.readText('/books?months=all')).match(/ann, close/g)).toHaveLength(119)
  const [, seen] = /Pull-through What (.*?)(?: Funding curve|$)/.exec(await side.readText('/pipeline')) ?? []
  expect(seen?.match(/\b20\d\d-\d\d /g)).toHaveLength(24)
})

test('of near notes, a chart of years numbers the first', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  const listNames = async (path: string) => {
    const {series} = await readChart(path)
    return series[0].markLine.data.map(({name}: {name: string}) => name)
  }
  const note = {about: 'day', text: 'a holiday', at: '2036-03-01T00:00:00Z', who: 'ann'}
  for (let week = 0; week < 4; week += 1)
    stateDb.insert('note', {...note, note_no: week + 1, subject: addDays('2036-01-31', 7 * week)})
  stateDb.insert('note', {...note, note_no: 5, subject: '2030-01-01'})
  expect(await listNames('/portfolio')).toEqual(['1', '2', '', '', ''])
  expect(await listNames('/portfolio?day_from=2036-02-01')).toEqual(['1', '2', '3'])
})
