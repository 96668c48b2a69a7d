import {hash} from 'node:crypto'
import {mkdirSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'

/**
 * Writes a batch of these files.
 * @returns the batch; `written` has the contents of its files and, last, of its manifest, by name
 */
export function placeBatch(exports: string, batch_id: string, contents: Record<string, string>) {
  const dir = join(exports, 'csv', batch_id)
  const files = Object.entries(contents).map(([name, content]) => ({
    name,
    bytes: Buffer.byteLength(content),
    rows: 0,
    sha256: hash('sha256', content),
  }))
  const written = {...contents, 'manifest.json': JSON.stringify({batch_id, release_id: 'r_1', files})}
  for (const [name, content] of Object.entries(written)) {
    mkdirSync(dirname(join(dir, name)), {recursive: true})
    writeFileSync(join(dir, name), content)
  }
  return {profile: 'csv', batch_id, dir, written}
}
