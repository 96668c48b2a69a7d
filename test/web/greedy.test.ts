import {expect, test} from 'vitest'
import {createLab, someDeals} from '../support/lab.ts'
import {until} from '../support/until.ts'
import {PAGE_TABLES} from './page-tables.ts'
import {serveLab} from './side.ts'

test('queries that eat memory or never end are stopped with a reason, while a sync completes', async () => {
  await using lab = await createLab({tables: PAGE_TABLES})
  lab.service.store.insert(someDeals(40))
  await lab.walk('2026-03-02T23:30:00-05:00')
  await lab.sync('2026-03-03T23:30:00-05:00')
  await using side = await serveLab(lab, {memoryMb: 100, modelTimeoutSeconds: 3600})
  await using hasty = await serveLab(lab, {memoryMb: 100, modelTimeoutSeconds: 1})
  const ask = async (path: string, sql: string, {url} = side) => {
    const reply = await fetch(`${url}${path}?q=${encodeURIComponent(sql)}`)
    return {status: reply.status, text: await reply.text()}
  }
  lab.service.store.update('deal_000001', {loanAmountCents: 1n})
  lab.service.requests.clear()
  const sync = lab.start(['sync', '--json'], {
    LOANTAPE_PAGE_SIZE: '2',
  })
  await until(() => lab.service.requests.count > 2)
  // Held amid its walk, however long the queries take.
  sync.process.kill('SIGSTOP')
  const greedy = await ask('/sql', 'select list(md5(range::varchar)) from range(20000000)')
  expect(greedy.text).toMatch(/Out of Memory/)
  expect((await ask('/data/query.csv', 'select count(*) from core.deal')).text).toContain('40')
  const endless = await ask('/sql', 'select count(*) from range(1e15::bigint) where hash(range) = 1', hasty)
  expect(endless).toMatchObject({status: 200, text: expect.stringContaining('it took too long')})
  sync.process.kill('SIGCONT')
  const {code, stdout} = await sync.ended
  expect([code, JSON.parse(stdout)]).toMatchObject([0, {walk: {records: 40}}])
  expect(await side.read('/portfolio')).toContain('$13,650,000.01')
})
