import {expect, test} from 'vitest'
import {CATALOGUE} from '../../src/core/errors.ts'
import {runCommand} from '../support/command.ts'

const explain = (...args: string[]) => runCommand(['explain', ...args], {})

test('explain finds an error by its code in any spelling', async () => {
  expect(await explain('source_pinned')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(
      /^SOURCE_PINNED: exit 2, .*\nKept: Nothing was changed\.\nNext: Use another folder .*\n$/,
    ),
  })
  expect(JSON.parse((await explain('GUARD_SHRINK', '--json')).stdout)).toMatchObject({
    code: 'GUARD_SHRINK',
    exit_code: 8,
  })
})

test('without a code, explain lists every code by exit code', async () => {
  const {code, stdout} = await explain()
  expect(code).toBe(0)
  expect(stdout).toMatch(
    /^Exit 8, a guard refused the walk; `--accept` goes on:\n {2}EXPORT_COLUMNS\n {2}GUARD_CHANGE\n {2}GUARD_GROWTH\n/m,
  )
  expect(JSON.parse((await explain('--json')).stdout).length).toBe(Object.keys(CATALOGUE).length)
})

test.each([
  ['[GUARD_SHRINK]', 0, ''],
  ['shrink', 2, "Code 'shrink': expected GUARD_SHRINK."],
  ['shrnk', 2, "Code 'shrnk': expected GUARD_SHRINK."],
  ['SOURCE_PINED', 2, 'expected SOURCE_PINNED.'],
  ['nonsense', 2, 'expected a known code. Nothing was changed. `loantape explain` lists all codes.'],
])('`explain %s` ends with %d', async (asked, exit, words) => {
  const {code, stderr} = await explain(asked)
  expect(code).toBe(exit)
  expect(stderr).toContain(words)
})
