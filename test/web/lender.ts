import {addDays, realClock} from '../../src/core/clock.ts'
import {readJobs} from '../../src/schedule/job.ts'
import {isoOf} from '../../src/schedule/job-runs.ts'
import {advanceDay, linkPortfolio, seedPortfolio} from '../../src/service/portfolio.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {setAccounts} from '../support/books.ts'
import {aDeal} from '../support/lab.ts'
import {changeRecords, useLab} from '../support/set-up.ts'
import {serveLab} from './side.ts'

const SEED = 'lender'

/** The days it was walked on. */
const DAYS = [
  ...['2026-01-02', '2026-01-05', '2026-01-12', '2026-01-19', '2026-01-26', '2026-01-31', '2026-02-07'],
  ...['2026-02-14', '2026-02-21', '2026-02-28', '2026-03-02', '2026-03-03', '2026-03-04'],
]

/** The morning after the last walk. */
const NOW = '2026-03-05T08:00:00-05:00'

const LIMITS = `name,dimension,bucket,scope,kind,limit_value,warn_at_pct
Texas,state,TX,open,share,4,90
Florida,state,FL,open,share,60,90
Bridge for 12 months,loan_program,bridge_12mo,funded,amount,45000000,80
`

/**
 * Creates a lender after two months, with limits, books, people, documents, one unreadable record and a failed night. Its deals
 * are the same on every machine, and no clock runs.
 */
export async function useLender(days: readonly string[] = DAYS) {
  const lab = await useLab({tables: 'all'})
  const {store} = lab.service
  const own = lab.beside.use(writeSqlFolder({'seeds/limit.csv': LIMITS}))
  const config = {sqlDir: own.path, streams: 'deals,borrowers,documents', now: NOW}
  const env = {...lab.env, LOANTAPE_SQL_DIR: own.path, LOANTAPE_NOW: NOW}
  const createStill = (now: string) => ({
    ...lab.createWorld(now),
    realClock: {...realClock, now: () => Date.parse(now)},
  })
  const [first = '', ...others] = days
  seedPortfolio(store, {deals: 240, seed: SEED, today: first})
  const flip = {
    property_address: '12 Elm St, Austin, TX 78701',
    loan_program: 'fix_and_flip',
    loan_amount_cents: 1_200_000_00n,
  }
  store.insert([
    aDeal(1, {...flip, property_value_cents: 1_500_000_00n}),
    aDeal(2, {...flip, property_value_cents: 2_000_000_00n}),
  ])
  let day = first
  for (const walked of [first, ...others]) {
    for (; day < walked; day = addDays(day, 1)) advanceDay(store, {seed: SEED, day: addDays(day, 1)})
    const now = `${walked}T23:30:00-05:00`
    const given = {config: {sqlDir: own.path}, world: createStill(now)}
    if (walked !== days.at(-1)) {
      await lab.walk(now, given)
      continue
    }
    linkPortfolio(lab.service, {seed: SEED, since: 0, until: Date.parse(now)})
    changeRecords(lab, /^\/deals\?/, ([deal]) => Object.assign(deal ?? {}, {loan_amount: 'about 4711'}))
    await lab.sync(now, {...given, config})
  }
  for (const args of [
    ['accounting', 'init'],
    ['export', 'quickbooks', '--period', '2026-01'],
    ['period', 'close', '2026-01', '--why', 'All of January is in.'],
    ['note', 'add', '--who', 'anna', '--day', '2026-03-04', '--text', 'The Austin book was bought that day.'],
  ]) {
    const {code, stderr} = await lab.run(args, env)
    if (code !== 0) throw new Error(stderr)
    if (args[0] === 'accounting') setAccounts(lab.folder)
  }
  const serve = (changes: Parameters<typeof serveLab>[1] = {}) =>
    serveLab(lab, {...config, env, jobs: readJobs(lab.config), world: createStill(NOW), ...changes})
  const side = await serve()
  for (const [index, day] of days.entries()) {
    const at = Date.parse(`${day}T23:30:00-05:00`)
    const isFailed = index === 8
    side.stateDb.insert('job_run', {
      job: 'nightly',
      slot: isoOf(at),
      state: isFailed ? 'failed' : 'done',
      attempt: 1,
      not_before: at,
      started_at: isoOf(at),
      ended_at: isoOf(at + (4 + (index % 3)) * 60_000),
      exit_code: isFailed ? 6 : 0,
      ...(isFailed && {error_code: 'SOURCE_DOWN', error: 'The source is down.'}),
    })
  }
  return {lab, side, serve}
}
