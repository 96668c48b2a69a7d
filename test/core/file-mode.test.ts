import {chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, onTestFinished, test} from 'vitest'
import {openFolder} from '../../src/export/deliver-files.ts'
import {writeFileAtomically} from '../../src/store/files.ts'

const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8)

test.each([
  ['everybody', 0o755, {file: '644', folder: '755'}],
  ['a group', 0o2770, {file: '640', folder: '750'}],
  ['only its user', 0o700, {file: '600', folder: '700'}],
  ['everybody, even to write', 0o1777, {file: '644', folder: '755'}],
])(
  'a file written into a folder open to %s is readable by the same users and writable by no others',
  async (_whose, mode, expected) => {
    const root = mkdtempSync(join(tmpdir(), 'loantape-mode-'))
    const before = process.umask(0o077)
    onTestFinished(() => {
      process.umask(before)
      rmSync(root, {recursive: true})
    })
    const [source, target] = [join(root, 'core.deal.csv'), join(root, 'share')]
    writeFileSync(source, 'deal_id\n', {mode: 0o400})
    mkdirSync(target)
    chmodSync(target, mode)
    await using carrier = await openFolder({kind: 'folder', path: target}, 'csv/batch')
    await carrier.put({name: 'core.deal.csv', path: source, bytes: 8, sha256: ''})
    writeFileAtomically(join(target, 'report.html'), '<p>')
    expect(modeOf(join(target, 'csv'))).toBe(expected.folder)
    expect(modeOf(join(target, 'csv/batch'))).toBe(expected.folder)
    expect(modeOf(join(target, 'csv/batch/core.deal.csv'))).toBe(expected.file)
    expect(modeOf(join(target, 'report.html'))).toBe(expected.file)
  },
)
