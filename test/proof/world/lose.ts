import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {requireRelease, sweep} from './office.ts'
import {startSource} from './source.ts'
import {command, type Ended, type Stage, succeed} from './stage.ts'
import {businessDate, type Event, Finding, type Lose} from './story.ts'
import {listMonths} from './tables.ts'
import {visitSource} from './visit.ts'

const STORES = {
  warehouse: ['warehouse.duckdb', 'warehouse.duckdb.wal'],
  state: ['state.sqlite', 'state.sqlite-wal', 'state.sqlite-shm'],
  tapes: ['tape'],
  releases: ['releases', 'current'],
  exports: ['exports'],
}
export type Store = keyof typeof STORES
export const STORE_NAMES = Object.keys(STORES) as Store[]
export const DAMAGES = ['lost', "yesterday's", "another lender's", 'cut'] as const
export type Damage = (typeof DAMAGES)[number]

export type Loss = readonly (readonly [Store, Damage])[]

export const nameOf = (loss: Loss): string => loss.map(([store, damage]) => `${store} ${damage}`).join(', ')

export function damage(root: string, loss: Loss, from: {yesterday: string; other: string}): void {
  for (const [store, how] of loss) {
    if (how === "yesterday's") putBack(STORES[store], from.yesterday, root)
    else if (how === "another lender's") putBack(STORES[store], from.other, root)
    else
      for (const name of STORES[store]) how === 'cut' ? cutShort(join(root, name)) : remove(join(root, name))
  }
}

function putBack(names: readonly string[], from: string, to: string): void {
  for (const name of names) replace(join(to, name), join(from, name))
}

export function replace(to: string, from: string): void {
  remove(to)
  if (existsSync(from)) cpSync(from, to, {recursive: true, verbatimSymlinks: true})
}

const remove = (path: string) => rmSync(path, {recursive: true, force: true})

function cutShort(path: string): void {
  if (!existsSync(path)) return
  const isFolder = statSync(path).isDirectory()
  const entries = isFolder ? readdirSync(path, {recursive: true, withFileTypes: true}) : []
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  const last = isFolder ? files.sort().at(-1) : path
  if (last === undefined) return
  const size = statSync(last).size
  chmodSync(last, 0o600)
  truncateSync(last, Math.floor((size * 2) / 3))
}

const COPY = 'copy'

export function saveCopy(stage: Stage, {part}: Extract<Event, {do: 'save'}>): void {
  const {root, data, truth, books} = stage
  const backup = join(root, 'backup')
  if (truth.walks.length === 0) return
  mkdirSync(backup, {recursive: true})
  if (part === 'folder') {
    replace(join(root, COPY), data)
    stage.copied = truth.save()
  } else if (part === 'history') {
    putBack(STORES.warehouse, data, backup)
    stage.saved = truth.save()
  } else {
    putBack(STORES.exports, data, backup)
    remove(join(backup, 'state.sqlite'))
    using stateDb = new DatabaseSync(join(data, 'state.sqlite'))
    stateDb.exec(`vacuum into '${join(backup, 'state.sqlite')}'`)
    stage.batchesSaved = books.names().length
  }
}

/**
 * Loses the warehouse and rebuilds it from the tapes, or loses the data folder and restores what was saved, as the operations
 * guide says.
 */
export async function recover(stage: Stage, event: Extract<Event, {do: 'recover'}>): Promise<void> {
  if (event.from === 'tapes') return await recoverFromTapes(stage, event.at)
  const {root, data, saved, truth, books, batchesSaved, note} = stage
  if (!saved) return
  stage.isOfTapes = false
  stage.areTapesWhole = false
  stage.copied = undefined
  const [backup, aside] = [join(root, 'backup'), join(root, 'aside')]
  // If batches were issued since the backup, only the warehouse comes from it.
  const isOfToday = books.names().length > batchesSaved || !existsSync(join(backup, 'state.sqlite'))
  replace(aside, data)
  remove(data)
  mkdirSync(data)
  putBack(STORES.warehouse, backup, data)
  putBack(['exports', 'state.sqlite'], isOfToday ? aside : backup, data)
  remove(aside)
  const {code, stderr} = await command(stage, ['tape', 'go-on', '--why', 'a proof'], event.at)
  if (code !== 0 && !stderr.includes('RECORD_WHOLE'))
    throw new Finding(`tape go-on: expected success, seen ${stderr}`)
  truth.restore(saved)
  note('restored from backup')
}

/** Damages the warehouse and rebuilds it from the tapes, unless records were made readable by hand or restored without their tapes. */
async function recoverFromTapes(stage: Stage, at: string): Promise<void> {
  const {data, isOfTapes, note} = stage
  if (!isOfTapes || readdirSync(data).every((name) => name !== 'tape')) return
  remove(join(data, 'warehouse.duckdb.wal'))
  writeFileSync(join(data, 'warehouse.duckdb'), 'damaged'.repeat(1000))
  await succeed(stage, ['rebuild', '--apply'], at)
  note('rebuilt from tapes')
}

const REFUSALS = [
  'STORES_DISAGREE',
  'RELEASE_DAMAGED',
  'STATE_UNREADABLE',
  'WAREHOUSE_UNREADABLE',
  'REBUILD_BASE',
  'REBUILD_LOSES',
]
const STORE_WORDS =
  /warehouse\.duckdb|state\.sqlite|\btapes?\b|\bcurrent\b|\b(export|release)s\b|Warehouse|State database/

interface Losing {
  stage: Stage
  event: Lose
  loss: Loss
  whole: string
  takeBack: () => void
  wentOn: boolean
}

/**
 * Loses stores and runs a command: the folder recovers by itself, or the command refuses and names a store. Then the story
 * restores everything or follows the message. In the end, the release and the books are right.
 */
export async function lose(stage: Stage, event: Lose): Promise<void> {
  const {truth, root, data, copied, isMended, note} = stage
  const loss = event.loss.filter(
    ([store, how]) => (how !== "yesterday's" || copied) && !(isMended && store === 'warehouse'),
  )
  if (truth.walks.length === 0 || loss.length === 0) return
  const losing: Losing = {
    stage,
    event,
    loss,
    whole: join(root, 'whole'),
    takeBack: truth.mark(),
    wentOn: false,
  }
  replace(losing.whole, data)
  const isForeign = loss.some(([, how]) => how === "another lender's")
  const other = isForeign ? await makeOther(stage, event.at) : ''
  damage(data, loss, {yesterday: join(root, COPY), other})
  note(`lost ${loss.length}`)
  await perform(losing, () => runFirst(stage, event))
  await bringExportsBack(losing)
  await perform(losing, () => command(stage, ['build'], event.at))
  if (losing.wentOn) await giveUp(losing)
  await requireRelease(stage)
  await restoreCutWarehouse(losing)
  await sweep(stage, {do: 'sweep', at: event.at, profiles: [event.profile]})
  remove(losing.whole)
}

/** Makes the data folder of another lender with the same tape key: one night and its journal. */
async function makeOther(stage: Stage, at: string): Promise<string> {
  const {root, env} = stage
  const other = join(root, 'other')
  if (existsSync(other)) return other
  await using source = await startSource()
  const deal = {property_address: '1 Elm St', property_value: 1, loan_program: 'dscr', created_at: at}
  for (let number = 1; number <= 7; number += 1)
    source.change({do: 'put', id: `deal_${number}`, deal: {...deal, loan_amount: number, status: 'funded'}})
  const own = {...env, LOANTAPE_BASE_URL: source.url, LOANTAPE_DATA_DIR: other}
  const month = businessDate(Date.parse(at)).slice(0, 7)
  for (const args of [['sync'], ['export', 'xero', '--period', month, '--with-opening']])
    await succeed({...stage, env: own}, args, at)
  return other
}

async function runFirst(stage: Stage, {first, at, profile}: Lose): Promise<Ended> {
  const build = () => command(stage, ['build'], at)
  if (first === 'sync') {
    await visitSource(stage, {do: 'sync', at}, REFUSALS)
    return await build()
  }
  const [month = ''] = listMonths(stage.truth, stage.truth.lastDay())
  const args = first === 'export' ? ['export', profile, '--period', month] : first.split(' ')
  return await command(stage, args, at)
}

/** Runs a command until it succeeds. Each refusal must name a store and is answered as the story says. */
async function perform(losing: Losing, run: () => Promise<Ended>): Promise<void> {
  const {stage, event, loss} = losing
  const name = nameOf(loss)
  for (let tries = 0; ; tries += 1) {
    const {code, error, stderr} = await run()
    if (code === 0 || isOfBooks(error)) return
    if (!REFUSALS.includes(error) || !STORE_WORDS.test(stderr))
      throw new Finding(`lose: ${name}: expected success or a refusal that names a store, seen ${stderr}`)
    if (tries === 5) throw new Finding(`lose: ${name}: no remedy helps: ${stderr}`)
    // The message says so; a command of the books makes no release by itself.
    if (error === 'RELEASE_DAMAGED' && (await command(stage, ['build'], event.at)).code === 0) continue
    if (isComputed(losing)) throw new Finding(`lose: ${name}: expected to recover by itself, seen ${stderr}`)
    stage.note(`refused ${error}`)
    const isFollowed = event.remedy === 'go on' && tries < 4 && (await follow(losing, error))
    if (!isFollowed) bringBack(losing)
  }
}

/** A build that reads none of the lost blocks is right; a run that needs them refuses, and the remedy is that of its message. */
async function restoreCutWarehouse({stage, event, loss, whole}: Losing): Promise<void> {
  if (damageOf(loss, 'warehouse') !== 'cut') return
  const {code, stderr} = await command(stage, ['rebuild', '--apply'], event.at)
  if (code === 0) return
  if (stage.isOfTapes) throw new Finding(`lose: expected a rebuild of the cut warehouse, seen ${stderr}`)
  putBack(STORES.warehouse, whole, stage.data)
}

/** Whether a journal was refused for another reason than its stores: an amount or a history that it cannot take. */
const isOfBooks = (error: string) => ['JOURNAL_FILE', 'JOURNAL_HISTORY'].includes(error)

function isComputed({stage, loss}: Losing): boolean {
  const isBroughtUpToDate = ([store, how]: Loss[number]) =>
    (['lost', "yesterday's"].includes(how) && store !== 'tapes') ||
    (how === 'cut' && ['releases', 'exports'].includes(store))
  return stage.isOfTapes && loss.every(isBroughtUpToDate)
}

function bringBack(losing: Losing): void {
  const {stage, whole} = losing
  replace(stage.data, whole)
  if (losing.wentOn) losing.takeBack()
  losing.wentOn = false
  losing.loss = []
  stage.note('brought back')
}

/** Follows a refusal's message if the story knows what that loses. @returns whether it did */
async function follow(losing: Losing, error: string): Promise<boolean> {
  const {stage, event, loss} = losing
  const run = async (...args: string[]) => (await command(stage, args, event.at)).code === 0
  const moveAway = (stores: readonly Store[]) => {
    for (const name of stores.flatMap((store) => STORES[store])) remove(join(stage.data, name))
    losing.loss = loss.map(([store, how]) => [store, stores.includes(store) ? 'lost' : how])
    return true
  }
  if (error === 'STATE_UNREADABLE') return moveAway(['state'])
  if (error === 'WAREHOUSE_UNREADABLE') return await run('rebuild', '--apply')
  const foreign = loss.filter(([, how]) => how === "another lender's").map(([store]) => store)
  if (foreign.length > 0) return !foreign.includes('tapes') && moveAway(foreign)
  if (error !== 'STORES_DISAGREE' || !canGoOn(loss)) return false
  if (!(await run('tape', 'go-on', '--why', 'a proof'))) return false
  // Now the warehouse is that of the copy, and the next walk follows its walks.
  const isBackThen = damageOf(loss, 'warehouse') !== undefined && !losing.wentOn
  if (isBackThen && stage.copied) stage.truth.restore(stage.copied)
  losing.wentOn = true
  return true
}

const damageOf = (loss: Loss, store: Store): Damage | undefined => loss.find(([name]) => name === store)?.[1]

/** Whether it is clear what remains after `tape go-on`: with yesterday's tapes, or with warehouse and state database intact. */
function canGoOn(loss: Loss): boolean {
  const isOfYesterday = damageOf(loss, 'tapes') === "yesterday's"
  return isOfYesterday || !loss.some(([store]) => store === 'warehouse' || store === 'state')
}

async function giveUp({stage, loss}: Losing): Promise<void> {
  const {books, data, note} = stage
  note('gone on without')
  stage.isOfTapes = false
  stage.areTapesWhole = false
  stage.copied = undefined
  if (damageOf(loss, 'state') === undefined) return
  using stateDb = new DatabaseSync(join(data, 'state.sqlite'), {readOnly: true})
  const rows = stateDb.prepare('select profile, batch_id from journal_batch').all()
  const known = new Set(rows.map(({profile, batch_id}) => `${profile}/${batch_id}`))
  for (const name of books.names().filter((one) => !known.has(one))) {
    books.forget(name)
    remove(join(data, 'exports', name))
  }
}

/** Restores lost exports, which are not repeated; `verify` must report them first. */
async function bringExportsBack({stage, event, whole, loss}: Losing): Promise<void> {
  const {data, books} = stage
  const how = damageOf(loss, 'exports')
  if (how === undefined || how === "another lender's") return
  const isThere = (name: string) => existsSync(join(data, 'exports', name, 'manifest.json'))
  const isLost = books.names().some((name) => !isThere(name)) || (how === 'cut' && books.names().length > 0)
  if (!existsSync(join(whole, 'exports'))) return
  const {code, stdout} = await command(stage, ['verify'], event.at)
  if (isLost && code === 0) throw new Finding(`verify: expected lost batches, seen ${stdout}`)
  cpSync(join(whole, 'exports'), join(data, 'exports'), {recursive: true})
}
