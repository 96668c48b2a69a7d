import {existsSync, mkdirSync, readFileSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {expect} from 'vitest'

const FOLDER = join(import.meta.dirname, '../golden')

export function expectGolden(name: string, text: string): void {
  const path = join(FOLDER, name)
  if (process.env.UPDATE_GOLDEN) {
    if (process.env.CI) throw new Error('UPDATE_GOLDEN is refused in CI')
    mkdirSync(dirname(path), {recursive: true})
    writeFileSync(path, text)
  }
  const kept = existsSync(path) ? readFileSync(path, 'utf8') : ''
  expect(text, `test/golden/${name}: if it should be so, UPDATE_GOLDEN=1 writes it`).toBe(kept)
}
