import {mkdirSync, mkdtempSync, rmSync, utimesSync} from 'node:fs'
import {hostname, tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {isAbandoned, WRITER_MARK} from '../../src/core/process.ts'

let root: string

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'loantape-'))
})

afterEach(() => rmSync(root, {recursive: true}))

const DEAD = 999_999_999
const TWO_DAYS_AGO = new Date(Date.now() - 2 * 86_400_000)

test.each([
  ['of a process that is gone', `@${hostname()}-${DEAD}`, true],
  ['of a process that was gone when names had no machine', `-${DEAD}`, true],
  ['of one before us that had our number', WRITER_MARK, true],
  ['of a process that runs', `@${hostname()}-${process.ppid}`, false],
  ['of a machine where numbers mean others', `@${hostname()}-2-${DEAD}`, false],
  ['of nobody', '', false],
])('what bears the mark %s is abandoned or not', (_, mark, expected) => {
  const path = join(root, `.building-2026-02-02-0123456789ab${mark}`)
  mkdirSync(path)
  utimesSync(path, new Date(), new Date())
  expect(isAbandoned(path)).toBe(expected)
})

test('what another machine has not touched for a day is abandoned, what is gone meanwhile is not', () => {
  const path = join(root, `.building-x@${hostname()}-2-${process.ppid}`)
  mkdirSync(path)
  utimesSync(path, TWO_DAYS_AGO, TWO_DAYS_AGO)
  expect(isAbandoned(path)).toBe(true)
  rmSync(path, {recursive: true})
  expect(isAbandoned(path)).toBe(false)
})
