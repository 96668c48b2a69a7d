import fs from 'node:fs'
import {type FileOperation, interceptFiles} from '../support/file-operations.ts'

/** A system error as file operations throw it. */
export type FileErrorCode = 'EIO' | 'ENOSPC'

/** Makes file operations of this process fail. */
export interface FailingFiles {
  /** Counts from 0 again and makes the nth operation fail, or every one from it on. */
  arm(nth: number, code: FileErrorCode, isForEver: boolean): void
  /** Lets all of them succeed; returns how many there were. */
  disarm(): number
}

const WORDS: Record<FileErrorCode, string> = {
  EIO: 'i/o error',
  ENOSPC: 'no space left on device',
}

/** Operations that change files, by their names in `node:fs/promises`; and the same on an open file. */
const CHANGING =
  'mkdir writeFile rename link symlink copyFile chmod fsync rm unlink rmdir truncate utimes appendFile cp open'
const CHANGING_OPEN = ['write', 'sync', 'datasync', 'truncate']

const isText = (value: unknown): value is string => typeof value === 'string'
const {readFileSync, writeFileSync} = fs

/** Leaves half of what a failing write or copy was given, as a real disk does. */
function leaveHalf({name, args: [first, second, length, position], go}: FileOperation): unknown {
  if (Buffer.isBuffer(first)) return go([first, second, Math.floor(Number(length) / 2), position])
  if (!isText(first) || !isText(second)) return undefined
  const whole = name === 'copyFile' ? readFileSync(first) : Buffer.from(second)
  const half = whole.subarray(0, whole.length / 2)
  if (name === 'copyFile') return writeFileSync(second, half)
  return name === 'writeFile' ? writeFileSync(first, half) : undefined
}

/**
 * Replaces, in this process, the functions that change files. DuckDB and SQLite write natively and bypass this:
 * test/cli/storage.test.ts tests full disks for them.
 */
export async function installFailingFiles(): Promise<FailingFiles> {
  let [calls, nth, isForEver] = [0, Number.POSITIVE_INFINITY, false]
  let code: FileErrorCode = 'EIO'
  await interceptFiles(CHANGING.split(' '), CHANGING_OPEN, (operation) => {
    const {name, args, go, isSync} = operation
    if (name === 'open' && ['r', undefined].includes(args[1] as string | undefined)) return go()
    calls += 1
    if (calls < nth || (calls > nth && !isForEver)) return go()
    const target = isText(args[0]) ? ` '${args[0]}'` : ''
    const error = Object.assign(new Error(`${code}: ${WORDS[code]}, ${name}${target}`), {code})
    const left = leaveHalf(operation)
    if (isSync) throw error
    return Promise.resolve(left).then(() => Promise.reject(error))
  })
  return {
    arm(from, how, always) {
      calls = 0
      nth = from
      code = how
      isForEver = always
    },
    disarm() {
      nth = Number.POSITIVE_INFINITY
      return calls
    },
  }
}
