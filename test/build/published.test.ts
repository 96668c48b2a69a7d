import {beforeEach, expect, test} from 'vitest'
import {expectRefused, readJson} from '../cli/outcome.ts'
import {DAY_1, type Ended, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {writeSqlFolder} from './folder.ts'

const lab = await useLab({tables: '+core.deal_history +mart.run*', deals: someDeals(3)})
await lab.walk(DAY_1)
beforeEach(lab.remember())

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

const FILE = 'mart/run_mine.sql'
const FIRST = {id: '1::bigint', rate: '0.5::double', note: `'x'`}
const mine = (columns: Record<string, string>, head?: string) => ({[FILE]: model(columns, head)})

test('a published column that goes, moves or changes its type fails the build until its table says that it is meant', async () => {
  const first = {id: '1::bigint', rate: '0.5::double', note: `'x'`, kind: '1::bigint', place: '2::bigint'}
  const before = readJson(await build(mine(first)))
  const {rate, place, ...others} = first
  const broken = mine({...others, more: '3::bigint', place, kind: '0.5::double'})
  await expectRefused(
    build(broken),
    'MODEL_CONTRACT',
    [
      /column 'rate' of 'mart\.run_mine' DOUBLE goes/,
      /'kind' .* becomes DOUBLE instead of BIGINT/,
      /'place' of 'mart\.run_mine' moves(?!.*'note')/,
      /`-- contract: 2` in the head of its model\. Nothing was released/,
    ],
    3,
  )
  expect(lab.currentReleaseId()).toBe(before.release_id)
  // A release of a given date, or of selected tables, is neither compared nor compared with.
  for (const of of ['--as-of 2026-02-02', '--select mart.run_mine']) {
    expect((await build(broken, ...of.split(' '))).code, of).toBe(0)
    await expectRefused(build(broken), 'MODEL_CONTRACT', [], 3)
  }
  const next = mine({id: '1::bigint', rate: '1::bigint'}, '-- contract: 2\n')
  expect(readJson(await build(next))).toMatchObject({outcome: 'released', is_current: true})
  await expectRefused(build(mine(first)), 'MODEL_CONTRACT', /`-- contract: 3`/, 3)
})

test('new columns and tables are fine; a table that is gone must be accepted once', async () => {
  expect((await build(mine(FIRST))).code).toBe(0)
  const more = {...mine({...FIRST, more: '2::bigint'}), 'mart/run_other.sql': model({id: '1::bigint'})}
  expect((await build(more)).code).toBe(0)
  await expectRefused(
    build(mine({...FIRST, more: '2::bigint'})),
    'MODEL_CONTRACT',
    /'mart\.run_other' is no longer published.*--accept columns/,
    3,
  )
  await expectRefused(
    lab.run(['build', '--json']),
    'MODEL_CONTRACT',
    /'mart\.run_mine' is no longer published; 'mart\.run_other'/,
    3,
  )
  expect(readJson(await lab.run(['build', '--accept', 'columns', '--json']))).toMatchObject({
    is_current: true,
  })
  expect((await lab.run(['build'])).code).toBe(0)
})

test('diff --schema lists what differs between two releases, by default from the one before to the current one', async () => {
  const first = readJson(await build(mine(FIRST)))
  expect(readJson(await lab.run(['diff', '--schema', '--json']))).toMatchObject({changes: []})
  const changed = mine({id: '1::bigint', note: '3::bigint', more: 'true'}, '-- contract: 2\n')
  const second = readJson(await build(changed))
  const answer = await lab.run(['diff', '--schema', '--json'])
  expect(answer.code).toBe(0)
  const of = {table: 'mart.run_mine', contract_before: 1, contract_after: 2, is_breaking: false}
  expect(readJson(answer)).toEqual({
    before: expect.objectContaining({release_id: first.release_id}),
    after: expect.objectContaining({release_id: second.release_id}),
    changes: [
      {...of, column: 'rate', change: 'went', before: 'DOUBLE', after: null},
      {...of, column: 'note', change: 'type', before: 'VARCHAR', after: 'BIGINT'},
      {...of, column: 'more', change: 'came', before: null, after: 'BOOLEAN'},
    ],
  })
  const back = await lab.run(['diff', '--schema', String(second.release_id), String(first.release_id)])
  expect(back.stdout).toMatch(/mart\.run_mine +note +type +BIGINT +VARCHAR +2 +1 +yes/)
  const same = await lab.run(['diff', '--schema', 'current', 'current'])
  expect(same.stdout).toMatch(/: the same tables and columns\.$/m)
})
