/** Loaded before the program by `--import`: the process kills itself before the nth time it changes a file, `KILL_AT`. */
import fs from 'node:fs'
import {syncBuiltinESMExports} from 'node:module'

const CHANGING = ['mkdir', 'writeFile', 'rename', 'copyFile', 'fsync', 'rm']
const nth = Number(process.env.KILL_AT)
let calls = 0

function killBefore(place: object, name: string): void {
  const original: unknown = Reflect.get(place, name)
  if (typeof original !== 'function') return
  Reflect.set(place, name, (...args: unknown[]) => {
    calls += 1
    if (calls === nth) process.kill(process.pid, 'SIGKILL')
    return Reflect.apply(original, place, args)
  })
}

for (const operation of CHANGING) {
  killBefore(fs, `${operation}Sync`)
  killBefore(fs.promises, operation)
}
syncBuiltinESMExports()
