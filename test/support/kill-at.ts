/**
 * Loaded by `--import` before the program: the process kills itself before its nth change to a file, `KILL_AT`. With
 * `KILL_COUNTED`, a file that receives the count, writes to open files and databases count, too.
 */
import fs from 'node:fs'
import {syncBuiltinESMExports} from 'node:module'
import {DatabaseSync, StatementSync} from 'node:sqlite'
import {DuckDBConnection} from '@duckdb/node-api'

const {KILL_AT, KILL_COUNTED} = process.env
const CHANGING = ['mkdir', 'writeFile', 'rename', 'copyFile', 'fsync', 'rm']
const WRITING = ['write', 'fdatasync', 'chmod', 'truncate', 'rmdir', 'symlink', 'link']
const nth = Number(KILL_AT)
const {writeFileSync} = fs
let calls = 0

function killBefore(place: object, name: string, isChange = (_: unknown) => true): void {
  const original: unknown = Reflect.get(place, name)
  if (typeof original !== 'function') return
  Reflect.set(place, name, function call(this: unknown, ...args: unknown[]) {
    if (isChange(args[0])) calls += 1
    if (calls === nth) process.kill(process.pid, 'SIGKILL')
    return Reflect.apply(original, this ?? place, args)
  })
}

for (const operation of KILL_COUNTED === undefined ? CHANGING : [...CHANGING, ...WRITING]) {
  killBefore(fs, `${operation}Sync`)
  killBefore(fs.promises, operation)
}
if (KILL_COUNTED !== undefined) {
  const file = await fs.promises.open(process.execPath)
  const ofOpen = Object.getPrototypeOf(file) as object
  await file.close()
  for (const operation of ['write', 'datasync', 'sync', 'truncate']) killBefore(ofOpen, operation)
  killBefore(DatabaseSync.prototype, 'exec')
  killBefore(StatementSync.prototype, 'run')
  killBefore(DuckDBConnection.prototype, 'run', (sql) => /^\s*(commit|checkpoint|detach)/.test(String(sql)))
  process.on('exit', () => writeFileSync(KILL_COUNTED, String(calls)))
}
syncBuiltinESMExports()
