/**
 * Loaded by `--import` before the program: kills the process before its nth change to a file, `KILL_AT`. With `KILL_COUNTED`,
 * writes to open files and databases count too, and a process that ends by itself prints how many there were.
 */
import fs from 'node:fs'
import {DatabaseSync, StatementSync} from 'node:sqlite'
import {DuckDBConnection} from '@duckdb/node-api'
import {intercept, interceptFiles} from './file-operations.ts'

const {KILL_AT, KILL_COUNTED} = process.env
const isCounted = KILL_COUNTED !== undefined
const CHANGING = ['mkdir', 'writeFile', 'rename', 'copyFile', 'fsync', 'rm']
const WRITING = ['write', 'fdatasync', 'chmod', 'truncate', 'rmdir', 'symlink', 'link']
const nth = Number(KILL_AT)
// The original, which is not counted.
const {writeSync} = fs
let calls = 0

function count(go: () => unknown): unknown {
  calls += 1
  if (calls === nth) process.kill(process.pid, 'SIGKILL')
  return go()
}

if (isCounted) {
  intercept(DatabaseSync.prototype, 'exec', count)
  intercept(StatementSync.prototype, 'run', count)
  intercept(DuckDBConnection.prototype, 'run', (go, [sql]) =>
    /^\s*(commit|checkpoint|detach)/.test(String(sql)) ? count(go) : go(),
  )
  process.on('exit', () => writeSync(1, `writes ${calls}\n`))
}
await interceptFiles(
  isCounted ? [...CHANGING, ...WRITING] : CHANGING,
  isCounted ? ['write', 'datasync', 'sync', 'truncate'] : [],
  ({go}) => count(go),
)
