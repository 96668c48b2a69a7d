import {execFile} from 'node:child_process'
import {cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {gunzipSync, gzipSync} from 'node:zlib'
import {expect, test} from 'vitest'
import {dealStream} from '../../src/contract/deal.ts'
import {BOOK_TABLES, setAccounts} from '../support/books.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, day, failureOf, someDeals} from '../support/lab.ts'
import {readFieldAs} from '../support/schema.ts'
import {useLab} from '../support/set-up.ts'

const PROGRAMS = join(import.meta.dirname, '../../node_modules/.cache/python/bin')

function run(program: string, args: readonly string[]): Promise<{code: number; told: string}> {
  return new Promise((resolve) => {
    // An empty environment: the script needs neither packages nor settings.
    execFile(join(PROGRAMS, program), args, {env: {}}, (error, stdout, stderr) => {
      resolve({code: error ? Number(error.code) : 0, told: stdout + stderr})
    })
  })
}

const check = (dir: string) => run('python3', ['-I', join(dir, 'check.py')])

const lab = await useLab({tables: `${FEW_TABLES} ${BOOK_TABLES}`})
/** The folder beside the data folder, into which evidence is written. */
const root = dirname(lab.folder.root)
lab.service.store.insert(someDeals(250))
lab.service.faults.add({
  match: {path: /^\/deals\?/, nth: 2},
  fault: {
    kind: 'mutate',
    change(body) {
      const {data} = body as {data: object[]}
      Object.assign(data[7] ?? {}, {loan_amount: 'much'})
      Object.assign(data[8] ?? {}, {loan_amount: '12345678901234.56'})
      return {...(body as object), data: [...data, data[3]]}
    },
  },
})
await lab.sync(day(2), {config: {streams: 'deals,borrowers,documents'}})
lab.service.faults.clear()
lab.service.store.update(aDeal(5).id, {status: 'funded'})
const dies = (step: string) => {
  if (step === 'pages stored') throw new Error('killed')
}
await failureOf(lab.walk(day(3), {config: {pageSize: 50}, world: {onStep: dies}}))
await lab.sync(day(3), {config: {pageSize: 50}})
await lab.run(['export', 'csv'], {LOANTAPE_NOW: day(3)})

function edit(file: string, change: (text: string) => string): void {
  const isArchive = file.endsWith('.gz')
  const bytes = readFileSync(file)
  const text = change((isArchive ? gunzipSync(bytes) : bytes).toString('latin1'))
  writeFileSync(file, isArchive ? gzipSync(Buffer.from(text, 'latin1')) : Buffer.from(text, 'latin1'))
}

/** Requires a copy of evidence, changed in one file, to prove nothing. */
async function requireUnproven(dir: string, file: string, change: (text: string) => string): Promise<void> {
  const copy = join(root, 'copy')
  cpSync(dir, copy, {recursive: true})
  edit(join(copy, file), change)
  const {code, told} = await check(copy)
  expect([code, told], file).toEqual([1, expect.not.stringMatching(/^PROVEN/m)])
  rmSync(copy, {recursive: true})
}

async function write(name: string, of: string, ...options: string[]): Promise<string> {
  const dir = join(root, name)
  const {code, stderr} = await lab.run(['evidence', of, dir, ...options])
  expect(code, stderr).toBe(0)
  return dir
}

test('the script proves a release and a batch, and stock tools read the answers', async () => {
  const ofRelease = await write('release', 'current', '--all-fields', '--from', '2026-02-01')
  const proven = await check(ofRelease)
  expect(proven.told).toMatch(/^PROVEN$/m)
  expect(proven.told).toMatch(/walk w_\S+: 249 deals of 12345765701234\.56 in 3 answers/)
  expect(proven.code).toBe(0)
  const {code, told} = await run('warcio', ['check', '-v', join(ofRelease, 'responses.warc.gz')])
  expect(code, told).toBe(0)
  expect(told).toContain('digest pass')
  expect(told).not.toMatch(/digest (failed|not present)/)

  const plain = await check(await write('plain', 'current'))
  expect(plain.told).toMatch(/^PROVEN$/m)
  expect(plain.told).not.toContain('are shown')

  const [batch = ''] = readdirSync(join(lab.folder.exports, 'csv'))
  const ofBatch = await write('batch', batch, '--all-fields')
  const {told: words} = await check(ofBatch)
  expect(words).toContain(`batch ${batch}`)
  expect(words).toContain('PROVEN')
})

test('a batch in folders is proved, and so is that nothing was added to it', async () => {
  await lab.run(['export', 'parquet', '--partition', 'month'], {LOANTAPE_NOW: day(3)})
  const [batch = ''] = readdirSync(join(lab.folder.exports, 'parquet'))
  const dir = await write('in-folders', batch, '--all-fields')
  const {code, told} = await check(dir)
  expect([code, told]).toEqual([0, expect.stringMatching(/^PROVEN$/m)])
  writeFileSync(join(dir, 'batch/mart.run/added.parquet'), '')
  expect((await check(dir)).told).toContain(
    'NOT PROVEN: batch/mart.run/added.parquet is no file of the batch',
  )
})

test('a batch of a journal is proved to be the one that was issued, and no other', async () => {
  const env = {LOANTAPE_NOW: day(4)}
  expect(await lab.run(['accounting', 'init'], env)).toMatchObject({code: 0})
  setAccounts(lab.folder)
  const issued = await lab.run(['export', 'xero', '--period', '2026-02', '--json'], env)
  const [{batch_id: batch}] = JSON.parse(issued.stdout).batches
  expect(await lab.run(['note', 'add', '--day', '2026-02-03', '--text', 'later'], env)).toMatchObject({
    code: 0,
  })
  const dir = await write('journal', batch, '--all-fields')
  const {act_head, tapes} = JSON.parse(readFileSync(join(dir, 'evidence.json'), 'utf8'))
  const proven = await check(dir)
  expect(proven.told).toMatch(/^PROVEN$/m)
  expect(proven.told).toContain(`batch ${batch}: issued at `)
  expect(proven.told).toContain(act_head)
  const [csv = ''] = readdirSync(join(dir, 'batch')).filter((name) => name.endsWith('.csv'))
  for (const [file, from, to] of [
    ['act.json', /"sha256":"./, '"sha256":"'],
    ['batch/manifest.json', /"period_complete": \w+/, '"period_complete": null'],
    ['batch/manifest.json', '"profile": "xero"', '"profile": "csv"'],
    [`batch/${csv}`, /$/, '\n'],
    [`tapes/${tapes.at(-1)}`, 'batch issued', 'batch  issued'],
    [`tapes/${tapes[0]}`, /$/, 'x'],
    ['evidence.json', act_head, '0'.repeat(act_head.length)],
    ['evidence.json', `"${act_head}"`, 'null'],
    ['evidence.json', /"amount": "0/, '"amount": "1'],
    ['evidence.json', /"release_id": "..../, '"release_id": "1999'],
  ] as const)
    await requireUnproven(dir, file, (text) => text.replace(from, to))
})

test('answers without unknown fields add up, and are not claimed to be as received', async () => {
  const dir = await write('reduced', 'current', '--from', '2026-02-01')
  const {code, told} = await check(dir)
  expect(code, told).toBe(0)
  expect(told).toMatch(/walk w_\S+: 249 deals of 12345765701234\.56 in 3 answers/)
  expect(told).toMatch(/^1 answers are shown without the fields/m)
  expect(told).toMatch(/^PROVEN, BUT FOR THE ANSWERS/m)
  const archive = join(dir, 'responses.warc.gz')
  const stock = await run('warcio', ['check', '-v', archive])
  expect(stock.code, stock.told).toBe(0)
  edit(archive, (text) => text.replace('"loan_amount":350000', '"loan_amount":350001'))
  const spoilt = await check(dir)
  expect(spoilt.code, spoilt.told).toBe(1)
})

test('whatever is changed, left out or added, nothing is proved any more', async () => {
  const dir = await write('spoilt', 'current', '--all-fields')
  const [tape = ''] = readdirSync(join(dir, 'tapes'))
  const walk = JSON.parse(readFileSync(join(dir, 'evidence.json'), 'utf8')).answers_of[0]
  const answers = 'responses.warc.gz'
  const lines = join('tapes', walk)
  const replace = (from: string, to: string) => (text: string) => text.replaceAll(from, to)
  await requireUnproven(dir, answers, replace('"loan_amount":350000', '"loan_amount":350001'))
  await requireUnproven(dir, answers, (text) => text.slice(0, text.lastIndexOf('WARC/1.1')))
  await requireUnproven(dir, lines, (text) => text.split('\n').toSpliced(2, 1).join('\n'))
  await requireUnproven(dir, lines, (text) => `${text.trimEnd().split('\n').slice(0, -1).join('\n')}\n`)
  await requireUnproven(dir, 'certificates.json', replace('"duplicates": "0"', '"duplicates": "1"'))
  await requireUnproven(dir, 'evidence.json', replace('"deals": 250', '"deals": 251'))
  rmSync(join(dir, 'tapes', tape))
  expect(await check(dir)).toMatchObject({code: 1, told: expect.not.stringMatching(/^PROVEN/m)})
})

test('the script proves what a described source answered, with and without the answers as they came', async () => {
  const described = await useLab({tables: FEW_TABLES, deals: someDeals(120)})
  mkdirSync(described.folder.root, {recursive: true})
  cpSync(join(import.meta.dirname, '../../docs/sources/service.json'), described.folder.source)
  await described.sync(day(2))
  for (const options of [[], ['--all-fields']]) {
    const dir = join(dirname(described.folder.root), `evidence${options.length}`)
    expect((await described.run(['evidence', 'current', dir, ...options])).code).toBe(0)
    const {told} = await check(dir)
    expect(told).toMatch(options.length > 0 ? /^PROVEN$/m : /^PROVEN, BUT FOR THE ANSWERS/m)
    expect(told).toMatch(/120 deals of .* in 2 answers/)
    const archive = gunzipSync(readFileSync(join(dir, 'responses.warc.gz'))).toString()
    const uris = [...archive.matchAll(/WARC-Type: response.*?WARC-Target-URI: (\S+)/gs)].map(([, uri]) => uri)
    expect(new Set(uris).size).toBe(options.length > 0 ? 122 : 0)
    expect(told.includes('122 answers are shown as loantape reads them')).toBe(options.length === 0)
  }
})

test('evidence of a release says which walk does not count, who took it back and why', async () => {
  lab.service.store.update(aDeal(6).id, {status: 'funded'})
  const {certificate: wrong} = await lab.walk(day(4))
  await lab.sync(day(5))
  const env = {LOANTAPE_NOW: day(6)}
  const without = ['rebuild', '--apply', '--without', wrong.walk_id, '--why', 'a wrong list', '--who', 'Ada']
  expect(await lab.run(without, env)).toMatchObject({code: 0})
  expect(await lab.run(['build'], env)).toMatchObject({code: 0})
  const dir = await write('taken-back', 'current', '--all-fields')
  expect((await check(dir)).told).toMatch(/^PROVEN$/m)
  const said = readFileSync(join(dir, 'tapes/2026-02-06.jsonl'), 'utf8')
  for (const words of [wrong.walk_id, 'a wrong list', 'Ada']) expect(said).toContain(words)
  const certificates = JSON.parse(readFileSync(join(dir, 'certificates.json'), 'utf8')) as object[]
  expect(certificates).toContainEqual(
    expect.objectContaining({walk_id: wrong.walk_id, ended_how: 'taken back: a wrong list'}),
  )
  expect(await lab.run(['rebuild'])).toMatchObject({code: 0, stdout: expect.stringContaining('matches them')})
})

test('a record that was replayed is proved by the answer that it came in', async () => {
  using _mended = readFieldAs(dealStream, 'loan_amount', 'much', 360_000)
  const env = {LOANTAPE_NOW: day(7)}
  const replayed = await lab.run(['quarantine', 'replay', '--json'], env)
  expect(JSON.parse(replayed.stdout)).toMatchObject({replayed: 1})
  const {code, told} = await check(await write('replayed', 'current', '--all-fields', '--from', '2026-02-01'))
  expect([code, told]).toEqual([0, expect.stringMatching(/^PROVEN$/m)])
})
