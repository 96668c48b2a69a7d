import {existsSync, mkdirSync, readdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {listBatches} from '../../src/accounting/issued.ts'
import {deliverBatches, exportRelease, redeliverBatch} from '../../src/outputs.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {startTestServer} from '../source/test-server.ts'
import {openBooks} from '../support/books.ts'
import {failureOf} from '../support/lab.ts'
import {expectFailure, useShared} from '../support/set-up.ts'

/** Books of one loan, or a copy of others, whose journals go to a share that is not there yet. */
function open(copied?: ReturnType<typeof openBooks>) {
  const books = openBooks(copied)
  const inbox = join(books.folder.root, 'inbox')
  const config = {...books.config, targetsFile: join(books.folder.root, 'targets.json')}
  writeFileSync(config.targetsFile, JSON.stringify({share: {kind: 'folder', path: inbox}}))
  const walkOn = (day: string, loan_amount: number, status = 'funded') =>
    books.walk(day, {a: {loan_amount, status}})
  const send = async (month: string, day: string) => {
    const batches = await books.export('xero', month, day)
    return deliverBatches(config, {batches, targets: ['share']}, books.at(day))
  }
  return {...books, inbox, config, walkOn, send}
}

/** The loan is funded on January 20 and grows on January 25: two batches, neither delivered yet. */
const books = await useShared(open())
const {inbox, config, walkOn, send} = books
await walkOn('2026-01-05', 100, 'draft')
await walkOn('2026-01-20', 100)

beforeEach(() => {
  rmSync(inbox, {recursive: true, force: true})
})

const deliveredOf = (...months: string[]) =>
  months.map((month) => ({batch_id: expect.stringContaining(month), outcome: 'delivered'}))

test('a journal batch that could not be delivered goes with the next one', async () => {
  await expectFailure(send('2026-01', '2026-01-21'), 'TARGET_REFUSED')
  await walkOn('2026-01-25', 130)
  mkdirSync(inbox)
  const delivered = await send('2026-01', '2026-01-26')
  expect(delivered.map(({outcome}) => outcome)).toEqual(['delivered', 'delivered'])
  const batches = Object.keys(books.readBatches('xero', '2026-01')).sort()
  expect(batches).toHaveLength(2)
  expect(readdirSync(join(inbox, 'xero')).sort()).toEqual(batches)
  expect(await send('2026-01', '2026-01-26')).toMatchObject([{outcome: 'unchanged'}])
  // A month with nothing to book has nothing to deliver.
  await walkOn('2026-02-02', 130)
  expect(await books.export('xero', '2026-02', '2026-02-03')).toMatchObject([{outcome: 'empty'}])
  expect(await send('2026-02', '2026-02-03')).toEqual([])
})

test('a journal whose files are gone is restored before it is named, delivered or redelivered, also to a renamed target', async () => {
  mkdirSync(inbox, {recursive: true})
  const [batch] = await books.export('xero', '2026-01', '2026-01-26')
  const all = books.readBatches('xero', '2026-01')
  rmSync(books.folder.exports, {recursive: true})
  expect(await books.export('xero', '2026-01', '2026-01-26')).toEqual([batch])
  expect(existsSync(join(batch?.dir ?? '', 'manifest.json'))).toBe(true)
  await deliverBatches(config, {batches: [batch!], targets: ['share']}, books.at('2026-01-26'))
  expect(books.readBatches('xero', '2026-01')).toEqual(all)
  rmSync(inbox, {recursive: true})
  rmSync(books.folder.exports, {recursive: true})
  mkdirSync(inbox)
  const again = (targets: object) => {
    const targetsFile = join(books.folder.root, 'others.json')
    writeFileSync(targetsFile, JSON.stringify(targets))
    const request = {batchId: batch?.batch_id ?? '', targets: []}
    return redeliverBatch({...config, targetsFile}, request, books.at('2026-01-26'))
  }
  const [twin, share, partner] = Array(3).fill({kind: 'folder', path: inbox})
  expect(await again({twin, share})).toMatchObject([{target: 'share', sent: 2}])
  expect(await again({partner})).toMatchObject([{target: 'partner', sent: 2}])
  expect(readdirSync(join(inbox, 'xero', batch?.batch_id ?? ''))).toHaveLength(2)
  const words = `was sent to 'partner' (${inbox}), where there is no target now`
  await expectFailure(again({share: {kind: 'folder', path: books.folder.root}}), 'UNKNOWN_NAME', words)
})

test('a target that fails gets no later batch of that journal, and one that cannot be reached nothing more', async () => {
  let status = 404
  const tried = new Set<string | undefined>()
  await using endpoint = await startTestServer(async ({path, incoming}, response) => {
    tried.add(/^\/v1\/(\w+\/[\w-]+)/.exec(path)?.[1])
    await incoming.toArray()
    response.writeHead(status).end()
  })
  const targetsFile = join(books.folder.root, 'endpoint.json')
  writeFileSync(targetsFile, JSON.stringify({bank: {kind: 'http', url: endpoint.url}}))
  const exported = [
    await books.export('xero', '2026-01', '2026-01-26'),
    await books.export('quickbooks', '2026-01', '2026-01-26'),
  ]
  using stateDb = openStateDb(books.folder.stateDb)
  const issued = listBatches(stateDb, {period: '2026-01'})
  const [first, second, third] = issued.map(({profile, batch_id}) => `${profile}/${batch_id}`)
  const world = books.at('2026-01-26')
  const realClock = {...world.realClock, sleep: () => Promise.resolve()}
  const send = () =>
    deliverBatches(
      {...config, targetsFile},
      {batches: exported.flat(), targets: ['bank']},
      {...world, realClock},
    )
  await expectFailure(send(), 'TARGET_REFUSED')
  expect([...tried]).toEqual([first, third])
  tried.clear()
  status = 500
  await expectFailure(send(), 'TARGET_FAILED')
  expect([...tried]).toEqual([first])
  tried.clear()
  status = 201
  expect(await send()).toHaveLength(3)
  expect([...tried]).toEqual([first, second, third])
})

test('a batch of an earlier month that could not be delivered goes with the next month, even if that has none', async () => {
  mkdirSync(inbox)
  await send('2026-01', '2026-02-03')
  await books.learnLate('2026-01-24', '2026-02-04', 'a', '110.00')
  await walkOn('2026-02-05', 150)
  rmSync(inbox, {recursive: true})
  await expectFailure(send('2026-02', '2026-02-06'), 'TARGET_REFUSED')
  mkdirSync(inbox)
  expect(await send('2026-02', '2026-02-06')).toMatchObject(deliveredOf('2026-01-', '2026-02-'))
  expect(await send('2026-02', '2026-02-06')).toMatchObject([{outcome: 'unchanged'}])
  await books.learnLate('2026-01-23', '2026-03-02', 'a', '120.00')
  await walkOn('2026-03-02', 150)
  rmSync(inbox, {recursive: true})
  await expectFailure(send('2026-03', '2026-03-03'), 'TARGET_REFUSED')
  mkdirSync(inbox)
  expect(await send('2026-03', '2026-03-03')).toMatchObject(deliveredOf('2026-01-'))
  expect(await send('2026-03', '2026-03-03')).toEqual([])
})

test('a target beside another gets what it lacks itself, not what the other one lacks', async () => {
  const other = join(books.folder.root, 'other')
  for (const path of [inbox, other]) mkdirSync(path)
  const targetsFile = join(books.folder.root, 'both.json')
  const folderAt = (path: string) => ({kind: 'folder', path})
  writeFileSync(targetsFile, JSON.stringify({share: folderAt(inbox), other: folderAt(other)}))
  await walkOn('2026-03-04', 170)
  const batches = await books.export('xero', '2026-03', '2026-03-05')
  const request = {batches, targets: ['share', 'other']}
  const delivered = await deliverBatches({...config, targetsFile}, request, books.at('2026-03-05'))
  const [march] = batches.map(({batch_id}) => batch_id)
  expect(march).toMatch(/^2026-03-/)
  expect(delivered.map(({target, batch_id}) => [target, batch_id])).toEqual([
    ['share', march],
    ['other', march],
  ])
})

/** The loan is funded before the first walk and changes in January and February. */
const early = await useShared(open())
await early.walkOn('2026-01-05', 100)
await early.walkOn('2026-01-20', 110)
await early.walkOn('2026-02-03', 120)

test('batches since one that a target was to take before it took any go with the next month', async () => {
  using first = open(early)
  const {inbox, send} = first
  await expectFailure(send('2026-01', '2026-02-04'), 'TARGET_REFUSED')
  await first.export('xero', '2026-02', '2026-02-04')
  await first.walkOn('2026-03-03', 130)
  mkdirSync(inbox)
  expect(await send('2026-03', '2026-03-04')).toMatchObject(deliveredOf('2026-01-', '2026-02-', '2026-03-'))
  expect(await send('2026-03', '2026-03-04')).toMatchObject([{outcome: 'unchanged'}])
})

test('what an export has issued when it ends early goes to its targets with the next one', async () => {
  using first = open(early)
  const {config, inbox, send} = first
  mkdirSync(inbox)
  await first.export('xero', '2026-01', '2026-02-04')
  await first.learnLate('2026-01-10', '2026-02-04', 'a', '105.00')
  await first.walkOn('2026-02-05', 120)
  let planned = 0
  const world = first.at('2026-02-06', (step) => {
    if (step === 'journal planned' && ++planned === 2) throw new Error('ENOSPC: no space left on device')
  })
  const request = {profiles: ['xero'], period: '2026-02', deliver: () => ['share']}
  expect(await failureOf(exportRelease(config, request, world))).toMatchObject({
    code: 'DISK_FULL',
    kept: expect.stringMatching(/^These batches were written, and they count: xero\/2026-01-\w+\.$/),
  })
  expect(await send('2026-02', '2026-02-06')).toMatchObject(deliveredOf('2026-01-', '2026-01-', '2026-02-'))
})
