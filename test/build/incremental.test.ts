import {chmodSync, existsSync, readFileSync, rmSync, utimesSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {buildRelease} from '../../src/build/build.ts'
import {aRow, insertRows} from '../../src/build/case-rows.ts'
import {compareBuilds} from '../../src/build/compare-builds.ts'
import {noteLastBuild, readLastBuild} from '../../src/build/last-build.ts'
import {addDays} from '../../src/core/clock.ts'
import {findJob, readJobs} from '../../src/schedule/job.ts'
import {runJob} from '../../src/schedule/run-job.ts'
import {advanceDay, seedPortfolio} from '../../src/service/portfolio.ts'
import {openDatabase} from '../../src/store/database.ts'
import {requireRelease} from '../../src/store/release.ts'
import {SQL_DIR} from '../../src/store/sql.ts'
import {runCommand} from '../support/command.ts'
import {changeBlocks, FEW_TABLES} from '../support/data.ts'
import {aDeal, DAY_1, DAY_2, day, type Lab, someDeals} from '../support/lab.ts'
import {tellSizes} from '../support/releases.ts'
import {useLab} from '../support/set-up.ts'
import {writeSqlFolder} from './folder.ts'

const DAY = '2026-02-26'

/** Syncs and builds incrementally for some nights, with a small share of changed deals. */
async function live(lab: Lab, nights: number, from = 0): Promise<void> {
  for (let night = from; night < from + nights; night += 1) {
    const day = addDays(DAY, night)
    if (night === 0) seedPortfolio(lab.service.store, {deals: 200, seed: 'nights', today: day})
    else advanceDay(lab.service.store, {seed: 'nights', day})
    await lab.sync(`${addDays(day, 1)}T03:30:00Z`, {config: {build: 'incremental'}})
  }
}

const worldAfter = (lab: Lab, nights: number) => lab.createWorld(`${addDays(DAY, nights)}T03:30:00Z`)

const lab = await useLab({tables: `${FEW_TABLES} +core.field_change`})
const config = {...lab.config, build: 'incremental'} as const
await live(lab, 1)

beforeEach(lab.remember())
beforeEach(() => {
  const last = readLastBuild(lab.folder)
  if (last) noteLastBuild(lab.folder, last, requireRelease(lab.folder))
})

test('a night builds only the deals that changed', async () => {
  await live(lab, 1, 1)
  const {release_id, rebuilt} = readLastBuild(lab.folder) ?? {}
  expect(release_id).toBe(lab.currentReleaseId())
  expect(rebuilt).toBeGreaterThan(0)
  expect(rebuilt).toBeLessThanOrEqual(0.2)
})

test('a wrong base of an incremental build is found, and named by table and row', async () => {
  const release = requireRelease(lab.folder)
  chmodSync(release.database, 0o600)
  {
    await using db = await openDatabase({attach: [{path: release.database, alias: 'release'}]})
    await db.run(
      `update release.core.deal_history set property_address = 'nobody lives here' where version = 1`,
    )
    await db.run('checkpoint release')
  }
  tellSizes(release)
  const last = readLastBuild(lab.folder)
  if (last) noteLastBuild(lab.folder, last, release)
  await live(lab, 1, 1)
  await expect(compareBuilds(config, {}, worldAfter(lab, 2))).rejects.toMatchObject({
    code: 'BUILD_DIFFERS',
    exitCode: 1,
    message: expect.stringMatching(
      /Table 'core\.deal_history' \(.*core\/deal_history\.sql\) of release .* differs from that of a whole build: it has the rows \{"deal_id":.*nobody lives here.*; it lacks the rows \{"deal_id":/,
    ),
  })
  expect(readLastBuild(lab.folder)).toBeUndefined()
})

test('a check that finds otherwise in a whole build is named', async () => {
  const check = `-- Now this, now that.\n-- severity: warn\nselect deal_id from core.deal where random() < 0.5\n`
  using own = writeSqlFolder({'checks/odd.sql': check})
  const withOwn = {...config, sqlDir: own.path}
  await expect(compareBuilds(withOwn, {}, worldAfter(lab, 1))).rejects.toMatchObject({
    code: 'BUILD_DIFFERS',
    message: expect.stringMatching(/Findings of the checks of release .* differ .*: 'odd' \d+: deal_/),
  })
  expect(readLastBuild(lab.folder)).toBeUndefined()
})

test('a release whose databases were touched, changed or cannot be read is never built upon', async () => {
  const touch = (path: string) => utimesSync(path, new Date(0), new Date(0))
  const loseHeader = (path: string) => {
    chmodSync(path, 0o600)
    writeFileSync(path, readFileSync(path).fill(0, 0, 4096))
  }
  const spoilt = [
    ['work', touch],
    ['database', touch],
    ['database', changeBlocks],
    ['database', loseHeader],
  ] as const
  for (const [index, [name, spoil]] of spoilt.entries()) {
    await spoil(requireRelease(lab.folder)[name])
    if (spoil !== touch) noteLastBuild(lab.folder, readLastBuild(lab.folder)!, requireRelease(lab.folder))
    await live(lab, 1, 1 + index)
    expect(readLastBuild(lab.folder)?.rebuilt).toBe(0)
  }
})

test('own models that are not per deal give the same releases, and their readers are built whole', async () => {
  const notPerDeal = (name: string) =>
    readFileSync(join(SQL_DIR, `${name}.sql`), 'utf8').replace('-- per: deal_id\n', '')
  using own = writeSqlFolder({
    'core/deal.sql': notPerDeal('core/deal'),
    'work/deal_observation.sql': notPerDeal('work/deal_observation'),
  })
  const withOwn = {...config, sqlDir: own.path}
  await buildRelease(withOwn, {}, worldAfter(lab, 1))
  advanceDay(lab.service.store, {seed: 'nights', day: addDays(DAY, 1)})
  await lab.walk(`${addDays(DAY, 2)}T03:30:00Z`)
  await compareBuilds(withOwn, {}, worldAfter(lab, 2))
  expect(readLastBuild(lab.folder)?.rebuilt).toBeGreaterThan(0)
})

test('a whole build, and a build after a rebuild, starts from nothing', async () => {
  for (const path of [lab.folder.cache, lab.folder.current, lab.folder.releases])
    rmSync(path, {recursive: true})
  await buildRelease({...lab.config, build: 'whole'}, {}, worldAfter(lab, 1))
  expect(existsSync(join(lab.folder.cache, 'last-build.json'))).toBe(false)
  rmSync(lab.folder.warehouse)
  expect(await lab.run(['rebuild', '--apply'])).toMatchObject({code: 0})
  expect(readLastBuild(lab.folder)).toBeUndefined()
  await live(lab, 1, 1)
  expect(readLastBuild(lab.folder)?.rebuilt).toBe(0)
})

test('a job compares a release with a whole build once a week', async () => {
  await live(lab, 1, 1)
  const nightly = findJob(readJobs(config), 'nightly')
  if (!nightly) throw new Error('there is no nightly job')
  const job = {...nightly, steps: [{do: 'build'} as const]}
  const wholeAt = () => readLastBuild(lab.folder)?.whole_at ?? ''
  const first = wholeAt()
  const runAt = (days: number) => {
    const now = () => Date.parse(first) + days * 86_400_000
    return runJob(config, {job}, {...worldAfter(lab, 2), realClock: {...lab.createWorld().realClock, now}})
  }
  await runAt(6.9)
  expect(wholeAt()).toBe(first)
  await runAt(7.1)
  expect(Date.parse(wholeAt()) - Date.parse(first)).toBe(7.1 * 86_400_000)
})

test('a record quarantined, long before the next one or now, changes what is known of an unchanged deal', async () => {
  const days = [1, 2, 3, 4, 5, 6].map((night) => addDays(DAY, night))
  const [first = '', , , fourth = '', fifth = '', sixth = ''] = days
  const tell = async (rows: Record<string, Parameters<typeof insertRows>[2]>) => {
    await using db = await openDatabase({attach: [{path: lab.folder.warehouse, alias: 'history'}]})
    for (const [table, told] of Object.entries(rows)) await insertRows(db, table, told)
  }
  const [certificate] = await lab.queryHistory(`from raw.walk where stream = 'deal'`)
  const {walk_id, business_date, started_at, ended_at, recorded_at, ...counted} = certificate ?? {}
  const walkOn = (day: string) => ({
    ...aRow('walk', {day}),
    ...(counted as Parameters<typeof aRow>[1]),
    present_deals: 201,
    distinct_records: 201,
  })
  const seen = {deal_id: 'deal_late', loan_amount: '0.00'}
  let last = 1_000_000
  const settle = (recorded_at: string) => {
    last += 1
    return [{seq: last, kind: 'walk', recorded_at, history_id: String(last), tape_head: ''}]
  }
  const early = aRow('deal_version', {...seen, seq: 1_000_000, day: first, status: 'approved'})
  const late = {...seen, seq: 1_000_001, day: fourth, status: 'funded', observed_at: `${fourth} 02:05:00`}
  await tell({
    walk: days.slice(0, 4).map(walkOn),
    deal_version: [early, aRow('deal_version', late)],
    settle: settle(`${fourth} 02:30:00`),
  })
  await buildRelease(config, {}, worldAfter(lab, 7))
  const fundedAfter = () => lab.query(`select funded_after from core.deal where deal_id = 'deal_late'`)
  expect(await fundedAfter()).toEqual([{funded_after: days[2]}])
  const unreadable = {day: days[1] ?? '', record_id: 'deal_late', recorded_at: `${fifth} 02:30:00`}
  await tell({
    walk: [walkOn(fifth)],
    quarantine: [aRow('quarantine', unreadable)],
    settle: settle(`${fifth} 02:30:00`),
  })
  await buildRelease(config, {}, worldAfter(lab, 7))
  expect(readLastBuild(lab.folder)?.rebuilt).toBeGreaterThan(0)
  expect(await fundedAfter()).toEqual([{funded_after: first}])
  // It was missing on the fifth day, and its record came back unreadable on the sixth.
  const isMissing = () => lab.query(`select is_missing from core.deal where deal_id = 'deal_late'`)
  const gone = {...seen, seq: 1_000_002, day: fifth, kind: 'missing', status: 'funded'}
  await tell({
    deal_version: [aRow('deal_version', {...gone, recorded_at: `${fifth} 02:40:00`})],
    settle: settle(`${fifth} 02:40:00`),
  })
  await buildRelease(config, {}, worldAfter(lab, 7))
  expect(await isMissing()).toEqual([{is_missing: true}])
  await tell({
    walk: [walkOn(sixth)],
    quarantine: [aRow('quarantine', {day: sixth, record_id: 'deal_late'})],
    settle: settle(`${sixth} 02:30:00`),
  })
  await compareBuilds(config, {}, worldAfter(lab, 7))
  expect(await isMissing()).toEqual([{is_missing: false}])
  expect(readLastBuild(lab.folder)?.rebuilt).toBeGreaterThan(0)
})

/** A night with a new deal after a release, with and without borrowers. */
const grown = new Map<string, Lab>()
for (const streams of ['deals', 'deals,borrowers']) {
  const one = await useLab({deals: someDeals(12)})
  await one.sync(DAY_1, {config: {streams}})
  await one.run(['note', 'add', '--deal', 'deal_000002', '--text', 'a rumour'], {
    LOANTAPE_NOW: day(3, '12:00'),
  })
  one.service.store.insert([aDeal(13)])
  await one.walk(DAY_2, {config: {streams}})
  grown.set(streams, one)
}

/** Compares the builds of own models after a night with a new deal. */
async function compareOwn(files: Record<string, string>, select: string, streams = 'deals') {
  const {env, copyFolder} = grown.get(streams)!
  const copy = copyFolder(select)
  noteLastBuild(copy, readLastBuild(copy)!, requireRelease(copy))
  using folder = writeSqlFolder(files)
  const there = {LOANTAPE_DATA_DIR: copy.root, LOANTAPE_SQL_DIR: folder.path, LOANTAPE_NOW: DAY_2}
  const ended = await runCommand(['build', '--compare'], {...env, ...there}, {select: `+${select} +mart.run`})
  rmSync(copy.root, {recursive: true})
  return ended
}

const OF = '-- grain: deal_id\n-- per: deal_id\n-- deal_id: the id\n-- deals: of all\n'

test('a change of a model that own models read deal by deal is seen, whatever its columns are called', async () => {
  const files = {
    'whole/one.sql':
      '-- Deals.\n-- grain: t\n-- t: always 1\n-- deals: how many\nselect cast(1 as bigint) as t, count(*) as deals from core.deal\n',
    'risk/of.sql': `-- Of how many.\n${OF}select deal_id, deals from core.deal cross join whole.one\n`,
  }
  expect(await compareOwn(files, 'risk.of')).toMatchObject({code: 0})
})

test('own models and checks that are per deal, or said to be, find what a whole build does', async () => {
  const age = '-- Ages.\n-- grain: deal_id\n-- per: deal_id\n-- deal_id: the id\n-- days: since it began\n'
  const asOf = "cast(getvariable('as_of') as date)"
  const check = '-- Nothing.\n-- severity: warn\n-- per: deal_id\nselect deal_id from core.deal'
  const files = {
    // Rows that share a place in the order of their table stand the same.
    'risk/alike.sql': `-- Alike.\n-- order: deals\n${OF}select deal_id, cast(1 as bigint) as deals from core.deal order by deal_id desc\n`,
    // What counts days up to the day of the release is built whole, whatever its header says; the last is not.
    'risk/age.sql': `${age}select deal_id, ${asOf} - status_since as days from core.deal\n`,
    'risk/raw.sql': `${age}select deal_id, ${asOf} - min(business_date) as days from raw.deal_version group by all\n`,
    'risk/none.sql': `${age}select deal_id, 0 as days from core.deal\n`,
    // A deal that did not change, but got a note, or was found before.
    'checks/noted.sql': `${check} join seed.note on subject = deal_id\n`,
    'checks/second.sql': `${check} where deal_id = 'deal_000002'\n`,
  }
  const {code, stdout, stderr} = await compareOwn(files, 'risk.*')
  expect(code, stderr).toBe(0)
  expect(stdout).toContain(' % of the deals were rebuilt.')
  for (const name of ['noted', 'second'])
    expect(stdout).toContain(`Check '${name}' warned: 1 row: deal_000002.`)
})

test.each(['deals', 'deals,borrowers'])(
  'with %s, comparing finds an own model wrongly built deal by deal',
  async (streams) => {
    const header = '-- Places.\n-- grain: deal_id\n-- per: deal_id\n-- deal_id: the id\n-- place: its place\n'
    const sql = 'select deal_id, row_number() over (order by deal_id desc) as place from core.deal\n'
    const {code, stderr} = await compareOwn({'risk/place.sql': `${header}${sql}`}, 'risk.place', streams)
    expect(code).toBe(1)
    expect(stderr).toMatch(
      /Table 'risk\.place' \(.*risk\/place\.sql\) .*: it has the rows .*"deal_000002","place":11\}.*; it lacks the rows .*"deal_000002","place":12/,
    )
    expect(stderr).toMatch(/remove its line `-- per: deal_id`/)
  },
)
