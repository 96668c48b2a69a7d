import {mkdirSync, mkdtempSync, rmSync, utimesSync} from 'node:fs'
import {hostname, tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {isAbandoned, readProcessStart, WRITER_MARK} from '../../src/core/process.ts'

let root: string

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'loantape-'))
})

afterEach(() => rmSync(root, {recursive: true}))

const DEAD = 999_999_999
const TWO_DAYS_AGO = new Date(Date.now() - 2 * 86_400_000)

test.each([
  ['of a dead process', `@${hostname()}-${DEAD}`, true],
  ['of a dead process, without a host', `-${DEAD}`, true],
  ['of a predecessor with our pid', WRITER_MARK, true],
  ['of a dead process whose pid was reused', `@${hostname()}-${process.ppid}~1`, true],
  [
    'of a running process that started then',
    `@${hostname()}-${process.ppid}~${readProcessStart(process.ppid)}`,
    false,
  ],
  ['of a running process', `@${hostname()}-${process.ppid}`, false],
  ['of another machine', `@${hostname()}-2-${DEAD}`, false],
  ['of no process', '', false],
])('whether a path with the mark %s is abandoned', (_, mark, expected) => {
  const path = join(root, `.building-2026-02-02-0123456789ab${mark}`)
  mkdirSync(path)
  utimesSync(path, new Date(), new Date())
  expect(isAbandoned(path)).toBe(expected)
})

test('a path another machine left untouched for a day is abandoned, one removed meanwhile is not', () => {
  const path = join(root, `.building-x@${hostname()}-2-${process.ppid}`)
  mkdirSync(path)
  utimesSync(path, TWO_DAYS_AGO, TWO_DAYS_AGO)
  expect(isAbandoned(path)).toBe(true)
  rmSync(path, {recursive: true})
  expect(isAbandoned(path)).toBe(false)
})
