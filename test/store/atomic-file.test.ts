import {readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {hostname} from 'node:os'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {dataFolderAt, requireWritable} from '../../src/store/data-folder.ts'
import {keepText, readKept, writeFileAtomically} from '../../src/store/files.ts'
import {failureOf} from '../support/lab.ts'
import {useFolder} from '../support/set-up.ts'

let root: string

useFolder(({folder}) => {
  root = folder.root
})

test('a file is written whole, replaces its predecessor and leaves nothing beside it', () => {
  const path = join(root, 'file.json')
  writeFileAtomically(path, 'first')
  // Left by dead writers, and by one that may be alive.
  for (const mark of ['-999999999', `@${hostname()}-999999999`, '@elsewhere-1'])
    writeFileSync(`${path}.tmp${mark}`, 'half')
  writeFileAtomically(path, 'second')
  expect(readFileSync(path, 'utf8')).toBe('second')
  expect(readdirSync(root)).toEqual(['file.json', 'file.json.tmp@elsewhere-1'])
})

test('a missing data folder is created with its parents, and a file in its place is refused with the reason', async () => {
  requireWritable(dataFolderAt(join(root, 'a', 'b')))
  expect(readdirSync(join(root, 'a'))).toEqual(['b'])
  writeFileSync(join(root, 'file'), '')
  const refusal = await failureOf((async () => requireWritable(dataFolderAt(join(root, 'file'))))())
  expect(refusal).toMatchObject({code: 'NOT_WRITABLE', exitCode: 2})
  expect(refusal.message).toMatch(/cannot be written \(E[A-Z]+\)/)
})

test('a cached text is read back exactly as written, or not at all', () => {
  const path = join(root, 'kept')
  expect(readKept(path)).toBeUndefined()
  for (const text of ['', '{"known_at": "2026-02-02"}', 'two\nlines\n']) {
    keepText(path, text)
    expect(readKept(path)).toBe(text)
    const whole = readFileSync(path)
    for (let bit = 0; bit < whole.length * 8; bit += 1) {
      const flipped = Buffer.from(whole)
      flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit % 8)), bit >> 3)
      writeFileSync(path, flipped)
      expect(readKept(path)).toBeUndefined()
      expect(readdirSync(root)).not.toContain('kept')
    }
  }
})
