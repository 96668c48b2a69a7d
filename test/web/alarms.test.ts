import {realpathSync, rmSync, statSync, truncateSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {parseConfig} from '../../src/core/config.ts'
import {listAlarms} from '../../src/schedule/alarms.ts'
import {readJobs} from '../../src/schedule/job.ts'
import {findCurrentRelease} from '../../src/store/release.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, createLab, DAY_1, DAY_2, DAY_3, someDeals} from '../support/lab.ts'
import {aManifest} from '../support/releases.ts'
import {expectFailure} from '../support/set-up.ts'
import {expectNumbersToLead} from './page-numbers.ts'
import {PAGE_TABLES, serveLab, textOf} from './side.ts'

test('an alarm says what is wrong now and since when, and ends with its cause', async () => {
  await using lab = await createLab({tables: PAGE_TABLES, deals: someDeals(40), releasedAt: DAY_1})
  await using side = await serveLab(lab, {jobs: readJobs(lab.config)})
  const readStatus = async () => JSON.parse((await lab.run(['status', '--json'])).stdout).alarms
  const wrong = {LOANTAPE_NOW: DAY_2, LOANTAPE_API_KEY: 'sk_test_wrong'}
  expect(await lab.run(['run', 'nightly'], wrong)).toMatchObject({code: 5})
  expect(await readStatus()).toMatchObject([{name: 'job nightly', state: 'SOURCE_UNAUTHORIZED'}])
  expect(await side.readText('/')).toContain('Job nightly was refused [SOURCE_UNAUTHORIZED] since ')

  for (const {id} of someDeals(20)) lab.service.store.remove(id)
  await expectFailure(lab.sync(DAY_2), 'GUARD_SHRINK')
  const refused = side.stateDb.db.prepare('select run_id, ended_at from run order by started_at desc').get()
  expect(await readStatus()).toMatchObject([{state: 'GUARD_SHRINK', since: refused?.ended_at}])
  const runs = `Run ${refused?.run_id} of loantape sync , after run 1 of the job had failed: `
  for (const path of ['/', '/runs']) {
    const page = await side.readText(path)
    expect(page, path).toContain(`Job nightly was stopped by a guard [GUARD_SHRINK] since `)
    expect(page, path).toContain(runs)
  }
  expect(await side.readText('/')).not.toContain('UNAUTHORIZED')
  const words = `Alarm since ${refused?.ended_at}: Job nightly was stopped`
  expect((await lab.run(['status'])).stdout).toContain(words)

  await lab.sync(DAY_3, {accept: ['shrink']})
  expect(await readStatus()).toEqual([])
  expect(await side.readText('/')).not.toContain('Job nightly')
})

const LIMITS = `name,dimension,bucket,scope,kind,limit_value,warn_at_pct
Texas,state,TX,open,amount,3499999.99,
bridge & co,loan_program,bridge_30yr,open,amount,3600000,90
once funded,status_class,funded,funded,amount,1000000,
`

test('an exceeded limit raises an alarm and is on the page, as is one that is near or would be exceeded', async () => {
  using own = writeSqlFolder({'seeds/limit.csv': LIMITS})
  const deals = someDeals(10, {status: 'approved'})
  await using lab = await createLab({tables: PAGE_TABLES, deals})
  const sync = () => lab.sync(new Date().toISOString(), {config: {sqlDir: own.path}})
  await sync()
  await using side = await serveLab(lab)
  const alarms = () => {
    const release = findCurrentRelease(lab.folder)?.manifest
    return listAlarms(side.stateDb, {config: lab.config, release, jobs: []}, Date.now())
  }
  const words =
    /Texas \(exposure \$3,500,000\.00, limit amount \$3,499,999\.99, excess \$0\.01, breached since 20[\d-]+\)\./
  expect(alarms()).toMatchObject([{state: '1 exceeded: "Texas"', words: expect.stringMatching(words)}])
  // Viewers of some tables read metrics, too, and a series for each set of names would end each time.
  expect(await side.read('/metrics')).toContain('loantape_alarm{name="limits",state="1 exceeded"} 1\n')

  const page = await side.readText('/')
  expect(page).toMatch(/Limit Texas is exceeded since \d{4}-\d\d-\d\d: \$3,500,000\.00 of \$3,499,999\.99/)
  expect(page).toContain('Limit bridge &amp; co is nearly reached : $3,500,000.00 of $3,600,000.00')
  expect(page).toContain('Limit once funded would be exceeded : $0.00 of $1,000,000.00, $3,500,000.00 if')
  const portfolio = await side.readText('/portfolio')
  expect(portfolio).toMatch(
    /Texas exceeded by \$0\.01 since \d{4}-\d\d-\d\d \$3,500,000\.00 of \$3,499,999\.99/,
  )
  expect(portfolio).toMatch(/bridge &amp; co nearly reached .*, 97\.2.% room \$100,000\.00 share 100\.0 %/)

  lab.service.store.insert([aDeal(11, {status: 'funded', loan_program: 'dscr_30yr'})])
  lab.service.store.update('deal_000002', {status: 'odd'})
  for (const id of ['deal_000001', 'deal_000011']) lab.service.store.update(id, {loan_amount_cents: 1n})
  await sync()
  expect(alarms()).toEqual([])
  expect(await side.readText()).not.toContain('is exceeded')
  // Limits cover all deals, even with a filter.
  for (const path of ['/', '/portfolio?loan_program=dscr_30yr'])
    expect(await expectNumbersToLead(side.url, path), path).toBeGreaterThan(2)
  const read = (table: string) => side.read(`/data/mart.${table}.csv?loan_program=dscr_30yr`)
  expect(await read('limit_status')).toBe(await side.read('/data/mart.limit_status.csv'))
  // How far the numbers of the filtered deals can be trusted, and what the last walk found.
  const quality = await read('data_quality')
  for (const line of [
    'deals,censored_created_before_first_walk,,,100.0,1\n',
    'deals,drift_unknown_value,status,odd,9.090909,1\n',
  ])
    expect(quality).toContain(line)
})

test('a release with a damaged file is an alarm that a build ends; runs, metrics and status show it meanwhile', async () => {
  await using lab = await createLab({tables: FEW_TABLES, deals: someDeals(3), releasedAt: DAY_1})
  await using side = await serveLab(lab)
  const file = join(lab.folder.current, 'portfolio.duckdb')
  truncateSync(file, statSync(file).size - 1)
  const words = /portfolio\.duckdb. has [\d,]+ bytes: .* Run loantape build, which makes it again/
  expect((await side.get('/runs')).status).toBe(200)
  const alarm = 'The current release is damaged [RELEASE_DAMAGED]'
  expect(await side.readText('/runs')).toMatch(
    /The current release is damaged .* Release damaged a build makes it again/,
  )
  expect(await side.read('/metrics')).toContain('name="release"')
  for (const path of ['/', '/deals', '/data/core.deal.csv']) {
    const answer = await side.get(path)
    expect(textOf(await answer.text()).replaceAll('`', ''), path).toMatch(words)
    expect(answer.status, path).toBeGreaterThanOrEqual(500)
  }
  const status = await lab.run(['status'])
  expect(status).toMatchObject({code: 1, stdout: expect.stringContaining(`: ${alarm}. File`)})
  expect(status.stdout).toContain('not healthy, the current release is damaged')
  expect(await lab.run(['build'])).toMatchObject({code: 0})
  expect(await side.readText('/')).not.toContain(alarm)
  expect((await lab.run(['status'])).stdout).not.toContain('damaged')
  rmSync(realpathSync(lab.folder.current), {recursive: true})
  const gone = /damaged \[RELEASE_DAMAGED\]. Link .* leads to no release/
  expect((await lab.run(['status'])).stdout).toMatch(gone)
  rmSync(lab.folder.current)
  expect(await lab.run(['status'])).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('not healthy, no release is current; `loantape build` makes one.'),
  })
  expect(await lab.run(['build'])).toMatchObject({code: 0})
  expect(await lab.run(['status'])).toMatchObject({code: 0, stdout: expect.not.stringContaining('damaged')})
})

test('a further limit that is exceeded is another state, however many are and whatever they are called', () => {
  using stateDb = openStateDb(':memory:')
  const config = parseConfig({}, {readFile: () => ''})
  const stateOf = (ids: string[]) => {
    const found = {severity: 'warn' as const, failures: ids.length, samples: ids.slice(0, 5), ids}
    const results = [{name: 'limit_is_kept', ...found}]
    const release = aManifest({checks: {passed: 1, warned: 1, results}})
    const alarm = listAlarms(stateDb, {config, release, jobs: []}, 0).find(({name}) => name === 'limits')
    for (const name of ids) expect(alarm?.words).toContain(name)
    return alarm?.state
  }
  const many = ['L1', 'L2', 'L3', 'L4', 'L5', 'L6']
  const sets = [many, [...many, 'L7'], ['Geo (TX), B', 'C'], ['Geo (CA), B', 'C'], ['Geo (TX)', 'B, C']]
  expect(new Set(sets.map(stateOf)).size).toBe(sets.length)
})
