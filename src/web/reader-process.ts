import {existsSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {LoantapeError, messageOf} from '../errors.ts'
import {createDealSet, type DealSet} from '../release/deal-set.ts'
import {readRelease} from '../release/manifest.ts'
import {readReleaseModels} from '../release/models-file.ts'
import {openRelease} from '../release/open-release.ts'
import {quoteLiteral, requireOneStatement} from '../warehouse/database.ts'
import type {Asked, Told} from './reader.ts'

// A process of its own, which answers questions about one release: what a query breaks or uses up ends with it.

/** Sets whose tables are kept; the one that was not asked for longest goes. */
const KEPT_SETS = 6

const [dir = '', filesDir = '', memoryMb = ''] = process.argv.slice(2)
const release = readRelease(dir)
if (!release) throw new Error(`no release in '${dir}'`)
const {manifest} = release
const models = readReleaseModels(dir) ?? []
const db = await openRelease(release, {memoryMb: Number(memoryMb), withWork: true, filesDir})
const ALL_DEALS = existsSync(release.work) ? 'release.main,kept.work' : 'release.main'
const sets = new Map<string, DealSet>()
let made = 0

/** The set of a condition, as the one that was asked for last. */
async function findSet(condition: string): Promise<DealSet> {
  made += 1
  const set = sets.get(condition) ?? (await createDealSet(db, models, {catalog: `set${made}`, condition}))
  sets.delete(condition)
  sets.set(condition, set)
  for (const [oldest, {catalog}] of [...sets].slice(0, -KEPT_SETS)) {
    await db.run(`detach ${catalog}`)
    sets.delete(oldest)
  }
  return set
}

async function answer({sql, params, condition, most, file}: Asked): Promise<Told> {
  const set = condition === undefined ? undefined : await findSet(condition)
  await set?.require(models.map(({name}) => name).filter((name) => sql.includes(name)))
  await db.run(`set search_path = ${quoteLiteral(set === undefined ? ALL_DEALS : `${set.catalog}.main`)}`)
  const one = `select * from (${sql}\n)`
  await requireOneStatement(db.connection, one)
  if (file !== undefined) {
    const path = join(filesDir, file.name)
    if ('sheet' in file) {
      // Loaded here: no page needs it.
      const {writeQueryBook} = await import('../export/xlsx.ts')
      await writeQueryBook(db, {path, title: file.sheet, sql}, manifest)
    } else await db.run(`copy (${sql}\n) to ${quoteLiteral(path)} (${file.format})`, params)
    return {columns: [], rows: []}
  }
  const reader = await db.connection.runAndReadAll(most === undefined ? sql : `${one} limit ${most}`, params)
  const types = reader.columnTypes()
  const columns = reader.deduplicatedColumnNames().map((name, index) => ({name, type: String(types[index])}))
  return {columns, rows: reader.getRowsJson()}
}

// Whoever asked is gone, however it went: a query that never ends would outlive it.
process.on('disconnect', () => {
  rmSync(filesDir, {recursive: true, force: true})
  process.kill(process.pid, 'SIGKILL')
})
process.on('message', async ({id, ...asked}: Asked & {id: number}) => {
  const told = await answer(asked).catch((error: unknown) => ({
    error: error instanceof LoantapeError ? error.problem : messageOf(error),
  }))
  process.send?.({id, ...told})
})
process.send?.({id: 0})
