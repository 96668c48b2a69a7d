import {type ChildProcess, spawn} from 'node:child_process'
import {once} from 'node:events'
import {existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {getPriority} from 'node:os'
import {dirname, join} from 'node:path'
import {expect, onTestFinished, test, vi} from 'vitest'
import {parseConfig} from '../../src/core/config.ts'
import {parseFilter} from '../../src/web/filter.ts'
import {createReaderPool, createReaders} from '../../src/web/reader.ts'
import {createFolder} from '../support/data.ts'
import {startProcess} from '../support/lab.ts'
import {publishNth} from '../support/releases.ts'
import {expectFailure, useShared} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {listProcesses} from './side.ts'

const NO_LIMIT_MS = 1_800_000
const ENDLESS = 'select sleep_ms(1000000000)'
const COUNT = 'select count(*)::int as deals from core.deal'
const limits = {memoryMb: 200, timeoutMs: NO_LIMIT_MS, idleMs: NO_LIMIT_MS}
const config = {
  ...parseConfig({}, {readFile: () => ''}),
  pageTimeoutSeconds: 1800,
  questionTimeoutSeconds: 1800,
}

const {folder} = await useShared(createFolder())
const beside = dirname(folder.root)
const work = {sql: 'create schema kept.work'}
const {dir} = await publishNth(folder, 20, {deals: 20, ...work})
const pool = await useShared(createReaderPool(limits))
const reader = pool.of(dir)

const ask = (sql: string, signal = new AbortController().signal) => reader.ask({sql, most: 10}, {signal})
const expectAnswer = async () => expect((await ask(COUNT)).rows).toEqual([[20]])

test('a query whose caller hangs up is stopped, running or waiting, and the next one is answered', async () => {
  const first = new AbortController()
  const second = new AbortController()
  const endless = ask(ENDLESS, first.signal)
  const behind = ask('select 2', second.signal)
  const last = expectAnswer()
  second.abort()
  first.abort()
  for (const gone of [endless, behind]) await expectFailure(gone, 'QUERY_STOPPED', 'nobody waits for it')
  await last
})

test('what a terminal sends to every process, at Ctrl-C or when it closes, ends no question', async () => {
  await expectAnswer()
  const pids = listProcesses(reader.filesDir)
  for (const signal of ['SIGINT', 'SIGHUP'] as const) {
    for (const pid of pids) process.kill(Number(pid), signal)
    await expectAnswer()
  }
  expect(listProcesses(reader.filesDir)).toEqual(pids)
})

test('a query that needs more memory than allowed is refused, and the next one is answered', async () => {
  const greedy = ask('select list(md5(range::varchar)) from range(5000000)')
  await expect(greedy).rejects.toThrow(/Out of Memory/)
  expect(existsSync('.tmp')).toBe(false)
  await expectAnswer()
})

test('processors work for pages and runs before they work for what people ask', async () => {
  using readers = createReaders(folder, config)
  const {pages, people, downloads} = readers.find({values: new URLSearchParams()})!
  await Promise.all([
    pages.page({sql: 'select 1'}),
    ...[people, downloads].map((one) => one.ask({sql: 'select 1'})),
  ])
  const priorities = [pages, people, downloads].flatMap(({filesDir}) =>
    listProcesses(filesDir).map((pid) => getPriority(Number(pid))),
  )
  const last = Math.max(getPriority(), 10)
  expect(priorities).toEqual([getPriority(), last, last])
})

test('however many questions are asked, the process keeps no more files and threads', async () => {
  const askOften = async () => {
    for (let index = 0; index < 15; index += 1)
      await ask(index % 3 === 0 ? 'from core.deal order by deal_id limit 3' : 'from core.deal')
    const [pid] = listProcesses(reader.filesDir)
    return ['fd', 'task'].map((kind) => readdirSync(`/proc/${pid}/${kind}`).length)
  }
  const [files = 0, threads = 0] = await askOften()
  // One more instance may still be waiting to be released.
  await until(async () => {
    const [filesThen = 0, threadsThen = 0] = await askOften()
    return filesThen <= files && threadsThen <= threads
  })
})

test('texts the engine does not count as memory do not pile up, and the next question is answered', async () => {
  const texts = ask(`select repeat('x', 100000000) from range(1000)`)
  await expect(texts).rejects.toThrow('Out of Memory: its texts take more')
  await expectAnswer()
})

test('rows beyond the limit asked for are left out', async () => {
  expect((await ask('from core.deal')).rows).toHaveLength(10)
})

test('one file, and all files together, are bounded while being written', async () => {
  const write = async (bounds: {fileBytes?: number; folderBytes?: number}, names: string[]) => {
    using pool = createReaderPool({...limits, processes: 2, ...bounds})
    const sql = 'select range as number from range(1e12::bigint)'
    await Promise.race(
      names.map((name) => pool.of(dir).ask({sql, file: {name, format: 'csv', title: '', isSafe: false}})),
    )
  }
  const one = write({fileBytes: 1e6}, ['1.csv'])
  await expectFailure(one, 'QUERY_STOPPED', 'Query stopped: its file is larger than 1 MB.')
  const two = write({folderBytes: 1e6}, ['1.csv', '2.csv'])
  await expectFailure(two, 'QUERY_STOPPED', 'what people download at this moment takes more than 1 MB.')
})

test('a folder of files that the machine has cleaned away, or whose parent is missing, is made again', async () => {
  const file = {name: 'again.csv', format: 'csv', title: '', isSafe: false} as const
  rmSync(reader.filesDir, {recursive: true})
  await reader.ask({sql: 'select 42 as answer', file})
  expect(readFileSync(join(reader.filesDir, file.name), 'utf8')).toBe('answer\n42\n')
  vi.stubEnv('TMPDIR', join(beside, 'missing/tmp'))
  onTestFinished(() => void vi.unstubAllEnvs())
  createReaderPool(limits)[Symbol.dispose]()
})

test('an idle process ends, the next question starts another, and a closed reader answers nothing and leaves nothing', async () => {
  using pool = createReaderPool({...limits, idleMs: 300})
  const hasty = pool.of(dir)
  const expectOnce = async () => expect((await hasty.ask({sql: COUNT})).rows).toEqual([[20]])
  await expectOnce()
  const [pid] = listProcesses(hasty.filesDir)
  await until(() => listProcesses(hasty.filesDir).length === 0)
  await expectOnce()
  expect(listProcesses(hasty.filesDir)).not.toContain(pid)
  pool[Symbol.dispose]()
  await expectFailure(expectOnce(), 'INTERRUPTED')
  expect(() => readdirSync(hasty.filesDir)).toThrow('ENOENT')
})

test('a question that a stopping server cuts off says so, and advises no other question', async () => {
  using pool = createReaderPool(limits)
  const cut = pool.of(dir).page({sql: ENDLESS})
  pool[Symbol.dispose]()
  const words =
    'Query stopped: the server is being stopped. Nothing was changed. Ask again once it runs again.'
  await expectFailure(cut, 'INTERRUPTED', words)
})

/**
 * Starts another server, whose reader runs an endless query.
 *
 * @returns the server, its folder of files and its readers
 */
async function startServer(): Promise<{server: ChildProcess; filesDir: string; readers: string[]}> {
  const script = `
    import {createReaderPool} from '${new URL('../../src/web/reader.ts', import.meta.url)}'
    const reader = createReaderPool({memoryMb: 200, timeoutMs: ${NO_LIMIT_MS}, idleMs: ${NO_LIMIT_MS}}).of('${dir}')
    await reader.ask({sql: 'select 1'})
    void reader.ask({sql: '${ENDLESS}'})
    console.log(reader.filesDir)`
  const file = join(beside, 'server.mjs')
  writeFileSync(file, script)
  const server = spawn(process.execPath, [file], {stdio: ['ignore', 'pipe', 'inherit']})
  const [line] = await once(server.stdout, 'data')
  const filesDir = String(line).trim()
  const readers = listProcesses(filesDir)
  expect(readers).toHaveLength(1)
  return {server, filesDir, readers}
}

test('a killed server leaves neither an endless query nor files', async () => {
  const {server, filesDir} = await startServer()
  server.kill('SIGKILL')
  await until(() => listProcesses(filesDir).length === 0)
  expect(existsSync(filesDir)).toBe(false)
})

test('a process that cannot start fails its question alone: the server goes on, and answers the next', async () => {
  const file = join(beside, 'few-files.mjs')
  const script = `
    import {closeSync, openSync} from 'node:fs'
    import {createReaderPool} from '${new URL('../../src/web/reader.ts', import.meta.url)}'
    using pool = createReaderPool({memoryMb: 200, timeoutMs: ${NO_LIMIT_MS}, idleMs: ${NO_LIMIT_MS}})
    const caller = new AbortController()
    const asked = () => pool.of('${dir}').ask({sql: 'select 42', most: 1}, {signal: caller.signal})
    const taken = []
    try {
      for (;;) taken.push(openSync('/dev/null'))
    } catch {}
    const failure = await asked().catch(({code, message}) => ({code, message}))
    for (const one of taken) closeSync(one)
    // The caller hangs up once it has its answer.
    caller.abort()
    await new Promise(setImmediate)
    const {rows} = await pool.of('${dir}').ask({sql: 'select 42', most: 1})
    console.log(JSON.stringify({failure, rows}))`
  writeFileSync(file, script)
  const {code, stdout, stderr} = await startProcess(
    ['setsid', 'sh', '-c', 'ulimit -n 100; exec "$0" "$@"', process.execPath, file],
    {},
  ).ended
  expect({code, stderr}).toEqual({code: 0, stderr: ''})
  expect(JSON.parse(stdout)).toEqual({
    failure: {
      code: 'TOO_MANY_FILES',
      message: expect.stringMatching(/open no more files: .*EMFILE.*ulimit -n/),
    },
    rows: [[42]],
  })
})

test('the next server removes what a server and its readers left when killed together', async () => {
  const {server, filesDir, readers} = await startServer()
  writeFileSync(join(filesDir, '1.csv'), 'half a file')
  // Stopped, because readers would remove the files once the server is gone.
  for (const pid of readers) process.kill(Number(pid), 'SIGSTOP')
  const ended = once(server, 'exit')
  server.kill('SIGKILL')
  for (const pid of readers) process.kill(Number(pid), 'SIGKILL')
  await ended
  await until(() => listProcesses(filesDir).length === 0)
  expect(existsSync(filesDir)).toBe(true)
  createReaderPool(limits)[Symbol.dispose]()
  expect(existsSync(filesDir)).toBe(false)
  expect(existsSync(reader.filesDir)).toBe(true)
})

test('a release is read as it was found: not as the one that has taken its place, and not cut off by looks at past days', async () => {
  using own = createFolder()
  using readers = createReaders(own.folder, config)
  const find = (address: string) => readers.find(parseFilter(new URLSearchParams(address)))
  const days = [2, 3, 4, 5, 6].map((day) => `2026-02-0${day}`)
  for (const [index, as_of] of days.entries()) {
    await publishNth(own.folder, index + 1, {deals: index + 1, as_of, ...work})
    expect((await find('')?.people.ask({sql: COUNT, most: 1}))?.rows).toEqual([[index + 1]])
  }
  const slow = find('')?.people.ask({sql: 'select count(*)::int from range(200000000)', most: 1})
  const past = days.slice(0, -1).map((day) => find(`as_of=${day}`))
  const told = await Promise.all(past.map((reader) => reader?.people.ask({sql: COUNT, most: 1})))
  expect(told.map((answer) => answer?.rows)).toEqual([[[1]], [[2]], [[3]], [[4]]])
  expect((await slow)?.rows).toEqual([[200_000_000]])
  // Pages of more releases at once than there are processes.
  const shown = [...past, ...past].map((reader) => reader?.pages.page({sql: COUNT}))
  const shownRows = (await Promise.all(shown)).map((answer) => answer?.rows)
  expect(shownRows).toEqual([1, 2, 3, 4, 1, 2, 3, 4].map((deals) => [[deals]]))
  const newer = join(own.folder.releases, '2026-01-01-000000000000')
  mkdirSync(newer)
  writeFileSync(join(newer, 'manifest.json'), '{"schema_version": 9}')
  expect(find('as_of=2026-02-03')?.release.manifest.as_of).toBe('2026-02-03')
})
