import {chmodSync, statSync} from 'node:fs'
import {dirname} from 'node:path'
import {codeOf} from './errors.ts'

/**
 * What the process creates is its user's alone (`main.ts`). This lets whoever may read a folder read a new file or folder
 * in it: for what is put elsewhere than into the data folder.
 */
export function shareWithFolder(path: string): void {
  const readers = statSync(dirname(path)).mode & 0o055
  const mode = statSync(path).isDirectory() ? 0o700 | readers : 0o600 | (readers & 0o044)
  try {
    chmodSync(path, mode)
  } catch (error) {
    // Shares of other systems have rights of their own.
    if (!['EPERM', 'ENOTSUP', 'EINVAL'].includes(codeOf(error))) throw error
  }
}
