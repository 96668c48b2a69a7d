import {mkdirSync, readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {hostname} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {dataFolderAt, requireWritable} from '../../src/store/data-folder.ts'
import {digestFile, keepText, moveIntoPlace, readKept, writeFileAtomically} from '../../src/store/files.ts'
import {createFolder, type TestFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'

let data: TestFolder
let root: string

beforeEach(() => {
  data = createFolder()
  root = data.folder.root
})

afterEach(() => data[Symbol.dispose]())

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

test('a folder gets its final name with its whole content; if it is missing, the target stays', () => {
  const [temporary, final] = [join(root, '.building'), join(root, 'final')]
  mkdirSync(temporary)
  writeFileSync(join(temporary, 'a'), 'a')
  moveIntoPlace(temporary, final)
  expect(readdirSync(root)).toEqual(['final'])
  expect(() => moveIntoPlace(join(root, 'nothing'), final)).toThrow('ENOENT')
  expect(readdirSync(final)).toEqual(['a'])
})

test('a file is digested by sha256', async () => {
  writeFileSync(join(root, 'abc'), 'abc')
  expect(await digestFile(join(root, 'abc'))).toBe(
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  )
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
