import {mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {openLedger, writeMapping} from './books.ts'
import {Finding} from './finding.ts'
import {recover, saveCopy} from './recover.ts'
import {SHIPPED_STATUSES} from './reference.ts'
import {currentDatabase, requireTables} from './release.ts'
import {startSource} from './source.ts'
import {ACCOUNTS, command, type Listener, type Stage} from './stage.ts'
import {type Event, localTime, type Story, type Sync} from './story.ts'
import {listMonths, listTables} from './tables.ts'
import {createTruth} from './truth.ts'
import {visitSource} from './visit.ts'

/** Plays a story to its end. Throws a {@link Finding} at the first thing that is not as it must be. */
export async function play(story: Story, listener: Listener): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), 'loantape-world-'))
  await using source = await startSource()
  const data = join(root, 'data')
  const env = {
    LOANTAPE_BASE_URL: source.url,
    LOANTAPE_API_KEY: 'sk_test_world',
    LOANTAPE_DATA_DIR: data,
    LOANTAPE_RATE_PER_SECOND: '5000',
    LOANTAPE_RATE_BURST: '1000',
    LOANTAPE_RETRIES: '2',
    LOANTAPE_PAGE_SIZE: String(story.pageSize),
    LOANTAPE_REQUEST_TIMEOUT_SECONDS: '120',
    LOANTAPE_SQL_DIR: join(root, 'sql'),
    LOANTAPE_ACCOUNTING_FILE: join(root, ACCOUNTS),
  }
  const truth = createTruth()
  const books = openLedger()
  const stage: Stage = {story, root, data, source, truth, books, env, listener, copies: {}, batchesSaved: 0}
  mkdirSync(join(root, 'sql/seeds'), {recursive: true})
  writeFileSync(env.LOANTAPE_ACCOUNTING_FILE, writeMapping({'*': '1200'}, story.booksEnded))
  try {
    for (const [place, event] of story.events.entries()) {
      try {
        await take(stage, event)
      } catch (error) {
        if (error instanceof Finding) error.place = place
        throw error
      }
    }
  } finally {
    rmSync(root, {recursive: true, force: true})
  }
}

async function take(stage: Stage, event: Event): Promise<void> {
  stage.listener.note(event.do)
  switch (event.do) {
    case 'put':
    case 'set':
    case 'remove':
      return stage.source.change(event)
    case 'sync':
      return await sync(stage, event)
    case 'sweep':
      return await sweep(stage, event)
    case 'close':
    case 'reopen':
      return await turnPeriod(stage, event)
    case 'map':
      writeFileSync(join(stage.root, ACCOUNTS), writeMapping(event.receivable, stage.story.booksEnded))
      if (event.isMoved && stage.copies.history) await command(stage, ['period', 'remap'], event.at)
      return
    case 'seed':
      return writeSeed(stage, event)
    case 'save':
      return saveCopy(stage, event)
    case 'recover':
      return await recover(stage, event)
  }
}

/** Runs a sync; what a guard refuses is accepted, as its message says, unless it was a lie. */
async function sync(stage: Stage, event: Sync): Promise<void> {
  const accept = [...(event.accept ?? [])]
  for (;;) {
    const error = await visitSource(stage, {...event, accept})
    if (error === '') await requireRelease(stage)
    if (!error?.startsWith('GUARD_') || event.faults) return
    accept.push(error.slice('GUARD_'.length).toLowerCase())
  }
}

/** The current release holds what the oracle says. */
async function requireRelease({truth, data, listener}: Stage): Promise<void> {
  const {on} = truth.walks.at(-1)!
  await requireTables(currentDatabase(data), listTables(truth, on))
  listener.note('releases compared')
}

async function sweep(stage: Stage, {at, profiles}: Extract<Event, {do: 'sweep'}>): Promise<void> {
  const {truth, books, data, story, listener} = stage
  const last = truth.walks.at(-1)
  if (!last || !stage.copies.history) return
  for (const profile of profiles) {
    for (const month of listMonths(truth, last.on)) await exportMonth(stage, profile, month, at)
    books.importNew(join(data, 'exports'), last.id)
    books.requireBalances(profile, truth, story.booksEnded)
    listener.note('balances compared')
  }
}

/** Exports a journal; where the history lacks what was booked from it, books and history are brought together first. */
async function exportMonth(stage: Stage, profile: string, month: string, at: string): Promise<void> {
  const {truth, books, data, listener} = stage
  const args = ['export', profile, '--period', month]
  let {code, error, stderr} = await command(stage, args, at)
  if (error === 'JOURNAL_HISTORY' && books.mayLack(truth.walks.map(({id}) => id))) {
    const trueUp = await command(stage, ['period', 'true-up', '--issue'], at)
    if (trueUp.code !== 0) throw new Finding(`true-up: expected success, seen ${trueUp.stderr}`)
    listener.note('trued up')
    const {id} = truth.walks.at(-1)!
    books.importNew(join(data, 'exports'), id)
    books.trueUp(id)
    ;({code, error, stderr} = await command(stage, args, at))
  }
  if (code !== 0) throw new Finding(`export: expected success, seen ${error}: ${stderr}`)
}

async function turnPeriod(stage: Stage, event: Extract<Event, {do: 'close' | 'reopen'}>): Promise<void> {
  const {truth, listener} = stage
  if (!stage.copies.history) return
  const months = listMonths(truth, localTime(Date.parse(event.at)).date)
  const why = event.do === 'reopen' ? ['--why', 'a proof'] : []
  for (const month of event.do === 'close' ? months : months.toReversed()) {
    const {code, stderr} = await command(stage, ['period', event.do, month, ...why], event.at)
    if (code === 0) return listener.note(`${event.do} done`)
    if (code !== 2) throw new Finding(`period ${event.do}: expected success or a refusal, seen ${stderr}`)
  }
}

function writeSeed({root, truth}: Stage, {fundedOn, statuses}: Extract<Event, {do: 'seed'}>): void {
  const write = (name: string, lines: string[]) =>
    writeFileSync(join(root, 'sql/seeds', `${name}.csv`), `${lines.join('\n')}\n`)
  if (fundedOn) {
    truth.reference.fundedOn = fundedOn
    write('funded_on', ['deal_id,funded_on:date', ...Object.entries(fundedOn).map((row) => row.join(','))])
  }
  if (statuses) {
    truth.reference.statuses = {...SHIPPED_STATUSES, ...statuses}
    const rows = Object.entries(truth.reference.statuses).map(([status, row]) => [status, ...row].join(','))
    write('status', ['status,class,sort_order:bigint', ...rows])
  }
}
