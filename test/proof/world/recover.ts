import {cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {Finding} from './finding.ts'
import {command, type Stage} from './stage.ts'
import type {Event} from './story.ts'

/** The name of the copy of the whole folder, beside it. */
export const COPY = 'copy'

/** Copies the data folder or a part of it, as the operations guide says. */
export function saveCopy(stage: Stage, {part}: Extract<Event, {do: 'save'}>): void {
  const {root, data, truth, books} = stage
  const backup = join(root, 'backup')
  if (truth.walks.length === 0) return
  if (part === 'folder') {
    rmSync(join(root, COPY), {recursive: true, force: true})
    cpSync(data, join(root, COPY), {recursive: true, verbatimSymlinks: true})
    stage.copied = truth.save()
    return
  }
  mkdirSync(backup, {recursive: true})
  if (part === 'history') {
    copyWarehouse(data, backup)
    stage.saved = truth.save()
    return
  }
  rmSync(join(backup, 'exports'), {recursive: true, force: true})
  if (existsSync(join(data, 'exports')))
    cpSync(join(data, 'exports'), join(backup, 'exports'), {recursive: true})
  rmSync(join(backup, 'state.sqlite'), {force: true})
  using stateDb = new DatabaseSync(join(data, 'state.sqlite'))
  stateDb.exec(`vacuum into '${join(backup, 'state.sqlite')}'`)
  stage.batchesSaved = books.count()
}

/** The file, and the write-ahead log a crashed run left. */
function copyWarehouse(from: string, to: string): void {
  for (const name of ['warehouse.duckdb', 'warehouse.duckdb.wal']) {
    rmSync(join(to, name), {force: true})
    if (existsSync(join(from, name))) cpSync(join(from, name), join(to, name))
  }
}

/** Loses the warehouse, in one of several ways, and restores it as the operations guide says. */
export async function recover(stage: Stage, event: Extract<Event, {do: 'recover'}>): Promise<void> {
  if (event.from === 'tapes') return await recoverFromTapes(stage, event.at)
  const {root, data, saved, truth, books, batchesSaved, listener} = stage
  if (!saved) return
  stage.isOfTapes = false
  stage.areTapesWhole = false
  stage.copied = undefined
  const [backup, aside] = [join(root, 'backup'), join(root, 'aside')]
  // If batches were issued since, only the warehouse is from then.
  const isOfToday = books.count() > batchesSaved || !existsSync(join(backup, 'state.sqlite'))
  cpSync(data, aside, {recursive: true, verbatimSymlinks: true})
  rmSync(data, {recursive: true})
  mkdirSync(data)
  copyWarehouse(backup, data)
  for (const name of ['exports', 'state.sqlite']) {
    const kept = join(isOfToday ? aside : backup, name)
    if (existsSync(kept)) cpSync(kept, join(data, name), {recursive: true})
  }
  rmSync(aside, {recursive: true, force: true})
  const {code, stderr} = await command(stage, ['tape', 'go-on', '--why', 'a proof'], event.at)
  if (code !== 0 && !stderr.includes('RECORD_WHOLE'))
    throw new Finding(`tape go-on: expected success, seen ${stderr}`)
  truth.restore(saved)
  listener.note('restored from backup')
}

/** Nothing is lost except records made readable by hand, or restored without their tapes. */
async function recoverFromTapes(stage: Stage, at: string): Promise<void> {
  const {data, isOfTapes, listener} = stage
  if (!isOfTapes || readdirSync(data).every((name) => name !== 'tape')) return
  rmSync(join(data, 'warehouse.duckdb.wal'), {force: true})
  writeFileSync(join(data, 'warehouse.duckdb'), 'damaged'.repeat(1000))
  const {code, stderr} = await command(stage, ['rebuild', '--apply'], at)
  if (code !== 0) throw new Finding(`rebuild: expected success, seen ${stderr}`)
  listener.note('rebuilt from tapes')
}
