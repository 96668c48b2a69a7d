import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {startProcess} from '../support/lab.ts'

const ROOT = join(import.meta.dirname, '../..')

/**
 * Tests that read the machine's clock: schedules, ages, locks, due slots, alarms, business days. The scheduler's own tests
 * control their clock.
 */
const FILES = [
  ...['core/process', 'store/runs', 'sync/clock', 'sync/events', 'record/prune'],
  ...['schedule/digest', 'schedule/job', 'schedule/run-job', 'schedule/tell'],
  ...['cli/serve', 'cli/status', 'web/alarms', 'web/operator', 'web/web'],
].map((name) => `test/${name}.test.ts`)

test('every file that is run past midnight exists', () => {
  expect(FILES.filter((file) => !existsSync(join(ROOT, file)))).toEqual([])
})

test.each(['2026-12-31 23:59:30', '2028-02-28 23:59:30'])(
  "tests pass while the machine's clock passes midnight after %s",
  async (instant) => {
    const vitest = join(ROOT, 'node_modules/.bin/vitest')
    // An offset, because every process would start again at a fixed instant.
    const ahead = `+${Math.round((Date.parse(instant) - Date.now()) / 1000)}s`
    const command = ['faketime', '-m', '-f', ahead, vitest, 'run', '--reporter=dot', ...FILES]
    const {code, stdout, stderr} = await startProcess(
      command,
      {TMPDIR: process.env.TMPDIR ?? '/tmp', CI: '1'},
      ROOT,
    ).ended
    expect({code, output: code === 0 ? '' : stdout + stderr}).toEqual({code: 0, output: ''})
  },
)
