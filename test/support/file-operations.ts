import fs from 'node:fs'
import {syncBuiltinESMExports} from 'node:module'

/** An operation that is about to change a file. */
export interface FileOperation {
  /** Its name in `node:fs/promises`, or as a method of an open file. */
  name: string
  args: unknown[]
  /** Performs it, with other arguments if given. */
  go(args?: unknown[]): unknown
  /** Whether it returns or throws directly, instead of returning a promise. */
  isSync: boolean
}

/** Replaces a method of an object, if it has it, with `around`. */
export function intercept(
  place: object,
  method: string,
  around: (go: (given?: unknown[]) => unknown, args: unknown[]) => unknown,
): void {
  const original: unknown = Reflect.get(place, method)
  if (typeof original !== 'function') return
  Reflect.set(place, method, function call(this: unknown, ...args: unknown[]) {
    return around((given = args) => Reflect.apply(original, this ?? place, given), args)
  })
}

/** Replaces these functions of `node:fs` and `node:fs/promises`, and these methods of open files, with `around`, in this process. */
export async function interceptFiles(
  names: readonly string[],
  ofOpenFiles: readonly string[],
  around: (operation: FileOperation) => unknown,
): Promise<void> {
  const file = await fs.promises.open(process.execPath)
  const openFile: object = Object.getPrototypeOf(file)
  await file.close()
  const replace = (place: object, name: string, isSync: boolean) =>
    intercept(place, isSync ? `${name}Sync` : name, (go, args) => around({name, args, go, isSync}))
  for (const name of ofOpenFiles) replace(openFile, name, false)
  for (const name of names) {
    replace(fs, name, true)
    replace(fs.promises, name, false)
  }
  syncBuiltinESMExports()
}
