import {expect, test} from 'vitest'
import {createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {createGate, startTestServer} from '../source/test-server.ts'
import {COMPILED, LEAST_TABLES} from '../support/data.ts'
import {createLab, failureOf, someDeals} from '../support/lab.ts'
import {until} from '../support/until.ts'
import {readJson} from './outcome.ts'

test('builds and status run beside a long sync and do not wait for it', async () => {
  await using lab = await createLab({deals: someDeals(30)})
  // In front of the service: the last page of any walk with a page size of ten waits for the gate.
  const gate = createGate()
  await using source = await startTestServer(async ({path, query, headers}, response) => {
    if (query.get('limit') === '10' && query.has('cursor')) await gate.opened
    const {authorization = ''} = headers
    const url = `${lab.service.url}${path.slice('/v1'.length)}?${query}`
    const answer = await fetch(url, {headers: {authorization}})
    response.writeHead(answer.status, {'content-type': 'application/json'}).end(await answer.text())
  })
  lab.config.baseUrl = source.url
  await lab.walk('2026-02-02T23:30:00-05:00')
  lab.service.store.update('deal_000001', {status: 'funded'})
  const now = {LOANTAPE_NOW: '2026-03-02T23:30:00-05:00', LOANTAPE_BASE_URL: source.url}
  const sync = lab.start(['sync', '--json'], {...now, LOANTAPE_PAGE_SIZE: '10', LOANTAPE_DETAIL: 'off'})
  await until(() => source.requests.some(({query}) => query.get('limit') === '10' && query.has('cursor')))
  expect(await lab.run(['build', '--as-of', '2026-02-03'], now)).toMatchObject({code: 0})
  // 4 would mean that the lock turned it away.
  expect((await lab.run(['status'])).code).not.toBe(4)
  expect(sync.process.exitCode).toBeNull()
  gate.open()
  const changes = {updated: 1, unchanged: 29}
  expect(readJson(await sync.ended)).toMatchObject({outcome: 'released', changes})
})

test('a query asked to stop ends, however long it would take', async () => {
  await using lab = await createLab({deals: someDeals(1), releasedAt: '2026-02-02T23:30:00-05:00'})
  let stderr = ''
  const cli = createCli({
    env: {LOANTAPE_DATA_DIR: lab.folder.root},
    stdout: {write: () => true},
    stderr: {write: (text: string) => (stderr += text)},
    onStop: (stop) => setImmediate(stop, 'SIGINT'),
  })
  expect(await runProgram(cli, ['query', 'select count(*) from range(1e15::bigint)'])).toBe(6)
  expect(stderr).toContain('Asked to stop during the query. Nothing was changed. [INTERRUPTED]')
})

test('a run asked to stop ends after the next stored step, and the next one finishes it', async () => {
  for (const step of ['details stored', 'checks passed']) {
    await using lab = await createLab({deals: someDeals(3)})
    const quiet = {write: () => true}
    const stops: ((signal: string) => void)[] = []
    const cli = createCli({env: {}, stdout: quiet, stderr: quiet, onStop: (stop) => stops.push(stop)})
    const world = cli.createWorld({...lab.config, logLevel: 'silent'})
    const onStep: typeof world.onStep = (reached) => {
      if (reached === step) for (const stop of stops) stop('SIGTERM')
      world.onStep(reached)
    }
    const run = syncDeals(lab.config, {}, {...world, plans: COMPILED, select: LEAST_TABLES, onStep})
    expect(await failureOf(run), step).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
    expect(lab.currentReleaseId()).toBeUndefined()
    expect(await lab.sync(new Date().toISOString())).toMatchObject({outcome: 'released'})
  }
})
