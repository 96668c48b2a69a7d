import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {quantity} from '../../src/core/money.ts'
import {aDeal, createLab, type Lab} from '../support/lab.ts'

let lab: Lab

beforeAll(async () => {
  lab = await createLab()
  lab.service.store.insert([aDeal(1, {status: 'on_hold'})])
})

afterAll(() => lab[Symbol.asyncDispose]())

/** One of something, called by the name of several. */
const WRONG_PLURAL =
  /(?<![\w.,:-])1 (?!(?:is|was|passes|waits|adds|matches|differs|does|has)\b)(?:(?:new|wrong|older|applied|funded) )?[a-z]+s\b(?! (?:ago|left))/g

test.each([
  ['sync'],
  ['status'],
  ['doctor'],
  ['build', '--as-of', '2026-01-31'],
  ['export', 'csv', 'parquet'],
  ['verify'],
  ['prune', '--dry-run'],
  ['trace', 'deal_000001'],
  ['quarantine', 'list'],
  ['backup', 'BACKUP'],
  ['rebuild'],
  ['run', 'nightly'],
])('of one deal `%s %s` speaks as of one', async (...args) => {
  const words = args.map((word) => (word === 'BACKUP' ? join(lab.folder.root, '../backup') : word))
  const {stdout, stderr} = await lab.run(words, {LOANTAPE_LOG_LEVEL: 'silent'})
  expect(stdout + stderr).toMatch(/\S/)
  expect((stdout + stderr).match(WRONG_PLURAL)).toBeNull()
})

test.each([
  [1, 'entry', '1 entry'],
  [2, 'entry', '2 entries'],
  [0, 'batch', '0 batches'],
  [1234, 'day', '1,234 days'],
])('%d %s is said %s', (count, noun, words) => {
  expect(quantity(count, noun)).toBe(words)
})
