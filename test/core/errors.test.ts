import {expect, test} from 'vitest'
import {z} from 'zod'
import {type ErrorCode, explainError, LoantapeError, newError} from '../../src/core/errors.ts'

test('an unexpected error ends the process with code 1 and keeps its own code; one of ours explains itself', () => {
  const ours = new LoantapeError({code: 'GUARD_SHRINK', problem: 'Refused.'}, 'guard')
  expect(explainError(ours)).toBe(ours)
  const error = Object.assign(new Error('broken pipe'), {code: 'EPIPE'})
  expect(explainError(error)).toMatchObject({code: 'EPIPE', exitCode: 1, cause: error})
  for (const code of ['ENOTDIR', 'ELOOP']) {
    const inPlace = Object.assign(new Error(`${code}: scandir 'tape'`), {code})
    expect(explainError(inPlace)).toMatchObject({exitCode: 1, next: expect.stringContaining('Move away')})
  }
  const unnamed = Object.assign(new Error('bad disk'), {code: 'Unknown system error -117'})
  expect(explainError(unnamed)).toMatchObject({code: 'UNEXPECTED', exitCode: 1})
  const words = {code: 'UNEXPECTED', problem: 'Unexpected: just text.'}
  expect(explainError('just text')).toMatchObject(words)
})

test.each([
  ['ENOSPC: no space left on device, write', 'DISK_FULL'],
  ['IO Error: Could not write file: No space left on device', 'DISK_FULL'],
  ['database or disk is full', 'DISK_FULL'],
  ['EFBIG: file too large', 'DISK_FULL'],
  ['IO Error: Could not write file: Disk quota exceeded', 'DISK_FULL'],
  ['Unknown system error -122: Unknown system error -122, write', 'DISK_FULL'],
  ['disk I/O error', 'DISK_FAULT'],
  ['IO Error: Could not write file: Input/output error', 'DISK_FAULT'],
  ['IO Error: Could not write file: Read-only file system', 'DISK_FAULT'],
  ['EIO: i/o error, fsync', 'DISK_FAULT'],
  ['EROFS: read-only file system, open', 'DISK_FAULT'],
])('a full or failing disk is reported plainly: %s', (words, code) => {
  expect(explainError(new Error(words))).toMatchObject({code, exitCode: 1})
})

test.each<[exitCode: number, codes: ErrorCode[]]>([
  [1, ['POSTGRES_VALUE', 'PUBLISH_FAILED', 'PUBLISH_INCOMPLETE']],
  [2, ['NOT_WRITABLE', 'TARGETS_INVALID', 'TARGET_REFUSED', 'UNKNOWN_NAME']],
  [2, ['POSTGRES_DEPENDENT', 'POSTGRES_NAMES', 'POSTGRES_TLS', 'POSTGRES_UNKNOWN_NAME']],
  [2, ['PUBLISH_FOREIGN', 'PUBLISH_OLDER', 'PUBLISH_PRIVILEGE']],
  [3, ['BATCH_DAMAGED', 'EXPORT_CELL']],
  [4, ['PUBLISH_LOCKED', 'RUN_IN_PROGRESS']],
  [5, ['PUBLISH_AUTH', 'TARGET_AUTH', 'TARGET_HOST_KEY']],
  [6, ['INTERRUPTED', 'POSTGRES_BUSY', 'PUBLISH_UNREACHABLE', 'TARGET_FAILED']],
])('exit code %i stands for what it always did: %s', (exitCode, codes) => {
  for (const code of codes) expect(newError(code, ''), code).toMatchObject({exitCode})
})

test('if cleaning up fails as well, the first error is explained', () => {
  const full = new Error('ENOSPC: no space left on device, write')
  const both = new SuppressedError(new Error('disk I/O error'), full)
  expect(explainError(both)).toMatchObject({code: 'DISK_FULL', cause: full})
})

test("a schema's refusal is put into words, with its place", () => {
  const {error} = z
    .object({amount: z.string(), rows: z.array(z.number()), title: z.string()})
    .safeParse({amount: null, rows: ['x']})
  expect(explainError(error).message).toMatch(
    /^Unexpected: amount: .*expected string, received null; rows\.0: .*expected number, received string; title: expected string, found none\. What was stored/,
  )
})
