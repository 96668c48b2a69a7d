import {cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {putBack, STORES} from '../damage.ts'
import {Finding} from './finding.ts'
import {command, type Stage, succeed} from './stage.ts'
import type {Event} from './story.ts'

/** The name of the copy of the whole folder, beside it. */
export const COPY = 'copy'

/** Copies the data folder or a part of it, as the operations guide says. */
export function saveCopy(stage: Stage, {part}: Extract<Event, {do: 'save'}>): void {
  const {root, data, truth, books} = stage
  const backup = join(root, 'backup')
  if (truth.walks.length === 0) return
  mkdirSync(backup, {recursive: true})
  if (part === 'folder') {
    rmSync(join(root, COPY), {recursive: true, force: true})
    cpSync(data, join(root, COPY), {recursive: true, verbatimSymlinks: true})
    stage.copied = truth.save()
  } else if (part === 'history') {
    putBack(STORES.warehouse, data, backup)
    stage.saved = truth.save()
  } else {
    putBack(STORES.exports, data, backup)
    rmSync(join(backup, 'state.sqlite'), {force: true})
    using stateDb = new DatabaseSync(join(data, 'state.sqlite'))
    stateDb.exec(`vacuum into '${join(backup, 'state.sqlite')}'`)
    stage.batchesSaved = books.names().length
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
  const isOfToday = books.names().length > batchesSaved || !existsSync(join(backup, 'state.sqlite'))
  cpSync(data, aside, {recursive: true, verbatimSymlinks: true})
  rmSync(data, {recursive: true})
  mkdirSync(data)
  putBack(STORES.warehouse, backup, data)
  putBack(['exports', 'state.sqlite'], isOfToday ? aside : backup, data)
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
  await succeed(stage, ['rebuild', '--apply'], at)
  listener.note('rebuilt from tapes')
}
