import {hash} from 'node:crypto'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {DAY_MS} from '../../src/core/clock.ts'
import {CATALOGUE} from '../../src/core/errors.ts'
import {applyEvents} from '../../src/pipeline.ts'
import {backUp} from '../../src/record/backup.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import {pruneData} from '../../src/record/prune.ts'
import {compareTapes} from '../../src/record/record-compare.ts'
import {changeTape, listRecorded, listTapes, noteTape} from '../../src/store/recorded.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {listReadableTapes, openTapes} from '../../src/sync/tapes.ts'
import {flipBit} from '../support/data.ts'
import {DAY_1, DAY_2, DAY_3, failureOf, someDeals} from '../support/lab.ts'
import {dyingAt, useLab} from '../support/set-up.ts'
import {receiveEvents} from '../support/webhooks.ts'

const lab = await useLab({deals: someDeals(60)})
/** The walk of the first day, the only one that asks for own pages. */
const {walk_id: walkId} = (await lab.walk(DAY_1, {config: {pageSize: 20}})).certificate
lab.config.detail = 'off'
beforeEach(lab.remember())

/** Starts over, as if nothing had been walked yet. */
const beginAnew = () => rmSync(lab.folder.root, {recursive: true})

interface Line {
  frame: string
  body?: string
  sha256?: string
  request?: {cursor?: string}
  [field: string]: unknown
}

async function readTape(unit: string): Promise<Line[]> {
  const {stdout, stderr} = await lab.run(['tape', 'cat', unit])
  expect(stderr).toBe('')
  const lines = stdout.split('\n').filter(Boolean)
  return lines.map((line) => JSON.parse(line) as Line)
}

const openTapesOf = (stateDb: StateDb) =>
  openTapes(lab.config, {folder: lab.folder, stateDb}, lab.createWorld(DAY_2))

const verify = async (env = {}) => JSON.parse((await lab.run(['verify', '--json'], env)).stdout)
const listProblems = async (env = {}) =>
  ((await verify(env)).problems as {problem: string}[]).map(({problem}) => problem).sort()

/** Every file of the tape folder, relative to the data folder. */
const listTapeFiles = () =>
  readdirSync(join(lab.folder.root, 'tape'), {recursive: true, encoding: 'utf8'})
    .filter((name) => name.endsWith('.zst'))
    .map((name) => join('tape', name))
    .sort()

/** A deal becomes funded, and a webhook reports it. */
function change(dealId: string): void {
  lab.service.store.update(dealId, {status: 'funded'})
  receiveEvents(lab.folder, dealId)
}

test('a walk puts every answer on its tape as it came, and its own outcome', async () => {
  const lines = await readTape(walkId)
  expect(lines[0]).toMatchObject({
    frame: 'begin',
    tape: walkId,
    stream: 'deal',
    businessDate: '2026-02-02',
    limits: {shrinkPct: 5, changePct: 20, growthPct: 100},
  })
  const lists = lines.filter(({frame}) => frame === 'list')
  const told = expect.stringMatching(/^sha256:/)
  expect(lists.map(({request}) => request?.cursor)).toEqual([undefined, told, told])
  for (const {body = '', sha256} of lists) expect(hash('sha256', body)).toBe(sha256)
  const listed = lists.flatMap(({body = ''}) => (JSON.parse(body) as {data: {id: string}[]}).data)
  expect(listed).toHaveLength(60)
  expect(lines.filter(({frame}) => frame === 'detail')).toHaveLength(60)
  expect(lines.at(-1)).toMatchObject({frame: 'outcome', outcome: 'settled'})
  expect(JSON.stringify(lines)).not.toContain('sk_test')
  const [row] = await lab.queryHistory(
    `select strftime(recorded_at, '%Y-%m-%dT%H:%M:%S') as at from walk where walk_id = '${walkId}'`,
  )
  expect(lines.at(-1)?.recorded_at).toContain(row?.at)
})

/**
 * Walks 60 pages and dies after reading them.
 *
 * @returns its tape
 */
async function dieCertified(): Promise<string> {
  beginAnew()
  await failureOf(lab.walk(DAY_1, {config: {pageSize: 1}, world: dyingAt('walk read')}))
  return listTapeFiles()[0] ?? ''
}

test('a killed walk whose tape is gone starts afresh, and the missing tape is named from then on', async () => {
  const path = await dieCertified()
  rmSync(join(lab.folder.root, path))
  const {certificate} = await lab.walk(DAY_1, {config: {pageSize: 1}})
  expect(certificate).toMatchObject({resumed: 0, records: 60})
  expect(path).not.toContain(certificate.walk_id)
  expect(await lab.queryHistory('select state from walk')).toEqual([{state: 'applied'}])
  await lab.walk(DAY_2)
  expect((await verify()).problems).toEqual([{path, problem: 'it is not there'}])
})

test('of a source that takes a second for each page, a killed run keeps every page', async () => {
  const {realClock} = lab.createWorld(DAY_2)
  let late = 0
  const now = () => {
    late += 1000
    return realClock.now() + late
  }
  const world = {...dyingAt('pages stored', 3), realClock: {...realClock, now}}
  await failureOf(lab.walk(DAY_2, {config: {pageSize: 10}, world}))
  const asked = lab.service.requests.count
  const {certificate} = await lab.walk(DAY_2, {config: {pageSize: 10}})
  expect(certificate).toMatchObject({resumed: 1, pages: 6, records: 60})
  expect(lab.service.requests.count - asked).toBeLessThan(4)
})

test('a killed walk whose tape is cut resumes after its last whole page', async () => {
  const path = await dieCertified()
  expect(await verify()).toMatchObject({outcome: 'whole', tapes: 1, problems: []})
  const file = join(lab.folder.root, path)
  const whole = readFileSync(file)
  writeFileSync(file, whole.subarray(0, Math.floor(whole.length * 0.9)))
  const {certificate} = await lab.walk(DAY_1, {config: {pageSize: 1}})
  expect(certificate).toMatchObject({resumed: 1, records: 60, distinct: 60})
  expect(path).toContain(certificate.walk_id)
  expect(await verify()).toMatchObject({outcome: 'whole', problems: []})
})

test('a state database from before a dead run was continued is brought up to date', async () => {
  await dieCertified()
  const {stateDb} = lab.folder
  await backUp(lab.config, `${lab.folder.root}-saved`, lab.createWorld(DAY_1))
  await lab.walk(DAY_1)
  await lab.walk(DAY_2)
  copyFileSync(join(`${lab.folder.root}-saved`, 'state.sqlite'), stateDb)
  await bringUpToDate(lab.config, lab.createWorld(DAY_2))
  expect(await verify()).toMatchObject({outcome: 'whole', problems: []})
})

test('a walk whose tape this version cannot read starts afresh, and its tape says why; a torn tape is no loss', async () => {
  const unit = 'w_other_version'
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    const [{fingerprint = '', path = ''} = {}] = listTapes(stateDb)
    const [torn, none] = ['w_torn', 'w_none'].map((name) => {
      return {name, path: path.replace(/w_[^.]+/, name), fingerprint, begun_at: DAY_1}
    })
    noteTape(stateDb, torn!)
    writeFileSync(join(lab.folder.root, torn!.path), 'loantape ta')
    noteTape(stateDb, none!)
    using tapes = openTapesOf(stateDb)
    tapes.begin(unit, '2026-02-03', {kind: 'walk', stream: 'deal', asked: 'in another way'})
  }
  await lab.walk(DAY_2)
  const why = expect.stringContaining('baseUrl')
  expect((await readTape(unit)).at(-1)).toMatchObject({outcome: 'abandoned', why})
  expect(await verify()).toMatchObject({outcome: 'whole', tapes: 3, problems: []})
})

test('a unit that a dead run settled on the tape of a day keeps its kind, whatever that tape began with', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  {
    using tapes = openTapesOf(stateDb)
    for (const begin of [{kind: 'without', walk: 'w_none', why: 'nothing'}, {kind: 'look'}])
      await tapes.settleOfDay('2026-02-03', begin, ({conclude}) => conclude(1n))
  }
  // As if the run had died between the tape and the state database.
  const forget = () =>
    stateDb.db.exec(`
      delete from tape_unit where no = (select max(no) from tape_unit);
      update tape set ended_at = null where name = '2026-02-03'`)
  forget()
  using tapes = openTapesOf(stateDb)
  expect(tapes.listLeft()).toEqual([])
  expect(listRecorded(stateDb).at(-1)?.kind).toBe('look')
  forget()
  expect(compareTapes(lab.config, {folder: lab.folder, stateDb}, lab.createWorld(DAY_2)).problems).toEqual([])
  expect(listRecorded(stateDb).at(-1)?.kind).toBe('look')
})

test('a tape of a day that was lost counts again once it is back and written on, unless it was given up', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  using tapes = openTapesOf(stateDb)
  const settle = () => tapes.settleOfDay('2026-02-03', {kind: 'look'}, ({conclude}) => conclude(1n))
  await settle()
  const path = join(lab.folder.root, listTapes(stateDb).at(-1)?.path ?? '')
  // As if the next run had died within a unit, and the one after it had not found the tape.
  renameSync(path, `${path}.away`)
  stateDb.db.exec(`update tape set ended_at = null where name = '2026-02-03'`)
  const [left] = tapes.listLeft()
  expect(left && (await tapes.reopen(left, async () => undefined))).toBe(false)
  renameSync(`${path}.away`, path)
  await settle()
  expect(listRecorded(stateDb).filter(({tape}) => tape === '2026-02-03')).toHaveLength(2)
  expect(listReadableTapes(lab.folder, stateDb, tapes.key).map(({name}) => name)).toContain('2026-02-03')
  changeTape(stateDb, '2026-02-03', {outcome: 'lost', removed_at: '2026-02-04T00:00:00.000Z'})
  await settle()
  expect(listRecorded(stateDb).at(-1)).toMatchObject({tape: '2026-02-03.2'})
  expect(listTapes(stateDb).at(-2)).toMatchObject({outcome: 'lost'})
})

test('a dead run’s tape of a day that is damaged before its end is left as it is', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  using tapes = openTapesOf(stateDb)
  const settle = (isDying = false) =>
    tapes.settleOfDay('2026-02-03', {kind: 'look'}, ({conclude}) => {
      if (isDying) throw new Error('died')
      return conclude(1n)
    })
  for (const _ of [1, 2]) await settle()
  await failureOf(settle(true))
  stateDb.db.exec(`update tape set ended_at = null where name = '2026-02-03'`)
  const path = join(lab.folder.root, listTapes(stateDb).at(-1)?.path ?? '')
  const bytes = flipBit(path)
  const [left] = tapes.listLeft()
  expect(left && (await tapes.reopen(left, async () => undefined))).toBe(false)
  await settle()
  expect(readFileSync(path).equals(bytes)).toBe(true)
})

test('a damaged tape of an applied walk is left untouched and named', async () => {
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    // As if the run had died before it ended the tape.
    stateDb.db.exec('update tape set ended_at = null')
  }
  const [path = ''] = listTapeFiles()
  const file = join(lab.folder.root, path)
  const bytes = flipBit(file)
  await lab.walk(DAY_2)
  expect(readFileSync(file).equals(bytes)).toBe(true)
  expect((await verify()).problems).toEqual([
    {path, problem: expect.stringMatching(/its bytes are not those that were written$/)},
  ])
})

test('prune removes expired tapes, even those a killed prune left, and verify reports them as removed', async () => {
  lab.ageTapes(401)
  await lab.run(['backup', join(lab.folder.root, '../backup')])
  await lab.walk(DAY_2)
  const [old = ''] = listTapeFiles()
  const kept = join(lab.folder.root, '../kept')
  copyFileSync(join(lab.folder.root, old), kept)
  const prune = () => pruneData(lab.config, {isDryRun: false}, lab.createWorld(DAY_2))
  expect((await prune()).tapes).toEqual([old])
  // The removal is itself an act, which has a tape.
  expect(listTapeFiles()).toHaveLength(2)
  expect(await verify()).toMatchObject({outcome: 'whole', tapes: 2, removed: 1})
  expect((await lab.run(['tape', 'cat', walkId])).stderr).toContain('removed as old')
  copyFileSync(kept, join(lab.folder.root, old))
  writeFileSync(join(lab.folder.tapes, '.writing-act_1.jsonl.zst@elsewhere-1'), 'half of an act')
  expect((await verify()).problems).toEqual([])
  expect(await prune()).toMatchObject({outcome: 'unchanged'})
  expect(listTapeFiles()).not.toContain(old)
})

test('prune removes no tape that no backup holds, whatever the clock was when one was made', async () => {
  const ahead = lab.createWorld(DAY_1)
  ahead.realClock = {...ahead.realClock, now: () => Date.now() + 300 * DAY_MS}
  await backUp(lab.config, join(lab.folder.root, '../ahead'), ahead)
  await lab.walk(DAY_2)
  lab.ageTapes(401)
  await lab.walk(DAY_3)
  const prune = () => pruneData(lab.config, {isDryRun: false}, lab.createWorld(DAY_3))
  expect(await prune()).toMatchObject({tapes: [expect.stringContaining(walkId)], unsaved: 1})
  await backUp(lab.config, join(lab.folder.root, '../later'), lab.createWorld(DAY_3))
  expect(await prune()).toMatchObject({tapes: [expect.any(String)], unsaved: 0})
})

test('a tape that is missing, swapped, renamed or changed is found', async () => {
  await lab.walk(DAY_2)
  const [one = '', two = ''] = listTapeFiles().map((path) => join(lab.folder.root, path))
  const [kept, renamed] = [`${lab.folder.root}.kept`, one.replace('w_', 'x_')]
  const [missing, changed] = ['it is not there', 'it is not the file that was finished']
  const move = (...moves: [from: string, to: string][]) => {
    for (const [from, to] of moves) renameSync(from, to)
  }

  expect(await verify()).toMatchObject({outcome: 'whole', tapes: 2, problems: []})
  move([one, kept])
  expect(await listProblems()).toEqual([missing])
  move([two, one], [kept, two])
  expect(await listProblems()).toEqual([changed, changed])
  move([two, kept], [one, two], [kept, one])
  expect(await listProblems()).toEqual([])
  move([one, renamed])
  expect(await listProblems()).toEqual([missing, expect.stringMatching(/x_.*copied or renamed/)])
  move([renamed, one])
  const edits: [edit: string, found: string[]][] = [
    [
      `update tape_unit set chain = 'x' where no = 1`,
      [1, 2].map((no) => `its unit ${no} is not the one of the record`),
    ],
    [
      `insert into tape_unit select 3, tape, kind, 'x' from tape_unit where no = 2`,
      ['it lacks unit 3 of the record'],
    ],
  ]
  for (const [edit, found] of edits) {
    const edited = lab.copyFolder(edit)
    using stateDb = openStateDb(edited.stateDb)
    stateDb.run(edit)
    expect(await listProblems({LOANTAPE_DATA_DIR: edited.root})).toEqual(found)
  }
  const copy = lab.copyFolder('without-state')
  for (const end of ['', '-wal', '-shm']) rmSync(copy.stateDb + end, {force: true})
  const emptied = one.replace(lab.folder.root, copy.root)
  rmSync(emptied)
  writeFileSync(emptied, '')
  const {stdout} = await lab.run(['verify', '--json'], {LOANTAPE_DATA_DIR: copy.root})
  const problem = expect.stringMatching(
    /w_.* is no tape that this version can read: restore it, or move it away/,
  )
  expect(JSON.parse(stdout).problems).toMatchObject([{path: 'tape', problem}])
  const env = {LOANTAPE_DATA_DIR: copy.root}
  // A header of a tape, as a run leaves it that dies before its first line.
  writeFileSync(emptied, readFileSync(one).subarray(0, 67))
  expect(await listProblems(env)).toEqual([expect.stringContaining('it holds nothing: move it away')])
  const otherKey = join(copy.root, '../other.key')
  writeFileSync(otherKey, 'a'.repeat(64))
  expect(await listProblems({...env, LOANTAPE_TAPE_KEY_FILE: otherKey})).toContainEqual(
    expect.stringContaining('is not at hand to read it: put that key back, or move the tape away'),
  )
  copyFileSync(one, emptied)
  flipBit(emptied)
  const damaged = await lab.run(['verify'], {LOANTAPE_DATA_DIR: copy.root})
  expect(damaged.stdout).toMatch(/units between are missing, perhaps on tape.*w_.*, cut off or damaged/)
  flipBit(one)
  const foreign = join(lab.folder.exports, 'xero/2026-02-foreign')
  mkdirSync(foreign, {recursive: true})
  writeFileSync(join(foreign, 'manifest.json'), '{}')
  const ended = await lab.run(['verify'])
  expect(ended).toMatchObject({code: 1, stdout: expect.stringContaining(changed)})
  expect(ended.stdout).toContain('that the record does not know: xero/2026-02-foreign.')
  expect(ended.stdout).toContain('Bring these files back from a backup.')
})

test('without the key everything but the tapes works, and a sync says what is lost and how to go on', async () => {
  expect((await lab.run(['build'])).code).toBe(0)
  expect((await lab.run(['note', 'add', '--day', '2026-02-02', '--text', 'a holiday'])).code).toBe(0)
  const file = lab.env.LOANTAPE_TAPE_KEY_FILE ?? ''
  expect(statSync(file).mode & 0o777).toBe(0o600)
  const first = readFileSync(file)
  rmSync(file)
  const copy = lab.copyFolder('without-warehouse')
  rmSync(copy.warehouse)
  const {stderr} = await lab.run(['period', 'list'], {LOANTAPE_DATA_DIR: copy.root})
  expect(stderr).toMatch(/sealed with key \w{16}, which is not at hand. Put that key back/)
  expect((await lab.run(['export', 'csv'])).code).toBe(0)
  expect((await lab.run(['status'])).code).toBe(0)
  expect(await verify()).toMatchObject({outcome: 'whole', tapes: 2, closed: 2, walks: 1})
  const refused = await failureOf(lab.walk(DAY_2))
  expect(refused).toMatchObject({code: 'TAPE_KEY_LOST', exitCode: 2})
  expect(refused.message).toContain('tape new-key')
  expect(existsSync(file)).toBe(false)
  const takeNewKey = () => lab.run(['tape', 'new-key', '--why', 'the disk died'])
  expect((await takeNewKey()).code).toBe(0)
  const taken = readFileSync(file)
  // Another data folder may use the same key.
  expect(await takeNewKey()).toMatchObject({code: 2, stderr: expect.stringContaining('it is not lost')})
  expect(readFileSync(file)).toEqual(taken)
  await lab.walk(DAY_2)
  expect(await verify()).toMatchObject({outcome: 'whole', tapes: 4, closed: 2})
  // The lost key is found again.
  writeFileSync(file, first)
  expect((await takeNewKey()).code).toBe(0)
  expect(await verify()).toMatchObject({outcome: 'whole', tapes: 5, closed: 2})
  const rebuilt = await lab.run(['verify', '--rebuild'])
  expect(rebuilt).toMatchObject({code: 0, stdout: expect.stringContaining('Some acts cannot be read')})
  writeFileSync(file, `${'0'.repeat(64)}\n`)
  const wrong = await verify()
  expect(wrong).toMatchObject({outcome: 'damaged', closed: 0})
  const {next} = CATALOGUE.TAPE_KEY_WRONG
  const problem = expect.stringMatching(/^it is sealed with key \w{16}, which is not at hand\.$/)
  expect(wrong.problems).toContainEqual({path: expect.stringContaining('tape/'), problem, next})
})

test("after a key change, neither a dead run's walk nor the day's earlier tape holds anything up", async () => {
  const config = {...lab.config, detail: 'auto' as const}
  change('deal_000002')
  const noon = lab.createWorld('2026-02-03T12:00:00-05:00')
  await applyEvents(config, noon)
  await failureOf(lab.walk(DAY_2, {world: dyingAt('walk read')}))
  rmSync(lab.env.LOANTAPE_TAPE_KEY_FILE ?? '')
  expect((await lab.run(['tape', 'new-key', '--why', 'lost'])).code).toBe(0)
  const {certificate} = await lab.walk(DAY_2)
  expect(certificate).toMatchObject({records: 60, resumed: 0})
  change('deal_000003')
  const later = lab.createWorld('2026-02-03T23:50:00-05:00')
  expect(await applyEvents(config, later)).toMatchObject({appended: 1})
  await lab.walk(DAY_3)
  expect(await verify()).toMatchObject({outcome: 'whole', closed: 3})
  expect(listTapeFiles().map((path) => path.split('/').at(-1))).toContain('2026-02-03.2.jsonl.zst')
})

test('a key inside the data folder, or an invalid one, is refused', async () => {
  beginAnew()
  const file = lab.env.LOANTAPE_TAPE_KEY_FILE ?? ''
  const refusal = {code: 'TAPE_KEY_FILE'}
  for (const name of ['tape.key', '..key', '..keys/tape.key']) {
    const inside = {tapeKeyFile: join(lab.folder.root, name)}
    expect(await failureOf(lab.walk(DAY_1, {config: inside}))).toMatchObject(refusal)
  }
  writeFileSync(file, 'not a key')
  expect(await failureOf(lab.walk(DAY_1))).toMatchObject(refusal)
})
