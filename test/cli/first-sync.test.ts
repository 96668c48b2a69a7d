import {expect, test} from 'vitest'
import {describeFirstSync} from '../../src/cli/doctor.ts'
import {parseConfig} from '../../src/core/config.ts'
import {createLab, someDeals} from '../support/lab.ts'
import {readJson} from './outcome.ts'

const describe = (deals: number | undefined, env: Record<string, string> = {}) =>
  describeFirstSync(parseConfig(env, {readFile: () => ''}), deals)

test('the time of a first sync is that of its pages and details at the rate set', () => {
  expect(describe(2500)).toBe('a first sync of 2,500 deals with details takes about 8 min at 5 requests/s')
})

test('lists of the streams that are on are counted, and details that are off are not', () => {
  const streams = {LOANTAPE_STREAMS: 'deals,borrowers,documents', LOANTAPE_RATE_PER_SECOND: '20'}
  expect(describe(2500, streams)).toBe(
    'a first sync of 2,500 deals with details, borrowers and documents takes about 6 min at 20 requests/s',
  )
  expect(describe(2500, {LOANTAPE_DETAIL: 'off', LOANTAPE_PAGE_SIZE: '1'})).toBe(
    'a first sync of 2,500 deals takes about 8 min at 5 requests/s',
  )
  expect(describe(1, {LOANTAPE_DETAIL: 'off'})).toBe('a first sync of 1 deal takes about 1 s at 5 requests/s')
})

test('what does not fit into the budget of a run is told, and not counted', () => {
  expect(describe(100_000)).toBe(
    'a first sync of 100,000 deals with details takes about 23 min at 5 requests/s; LOANTAPE_DETAIL_BUDGET_MINUTES lets one run get those of 6,000 deals, later runs the rest',
  )
  expect(describe(2500, {LOANTAPE_DETAIL_BUDGET_MINUTES: '0'})).toBe(
    'a first sync of 2,500 deals takes about 4 s at 5 requests/s',
  )
  expect(describe(100_000, {LOANTAPE_DETAIL_BUDGET_MINUTES: '1440'})).toMatch(/takes about 6 h at/)
})

test('where nobody knows how many deals there are, the time is told for each 1,000', () => {
  expect(describe(undefined)).toBe(
    'a first sync takes about 3 min for every 1,000 deals with details at 5 requests/s; LOANTAPE_DETAIL_BUDGET_MINUTES lets one run get those of 6,000 deals, later runs the rest',
  )
  expect(describe(undefined, {LOANTAPE_DETAIL: 'off'})).toBe(
    'a first sync takes about 1 s for every 1,000 deals at 5 requests/s',
  )
})

test('doctor tells it from the one page it asks for, until there is a history', async () => {
  await using lab = await createLab()
  const source = async () => {
    const {findings} = readJson(await lab.run(['doctor', '--json'])) as {
      findings: {check: string; words: string}[]
    }
    return findings.find(({check}) => check === 'source')?.words
  }
  const answers = `${lab.service.url} answers and accepts the key`
  lab.service.store.insert(someDeals(100))
  expect(await source()).toBe(
    `${answers}; a first sync of 100 deals with details takes about 1 s at 5000 requests/s`,
  )
  lab.service.faults.add({
    fault: {
      kind: 'mutate',
      change: (body) => ({
        ...body,
        data: (body.data as object[]).map((deal) => ({...deal, property_value: null, loan_program: null})),
      }),
    },
  })
  expect(await source()).toBe(`${answers}; a first sync of 100 deals takes about 1 s at 5000 requests/s`)
  lab.service.faults.clear()
  lab.service.store.insert(someDeals(101).slice(100))
  expect(await source()).toMatch(/; a first sync takes about 1 s for every 1,000 deals with details/)
  await lab.sync(new Date().toISOString())
  expect(await source()).toBe(answers)
})
