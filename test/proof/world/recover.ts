import {cpSync, existsSync, mkdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {Finding} from './finding.ts'
import {command, type Stage} from './stage.ts'
import type {Event} from './story.ts'

/** Copies a part of the data folder aside, as the operations guide says. */
export function saveCopy(stage: Stage, {part}: Extract<Event, {do: 'save'}>): void {
  const {root, data, copies, books} = stage
  const backup = join(root, 'backup')
  if (!existsSync(join(data, 'history.duckdb'))) return
  mkdirSync(backup, {recursive: true})
  if (part === 'history') {
    cpSync(join(data, 'history.duckdb'), join(backup, 'history.duckdb'))
    if (copies.history) copies.backup = copies.history
    return
  }
  rmSync(join(backup, 'exports'), {recursive: true, force: true})
  if (existsSync(join(data, 'exports')))
    cpSync(join(data, 'exports'), join(backup, 'exports'), {recursive: true})
  rmSync(join(backup, 'ledger.sqlite'), {force: true})
  using ledger = new DatabaseSync(join(data, 'ledger.sqlite'))
  ledger.exec(`vacuum into '${join(backup, 'ledger.sqlite')}'`)
  stage.batchesSaved = books.count()
}

/** Loses the warehouse, in one of several ways, and brings back what the operations guide says. */
export async function recover(stage: Stage, {from, at}: Extract<Event, {do: 'recover'}>): Promise<void> {
  const {root, data, copies, truth, listener} = stage
  const known = copies[from]
  const history = join(data, 'history.duckdb')
  const isKept = from !== 'previous' || existsSync(join(data, 'history.previous.duckdb'))
  if (!known || !isKept || !existsSync(history)) return
  rmSync(join(data, 'warehouse.duckdb.wal'), {force: true})
  if (from === 'backup') bringBackup(stage)
  else writeFileSync(join(data, 'warehouse.duckdb'), 'damaged'.repeat(1000))
  if (from === 'previous') writeFileSync(history, 'damaged'.repeat(1000))
  const {code, stderr} = await command(stage, ['restore'], at)
  if (code !== 0) throw new Finding(`restore: expected success, seen ${stderr}`)
  truth.restore(known, from !== 'backup')
  // Also in the place of a copy that was damaged.
  copies.history = known
  listener.note(`restored from ${from}`)
  rmSync(join(root, 'aside'), {recursive: true, force: true})
}

/** An empty data folder with what was saved; where batches were handed out since, only the history is from then. */
function bringBackup({root, data, books, batchesSaved}: Stage): void {
  const backup = join(root, 'backup')
  const isOfToday = books.count() > batchesSaved || !existsSync(join(backup, 'ledger.sqlite'))
  const aside = join(root, 'aside')
  cpSync(data, aside, {recursive: true, verbatimSymlinks: true})
  rmSync(data, {recursive: true})
  mkdirSync(data)
  cpSync(join(backup, 'history.duckdb'), join(data, 'history.duckdb'))
  for (const name of ['exports', 'ledger.sqlite']) {
    const kept = join(isOfToday ? aside : backup, name)
    if (existsSync(kept)) cpSync(kept, join(data, name), {recursive: true})
  }
}
