import {chmodSync, cpSync, existsSync, readdirSync, rmSync, statSync, truncateSync} from 'node:fs'
import {join} from 'node:path'

/** The stores of a data folder, by the names of their files. */
export const STORES = {
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

/** One store, or two, and what happens to each. */
export type Loss = readonly (readonly [Store, Damage])[]

export const nameOf = (loss: Loss): string => loss.map(([store, damage]) => `${store} ${damage}`).join(', ')

/** Applies a loss to a data folder, with the stores of two other folders. */
export function damage(root: string, loss: Loss, from: {yesterday: string; other: string}): void {
  for (const [store, how] of loss) {
    if (how === "yesterday's") putBack(STORES[store], from.yesterday, root)
    else if (how === "another lender's") putBack(STORES[store], from.other, root)
    else
      for (const name of STORES[store]) how === 'cut' ? cutShort(join(root, name)) : remove(join(root, name))
  }
}

/** Replaces files and folders with those of another folder, which may have none. */
export function putBack(names: readonly string[], from: string, to: string): void {
  for (const name of names) {
    remove(join(to, name))
    if (existsSync(join(from, name)))
      cpSync(join(from, name), join(to, name), {recursive: true, verbatimSymlinks: true})
  }
}

const remove = (path: string) => rmSync(path, {recursive: true, force: true})

/** Cuts a file, or the last file of a folder, to two thirds. */
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
