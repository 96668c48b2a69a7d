import fs from 'node:fs'
import {syncBuiltinESMExports} from 'node:module'

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

/** Operations that change files, by their names in `node:fs` (with `Sync`) and `node:fs/promises`. */
const CHANGING = [
  'mkdir',
  'writeFile',
  'rename',
  'link',
  'symlink',
  'copyFile',
  'chmod',
  'fsync',
  'rm',
  'unlink',
  'rmdir',
  'truncate',
  'utimes',
  'appendFile',
  'cp',
  'open',
]
/** The same on an open file. */
const CHANGING_OPEN = ['write', 'sync', 'datasync', 'truncate']

/** Writes half of what `write` of an open file was given, then fails. */
async function leaveHalfOf(
  [bytes, offset, length, position]: unknown[],
  write: (args: unknown[]) => unknown,
  error: Error,
): Promise<never> {
  await write([bytes, offset, Math.floor(Number(length) / 2), position])
  throw error
}

type Operation = (...args: unknown[]) => unknown

function isOperation(value: unknown): value is Operation {
  return typeof value === 'function'
}

/**
 * Replaces, in this process, the functions of `node:fs` and `node:fs/promises` that change files, and those of open files.
 * A failing write or copy leaves half of the file behind, as a real disk does.
 *
 * DuckDB and SQLite write natively and bypass this: test/cli/storage.test.ts tests full disks for them.
 */
export async function installFailingFiles(): Promise<FailingFiles> {
  const {writeFileSync, readFileSync} = fs
  let [calls, nth, isForEver] = [0, Number.POSITIVE_INFINITY, false]
  let code: FileErrorCode = 'EIO'

  function leaveHalf(operation: string, [first, second]: unknown[]): void {
    if (operation === 'writeFile' && typeof first === 'string' && typeof second === 'string')
      writeFileSync(first, second.slice(0, second.length / 2))
    if (operation === 'copyFile' && typeof first === 'string' && typeof second === 'string') {
      const whole = readFileSync(first)
      writeFileSync(second, whole.subarray(0, whole.length / 2))
    }
  }

  function takeFailure(operation: string, args: unknown[]): Error | undefined {
    calls += 1
    if (calls < nth || (calls > nth && !isForEver)) return undefined
    leaveHalf(operation, args)
    const target = typeof args[0] === 'string' ? ` '${args[0]}'` : ''
    return Object.assign(new Error(`${code}: ${WORDS[code]}, ${operation}${target}`), {code})
  }

  function replace(place: object, name: string, operation: string, fail: (error: Error) => unknown): void {
    const original: unknown = Reflect.get(place, name)
    if (!isOperation(original)) return
    Reflect.set(place, name, function call(this: unknown, ...args: unknown[]) {
      const onIt = (given: unknown[]) => Reflect.apply(original, this ?? place, given)
      const isReading = operation === 'open' && ['r', undefined].includes(args[1] as string | undefined)
      const error = isReading ? undefined : takeFailure(operation, args)
      if (error === undefined) return onIt(args)
      return Buffer.isBuffer(args[0]) ? leaveHalfOf(args, onIt, error) : fail(error)
    })
  }

  const file = await fs.promises.open(process.execPath)
  const ofOpen = Object.getPrototypeOf(file) as object
  await file.close()
  for (const operation of CHANGING_OPEN)
    replace(ofOpen, operation, operation, (error) => Promise.reject(error))
  for (const operation of CHANGING) {
    replace(fs, `${operation}Sync`, operation, (error) => {
      throw error
    })
    replace(fs.promises, operation, operation, (error) => Promise.reject(error))
  }
  syncBuiltinESMExports()
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
