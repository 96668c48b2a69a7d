import {existsSync, readdirSync} from 'node:fs'

/** What people may call a page or a query: a plain name of a file. */
export const NAME = /^[\w-]{1,100}$/

/** The names of the files with an ending in a folder, which need not exist, in order. */
export function listNamed(folder: string, ending: '.md' | '.sql'): string[] {
  if (!existsSync(folder)) return []
  return readdirSync(folder)
    .filter((file) => file.endsWith(ending))
    .map((file) => file.slice(0, -ending.length))
    .filter((name) => NAME.test(name))
    .sort()
}
