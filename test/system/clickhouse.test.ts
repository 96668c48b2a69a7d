import {appendFileSync, chmodSync} from 'node:fs'
import {join} from 'node:path'
import {fileURLToPath} from 'node:url'
import {beforeEach, expect, test} from 'vitest'
import {type ClickhouseRequest, openClickhouse} from '../../src/export/clickhouse.ts'
import {publishTo} from '../../src/export/publish.ts'
import type {Release, ReleaseManifest} from '../../src/store/release.ts'
import {actAt, createClickhouse, seenSql, wholeOf} from '../support/clickhouse.ts'
import {createFolder, createWorldAt} from '../support/data.ts'
import {failureOf, startProcess} from '../support/lab.ts'
import {publishNth, publishTypes, TYPES} from '../support/releases.ts'
import {useShared} from '../support/set-up.ts'

const KILLED = fileURLToPath(new URL('./killed-publication.ts', import.meta.url))

/** Each test publishes as a separate lender. */
let source: string
let number = 0

const data = await useShared(createFolder())
const server = await useShared(createClickhouse())

beforeEach(() => {
  number += 1
  source = `lender_${number}`
})

const world = createWorldAt('2026-02-02T12:00:00Z')
const command = 'loantape publish clickhouse'

const SAME = `create table release.core.same as select 'as ever' as word;`
const release = (nth: number, fields: Partial<ReleaseManifest> & {deals?: number; sql?: string} = {}) => {
  const {deals = 2000, sql = ''} = fields
  return publishNth(data.folder, nth, {
    release_id: `${source}_${nth}_${deals}`,
    ...fields,
    sql: SAME + sql,
  })
}

type Options = Partial<ClickhouseRequest> & {isForced?: boolean; folderId?: string}

async function publish(from: Release, {isForced = false, folderId, ...request}: Options = {}) {
  await using target = await openClickhouse({...server.request, source, ...request}, world)
  const asked = {isForced, folderId: folderId ?? request.source ?? source, command}
  return await publishTo(target, from, asked, world)
}

/** Returns the failure of a publication; readers must still see this whole release. */
async function refusalOf(publication: Promise<unknown>, nth: number) {
  const refusal = await failureOf(publication)
  expect(await seen()).toEqual(wholeOf(nth))
  return refusal
}

const seen = (of = source) => server.query(seenSql(of))

test('every table arrives with its rows, types and comments', async () => {
  const one = await publishTypes(data.folder)
  expect(await publish(one)).toEqual({
    outcome: 'published',
    release_id: 'types',
    server: new URL(server.request.url).host,
    tables: 1,
    rows: 2,
    loaded: 1,
  })
  expect(
    await server.query(
      `select text, toString(money) as money, toString(widest) as widest, toString(finest) as finest, toString(\`count of it\`) as count, ratio, toString(day) as day,
         toString(instant) as instant, truth, null_word
       from kinds.row where source = '${source}' order by money desc`,
    ),
  ).toEqual(TYPES)
  expect(
    await server.query(
      `select name, type, comment from system.columns where database = 'kinds' and table = 'row'`,
    ),
  ).toMatchObject([
    {name: 'source', type: 'String'},
    {name: 'text', type: 'Nullable(String)', comment: ''},
    {name: 'money', type: 'Nullable(Decimal(18, 2))', comment: "USD, 'exact'"},
    {name: 'widest', type: 'Nullable(Decimal(38, 2))'},
    {name: 'finest', type: 'Nullable(Decimal(38, 38))'},
    {name: 'count of it', type: 'Nullable(Int64)'},
    {name: 'ratio', type: 'Nullable(Float64)'},
    {name: 'day', type: 'Nullable(Date32)'},
    {name: 'instant', type: "Nullable(DateTime64(6, 'UTC'))"},
    {name: 'truth', type: 'Nullable(Bool)'},
    {name: 'null_word', type: 'Nullable(String)'},
  ])
  expect(
    await server.query(`select comment from system.tables where database = 'kinds' and name = 'row'`),
  ).toEqual([{comment: "What\\s's there."}])
})

test('a new release replaces the last; equal tables are not sent again, and old releases are removed, but no copy of them', async () => {
  expect(await publish(await release(1))).toMatchObject({outcome: 'published', loaded: 3})
  const copies = ['backup.deal_local', 'core.deal_copy']
  await server.run('create database backup')
  for (const copy of copies) {
    await server.run(`create table ${copy} as core.deal_local`)
    await server.run(`insert into ${copy} select * from core.deal_local where source = '${source}'`)
  }
  expect(await publish(await release(1))).toMatchObject({outcome: 'unchanged', loaded: 0})
  expect(await publish(await release(2))).toMatchObject({outcome: 'published', loaded: 2})
  expect(await seen()).toEqual(wholeOf(2))
  const lessKnown = await release(4, {known_at: '2026-02-02T23:29:59.999999Z'})
  expect(await refusalOf(publish(lessKnown), 2)).toMatchObject({code: 'PUBLISH_OLDER'})
  expect(await refusalOf(publish(lessKnown, {folderId: 'two'}), 2)).toMatchObject({code: 'PUBLISH_FOREIGN'})
  expect(await publish(await release(3))).toMatchObject({loaded: 2})
  // A table that is still on the server is not sent again, either, unless somebody has changed it there.
  expect(await publish(await release(2))).toMatchObject({outcome: 'published', loaded: 0})
  await server.run(`alter table core.same_local delete where source = '${source}'`)
  expect(await publish(await release(3))).toMatchObject({outcome: 'published', loaded: 1})
  expect(await seen()).toEqual(wholeOf(3))
  expect(await server.query(`select word from core.same where source = '${source}'`)).toHaveLength(1)
  expect(
    await server.query(`select release_id from loantape.published where source = '${source}'`),
  ).toHaveLength(3)
  expect(
    await server.query(`select distinct nth from core.deal_local where source = '${source}' order by nth`),
  ).toEqual([{nth: 2}, {nth: 3}])
  for (const copy of copies)
    expect(await server.query(`select count() as deals from ${copy}`), copy).toEqual([{deals: 2000}])
  const numbers = `select count() as taken from system.tables where match(name, '^publication_${source}_[0-9]+$')`
  expect(await server.query(numbers)).toEqual([{taken: 1}])
  const damaged = await release(5)
  const file = join(damaged.dir, 'core.deal.parquet')
  chmodSync(file, 0o600)
  appendFileSync(file, ' ')
  expect((await refusalOf(publish(damaged), 3)).message).toContain(
    "core.deal.parquet' does not have the sha256",
  )
})

test("two lenders coexist, and neither sees nor moves the other; a column that only one has is null in the other's rows", async () => {
  const other = `${source}_too`
  const sql =
    'alter table release.core.deal add column note text; alter table release.core.deal drop column loan_amount'
  await publish(await release(1))
  await publish(await release(7, {deals: 500, sql}), {source: other})
  await publish(await release(2))
  await publish(await release(3))
  expect(await seen()).toEqual(wholeOf(3))
  expect(await seen(other)).toEqual(wholeOf(7, 500))
  const columns = 'sum(loan_amount) as amount, count(loan_amount) as amounts, count(note) as notes'
  expect(
    await server.query(
      `select source, ${columns} from core.deal where source like '${source}%' group by source order by source`,
    ),
  ).toEqual([
    {source, amount: 200_200, amounts: 2000, notes: 0},
    {source: other, amount: null, amounts: 0, notes: 0},
  ])
})

test('a data folder under another name is refused until its former one is removed', async () => {
  const renamed = `${source}_renamed`
  const second = await release(2)
  const again = () => publish(second, {source: renamed, folderId: source})
  await publish(await release(1))
  const {code, next} = await refusalOf(again(), 1)
  expect(code).toBe('PUBLISH_FOREIGN')
  const [, remove = ''] = /`(delete .*?)`/.exec(next ?? '') ?? []
  await server.run(remove)
  expect(await again()).toMatchObject({outcome: 'published'})
  expect(await seen(renamed)).toEqual(wholeOf(2))
  expect(await server.query(`select * from core.deal where source = '${source}'`)).toEqual([])
})

test('a column of another type, or named as one of ours, is refused by name, and readers keep what they have', async () => {
  await publish(await release(1))
  const changes = {
    'rename to deal_local': "Table 'core.deal_local' has the name of one that loantape adds",
    'alter nth type decimal(38,2)': '`drop table core.deal_local sync`',
    'add column list integer[]': "Column 'list' of table 'core.deal' has the type INTEGER[]",
    'add column source varchar':
      "Column 'source' of table 'core.deal' has the name of one that loantape adds",
    'add column content bigint': "Column 'content' of table 'core.deal' has the name",
  }
  for (const [index, [change, words]] of Object.entries(changes).entries()) {
    const odd = await release(2 + index, {sql: `alter table release.core.deal ${change}`})
    const refusal = {code: 'CLICKHOUSE_TYPE', exitCode: 2, message: expect.stringContaining(words)}
    expect(await refusalOf(publish(odd), 1)).toMatchObject(refusal)
  }
})

test.each([
  ['a lost row', 'delete'],
  ['a changed cent', 'update loan_amount = loan_amount + 0.01'],
  ['a lost text', 'update deal_id = null'],
  ['a repeated row', undefined],
])('%s is noticed before anybody sees it', async (_, change) => {
  await publish(await release(1))
  const where = `where deal_id = 'deal_7' and source = '${source}'`
  const repeat = `insert into core.deal_local select * from core.deal_local ${where}`
  const next = await release(2)
  const spoil = change === undefined ? repeat : `alter table core.deal_local ${change} ${where}`
  actAt('after', 'insert into `core`.`deal_local`', () => server.run(spoil))
  expect(await failureOf(publish(next))).toMatchObject({
    code: 'PUBLISH_INCOMPLETE',
    exitCode: 1,
    message: expect.stringContaining("Table 'core.deal'"),
  })
  // The rows of the previous release were altered for good, so they are sent again.
  expect(await publish(await release(2))).toMatchObject({outcome: 'published'})
  expect(await seen()).toEqual(wholeOf(2))
  const total = `select toString(sum(loan_amount)) as total from core.deal where source = '${source}'`
  expect(await server.query(total)).toEqual([{total: '200200'}])
})

test.each([
  ['a changed day', "date '2026-02-28'", "'2026-03-01'"],
  ['a changed instant', "timestamp '2026-02-28 23:30:00'", "'2026-02-28 22:30:00'"],
  ['an instant that the server shows as another', "timestamp 'infinity'", 'day'],
])('%s is noticed before anybody sees it', async (_, day, change) => {
  await publish(await release(1))
  const table = `day_${number}`
  const next = await release(2, {sql: `create table release.core.${table} as select ${day} as day`})
  const spoil = `alter table core.${table}_local update day = ${change} where source = '${source}'`
  actAt('after', `insert into \`core\`.\`${table}_local\``, () => server.run(spoil))
  expect(await refusalOf(publish(next), 1)).toMatchObject({code: 'PUBLISH_INCOMPLETE'})
})

test.each([
  ['slept before it showed its tables', 'insert into loantape.published', 3],
  ['was held up before it sent equal rows', 'insert into `core`', 2],
  ['was about to take the same number', 'create table loantape.`publication', 3],
  ['had just looked what readers see', 'select greatest', 3],
])('a publication that %s while another took over shows nothing', async (_, begin, nth) => {
  await publish(await release(1))
  const [own, next] = [await release(2), await release(nth)]
  actAt('before', begin, () => publish(next))
  expect(await refusalOf(publish(own), nth)).toMatchObject({code: 'PUBLISH_LOCKED', exitCode: 4})
})

test('a publication that is loading loses nothing to the end of the one before', async () => {
  const [own, next] = [await release(1), await release(2)]
  const [loaded, pruned] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let following: Promise<unknown> | undefined
  actAt('before', 'select number from loantape.published', async () => {
    actAt('before', 'insert into loantape.published', async () => {
      loaded.resolve()
      await pruned.promise
    })
    following = publish(next)
    await loaded.promise
  })
  await publish(own)
  pruned.resolve()
  await following
  expect(await seen()).toEqual(wholeOf(2))
})

test('a publication that slept shows nothing once another has begun, even if that one died', async () => {
  await publish(await release(1))
  const [own, next] = [await release(2), await release(3)]
  actAt('before', 'insert into loantape.published', async () => {
    actAt('before', 'insert into `core`', () => Promise.reject(new Error('died')))
    await failureOf(publish(next))
  })
  expect(await refusalOf(publish(own), 1)).toMatchObject({code: 'PUBLISH_LOCKED', exitCode: 4})
})

test.each([
  ['to the row that shows it, which never arrived', 'before', 'insert into loantape.published', 1],
  ['to the row that shows it', 'after', 'insert into loantape.published', 2],
  ['about what readers see now', 'after', 'select number from loantape.release', 2],
] as const)(
  'an answer lost %s leaves one release whole, and the next try finds out which',
  async (_, when, begin, nth) => {
    await publish(await release(1))
    const next = await release(2)
    const page = '<html>\r\n<head><title>504 Gateway Time-out</title></head>\r\n</html>'
    actAt(when, begin, () => Promise.reject(new Error(page)))
    const refusal = await refusalOf(publish(next), nth)
    expect(refusal).toMatchObject({code: 'PUBLISH_UNSURE', exitCode: 6})
    expect(refusal.message).toContain('failed (504 Gateway Time-out). Readers see either')
    expect(await publish(next)).toMatchObject({outcome: nth === 2 ? 'unchanged' : 'published'})
    expect(await seen()).toEqual(wholeOf(2))
  },
)

test('whatever request a publication dies at, readers keep the old release whole, and the next publication completes', async () => {
  const request = {...server.request, source}
  const run = async (releaseId: string, ...kill: string[]) => {
    using started = startProcess(
      [process.execPath, KILLED, data.folder.root, releaseId, JSON.stringify(request), ...kill],
      {},
    )
    return await started.ended
  }
  const first = await release(1)
  expect(await run(first.manifest.release_id)).toMatchObject({code: 0})
  const counted = await run((await release(2)).manifest.release_id)
  const requests = Number(counted.stdout)
  expect(requests).toBeGreaterThan(20)
  let [visible, kills] = [2, 0]
  for (let nth = 1; nth <= requests; nth += nth < requests - 6 ? 4 : 1) {
    const next = await release(nth + 2)
    const killed = await run(next.manifest.release_id, String(nth), nth % 2 === 0 ? 'before' : 'after')
    if (killed.signal === 'SIGKILL') kills += 1
    else expect(killed, killed.stderr).toMatchObject({code: 0})
    const [row] = await seen()
    expect([visible, nth + 2]).toContain(row?.nth)
    expect(row).toEqual(wholeOf(Number(row?.nth))[0])
    expect((await publish(next)).release_id).toBe(next.manifest.release_id)
    visible = nth + 2
    expect(await seen()).toEqual(wholeOf(visible))
  }
  expect(kills).toBeGreaterThan(6)
})

test('readers who join tables all the while never see two releases at once, in fifty publications', async () => {
  const releases: Release[] = []
  // As many as are kept: nothing that a reader meets is removed.
  for (let nth = 0; nth < 3; nth++) releases.push(await release(nth, {deals: nth % 2 === 0 ? 2000 : 500}))
  const show = async (nth: number) => {
    const next = releases[nth % releases.length]
    if (next) await publish(next)
  }
  await show(0)
  let isOver = false
  const faults: unknown[] = []
  const found = new Set<unknown>()
  const read = async () => {
    while (!isOver) {
      const [row] = await seen()
      found.add(row?.nth)
      const isWhole = row?.deals === row?.told && row?.deals !== 0
      if (!isWhole || new Set([row?.least, row?.most, row?.nth]).size !== 1) faults.push(row)
      await world.realClock.sleep(10)
    }
  }
  const readers = [read(), read()]
  for (let nth = 1; nth <= 50; nth++) await show(nth)
  isOver = true
  await Promise.all(readers)
  expect(faults).toEqual([])
  expect(found.size).toBe(3)
})

test.each([
  ['a wrong password', {password: 'wrong'}, 'PUBLISH_AUTH', 5],
  ['an unreachable server', {url: 'http://127.0.0.1:1'}, 'PUBLISH_UNREACHABLE', 6],
  ['a port without TLS', {url: server.request.url.replace('http:', 'https:')}, 'PUBLISH_UNREACHABLE', 6],
])('%s is reported', async (_, request, code, exitCode) => {
  const refusal = await failureOf(publish(await release(1), request))
  expect(refusal).toMatchObject({code, exitCode})
  expect(refusal.message).not.toContain('wrong')
})

test('a foreign database is never touched', async () => {
  await server.run('create database own')
  const sql = 'create schema release.own; create table release.own.deal as select 1 as a'
  const refusal = await failureOf(publish(await release(1, {sql})))
  expect(refusal).toMatchObject({code: 'PUBLISH_FOREIGN', exitCode: 2})
  expect(await server.query(`select name from system.tables where database = 'own'`)).toEqual([])
})
