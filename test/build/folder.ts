import {mkdirSync, mkdtempDisposableSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {dirname, join} from 'node:path'

/** Writes files, by relative path, into a new temporary folder that is removed when it goes out of scope. */
export function writeSqlFolder(files: Record<string, string | Buffer>) {
  const folder = mkdtempDisposableSync(join(tmpdir(), 'loantape-sql-'))
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder.path, name)), {recursive: true})
    writeFileSync(join(folder.path, name), text)
  }
  return folder
}
