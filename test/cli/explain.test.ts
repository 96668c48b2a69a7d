import {expect, test} from 'vitest'
import {CATALOGUE} from '../../src/core/errors.ts'
import {runCommand} from '../support/command.ts'

const explain = (...args: string[]) => runCommand(['explain', ...args], {})

test('an error is explained by its code, however it is written', async () => {
  const {code, stdout} = await explain('source_pinned')
  expect(code).toBe(0)
  expect(stdout).toBe(
    [
      'SOURCE_PINNED: exit 2, usage or configuration; nothing was started.',
      'Kept: Nothing was changed.',
      'Next: Use another folder with --data: each source has its own. Only if the same service has moved, with all its deals, run `loantape sync --accept source` once.',
      '',
    ].join('\n'),
  )
  expect(JSON.parse((await explain('GUARD_SHRINK', '--json')).stdout)).toMatchObject({
    code: 'GUARD_SHRINK',
    exit_code: 8,
  })
})

test('without a code every code is listed by how the program exits', async () => {
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

test('a code that does not exist is answered with those like it', async () => {
  const {code, stderr} = await explain('SOURCE_PIN')
  expect(code).toBe(2)
  expect(stderr).toContain("Code 'SOURCE_PIN': expected SOURCE_PINNED. Nothing was changed.")
})
