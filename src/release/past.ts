import {existsSync, rmSync, utimesSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'

/** Lies in a release that was built for a past date and never was the current one: retention counts it apart. */
const MARK = '.past'

/** Marks a release that is being built as one of a past date. */
export function markPast(buildDir: string): void {
  writeFileSync(join(buildDir, MARK), '')
}

/** Whether a release was built for a past date. */
export function isPast(dir: string): boolean {
  return existsSync(join(dir, MARK))
}

/** Notes that a release is used again: as one of a past date it is young again, as the current one it is none any more. */
export function noteUse(dir: string, isCurrent: boolean, at: Date): void {
  if (!isPast(dir)) return
  if (isCurrent) rmSync(join(dir, MARK), {force: true})
  utimesSync(dir, at, at)
}
