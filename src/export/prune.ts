import {existsSync, readdirSync, readFileSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {parseJson} from '../json.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

const manifestSchema = z.object({release_id: z.string(), period: z.string().nullish()})

/**
 * The oldest batches of each profile beyond `kept`, as `profile/batch`. A batch of an accounting period is never among
 * them, nor one of a release that is needed, nor one whose manifest cannot be read: `verify` names that one.
 */
export function listSurplusBatches(folder: DataFolder, kept: number, needed: ReadonlySet<string>): string[] {
  if (!existsSync(folder.exports)) return []
  const profiles = readdirSync(folder.exports, {withFileTypes: true}).filter((entry) => entry.isDirectory())
  return profiles.flatMap(({name: profile}) => {
    const dir = join(folder.exports, profile)
    const batches = readdirSync(dir)
      .filter((name) => !name.startsWith('.') && existsSync(join(dir, name, 'manifest.json')))
      .map((name) => ({name, writtenAt: statSync(join(dir, name, 'manifest.json')).mtimeMs}))
      .sort((a, b) => b.writtenAt - a.writtenAt || (a.name < b.name ? 1 : -1))
      .slice(kept)
    return batches
      .filter(({name}) => isExpendable(join(dir, name, 'manifest.json'), needed))
      .map(({name}) => `${profile}/${name}`)
  })
}

function isExpendable(path: string, needed: ReadonlySet<string>): boolean {
  // What a torn one belongs to is not known, so it stays.
  const manifest = manifestSchema.safeParse(parseJson(readFileSync(path, 'utf8'))).data
  return manifest !== undefined && (manifest.period ?? null) === null && !needed.has(manifest.release_id)
}
