import {expect, test} from 'vitest'
import {expectRefused, readJson} from '../cli/outcome.ts'
import {DAY_1, type Ended, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {writeSqlFolder} from './folder.ts'

const lab = await useLab({tables: '+core.deal_history +mart.run*', deals: someDeals(3)})
await lab.walk(DAY_1)

function model(columns: Record<string, string>, head = ''): string {
  const described = Object.keys(columns).map((name) => `-- ${name}: what it is\n`)
  const [grain] = Object.keys(columns)
  const selected = Object.entries(columns).map(([name, sql]) => `${sql} as ${name}`)
  return `-- One row.\n-- grain: ${grain}\n${head}${described.join('')}select ${selected.join(', ')}\n`
}

async function build(files: Record<string, string>, ...args: string[]): Promise<Ended> {
  using own = writeSqlFolder(files)
  const env = {LOANTAPE_SQL_DIR: own.path, LOANTAPE_LOG_LEVEL: 'error'}
  return await lab.run(['build', '--json', ...args], env)
}

const SECOND = '-- contract: 2\n'

const mine = (columns: Record<string, string>, head?: string) => ({
  'mart/run_mine.sql': model(columns, head),
})

const refused = (building: Promise<Ended>, words: RegExp | RegExp[]) =>
  expectRefused(building, 'MODEL_CONTRACT', words, 3)

test('a published column or table that goes or changes fails the build until it is said to be meant; diff --schema lists what differs', async () => {
  const first = {id: '1::bigint', rate: '0.5::double', note: `'x'`}
  const before = readJson(await build(mine(first)))
  expect(readJson(await lab.run(['diff', '--schema', '--json']))).toMatchObject({changes: []})
  const second = {
    ...{id: '1::bigint', gone: '1::bigint', note: '3::bigint'},
    ...{kind: '1::bigint', place: '2::bigint'},
  }
  const after = readJson(await build(mine(second, SECOND)))
  expect(after).toMatchObject({outcome: 'released', is_current: true})
  const answer = await lab.run(['diff', '--schema', '--json'])
  expect(answer.code).toBe(0)
  const of = {table: 'mart.run_mine', contract_before: 1, contract_after: 2, is_breaking: false}
  const came = {...of, change: 'came', before: null, after: 'BIGINT'}
  expect(readJson(answer)).toEqual({
    before: expect.objectContaining({release_id: before.release_id}),
    after: expect.objectContaining({release_id: after.release_id}),
    changes: [
      {...of, column: 'rate', change: 'went', before: 'DOUBLE', after: null},
      {...of, column: 'note', change: 'type', before: 'VARCHAR', after: 'BIGINT'},
      ...['gone', 'kind', 'place'].map((column) => ({...came, column})),
    ],
  })
  const back = await lab.run(['diff', '--schema', String(after.release_id), String(before.release_id)])
  expect(back.stdout).toMatch(/mart\.run_mine +note +type +BIGINT +VARCHAR +2 +1 +yes/)
  const same = await lab.run(['diff', '--schema', 'current', 'current'])
  expect(same.stdout).toMatch(/: the same tables and columns\.$/m)

  const {gone: _, place, ...others} = second
  const broken = mine({...others, more: '3::bigint', place, kind: '0.5::double'}, SECOND)
  await refused(build(broken), [
    /column 'gone' of 'mart\.run_mine' BIGINT goes/,
    /'kind' .* becomes DOUBLE instead of BIGINT/,
    /'place' of 'mart\.run_mine' moves(?!.*'note')/,
    /`-- contract: 3` in the head of its model\. Nothing was released/,
  ])
  expect(lab.currentReleaseId()).toBe(after.release_id)
  // A release of a given date, or of selected tables, is neither compared nor compared with.
  for (const of of ['--as-of 2026-02-02', '--select mart.run_mine']) {
    expect((await build(broken, ...of.split(' '))).code, of).toBe(0)
    await refused(build(broken), [])
  }

  // New tables are fine; those that are gone must be accepted once.
  const more = {...mine(second, SECOND), 'mart/run_other.sql': model({id: '1::bigint'})}
  expect((await build(more)).code).toBe(0)
  const gone = /'mart\.run_mine' is no longer published; 'mart\.run_other'.*--accept columns/
  await refused(lab.run(['build', '--json']), gone)
  const accepted = await lab.run(['build', '--accept', 'columns', '--json'])
  expect(readJson(accepted)).toMatchObject({is_current: true})
  expect((await lab.run(['build'])).code).toBe(0)
})
