import {existsSync, readdirSync, readFileSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {LONGEST_NOTE, writeNote} from '../../src/accounting/notes.ts'
import {compareBuilds} from '../../src/build/compare-builds.ts'
import {noteLastBuild, readLastBuild} from '../../src/build/last-build.ts'
import {nameOfUser} from '../../src/core/process.ts'
import {compareBooks} from '../../src/record/verify.ts'
import {requireRelease} from '../../src/store/release.ts'
import {expectRefused} from '../cli/outcome.ts'
import {LEAST_TABLES} from '../support/data.ts'
import {failureOf, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'

const lab = await useLab({tables: `${LEAST_TABLES} +core.note`, deals: someDeals(30)})
const {store} = lab.service
const INCREMENTAL = {config: {build: 'incremental'}} as const
await lab.sync('2026-03-02T23:30:00-05:00', INCREMENTAL)
beforeEach(lab.remember())
beforeEach(() => {
  const last = readLastBuild(lab.folder)
  if (last) noteLastBuild(lab.folder, last, requireRelease(lab.folder))
})

const run = (now: string, ...args: string[]) => lab.run(args, {LOANTAPE_NOW: now})

/** Writes a note on the morning of a day. */
async function note(day: string, ...args: string[]): Promise<void> {
  const {code, stderr} = await run(`${day}T14:00:00Z`, 'note', ...args)
  expect(stderr).toBe('')
  expect(code).toBe(0)
}

const listed = async () => (await run('2026-03-09T14:00:00Z', 'note', 'list', '--json')).stdout

const NOTES = 'select note_no, note, ended_by, replaced_by_no from core.note'

test('notes are in the next release and its exports, in backups, and computed again from the tapes', async () => {
  expect((await run('2026-03-03T14:00:00Z', 'note', 'list')).stdout).toBe('Nobody has noted anything.\n')
  await note('2026-03-03', 'add', '--day=2026-03-02', '--text==1+1 <b>"\r\n\u05d0')
  await note('2026-03-03', 'add', '--deal', 'deal_000001', '--text', 'sold')
  await note('2026-03-03', 'add', '--replaces=2', '--text=sold to the bank')
  const again = ['note', 'add', '--replaces=2', '--text=kept', '--json']
  await expectRefused(lab.run(again), 'UNKNOWN_NAME', `'2' does not stand: ${nameOfUser()} replaced it at `)
  await note('2026-03-03', 'add', '--day=2026-03-01', '--text=agreed')
  await note('2026-03-03', 'withdraw', '4')
  await expectRefused(lab.run(['note', 'withdraw', '4', '--json']), 'UNKNOWN_NAME', 'withdrew it')
  expect(JSON.parse((await run('2026-03-03T15:00:00Z', 'build', '--json')).stdout)).toMatchObject({
    outcome: 'unchanged',
    release_id: lab.currentReleaseId(),
  })
  store.update('deal_000001', {status: 'underwriting'})
  await lab.sync('2026-03-03T23:30:00-05:00', INCREMENTAL)
  expect(readLastBuild(lab.folder)?.rebuilt).toBeGreaterThan(0)
  const first = {note_no: '1', note: '=1+1 <b>"\n\u05d0', ended_by: null, replaced_by_no: null}
  const rows = [
    first,
    {note_no: '2', note: 'sold', ended_by: nameOfUser(), replaced_by_no: '3'},
    {note_no: '3', note: 'sold to the bank', ended_by: null, replaced_by_no: null},
    {note_no: '4', note: 'agreed', ended_by: nameOfUser(), replaced_by_no: null},
  ]
  expect(await lab.query(NOTES)).toEqual(rows)
  await note('2026-03-04', 'withdraw', '1')
  // A note about no deal adds no row, whatever the deal is called.
  await note('2026-03-04', 'add', '--deal=\u200b=1+1', '--text=x')
  await lab.sync('2026-03-04T23:30:00-05:00', INCREMENTAL)
  expect((await lab.query(NOTES))[0]).toMatchObject({note_no: '1', ended_by: expect.stringMatching(/./)})
  expect(await lab.query("select 1 from core.note where deal_id is not null and note = 'x'")).toEqual([])
  const world = lab.createWorld('2026-03-04T23:30:00-05:00')
  await compareBuilds({...lab.config, ...INCREMENTAL.config}, {}, world)

  const build = ['build', '--as-of=2026-03-03', '--json']
  const {release_id} = JSON.parse((await run('2026-03-05T14:00:00Z', ...build)).stdout)
  expect(await lab.query(NOTES, release_id)).toEqual(rows)
  const exporting = ['export', 'csv', '--release', release_id, '--spreadsheet-safe']
  expect(await run('2026-03-05T14:00:00Z', ...exporting)).toMatchObject({code: 0})
  const [batch = ''] = readdirSync(join(lab.folder.exports, 'csv'))
  const csv = readFileSync(join(lab.folder.exports, 'csv', batch, 'core.note.csv'), 'utf8')
  expect(csv).toContain(`1,day,2026-03-02,,,"'=1+1 <b>""\n\u05d0",2026-03-03`)

  const all = await listed()
  const backup = join(lab.folder.root, '../backup')
  expect((await lab.run(['backup', backup])).code).toBe(0)
  rmSync(lab.folder.root, {recursive: true})
  expect((await lab.run(['restore', backup])).code).toBe(0)
  expect(await listed()).toBe(all)
  for (const end of ['', '-wal', '-shm']) rmSync(`${lab.folder.stateDb}${end}`, {force: true})
  expect(await listed()).toBe(all)
  expect(compareBooks(lab.config)).toEqual([])
  expect((await lab.run(['rebuild', '--apply'])).code).toBe(0)
  expect(await listed()).toBe(all)
})

test('an act that fails once it is on its tape says that it stands, and stands once', async () => {
  const onStep = () => {
    throw new Error('database or disk is full')
  }
  const draft = {about: 'day', subject: '2026-03-02', text: 'a holiday'} as const
  const world = {...lab.createWorld('2026-03-03T14:00:00Z'), onStep}
  const failure = await failureOf((async () => writeNote(lab.config, draft, world))())
  expect(failure).toMatchObject({code: 'DISK_FULL', next: expect.stringContaining('before you do it again')})
  expect(failure.message).toContain('takes effect with the next command')
  expect((await listed()).match(/a holiday/g)).toHaveLength(1)
})

const refusals: [args: string[], code: string, words: string][] = [
  [['add', '--text=x'], 'USAGE', '--day'],
  [['add', '--day=2026-02-30', '--text=x'], 'USAGE', "'2026-02-30' in --day"],
  [['add', '--deal=', '--text=x'], 'USAGE', '--deal'],
  [['add', '--day=0000-01-01', '--text=x'], 'USAGE', "'0000-01-01' in --day"],
  [['add', '--day=2026-03-02', '--deal=a', '--text=x'], 'USAGE', 'expected one of'],
  [['add', '--limit=none', '--replaces=1', '--text=x'], 'USAGE', 'expected one of'],
  [['add', '--day=2026-03-02', '--text= \n'], 'USAGE', '1 to 500'],
  [['add', '--day=2026-03-02', `--text=${'x'.repeat(100_000)}`], 'USAGE', '1 to 500'],
  [['add', '--day=2026-03-02', '--text=a\u001b[31m'], 'USAGE', 'control character'],
  [['add', '--replaces=1', '--text=x'], 'UNKNOWN_NAME', "'1'"],
  [['withdraw', 'x'], 'UNKNOWN_NAME', 'there is none'],
]

test('what is no note is refused', async () => {
  for (const [args, code, words] of refusals)
    await expectRefused(lab.run(['note', ...args, '--json']), code, words)
  await note('2026-03-03', 'add', '--day=2026-03-02', `--text=${'x'.repeat(LONGEST_NOTE)}`)
  const nowhere = {LOANTAPE_DATA_DIR: join(lab.folder.root, '../nowhere')}
  const args = ['note', 'add', '--day=2026-03-02', '--text=x', '--json']
  expect((await lab.run(args, nowhere)).stdout).toContain('RELEASE_NONE')
  expect(existsSync(nowhere.LOANTAPE_DATA_DIR)).toBe(false)
})
