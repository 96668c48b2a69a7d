import {existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {gunzipSync} from 'node:zlib'
import {expect, test} from 'vitest'
import type {WireRecord} from '../../src/core/types.ts'
import {changeTape, listTapes} from '../../src/store/recorded.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {readFiles, readLines, readManifest} from '../support/data.ts'
import {DAY_1, DAY_2, DAY_3, someDeals} from '../support/lab.ts'
import {changeRecords, linkBorrower, useLab} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const lab = await useLab({tables: '+core.deal +core.borrower', deals: someDeals(20)})
mkdirSync(lab.folder.root, {recursive: true, mode: 0o700})
writeFileSync(
  lab.folder.fields,
  JSON.stringify({owner: {type: 'text'}, desk: {path: 'desk.name', type: 'text'}}),
)
await lab.sync(DAY_1)
const firstRelease = lab.currentReleaseId()
lab.service.store.update('deal_000001', {status: 'underwriting'})
await lab.sync(DAY_2)
const root = join(lab.folder.root, '..')

const readArchive = (dir: string) =>
  gunzipSync(readFileSync(join(dir, 'responses.warc.gz'))).toString('latin1')
const readEvidence = (dir: string) => JSON.parse(readFileSync(join(dir, 'evidence.json'), 'utf8'))

test("evidence holds every line that leads to the release; with --all-fields also its walk's answers as received", async () => {
  const dir = join(root, 'evidence')
  const made = readJson(await lab.run(['evidence', 'current', dir, '--all-fields', '--json']))
  const release_id = lab.currentReleaseId()
  expect(made).toMatchObject({tapes: 2, reduced: 0, batch_id: null, release_id})
  const evidence = readEvidence(dir)
  const manifest = readManifest(lab.folder.current)
  expect(evidence).toMatchObject({tape_head: manifest.tape_head, source: manifest.source, before: null})
  expect(evidence.answers_of).toEqual([`${manifest.source.walk_id}.jsonl`])

  const frames = readLines(readFileSync(join(dir, 'tapes', evidence.answers_of[0]), 'utf8'))
  expect(frames.at(-1)).toMatchObject({frame: 'outcome', outcome: 'settled', chain: manifest.tape_head})
  const cat = await lab.run(['tape', 'cat', manifest.source.walk_id])
  const bodies = readLines(cat.stdout).flatMap(({body}) => body ?? [])
  const archive = readArchive(dir)
  expect(archive.match(/^WARC-Type: response/gm)).toHaveLength(bodies.length)
  for (const body of bodies) expect(archive).toContain(`\r\n\r\n${body}\r\n\r\n`)

  for (const path of [dir, join(dir, 'tapes')]) expect(statSync(path).mode & 0o777).toBe(0o700)
  const again = join(root, 'again')
  expect((await lab.run(['evidence', manifest.release_id, again, '--all-fields'])).code).toBe(0)
  expect(readFiles(again)).toEqual(readFiles(dir))
})

test('evidence never names people, whatever answers it holds, and holds feeds of rates as received', async () => {
  for (const id of ['deal_000001', 'deal_000002']) linkBorrower(lab, id, 'ada.q@example.com')
  changeRecords(lab, '/deals/deal_000002/borrowers', ([link]) =>
    Object.assign(link ?? {}, {created_at: 'Monday'}),
  )
  await lab.run(['note', 'add', '--deal', 'deal_000001', '--text', 'Of Querfeldein.'])
  const [feeds, csv] = [join(root, 'rates.json'), join(root, 'sofr.csv')]
  writeFileSync(csv, 'date,value\n2026-02-02,4.31\n')
  writeFileSync(feeds, JSON.stringify({feeds: [{name: 'sofr', rate: 'SOFR', csv}]}))
  const env = {LOANTAPE_NOW: '2026-02-04T12:00:00-05:00', LOANTAPE_RATES_FILE: feeds}
  expect((await lab.run(['run', 'rates'], env)).code).toBe(0)
  await lab.sync(DAY_3, {config: {streams: 'deals,borrowers'}})
  expect((await lab.query('from core.borrower')).length).toBe(1)
  const dir = join(root, 'of people')
  const made = await lab.run(['evidence', 'current', dir, '--from', '2026-01-01', '--json'])
  expect(readJson(made)).toMatchObject({reduced: 0})
  expect(readEvidence(dir)).toMatchObject({tapes: {length: 6}, answers_of: {length: 4}})
  expect(readArchive(dir)).toMatch(
    /response\r\n.*urn:loantape:rates:.*\r\n\r\ndate,value\n2026-02-02,4.31\n/s,
  )
  const [{email_hash}] = (await lab.query('select email_hash from core.borrower')) as [{email_hash: string}]
  for (const [file, content] of Object.entries(readFiles(dir))) {
    const text = file.endsWith('.gz') ? readArchive(dir) : content
    for (const told of ['Querfeldein', 'ada.q@example.com', email_hash]) {
      expect(text.includes(told), `${told} in ${file}`).toBe(false)
    }
  }
})

test('answers since a day whose tape is no longer kept are refused, and named from which they can be had', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  // The tape of the note is then the first that is kept.
  for (const {name, path} of listTapes(stateDb).slice(0, 2)) {
    rmSync(join(lab.folder.root, path))
    changeTape(stateDb, name, {removed_at: '2026-02-09T00:00:00.000Z'})
  }
  const since = (day: string, of = 'current') =>
    lab.run(['evidence', of, join(root, day), '--from', day, '--json'])
  await expectRefused(since('2026-02-03'), 'EVIDENCE_TAPES', 'begin on 2026-02-04', 1)
  await expectRefused(since('2026-02-04', firstRelease), 'EVIDENCE_TAPES', 'rests on is not kept', 1)
  expect((await since('2026-02-04')).code).toBe(0)
})

test('evidence omits fields the contract does not know and does not claim the rest is what was received', async () => {
  changeRecords(lab, '/deals', (deals) => {
    const desk = {name: 'East', head: 'Ada Querfeldein'}
    for (const deal of deals) Object.assign(deal, {owner: {name: 'Querfeldein'}, desk})
  })
  const owed = {loan_amount: 'owed by Querfeldein'}
  changeRecords(lab, '/deals?', ([first]) => Object.assign(first ?? {}, owed))
  changeRecords(lab, /^\/deals\/deal_000002/, ([deal]) => Object.assign(deal ?? {}, owed))
  changeRecords(lab, /^\/deals\/deal_000003/, ([deal]) => delete deal?.status)
  const change = ({data, ...page}: WireRecord) => ({...page, data: {'Ada Querfeldein': data}})
  lab.service.faults.add({match: {path: '/deals?'}, fault: {kind: 'mutate', change}})
  for (const id of ['deal_000002', 'deal_000003']) lab.service.store.update(id, {status: 'underwriting'})
  await lab.sync('2026-02-04T23:50:00-05:00', {accept: ['envelope'], config: {pageSize: 10}})
  lab.service.faults.clear()
  const dir = join(root, 'reduced')
  const {stdout} = await lab.run(['evidence', 'current', dir])
  expect(stdout).toContain('without what the contract does not know')
  expect(readEvidence(dir)).toMatchObject({reduced: true})
  const archive = readArchive(dir)
  expect(archive).not.toContain('Querfeldein')
  expect(archive).not.toContain('WARC-Type: response')
  expect(archive.match(/.*"next_cursor":"[^"]*/g)).toEqual([
    expect.stringMatching(/^\{"has_more":true,"next_cursor":"sha256:/),
  ])
  expect(archive).toMatch(/^\{"data":\{"id":"deal_000003",.*"desk":\{"name":"East"\}/m)
  expect(archive).toContain('":[null,{"id":"deal_000002","property_address":"2 Main St, Austin, TX 78701",')
  const tape = readFileSync(join(dir, 'tapes', readEvidence(dir).answers_of[0]), 'utf8')
  for (const [, digest] of archive.matchAll(/Loantape-Received-Digest: sha256:(\w+)/g))
    expect(tape).toContain(`"sha256":"${digest}"`)
})

test('a refused request for evidence says why and writes nothing', async () => {
  const dir = join(root, 'refused')
  const refused = async (code: string, args = ['current', dir]) => {
    await expectRefused(lab.run(['evidence', ...args, '--json']), code)
    expect(existsSync(dir)).toBe(false)
  }
  await refused('UNKNOWN_NAME', ['2026-02-03-000000000000', dir])
  await refused('OUT_PLACE', ['current', join(lab.folder.root, 'evidence')])
  await refused('OUT_PLACE', ['current', root])
  const key = lab.env.LOANTAPE_TAPE_KEY_FILE ?? ''
  renameSync(key, `${key}.aside`)
  await refused('TAPE_KEY_LOST')
  renameSync(`${key}.aside`, key)
  const tape = join(lab.folder.tapes, Object.keys(readFiles(lab.folder.tapes)).sort().at(-1) ?? '')
  renameSync(tape, `${tape}.aside`)
  await refused('STORES_DISAGREE')
  renameSync(`${tape}.aside`, tape)
  {
    await using db = await openWarehouse(lab.folder, lab.createWorld())
    await db.run(`update history.raw.settle set history_id = 'another'`)
  }
  await refused('EVIDENCE_HISTORY')
})
