import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import type {World} from '../../src/core/types.ts'
import {openSession} from '../../src/export/clickhouse-layout.ts'
import {publishRelease} from '../../src/export/publish.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {takeFileLock} from '../../src/store/files.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {rebuildWarehouse} from '../../src/sync/rebuild.ts'
import {startTestServer} from '../source/test-server.ts'
import {anyRow, LEAST_TABLES} from '../support/data.ts'
import {createLab, DAY_1, DAY_2, failureOf, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'

const lab = await useLab({deals: someDeals(3), releasedAt: DAY_1})

test('a query asked to stop ends, however long it would take', async () => {
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

test('a run asked to stop ends after the next stored step, and the next one continues from there', async () => {
  await using lab = await createLab({deals: someDeals(3)})
  const quiet = {write: () => true}
  for (const step of ['details stored', 'checks passed']) {
    const stops: ((signal: string) => void)[] = []
    const cli = createCli({env: {}, stdout: quiet, stderr: quiet, onStop: (stop) => stops.push(stop)})
    const world = cli.createWorld({...lab.config, logLevel: 'silent'})
    const onStep: typeof world.onStep = (reached) => {
      if (reached === step) for (const stop of stops) stop('SIGTERM')
      world.onStep(reached)
    }
    const run = syncDeals(lab.config, {}, {...world, select: LEAST_TABLES, onStep})
    expect(await failureOf(run), step).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
    expect(lab.currentReleaseId()).toBeUndefined()
  }
  expect(await lab.sync(new Date().toISOString())).toMatchObject({outcome: 'released'})
})

test('a publication asked to stop before its server has answered is interrupted, not failed', async () => {
  const stopping = new AbortController()
  await using server = await startTestServer(() => stopping.abort(new Error('stopped by SIGTERM')))
  const config = {...lab.config, clickhouseUrl: server.url}
  const world = {...lab.createWorld(), signal: stopping.signal}
  const publication = publishRelease(config, {to: 'clickhouse'}, world)
  expect(await failureOf(publication)).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
  // Nor is anything asked after a stop that came between two requests.
  await using session = openSession({url: server.url}, stopping.signal)
  expect((await failureOf(session.run('select 1'))).message).toContain('stopped by SIGTERM')
  expect(server.requests).toHaveLength(1)
})

/** Standard output says that it is a terminal. */
const AT_TERMINAL = {NODE_OPTIONS: '--import=data:text/javascript,process.stdout.isTTY=true'}

test('what nohup started goes on even before it has read its settings', async () => {
  const command = 'kill -HUP $PPID; echo sk_test_of_command'
  const {ended} = lab.start(['config'], {LOANTAPE_API_KEY: '', LOANTAPE_API_KEY_COMMAND: command})
  expect(await ended).toMatchObject({code: 0, signal: null, stdout: expect.stringContaining('_COMMAND')})
})

test('what waits for the warehouse says so, and ends when asked to stop; what nohup started goes on when its terminal closes', async () => {
  let held = await takeFileLock(lab.folder.warehouseLock, 'read', 0)
  const copy = join(lab.folder.root, '../copy')
  const stop = async (args: string[], signals: NodeJS.Signals[], env?: Record<string, string>) => {
    const waiting = lab.start(args, env)
    await until(() => waiting.printed().stderr.includes('waiting for others who are '))
    for (const signal of signals) waiting.process.kill(signal)
    const {code, stderr} = await waiting.ended
    expect([code, stderr]).toEqual([6, expect.stringContaining('Asked to stop while others were')])
    const asked = [...stderr.matchAll(/"reason":"(\w+)","msg":"asked to stop"/g)]
    expect(asked.map(([, reason]) => reason)).toEqual(signals.slice(-1))
  }
  await stop(['backup', copy], ['SIGHUP'], AT_TERMINAL)
  await stop(['rebuild', '--apply'], ['SIGINT'])
  await stop(['sync'], ['SIGHUP', 'SIGTERM'])
  expect(existsSync(copy)).toBe(false)
  held?.[Symbol.dispose]()
  held = await takeFileLock(lab.folder.warehouseLock, 'write', 0)
  for (const command of ['build', 'status']) await stop([command], ['SIGTERM'])
  held?.[Symbol.dispose]()
})

test('a rebuild that is asked to stop changes nothing', async () => {
  lab.service.store.update('deal_000001', {status: 'approved'})
  const {certificate} = await lab.walk(DAY_2)
  const stopping = new AbortController()
  const onProgress: World['onProgress'] = ({step}) => step === 'comparing' && stopping.abort()
  const world = {...lab.createWorld(DAY_2), signal: stopping.signal, onProgress}
  const without = {walk: certificate.walk_id, why: 'wrong'}
  const rebuild = rebuildWarehouse(lab.config, {isApplied: true, without}, world)
  expect(await failureOf(rebuild)).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
  expect((await lab.run(['rebuild', '--json'])).stdout).toContain('"outcome":"equal"')
})

test('a run that slept until another took over from it changes nothing more, neither on the tape nor elsewhere', async () => {
  await using lab = await createLab({deals: someDeals(120)})
  const slow = {LOANTAPE_PAGE_SIZE: '10', LOANTAPE_RATE_PER_SECOND: '2', LOANTAPE_DETAIL: 'off'}
  const sleeper = lab.start(['sync'], slow)
  await until(() => existsSync(lab.folder.stateDb))
  using stateDb = openStateDb(lab.folder.stateDb)
  // From its first page until its last it holds the warehouse closed, so that another run can go on.
  await until(() => stateDb.first(anyRow, `select * from lock where progress like 'walking: _0 %'`))
  sleeper.process.kill('SIGSTOP')
  stateDb.run(`update lock set host = 'elsewhere', heartbeat_at = 0`)
  const {release_id} = await lab.sync(new Date().toISOString())
  sleeper.process.kill('SIGCONT')
  const {code, stderr} = await sleeper.ended
  expect([code, stderr]).toEqual([4, expect.stringContaining('another one has taken over')])
  expect((await lab.run(['verify'])).code).toBe(0)
  expect((await lab.run(['rebuild', '--json'])).stdout).toContain('"outcome":"equal"')
  expect(lab.currentReleaseId()).toBe(release_id)
})
