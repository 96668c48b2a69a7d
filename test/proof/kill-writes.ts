import assert from 'node:assert/strict'
import {cpSync, rmSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {dealStream} from '../../src/contract/deal.ts'
import {type DataFolder, dataFolderAt} from '../../src/store/data-folder.ts'
import {listTapes, type TapeRow} from '../../src/store/recorded.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {openHistory} from '../../src/store/warehouse.ts'
import {listTapeFiles} from '../../src/sync/tapes.ts'
import {storeEvent} from '../../src/sync/webhook-events.ts'
import {BOOK_TABLES} from '../support/books.ts'
import {anyRow, createWorld} from '../support/data.ts'
import {aDeal, createLab, type Ended, type Lab} from '../support/lab.ts'
import {readFieldAs} from '../support/schema.ts'
import {type ProofRequest, type Proved, proveCases, type Run} from './proof.ts'
import {runThere} from './separate-run.ts'
import {listLeftovers, requireWholeFiles} from './soundness.ts'
import {READABLE, UNREADABLE} from './world/source.ts'

const NOW = '2026-03-02T23:30:00Z'

interface Deed {
  command: string
  /** The folder it runs in: data and tape key. */
  folder: string
  /** The error it ends with if its work is already done. */
  refusal?: string
  /** What a person runs next if the command must not be repeated. */
  next?: readonly string[]
  isMended?: boolean
  /** Whether nothing is readable before it, to compare with. */
  isUnreadable?: boolean
}

/** Plays a lender's history up to the moment before each deed. @param names the deeds needed; all by default */
async function tellLender(lab: Lab, names?: readonly string[]): Promise<Record<string, Deed>> {
  const {store} = lab.service
  const root = dirname(lab.folder.root)
  const run = async (command: string, day: string) => {
    const ended = await lab.run(command.split(' '), {LOANTAPE_NOW: `${day}T23:30:00Z`})
    assert.equal(ended.code, 0, `${command}: ${ended.stderr}`)
  }
  const keyFile = lab.env.LOANTAPE_TAPE_KEY_FILE ?? ''
  const keep = (name: string) => {
    copyTo(join(root, name, 'data'), lab.folder.root)
    cpSync(keyFile, join(root, name, 'tape.key'))
    return join(root, name)
  }
  const map = (code: string) => {
    const receivable = {'*': {code, name: `Receivable ${code}`}}
    writeFileSync(join(lab.folder.root, 'accounting.json'), JSON.stringify({...DEFAULT_MAPPING, receivable}))
  }
  const id = (number: number) => aDeal(number).id
  store.insert(Array.from({length: 12}, (_, number) => aDeal(number)))
  await run('sync', '2026-01-30')
  map('1200')
  for (const number of [1, 2, 3]) store.update(id(number), {status: 'funded'})
  await run('sync', '2026-01-31')
  const before = join(root, 'warehouse-before')
  cpSync(lab.folder.warehouse, before)
  store.update(id(4), {status: 'funded'})
  lab.service.faults.add({
    match: {path: /^\/deals/},
    fault: {
      kind: 'mutate',
      change: (body) => {
        const {data} = body as {data: Record<string, unknown> | Record<string, unknown>[]}
        for (const deal of [data].flat()) if (deal.id === id(5)) deal.loan_amount = UNREADABLE
        return body
      },
    },
  })
  await run('sync', '2026-03-01')
  await run('build --as-of 2026-01-31', '2026-03-02')
  await run(`backup ${join(root, 'backup-before')}`, '2026-03-02')
  const open = keep('open')
  store.update(id(3), {loan_amount_cents: 360_000_00n})
  for (const number of [6, 7, 8, 9]) store.remove(id(number))
  const change = (name: string, from: string, work: (folder: DataFolder, dir: string) => void) => {
    const dir = copyTo(join(root, name), from)
    work(dataFolderAt(join(dir, 'data')), dir)
    return dir
  }
  const old = change('old', open, (folder) => {
    using stateDb = openStateDb(folder.stateDb)
    stateDb.run(`update tape set ended_at = '2024-01-01T00:00:00.000Z' where tape_no = 1`)
  })
  const told = change('told', open, (folder) => {
    using stateDb = openStateDb(folder.stateDb)
    storeEvent(stateDb, {eventId: 'evt_1', type: 'deal.updated', dealId: id(3)}, Date.parse(NOW))
  })
  const keyless = change('keyless', open, (_, dir) => rmSync(join(dir, 'tape.key')))
  const damaged = change('damaged', open, ({warehouse}) => writeFileSync(warehouse, 'damaged'.repeat(1000)))
  const guarded = 'sync --accept shrink --accept change'
  const undo = `rebuild --without ${findLastWalk(open).name} --why wrong --apply`
  const beforeExports: Record<string, Deed> = {
    'batch issued': {command: 'export xero --period 2026-01', folder: open},
    'month closed': {command: 'period close 2026-01', folder: open, refusal: 'PERIOD_CLOSED'},
    'tapes pruned': {command: 'prune', folder: old},
    'key replaced': {
      command: 'tape new-key --why lost',
      folder: keyless,
      refusal: 'RECORD_WHOLE',
      next: [guarded],
    },
    'guard accepted': {command: guarded, folder: open, next: [guarded]},
    'quarantine replayed': {command: 'quarantine replay', folder: open, isMended: true},
    'event applied': {command: 'events apply', folder: told},
    rebuilt: {command: 'rebuild --apply', folder: damaged, isUnreadable: true},
    'walk taken back': {command: undo, folder: open},
  }
  if (names?.every((name) => name in beforeExports)) return beforeExports

  await run(`backup ${join(root, 'backup')}`, '2026-03-02')
  const restored = join(root, 'restored')
  cpSync(keyFile, join(restored, 'tape.key'), {recursive: true})
  for (const month of ['2026-01', '2026-03']) await run(`export xero --period ${month}`, '2026-03-02')
  const lost = change('lost', keep('issued'), (folder, dir) => {
    rmSync(join(folder.root, findLastWalk(dir).path))
    cpSync(before, folder.warehouse)
  })
  const gone = copyTo(join(root, 'gone'), lost)
  const given = await lab.run(['tape', 'go-on', '--why', 'a proof'], envOf(gone))
  assert.equal(given.code, 0, given.stderr)
  await run('period close 2026-01', '2026-03-02')
  const closed = keep('closed')
  map('1300')
  const restore = `restore ${join(root, 'backup')}`
  return {
    ...beforeExports,
    'month reopened': {command: 'period reopen 2026-01 --why again', folder: closed, refusal: 'PERIOD_STATE'},
    'months remapped': {command: 'period remap', folder: keep('mapped')},
    'true-up': {command: 'period true-up --issue', folder: gone},
    'gone on': {command: 'tape go-on --why lost', folder: lost, refusal: 'RECORD_WHOLE'},
    restored: {command: restore, folder: restored, refusal: 'RESTORE_NOT_EMPTY', isUnreadable: true},
  }
}

function copyTo(dir: string, from: string): string {
  cpSync(from, dir, {recursive: true, verbatimSymlinks: true})
  return dir
}

function findLastWalk(dir: string): TapeRow {
  using stateDb = openStateDb(join(dir, 'data/state.sqlite'))
  const walk = listTapes(stateDb).findLast(({name}) => name.startsWith('w_'))
  assert(walk)
  return walk
}

const envOf = (dir: string) => ({
  LOANTAPE_DATA_DIR: join(dir, 'data'),
  LOANTAPE_TAPE_KEY_FILE: join(dir, 'tape.key'),
  LOANTAPE_NOW: NOW,
})

/**
 * Runs a deed in a separate process that is killed before its nth write.
 * @returns the number of writes if it finished, null if it was killed
 */
async function runKilled(
  lab: Lab,
  dir: string,
  {command, isMended}: Deed,
  nth: number,
): Promise<number | null> {
  const env = {...lab.env, ...envOf(dir), SELECT: BOOK_TABLES, ...(isMended && {MENDED: '1'})}
  const ended = await runThere(command.split(' '), {env, at: NOW}, {kill: {write: nth}})
  if (ended.isKilled) return null
  assert.equal(ended.code, 0, `${command}: ${ended.stderr}`)
  return ended.writes
}

/**
 * Does what a person does after a crash: repeats the command, or runs the ones that come next. A command may refuse because its
 * work is done.
 */
async function finish(lab: Lab, dir: string, {command, refusal, next, isMended}: Deed): Promise<void> {
  const run = async (line: string): Promise<Ended> => {
    using _mended = isMended ? readFieldAs(dealStream, 'loan_amount', UNREADABLE, READABLE) : undefined
    return await lab.run(line.split(' '), envOf(dir))
  }
  for (const line of next ?? [command]) {
    let ended = await run(line)
    if (ended.stderr.includes('TAPE_KEY_LOST')) {
      const again = await run(command)
      assert.equal(again.code, 0, again.stderr)
      ended = await run(line)
    }
    const isDone = refusal !== undefined && ended.stderr.includes(refusal)
    assert(ended.code === 0 || isDone, `${line}: ${ended.stderr}`)
  }
}

/** Reads the permanent effects, without what differs between runs. */
async function readDone(folder: DataFolder): Promise<unknown> {
  using stateDb = openStateDb(folder.stateDb)
  const files = listTapeFiles(folder)
  const rows = (sql: string) => stateDb.all(anyRow, sql)
  await using db = await openHistory(folder, createWorld())
  return {
    acts: rows(`select count(*) as acts from tape_unit where kind = 'act'`),
    lines: rows(
      `select profile, issued_line.period, entry_id, issue_no, entry_date, account_code, debit, credit
       from issued_line join journal_batch using (batch_no)
       order by profile, entry_id, issue_no, line_no`,
    ),
    handedOver: rows('select profile, period, is_handed_over from journal_batch order by profile, period'),
    closed: rows('select period from closed_period'),
    remapped: rows('select period from remapped_period'),
    events: rows('select period, action from period_event order by event_id'),
    lost: rows('select count(*) as lost from record_loss'),
    left: listTapes(stateDb).filter(({removed_at, path}) => removed_at !== null && files.has(path)).length,
    wentOn: rows('select given_up from went_on'),
    removed: rows('select count(*) as removed from tape where removed_at is not null'),
    deals: await db.all(
      anyRow,
      'select deal_id, kind, status, loan_amount from history.raw.deal_version order by deal_id, observed_at, seq',
    ),
  }
}

async function judge(lab: Lab, dir: string, {isMended}: Deed): Promise<unknown> {
  const folder = dataFolderAt(join(dir, 'data'))
  // A rebuild does not repeat what was read with a fixed schema.
  const {code, stdout} = await lab.run(isMended ? ['verify'] : ['verify', '--rebuild'], envOf(dir))
  assert.equal(code, 0, stdout)
  await requireWholeFiles(folder)
  assert.deepEqual(listLeftovers(folder, {afterRelease: false}), [])
  return await readDone(folder)
}

/**
 * Kills each command with permanent effect before each of its writes to files and databases, then completes it. Its effect is
 * there once, and complete. A run is one such case.
 * @param deeds names of the deeds to try; all by default
 */
export async function proveKillWrites({
  deeds: names,
  ...request
}: ProofRequest & {deeds?: readonly string[]}): Promise<Proved> {
  await using lab = await createLab({tables: BOOK_TABLES})
  const deeds = new Map(Object.entries(await tellLender(lab, names)))
  const root = dirname(lab.folder.root)
  const expected = new Map<string, unknown>()
  const counted: Record<string, number> = {}
  const cases: {name: string; nth: number}[] = []
  for (const name of names ?? deeds.keys()) {
    const deed = deeds.get(name)!
    const dir = copyTo(join(root, `whole ${name}`), deed.folder)
    const before = deed.isUnreadable ? undefined : await readDone(dataFolderAt(join(dir, 'data')))
    const writes = await runKilled(lab, dir, deed, 0)
    assert(writes)
    counted[`writes of '${name}'`] = writes
    if (deed.next) await finish(lab, dir, deed)
    expected.set(name, await judge(lab, dir, deed))
    assert.notDeepEqual(expected.get(name), before, `${name}: nothing was done`)
    for (let nth = 1; nth <= writes; nth += 1) cases.push({name, nth})
  }
  const work = async ({name, nth}: (typeof cases)[number], {run, add}: Run) => {
    const deed = deeds.get(name)!
    const dir = copyTo(join(root, `case-${run}`), deed.folder)
    const left = await runKilled(lab, dir, deed, nth)
    add(left === null ? 'kills' : 'ended before')
    await finish(lab, dir, deed)
    assert.deepEqual(await judge(lab, dir, deed), expected.get(name))
    rmSync(dir, {recursive: true, force: true})
  }
  const {figures} = await proveCases('kill-writes', request, cases, work)
  return {figures: {...counted, ...figures}}
}
