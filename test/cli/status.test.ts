import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {writeSqlFolder} from '../build/folder.ts'
import {writeJobFile} from '../support/jobs.ts'
import {DAY_1, DAY_2, DAY_3, someDeals} from '../support/lab.ts'
import {changeRecords, useLab} from '../support/set-up.ts'
import {readJson} from './outcome.ts'

const lab = await useLab({tables: '+core.deal +mart.data_quality +mart.portfolio_summary'})
beforeEach(lab.remember())
const insert = (deals: number) => lab.service.store.insert(someDeals(deals))

const drift = [
  {kind: 'new_field', path: 'borrower.name', value: null, records: 19},
  {kind: 'new_field', path: 'terms.index', value: null, records: 19},
  {kind: 'unknown_value', path: 'loan_program', value: 'moonshot', records: 1},
  {kind: 'unknown_value', path: 'status', value: 'on_hold', records: 1},
]

test('text from the source can neither steer nor flood the terminal', async () => {
  insert(2)
  lab.service.store.update('deal_000001', {status: 'x'.repeat(8000)})
  lab.service.store.update('deal_000002', {status: 'ctc\n\u001b[2Jok'})
  const synced = await lab.run(['sync'])
  const {stdout} = await lab.run(['status'])
  for (const said of [synced.stdout, stdout])
    expect(said).toContain(String.raw` ctc\n\u001b[2jok (deals=1, amount`)
  expect(stdout).toContain(String.raw`Drift: unknown_value status 'ctc\n\u001b[2jok' in 1 record.`)
  expect(stdout).toContain(`status '${'x'.repeat(79)}…' in 1 record.`)
  expect(stdout).not.toContain('x'.repeat(80))
})

test('a source that changes its contract still syncs, and status says what changed', async () => {
  insert(20)
  writeFileSync(lab.folder.fields, '{"note_rate": {"path": "terms.note_rate", "type": "decimal(9,6)"}}')
  await lab.walk(DAY_1)
  expect(readJson(await lab.run(['status', '--json']))).toMatchObject({drift: [], quarantine_waiting: 0})
  // A new status and program, an unreadable amount, a mapped field and two new ones.
  lab.service.store.update('deal_000001', {status: 'on_hold'})
  lab.service.store.update('deal_000002', {status: 'underwriting', loan_program: 'moonshot'})
  changeRecords(lab, '/deals?limit', (deals) => {
    Object.assign(deals[2] ?? {}, {loan_amount: 'much'})
    const fields = {borrower: {name: 'Jane Doe'}, terms: {note_rate: 0.08, index: 'SOFR'}}
    for (const deal of deals) Object.assign(deal, fields)
  })
  expect(await lab.sync(DAY_2)).toMatchObject({outcome: 'released'})

  expect(readJson(await lab.run(['status', '--json']))).toMatchObject({drift, quarantine_waiting: 1})
  const {stdout, code} = await lab.run(['status'])
  expect(code).toBe(0)
  expect(stdout).toContain('Quarantine: 1 record waits; `loantape quarantine reasons` shows it.')
  expect(stdout).toContain('Drift: new_field borrower.name in 19 records.')
  expect(stdout).not.toContain('Jane')
  expect(
    await lab.query(
      `select concat_ws(' ', metric, field, found) as metric, deals from mart.data_quality where metric like 'drift%' or metric = 'quarantined'`,
    ),
  ).toEqual([
    {metric: 'drift_new_field borrower.name', deals: '19'},
    {metric: 'drift_new_field terms.index', deals: '19'},
    {metric: 'drift_unknown_value loan_program moonshot', deals: '1'},
    {metric: 'drift_unknown_value status on_hold', deals: '1'},
    {metric: 'quarantined', deals: '1'},
  ])

  // Met twice, it is still one record.
  await lab.walk(DAY_3)
  expect(readJson(await lab.run(['status', '--json']))).toMatchObject({quarantine_waiting: 1})
})

test('deals in no class are all counted, however many statuses they have', async () => {
  insert(130)
  for (const [index, {id}] of someDeals(120).entries())
    lab.service.store.update(id, {status: index < 100 ? `a${index}` : 'z'})
  expect((await lab.run(['sync'])).stdout).toContain("'status_is_classified' warned: 101 rows of 120 deals:")
  expect((await lab.run(['status'])).stdout).toContain('not healthy, 120 deals of 130 in no class.')
})

test("a third of the deals in no class is unhealthy and says what to do, until one's own seed classes them", async () => {
  insert(30)
  for (const deal of someDeals(10)) lab.service.store.update(deal.id, {status: 'CTC'})
  lab.service.store.update('deal_000011', {status: 'clear_to_close'})
  const said =
    "Check 'status_is_classified' warned: 1 row of 10 deals: ctc (deals=10, amount=3500000.00). Give each a line in seeds/status.csv of LOANTAPE_SQL_DIR, such as `ctc,clear_to_close` under `status,like`"
  for (const command of [['sync'], ['run', 'hourly-refresh']])
    expect((await lab.run(command)).stdout, command.join(' ')).toContain(said)
  const status = await lab.run(['status'])
  expect(status).toMatchObject({code: 1, stdout: expect.stringContaining(said)})
  expect(status.stdout).toMatch(/ago\): not healthy, 10 deals of 30 in no class\./)
  expect(status.stdout).not.toContain("'clear_to_close'")
  expect(status.stdout).toContain(`Data folder ${lab.folder.root}.`)

  using own = writeSqlFolder({'seeds/status.csv': 'status,like\nCTC,clear_to_close\n'})
  const env = {LOANTAPE_SQL_DIR: own.path}
  expect((await lab.run(['build'], env)).stdout).not.toContain('warned:')
  const after = await lab.run(['status'], env)
  expect(after).toMatchObject({code: 0, stdout: expect.stringMatching(/ago\): healthy\./)})
  expect(after.stdout).not.toContain('Drift')
  expect(
    await lab.query(
      'select status, status_class, count(*) as deals from core.deal group by all order by all',
    ),
  ).toEqual([
    {status: 'clear_to_close', status_class: 'pipeline', deals: '1'},
    {status: 'ctc', status_class: 'pipeline', deals: '10'},
    {status: 'draft', status_class: 'pipeline', deals: '19'},
  ])
})

test('a success is as old as it may be by the setting that alarms go by, or by the option', async () => {
  insert(2)
  const realClock = {...lab.createWorld().realClock, now: () => Date.now() - 30 * 3_600_000}
  await lab.sync(new Date(realClock.now()).toISOString(), {world: {realClock}})
  const codeWith = async (hours: string, ...options: string[]) =>
    (await lab.run(['status', ...options], {LOANTAPE_ALARM_MAX_AGE_HOURS: hours})).code
  expect([await codeWith('26'), await codeWith('48'), await codeWith('48', '--max-age', '26h')]).toEqual([
    1, 0, 1,
  ])
  const {stdout} = await lab.run(['status', '--max-age', '48h'], {LOANTAPE_ALARM_MAX_AGE_HOURS: '1'})
  expect(stdout).toContain('(30 h ago): healthy but for 1 alarm.')
  expect(stdout).toContain(': No sync has succeeded for 1 hour. The last was run')
})

test('after a sync under a clock that was ahead, status and doctor say that none will succeed', async () => {
  insert(2)
  const ahead = Date.now() + 10 * 24 * 3_600_000
  const realClock = {...lab.createWorld().realClock, now: () => ahead}
  await lab.sync(new Date(ahead).toISOString(), {world: {realClock}})
  expect((await lab.run(['sync'])).code).toBe(2)
  const {stdout, code} = await lab.run(['status', '--max-age', '26h'])
  expect([code, stdout]).toEqual([1, expect.stringMatching(/: not healthy, the clock was ahead then\./)])
  expect(stdout).toContain('The clock was ahead at the last sync')
  const doctor = await lab.run(['doctor'])
  expect(doctor).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(/✗ history: Clock .* earlier than what is stored/),
  })
})

test('the alarm of a job that is never due promises no next slot', async () => {
  insert(1)
  const jobs = join(lab.folder.root, '..', 'jobs')
  mkdirSync(jobs)
  writeJobFile(jobs, 'by-hand', {enabled: false, steps: [{do: 'sync'}]})
  writeJobFile(jobs, 'nightly', {steps: [{do: 'sync'}]})
  lab.service.faults.add({fault: {kind: 'status', status: 401}})
  const env = {LOANTAPE_JOBS_DIR: jobs}
  for (const job of ['by-hand', 'nightly', 'webhooks']) await lab.run(['run', job], env)
  const {stdout} = await lab.run(['status'], env)
  expect(stdout).toContain('`loantape run by-hand` tries it again.')
  expect(stdout.match(/not tried again before its next slot/g)).toHaveLength(1)
})
