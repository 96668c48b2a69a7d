import {expect, test} from 'vitest'
import {describeFirstSync} from '../../src/cli/doctor.ts'
import {parseConfig} from '../../src/core/config.ts'
import {createLab, someDeals} from '../support/lab.ts'
import {readJson} from './outcome.ts'

const PARTLY = '; LOANTAPE_DETAIL_BUDGET_MINUTES lets one run get those of 6,000 deals, later runs the rest'
const FAST = {LOANTAPE_STREAMS: 'deals,borrowers,documents', LOANTAPE_RATE_PER_SECOND: '20'}

test.each<[deals: number | undefined, env: Record<string, string>, words: string]>([
  [2500, {}, 'of 2,500 deals with details takes about 8 min at 5 requests/s'],
  [2500, FAST, 'of 2,500 deals with details, borrowers and documents takes about 6 min at 20 requests/s'],
  [
    2500,
    {LOANTAPE_DETAIL: 'off', LOANTAPE_PAGE_SIZE: '1'},
    'of 2,500 deals takes about 8 min at 5 requests/s',
  ],
  [1, {LOANTAPE_DETAIL: 'off'}, 'of 1 deal takes about 1 s at 5 requests/s'],
  // What does not fit into a run's budget is mentioned but not counted.
  [100_000, {}, `of 100,000 deals with details takes about 23 min at 5 requests/s${PARTLY}`],
  [2500, {LOANTAPE_DETAIL_BUDGET_MINUTES: '0'}, 'of 2,500 deals takes about 4 s at 5 requests/s'],
  [
    100_000,
    {LOANTAPE_DETAIL_BUDGET_MINUTES: '1440'},
    'of 100,000 deals with details takes about 6 h at 5 requests/s',
  ],
  [undefined, {}, `takes about 3 min for every 1,000 deals with details at 5 requests/s${PARTLY}`],
  [undefined, {LOANTAPE_DETAIL: 'off'}, 'takes about 1 s for every 1,000 deals at 5 requests/s'],
])('a first sync of %s deals with %j %s', (deals, env, words) => {
  expect(describeFirstSync(parseConfig(env, {readFile: () => ''}), deals)).toBe(`a first sync ${words}`)
})

test('doctor estimates a first sync from one page until there is a history', async () => {
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
