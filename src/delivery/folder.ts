import {accessSync, constants, existsSync, mkdirSync} from 'node:fs'
import {copyFile, rm, statfs} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import {codeOf, messageOf} from '../errors.ts'
import {shareWithFolder} from '../file-mode.ts'
import {moveIntoPlace} from '../warehouse/atomic-file.ts'
import {type Carrier, failed, refused} from './carrier.ts'
import type {FolderTarget} from './target.ts'

/** Copies files into a folder, each under its name only when it is whole. */
export async function openFolder(target: FolderTarget, place: string): Promise<Carrier> {
  const where = `folder '${target.path}'`
  // A share that is not mounted is no new folder to be made.
  if (!existsSync(target.path)) throw refused(where, 'it is not there')
  return {
    async put({name, path, bytes}) {
      const final = join(target.path, place, name)
      const part = `${final}.part`
      try {
        // Of a read-only disk, making folders would say only that there are none.
        accessSync(target.path, constants.W_OK)
        for (const folder of makeFolders(dirname(final))) shareWithFolder(folder)
        const {bavail, bsize} = await statfs(dirname(final))
        if (bavail * bsize < bytes)
          throw Object.assign(new Error('ENOSPC: no space left on device'), {code: 'ENOSPC'})
        await copyFile(path, part)
        shareWithFolder(part)
        moveIntoPlace(part, final)
      } catch (error) {
        const code = codeOf(error)
        const left = await rm(part, {force: true}).then(
          () => '',
          (cause) => `; '${part}' is left there (${codeOf(cause)})`,
        )
        const what = `file '${name}' cannot be written (${messageOf(error).split(',')[0]})${left}`
        throw /^(EACCES|EPERM|EROFS|ENOTDIR)$/.test(code)
          ? refused(where, what, error)
          : failed(where, what, error)
      }
    },
    async [Symbol.asyncDispose]() {},
  }
}

/** Makes a folder and those above it that are missing; returns those made, the highest first. */
function makeFolders(path: string): string[] {
  if (existsSync(path)) return []
  const above = makeFolders(dirname(path))
  mkdirSync(path, {recursive: true})
  return [...above, path]
}
