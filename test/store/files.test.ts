import {chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, onTestFinished, test} from 'vitest'
import {HOST} from '../../src/core/process.ts'
import {openFolder} from '../../src/export/deliver-files.ts'
import {copyIntoPlace, writeFileAtomically} from '../../src/store/files.ts'
import {failureOf} from '../support/lab.ts'
import {useFolder} from '../support/set-up.ts'

const {root} = useFolder().folder

test('a file is written whole, replaces its predecessor and leaves nothing beside it', () => {
  const path = join(root, 'file.json')
  writeFileAtomically(path, 'first')
  // Leftovers of a dead writer, and of one that may be alive.
  for (const mark of [`@${HOST}-999999999`, '@elsewhere-1'])
    writeFileSync(join(root, `.writing-file.json${mark}`), 'half')
  writeFileAtomically(path, 'second')
  expect(readFileSync(path, 'utf8')).toBe('second')
  expect(readdirSync(root)).toEqual(['.writing-file.json@elsewhere-1', 'file.json'])
})

test('a copy that fails leaves nothing of itself', async () => {
  mkdirSync(join(root, 'unreadable'))
  await failureOf(copyIntoPlace(join(root, 'unreadable'), join(root, 'a.part'), join(root, 'a')))
  writeFileSync(join(root, 'readable'), 'whole')
  await failureOf(copyIntoPlace(join(root, 'readable'), join(root, 'a.part'), join(root, 'unreadable')))
  expect(readdirSync(root)).not.toContain('a.part')
})

const modeOf = (path: string) => (statSync(path).mode & 0o7777).toString(8)

/** Only root may give a file to a group it is not in; a container may know no other group. */
function mayGive(path: string, group: number): boolean {
  try {
    chownSync(path, -1, group)
    return true
  } catch {
    return false
  }
}

test.each([
  ['everybody', 0o755, {file: '644', folder: '755'}],
  ['a group', 0o2770, {file: '640', folder: '2750'}],
  ['only its user', 0o700, {file: '600', folder: '700'}],
  ['everybody, even to write', 0o1777, {file: '644', folder: '755'}],
])(
  'a file written into a folder open to %s is readable by the same users and writable by no others',
  async (_whose, mode, expected) => {
    const before = process.umask(0o077)
    onTestFinished(() => void process.umask(before))
    const [source, target] = [join(root, 'core.deal.csv'), join(root, 'share')]
    writeFileSync(source, 'deal_id\n', {mode: 0o400})
    mkdirSync(target)
    const group = [12_345, ...(process.getgroups?.() ?? [])].find((one) => mayGive(target, one))
    chmodSync(target, mode)
    await using carrier = await openFolder({kind: 'folder', path: target}, 'csv/batch')
    await carrier.put({name: 'core.deal.csv', path: source, bytes: 8, sha256: ''})
    writeFileAtomically(join(target, 'report.html'), '<p>')
    expect(modeOf(join(target, 'csv'))).toBe(expected.folder)
    expect(modeOf(join(target, 'csv/batch'))).toBe(expected.folder)
    expect(modeOf(join(target, 'csv/batch/core.deal.csv'))).toBe(expected.file)
    expect(modeOf(join(target, 'report.html'))).toBe(expected.file)
    if ((mode & 0o2000) === 0) return
    for (const made of readdirSync(target, {recursive: true, encoding: 'utf8'}))
      expect(statSync(join(target, made)).gid, made).toBe(group)
  },
)
