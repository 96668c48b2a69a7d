import {expect, test} from 'vitest'
import {readJobs} from '../../src/schedule/job.ts'
import {createLab, failureOf, someDeals} from '../support/lab.ts'
import {PAGE_TABLES, serveLab} from './side.ts'

test('an alarm says what is wrong now and since when, and ends with its cause', async () => {
  await using lab = await createLab({
    tables: PAGE_TABLES,
    deals: someDeals(40),
    releasedAt: '2026-02-02T23:30:00-05:00',
  })
  await using side = await serveLab(lab, {jobs: await readJobs(lab.config)})
  const read = async (path: string) =>
    (await side.read(path)).replaceAll(/<[^>]+>/g, '').replaceAll('&#39;', "'")
  const readStatus = async () => JSON.parse((await lab.run(['status', '--json'])).stdout).alarms
  const [early, late] = [
    {LOANTAPE_NOW: '2026-02-03T23:30:00-05:00'},
    {LOANTAPE_NOW: '2026-02-04T23:30:00-05:00'},
  ]

  expect((await lab.run(['run', 'nightly'], {...early, LOANTAPE_API_KEY: 'sk_test_wrong'})).code).toBe(5)
  expect(await readStatus()).toMatchObject([{name: 'job nightly', state: 'SOURCE_UNAUTHORIZED'}])
  expect(await read('/')).toContain('Job nightly was refused by the source [SOURCE_UNAUTHORIZED] since ')

  for (const {id} of someDeals(20)) lab.service.store.remove(id)
  expect(await failureOf(lab.sync(early.LOANTAPE_NOW))).toMatchObject({code: 'GUARD_SHRINK'})
  const refused = side.stateDb.db.prepare('select run_id, ended_at from run order by started_at desc').get()
  expect(await readStatus()).toMatchObject([{state: 'GUARD_SHRINK', since: refused?.ended_at}])
  for (const path of ['/', '/runs']) {
    const page = await read(path)
    expect(page, path).toContain(`Job nightly was stopped by a guard [GUARD_SHRINK] since `)
    expect(page, path).toContain(
      `Run ${refused?.run_id} of loantape sync, after run 1 of the job had failed: `,
    )
  }
  expect(await read('/')).not.toContain('UNAUTHORIZED')
  expect((await lab.run(['status'])).stdout).toContain(
    `Alarm since ${refused?.ended_at}: Job nightly was stopped`,
  )

  expect((await lab.run(['sync', '--accept', 'shrink'], late)).code).toBe(0)
  expect(await readStatus()).toEqual([])
  expect(await read('/')).not.toContain('Job nightly')
})
