import {execFileSync, spawn} from 'node:child_process'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {join} from 'node:path'
import {text} from 'node:stream/consumers'
import {expect, test} from 'vitest'
import {sendJson, startTestServer} from '../source/test-server.ts'
import {DAY_1, DAY_2, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {readJson} from './outcome.ts'

const lab = await useLab({deals: someDeals(5)})
/** A gateway before the service, which admits requests with the key. */
const gateway = lab.beside.use(
  await startTestServer(async ({path, query, headers, incoming}, response) => {
    if (query.get('key') !== 'SECRET3') return sendJson(response, {}, {status: 401})
    query.delete('key')
    const sent = ['authorization', 'content-type', 'idempotency-key'].flatMap((name): [string, string][] =>
      headers[name] === undefined ? [] : [[name, String(headers[name])]],
    )
    const {method = 'GET'} = incoming
    const body = method === 'GET' ? null : await text(incoming)
    const there = `${new URL(lab.service.url).origin}${path}?${query}`
    const answer = await fetch(there, {method, headers: sent, body})
    sendJson(response, await answer.json(), {status: answer.status})
  }),
)

/** Lists the files in a folder that contain a text, whatever their format. */
function listHolding(dir: string, text: string): string[] {
  return readdirSync(dir, {recursive: true, encoding: 'utf8'})
    .filter((name) => statSync(join(dir, name)).isFile() && readFileSync(join(dir, name)).includes(text))
    .map((name) => join(dir, name))
}

test('the query of a base URL is sent, but neither printed nor stored', async () => {
  let printed = ''
  const run = async (line: string, now = DAY_2) => {
    const env = {
      LOANTAPE_BASE_URL: `${gateway.url}/?key=SECRET3#SECRET4`,
      LOANTAPE_LOG_LEVEL: 'debug',
      LOANTAPE_NOW: now,
    }
    const ended = await lab.run(line.split(' '), env)
    printed += ended.stdout + ended.stderr
    return ended
  }
  expect(readJson(await run('sync --json', DAY_1))).toMatchObject({outcome: 'released'})
  const deals = join(lab.folder.root, '../deals.csv')
  writeFileSync(deals, 'external_reference,property_address,loan_amount\na,1 Main St,100\n')
  expect(await run(`push deals ${deals}`)).toMatchObject({code: 0})
  expect((await run('doctor')).stdout).toContain(`${gateway.url} answers`)
  lab.service.faults.add({fault: {kind: 'status', status: 500}})
  expect(await run('sync')).toMatchObject({code: 6})
  expect(await run('doctor')).toMatchObject({code: 1})
  lab.service.faults.clear()
  for (const line of ['config', 'config --json', 'status --json', 'export csv xlsx']) await run(line)
  expect(printed).not.toContain('SECRET')
  expect(printed).not.toContain(lab.env.LOANTAPE_API_KEY)
  expect(listHolding(lab.folder.root, 'SECRET')).toEqual([])
})

test('a key may come out of a pipe', async () => {
  const pipe = join(lab.folder.root, '../secret.pipe')
  execFileSync('mkfifo', [pipe])
  spawn('sh', ['-c', 'printf "%s\\n" "$1" > "$0"', pipe, lab.env.LOANTAPE_API_KEY ?? ''])
  const env = {
    LOANTAPE_API_KEY: '',
    LOANTAPE_API_KEY_FILE: pipe,
    LOANTAPE_DATA_DIR: join(lab.folder.root, '../piped'),
  }
  expect(await lab.run(['sync'], env)).toMatchObject({code: 0})
})

test('a key may come from a command, which is named if it fails, without what it printed', async () => {
  const env = {
    LOANTAPE_API_KEY: '',
    LOANTAPE_API_KEY_COMMAND: `printf '%s\n' ${lab.env.LOANTAPE_API_KEY}`,
    LOANTAPE_DATA_DIR: join(lab.folder.root, '../commanded'),
  }
  expect(await lab.run(['sync'], env)).toMatchObject({code: 0})
  for (const [command, words] of [
    ['printf SECRET1; exit 3', 'ended with 3'],
    ['true', 'printed nothing'],
    ['kill -9 $$', 'ended with SIGKILL'],
    ['head -c 2000000 /dev/zero', 'failed (ENOBUFS)'],
  ] as const) {
    const {code, stderr} = await lab.run(['sync'], {...env, LOANTAPE_API_KEY_COMMAND: command})
    expect([code, stderr]).toEqual([
      6,
      expect.stringContaining(`The command of LOANTAPE_API_KEY_COMMAND ${words}`),
    ])
    expect(stderr).not.toMatch(/SECRET1|printf/)
  }
})

test('compiled modules are kept where nobody else could put others in their place, or nowhere', async () => {
  const caches = join(lab.folder.root, '..', 'caches')
  const own = {XDG_CACHE_HOME: caches, NODE_COMPILE_CACHE: '', TMPDIR: mkdtempSync(`${caches}-tmp-`)}
  expect((await lab.start(['--help'], own).ended).code).toBe(0)
  const dir = join(caches, 'loantape')
  expect(statSync(dir).mode & 0o777).toBe(0o700)
  expect(readdirSync(dir)).not.toEqual([])
  rmSync(dir, {recursive: true})
  mkdirSync(dir)
  chmodSync(dir, 0o777)
  expect((await lab.start(['--help'], own).ended).code).toBe(0)
  expect([readdirSync(dir), readdirSync(own.TMPDIR)]).toEqual([[], []])
})
