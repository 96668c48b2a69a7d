import assert from 'node:assert/strict'
import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {examineHistory} from '../../src/record/verify.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import type {Database} from '../../src/store/database.ts'
import {digestFile} from '../../src/store/files.ts'
import {openRelease, readRelease, requireRelease} from '../../src/store/release.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {anyRow, createWorld} from '../support/data.ts'

/** What `verify` asks of a warehouse must hold between any two runs. */
export async function requireSound(db: Database): Promise<void> {
  assert.deepEqual(await examineHistory(db, 'warehouse.duckdb'), [])
  await db.run('use memory')
}

const batchManifest = z.object({
  files: z.array(z.object({name: z.string(), bytes: z.number(), sha256: z.string()})),
})

export async function requireWholeFiles(folder: DataFolder): Promise<void> {
  for (const dir of listFinal(folder.releases)) {
    const release = readRelease(dir)
    assert(release, `${dir} has a manifest`)
    const database = await openRelease(release)
    await database[Symbol.asyncDispose]()
    for (const {file, sha256} of release.manifest.tables)
      assert.equal(await digestFile(join(dir, file)), sha256, join(dir, file))
  }
  for (const dir of listFinal(folder.exports).flatMap(listFinal)) {
    const {files} = batchManifest.parse(JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8')))
    for (const {name, sha256} of files)
      assert.equal(await digestFile(join(dir, name)), sha256, join(dir, name))
  }
  if (existsSync(folder.releases) && readdirSync(folder.root).includes('current')) requireRelease(folder)
}

function listFinal(dir: string): string[] {
  if (!existsSync(dir)) return []
  return readdirSync(dir)
    .filter((name) => !name.startsWith('.'))
    .map((name) => join(dir, name))
}

export async function requireSoundFolder(folder: DataFolder): Promise<void> {
  {
    await using db = await openWarehouse(folder, createWorld())
    await requireSound(db)
  }
  await requireWholeFiles(folder)
}

/** Lists temporary files that a finished run must not leave behind; unfinished builds count only after a release, which removes them. */
export function listLeftovers(folder: DataFolder, {afterRelease}: {afterRelease: boolean}): string[] {
  return readdirSync(folder.root, {recursive: true, encoding: 'utf8'}).filter(
    (path) => /\.writing-|\.wal$/.test(path) && (afterRelease || !path.startsWith('releases/.writing-')),
  )
}

/** Reads deals, their history, borrowers and documents of the current release, without the columns that differ between runs. */
export async function readPortfolio(folder: DataFolder): Promise<unknown[]> {
  await using db = await openRelease(requireRelease(folder))
  const queries = [
    // A run after a kill asks for more own pages, which confirm more values.
    'select * exclude (first_seen_at, last_changed_at, value_confirmed_on) from core.deal order by deal_id',
    'select * exclude (valid_from, valid_to) from core.deal_history order by deal_id, version',
    'select * exclude (first_seen_at) from core.borrower order by deal_id, borrower_id',
    'select * exclude (first_seen_at) from core.document order by deal_id, document_id',
  ]
  const tables: unknown[] = []
  for (const sql of queries) tables.push(await db.all(anyRow, sql))
  return tables
}
