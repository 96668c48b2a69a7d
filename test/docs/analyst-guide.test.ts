import {mkdirSync, readFileSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {expect, test} from 'vitest'
import {buildRelease} from '../../src/build/build.ts'
import {aRow} from '../../src/build/case-rows.ts'
import {addDays} from '../../src/core/clock.ts'
import {advanceDay, seedPortfolio} from '../../src/service/portfolio.ts'
import {openDatabase} from '../../src/store/database.ts'
import {requireRelease} from '../../src/store/release.ts'
import {query} from '../build/history.ts'
import {anyRow} from '../support/data.ts'
import {useLab} from '../support/set-up.ts'

const page = readFileSync(join(import.meta.dirname, '../../docs/analyst-guide.md'), 'utf8')

/** The SQL blocks under a heading, each with its own heading. */
function listBlocks(heading: string): {title: string; sql: string}[] {
  const section = page.split(/^## /m).find((text) => text.startsWith(heading)) ?? ''
  return section.split(/^### /m).flatMap((part) =>
    [...part.matchAll(/^```sql\n(.*?)^```/gms)].map(([, sql = '']) => ({
      title: part.split('\n')[0] ?? '',
      sql,
    })),
  )
}

const questions = listBlocks('Ten questions')
const SEED = 'guide'
const LAST_NIGHT = '2026-04-27T23:30:00-04:00'

const lab = await useLab({tables: 'all'})
const {store} = lab.service
const firstDay = '2026-03-02'
seedPortfolio(store, {deals: 400, seed: SEED, today: firstDay})
for (let day = firstDay, nights = 0; nights < 57; day = addDays(day, 1), nights += 1) {
  if (day !== firstDay) advanceDay(store, {seed: SEED, day})
  const now = `${day}T23:30:00-04:00`
  if (now === LAST_NIGHT) await lab.sync(now)
  else if (nights % 14 === 0) await lab.walk(now, {config: {detail: 'off'}})
}

test('each of the ten questions has an answer', async () => {
  expect(questions.map(({title}) => Number.parseInt(title, 10))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
  for (const {title, sql} of questions) expect(await lab.query(sql), title).not.toEqual([])
})

test('re-traded means changed while approved, until funded', async () => {
  const sql = questions.find(({title}) => title.includes('re-traded'))?.sql ?? ''
  const change = (deal_id: string, status: string, next: string) => [
    aRow('deal_version', {deal_id, status}),
    aRow('deal_version', {deal_id, status: next, loan_amount: '90000.00', day: '2026-03-03'}),
  ]
  const versions = [
    ...change('deal_at_approval', 'underwriting', 'approved'),
    ...change('deal_approved', 'approved', 'approved'),
    ...change('deal_at_funding', 'approved', 'funded'),
    ...change('deal_funded', 'funded', 'funded'),
  ]
  expect(await query({deal_version: versions}, sql)).toMatchObject([
    {deal_id: 'deal_approved', old_amount: '100000.00', new_amount: '90000.00', difference: '-10000.00'},
    {deal_id: 'deal_at_funding'},
  ])
})

test('loans that are in no month of originations are found', async () => {
  const [where] = /from core\.deal where status_class = 'funded' and \w+ is null/.exec(page) ?? []
  const history = {
    walk: [aRow('walk'), aRow('walk', {day: '2026-03-03'})],
    deal_version: [
      aRow('deal_version', {deal_id: 'from_the_start', status: 'funded'}),
      aRow('deal_version', {deal_id: 'came_funded', status: 'funded', day: '2026-03-03'}),
    ],
  }
  expect(await query(history, `select deal_id ${where}`)).toEqual([{deal_id: 'from_the_start'}])
  const originated = 'select cast(sum(deals) as integer) as deals from mart.origination_monthly'
  expect(await query(history, originated)).toEqual([{deals: 1}])
})

test('the paths the guide names exist in a release', async () => {
  const named = [...page.matchAll(/data\/(current\/[\w.]+)/g)].map(([, path = '']) => path)
  expect(named.length).toBeGreaterThan(2)
  await using db = await openDatabase()
  for (const path of new Set(named)) {
    const file = join(lab.folder.root, path)
    const sql = path.endsWith('.parquet')
      ? `select count(*) as n from read_parquet('${file}')`
      : `attach '${file}' as named (read_only); select deals as n from named.mart.portfolio_summary`
    expect(Number((await db.one(anyRow, sql)).n), path).toBeGreaterThan(0)
  }
})

test("the guide's own model and check are built, checked and released", async () => {
  const [model, check] = listBlocks('A table of your own')
  const sqlDir = join(lab.folder.root, '../my-sql')
  const files = {'risk/watch_list.sql': model?.sql, 'checks/no_odd_ltv.sql': check?.sql}
  for (const [file, sql] of Object.entries(files)) {
    mkdirSync(dirname(join(sqlDir, file)), {recursive: true})
    writeFileSync(join(sqlDir, file), sql ?? '')
  }
  const config = {...lab.config, sqlDir}
  const world = {...lab.createWorld(LAST_NIGHT), select: '+risk.watch_list +mart.run'}
  const {release_id} = await buildRelease(config, {}, world)
  const {manifest} = requireRelease(lab.folder, release_id)
  expect(manifest.models.find(({name}) => name === 'risk.watch_list')?.rows).toBeGreaterThan(0)
})
