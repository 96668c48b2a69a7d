import {mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {dirname, join} from 'node:path'

/** A folder of SQL files that is removed when it goes out of scope. */
export interface SqlFolder extends Disposable {
  path: string
}

/** Writes files, named by their path in the folder, into a new temporary folder. */
export function writeSqlFolder(files: Record<string, string | Buffer>): SqlFolder {
  const path = mkdtempSync(join(tmpdir(), 'loantape-sql-'))
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), {recursive: true})
    writeFileSync(join(path, name), text)
  }
  return {path, [Symbol.dispose]: () => rmSync(path, {recursive: true})}
}
