import {mkdirSync, readdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {acquireLock} from '../../src/store/runs.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {startTestServer} from '../source/test-server.ts'
import {FEW_TABLES, readFiles} from '../support/data.ts'
import {writeJobFile} from '../support/jobs.ts'
import {DAY_1, MAIN, runKilledAt, someDeals, startProcess} from '../support/lab.ts'
import {createPostgres} from '../support/postgres.ts'
import {useLab} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(20), releasedAt: DAY_1})
const server = lab.beside.use(await createPostgres())
const inbox = join(lab.folder.root, '../inbox')
mkdirSync(inbox)
const targets = join(lab.folder.root, '../targets.json')
writeFileSync(targets, JSON.stringify({share: {kind: 'folder', path: inbox}}))
const env = {
  LOANTAPE_TARGETS_FILE: targets,
  LOANTAPE_POSTGRES_URL: server.urlOf('postgres'),
  LOANTAPE_JOBS_DIR: join(lab.folder.root, '../jobs'),
}
mkdirSync(env.LOANTAPE_JOBS_DIR)
const steps = [
  {do: 'export', profiles: ['parquet'], deliver: ['share']},
  {do: 'publish', to: 'postgres'},
]
writeJobFile(env.LOANTAPE_JOBS_DIR, 'hand-out', {steps})

const run = (args: string[], changes: Record<string, string> = {}) =>
  lab.run([...args, '--json'], {...env, ...changes})

test('an export is delivered to its targets, and again on demand', async () => {
  const first = readJson(await run(['export', 'csv', 'xlsx', '--deliver', 'share']))
  expect(first.deliveries).toMatchObject([
    {target: 'share', profile: 'csv', outcome: 'delivered'},
    {target: 'share', profile: 'xlsx', outcome: 'delivered', sent: 2},
  ])
  const [batch] = readdirSync(join(inbox, 'xlsx'))
  expect(readdirSync(join(inbox, 'xlsx', batch!)).sort()).toEqual([
    'loantape-2026-02-02.xlsx',
    'manifest.json',
  ])
  for (const named of [batch!, `xlsx/${batch}`]) {
    const {deliveries} = readJson(await run(['export', '--redeliver', named]))
    expect(deliveries).toMatchObject([{target: 'share', profile: 'xlsx', outcome: 'delivered', sent: 2}])
  }
})

test('a secret that comes out of a pipe is read once for all batches', async () => {
  const tokens = new Set<unknown>()
  await using endpoint = await startTestServer(async ({headers, incoming}, response) => {
    tokens.add(headers.authorization)
    await incoming.toArray()
    response.writeHead(201).end()
  })
  const file = join(lab.folder.root, '../piped.json')
  writeFileSync(file, JSON.stringify({bank: {kind: 'http', url: endpoint.url, token_file: '/dev/fd/3'}}))
  const command = `exec "$0" "$@" 3< <(printf token)`
  const args = ['export', 'csv', 'parquet', '--deliver', 'bank', '--json']
  const program = ['bash', '-c', command, process.execPath, MAIN, ...args]
  const own = {...lab.env, LOANTAPE_TARGETS_FILE: file}
  expect(readJson(await startProcess(program, own).ended).deliveries).toHaveLength(2)
  expect([...tokens]).toEqual(['Bearer token'])
})

test('an unknown target, batch, release or job is refused', async () => {
  for (const args of [
    'export csv --deliver nobody',
    'export --redeliver 2026-01-01-000000000000',
    'publish postgres --release nowhere',
  ])
    await expectRefused(run(args.split(' ')), 'UNKNOWN_NAME')
  const elsewhere = run(['run', 'hand-in'])
  await expectRefused(elsewhere, 'UNKNOWN_NAME', [
    /one of .*hand-out/,
    `Yours are in '${env.LOANTAPE_JOBS_DIR}'`,
  ])
  const ours = run(['run', 'hand-out'], {LOANTAPE_JOBS_DIR: ''})
  await expectRefused(ours, 'UNKNOWN_NAME', 'Name the folder of yours in LOANTAPE_JOBS_DIR.')
})

test('a job exports files and publishes tables; publishing the same release again changes nothing', async () => {
  expect(readJson(await run(['run', 'hand-out']))).toMatchObject({
    outcome: 'done',
    steps: [
      {do: 'export', deliveries: [{target: 'share', outcome: 'delivered'}]},
      {do: 'publish', result: {outcome: 'published', release_id: lab.currentReleaseId()}},
    ],
  })
  const again = await lab.run(['run', 'hand-out'], env)
  expect(again.stdout).toMatch(
    /^share: has everything already of parquet\/.*\nRelease .* is already published at /m,
  )
  expect(
    await server.query('postgres', 'select deals::int, amount::text from mart.portfolio_summary'),
  ).toEqual([{deals: 20, amount: '7000000.00'}])
})

test('a second publication of a folder to the same place is refused while the first is under way', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  const first = {runId: 'first', command: 'publish', name: 'publication to postgres'}
  using _lock = acquireLock(stateDb, first, lab.createWorld(DAY_1))
  await expectRefused(run(['publish', 'postgres']), 'RUN_IN_PROGRESS', 'publication to postgres', 4)
})

test('why a job failed is told even if the state database takes no record of it, and the database password never', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  stateDb.db.exec(
    `create trigger full before update on job_run begin select raise(abort, 'database or disk is full'); end`,
  )
  const refused = {LOANTAPE_POSTGRES_URL: server.urlOf('postgres', 'x', 'hush hush')}
  const failed = await run(['run', 'hand-out'], refused)
  await expectRefused(failed, 'PUBLISH_AUTH', [], 5)
  stateDb.db.exec('drop trigger full')
  for (const {stdout, stderr} of [failed, await run(['publish', 'postgres'], refused), await run(['config'])])
    expect(stdout + stderr).not.toMatch(/hush|secret%20of/)
})

test.each(['csv', 'xlsx'])(
  'a disk that fills up in the middle of a %s leaves none under its name',
  async (profile) => {
    const folder = lab.copyFolder(`full-${profile}`)
    rmSync(folder.exports, {recursive: true, force: true})
    const own = {...lab.env, LOANTAPE_DATA_DIR: folder.root, NODE_COMPILE_CACHE: ''}
    expect((await lab.run(['build'], own)).code).toBe(0)
    // The state database is open already, because its index would exceed the limit.
    using _stateDb = openStateDb(folder.stateDb)
    // No file of the process may exceed a KiB: further writes fail as on a full disk.
    const command = ['bash', '-c', 'ulimit -f 1; exec "$0" "$@"', process.execPath, MAIN]
    await expectRefused(
      startProcess([...command, 'export', profile, '--json'], own).ended,
      'DISK_FULL',
      [],
      1,
    )
    const isBatch = (path: string) => /^exports\/.*(?<!\.json)$/.test(path)
    expect(Object.keys(readFiles(folder.root)).filter(isBatch)).toEqual([])
  },
)

function emptyInbox(): void {
  rmSync(inbox, {recursive: true, force: true})
  mkdirSync(inbox)
}

test('an export killed at any point leaves no torn file under a final name, and the next one completes it', async () => {
  const tables = ['core.deal', 'mart.portfolio_summary']
  const deliver = ['export', 'csv', 'parquet', '--table', ...tables, '--deliver', 'share', '--json']
  const whole = lab.copyFolder('undisturbed')
  emptyInbox()
  readJson(await lab.run(deliver, {...env, LOANTAPE_DATA_DIR: whole.root}))
  const expected = {exports: readFiles(whole.exports), inbox: readFiles(inbox)}
  const isFinal = ([path]: [string, string]) => !path.includes('.writing-') && !path.endsWith('.part')
  for (let nth = 1; ; nth += 21) {
    const folder = lab.copyFolder(`killed-${nth}`)
    emptyInbox()
    const own = {...lab.env, ...env, LOANTAPE_DATA_DIR: folder.root}
    const {signal, code, stderr} = await runKilledAt(nth, deliver, own)
    if (signal === null) {
      expect(code, stderr).toBe(0)
      expect(nth).toBeGreaterThan(20)
      break
    }
    mkdirSync(folder.exports, {recursive: true})
    const readBoth = () => ({exports: readFiles(folder.exports), inbox: readFiles(inbox)})
    const {exports, inbox: delivered} = readBoth()
    for (const [path, content] of [...Object.entries(exports), ...Object.entries(delivered)].filter(isFinal))
      expect([expected.exports[path], expected.inbox[path]], `${path}, ${nth}`).toContain(content)
    readJson(await lab.run(deliver, own))
    expect(readBoth(), `killed at ${nth}`).toEqual(expected)
  }
})
