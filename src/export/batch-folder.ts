import {existsSync, mkdirSync, renameSync, rmSync} from 'node:fs'
import {basename, dirname, join} from 'node:path'
import {codeOf} from '../errors.ts'
import {removeAbandoned, WRITER_MARK} from '../process.ts'
import {moveIntoPlace} from '../warehouse/atomic-file.ts'

/** A batch that is being written; disposing it removes what was not finished. */
export interface BatchFolder extends Disposable {
  /** Where its files go until then. */
  readonly dir: string
  /**
   * Gives the folder its final name in the place of what lies there, except where that is whole by now: another process
   * has written the same batch, and somebody may read it already.
   */
  finish(isWhole: () => boolean): void
}

/** Begins a batch under a temporary name beside its final one; what exports that died left there is removed. */
export function beginBatch(final: string): BatchFolder {
  const parent = dirname(final)
  removeAbandoned(parent, '.writing-')
  const dir = join(parent, `.writing-${basename(final)}${WRITER_MARK}`)
  const aside = join(parent, `.writing-${basename(final)}-before${WRITER_MARK}`)
  const remove = () => {
    for (const path of [dir, aside]) rmSync(path, {recursive: true, force: true})
  }
  remove()
  mkdirSync(dir, {recursive: true})
  return {
    dir,
    finish(isWhole) {
      if (isWhole()) return
      try {
        if (existsSync(final)) renameSync(final, aside)
        moveIntoPlace(dir, final)
      } catch (error) {
        if (!['ENOENT', 'ENOTEMPTY', 'EEXIST'].includes(codeOf(error)) || !isWhole()) throw error
      }
    },
    [Symbol.dispose]: remove,
  }
}

/** Removes a batch: it is there or not, half removed it bears the name of one that was never finished. */
export function removeBatch(final: string): void {
  const aside = join(dirname(final), `.writing-${basename(final)}-before${WRITER_MARK}`)
  renameSync(final, aside)
  rmSync(aside, {recursive: true, force: true})
}
