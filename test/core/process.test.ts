import {existsSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync} from 'node:fs'
import {hostname, tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {
  carryOutCommand,
  HOST,
  isAbandoned,
  isProcessAlive,
  makeTemporaryFolder,
  readProcessStart,
  WRITER_MARK,
} from '../../src/core/process.ts'
import {useFolder} from '../support/set-up.ts'

const DEAD = 999_999_999

const {root} = useFolder().folder

test('a path is abandoned when its writer is dead, or on another machine and untouched for a day', () => {
  const [host, ours, foreign] = [HOST, process.ppid, `@${HOST}-2-${DEAD}`]
  for (const [mark, expected] of [
    [`@${host}-${DEAD}`, true],
    // A name given by people.
    [`-${DEAD}`, false],
    [WRITER_MARK, false],
    // Our own pid means a predecessor.
    [`${WRITER_MARK}0`, true],
    // A pid in use again.
    [`@${host}-${ours}~1`, true],
    [`@${host}-${ours}~${readProcessStart(ours)}`, false],
    [`@${host}-${ours}`, false],
    [foreign, false],
    ['', false],
  ] as const) {
    const path = join(root, `.writing-2026-02-02-0123456789ab${mark}`)
    mkdirSync(path)
    // The kernel would date the folder by its own clock, which a test cannot set.
    utimesSync(path, new Date(), new Date())
    expect([mark, isAbandoned(path)]).toEqual([mark, expected])
  }
  const path = join(root, `.writing-2026-02-02-0123456789ab${foreign}`)
  const twoDaysAgo = new Date(Date.now() - 2 * 86_400_000)
  utimesSync(path, twoDaysAgo, twoDaysAgo)
  expect(isAbandoned(path)).toBe(true)
  rmSync(path, {recursive: true})
  expect(isAbandoned(path)).toBe(false)
})

test('only another container of this very name counts as gone after an hour', () => {
  const twoHoursAgo = new Date(Date.now() - 2 * 3_600_000)
  const abandoned = [`${hostname()}.7`, `${hostname()}2`, `${hostname()}2.7`].map((host) => {
    const path = join(root, `.writing-b@${host}-2`)
    mkdirSync(path)
    utimesSync(path, twoHoursAgo, twoHoursAgo)
    return isAbandoned(path)
  })
  expect(abandoned).toEqual([true, false, false])
})

test('a temporary folder takes away what dead processes left, and nothing of its own process', () => {
  const left = join(tmpdir(), `loantape-test-0123456789ab-0123@${HOST}-${DEAD}`)
  mkdirSync(left)
  writeFileSync(join(left, 'core.deal.csv'), 'a table')
  using first = makeTemporaryFolder('loantape-test-')
  {
    using second = makeTemporaryFolder('loantape-test-')
    expect([left, first.path, second.path].map((path) => existsSync(path))).toEqual([false, true, true])
    rmSync(second.path, {recursive: true})
  }
  expect(existsSync(first.path)).toBe(true)
})

test('a command has ended once its process has, even if the agent of a vault that it started holds its log open', async () => {
  const agent = `sleep 3600 > agent & echo $! > pid; echo sk_test`
  const env = {PATH: process.env.PATH, LOANTAPE_API_KEY_COMMAND: agent}
  const signal = new AbortController().signal
  const {exitCode} = await carryOutCommand(['config'], {env, cwd: root, signal})
  expect(exitCode).toBe(0)
  const pid = Number(readFileSync(join(root, 'pid'), 'utf8'))
  expect(isProcessAlive(pid)).toBe(true)
  process.kill(pid)
})
