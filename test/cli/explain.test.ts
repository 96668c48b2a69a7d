import {expect, test} from 'vitest'
import {runCommand} from '../support/command.ts'

const explain = (...args: string[]) => runCommand(['explain', ...args], {})

test('an error is explained by its code, however it is written', async () => {
  const {code, stdout} = await explain('source_pinned')
  expect(code).toBe(0)
  expect(stdout).toBe(
    [
      'SOURCE_PINNED: exit 2, usage or configuration; nothing was started.',
      'Kept: Nothing was changed.',
      'Next: Use another folder with --data: each source has its own. Only where the same service has moved, with all of its deals, run `loantape sync --accept source` once.',
      '',
    ].join('\n'),
  )
  expect(JSON.parse((await explain('GUARD_SHRINK', '--json')).stdout)).toMatchObject({
    code: 'GUARD_SHRINK',
    exit_code: 8,
  })
})

test('a code that does not exist is answered with those like it', async () => {
  const {code, stderr} = await explain('SOURCE_PIN')
  expect(code).toBe(2)
  expect(stderr).toContain("Code 'SOURCE_PIN': expected SOURCE_PINNED. Nothing was changed.")
})
