import {expect, test} from 'vitest'
import {openClickhouse} from '../../src/export/clickhouse.ts'
import {publishTo} from '../../src/export/publish.ts'
import type {Release} from '../../src/store/release.ts'
import {actAt, seenSql, wholeOf} from '../support/clickhouse.ts'
import {NODES, type NodeName, startClickhouseCluster} from '../support/clickhouse-cluster.ts'
import {createFolder, createWorldAt} from '../support/data.ts'
import {publishNth} from '../support/releases.ts'
import {useShared} from '../support/set-up.ts'

const data = await useShared(createFolder())
const cluster = await useShared(startClickhouseCluster())

const world = createWorldAt('2026-02-02T12:00:00Z')
const command = 'loantape publish clickhouse'
const DEALS = 2000

/** The nth release of a lender: each deal is marked with n, and a summary has their number. */
async function releaseOf(source: string, nth: number): Promise<Release> {
  const release = await publishNth(data.folder, nth, {release_id: `${source}_${nth}`, deals: DEALS})
  // A table's sort order decides which shard its rows go to.
  const tables = release.manifest.tables.map((table) => ({
    ...table,
    order: [table.name === 'core.deal' ? 'deal_id' : 'nth'],
  }))
  return {...release, manifest: {...release.manifest, tables}}
}

async function publish(source: string, release: Release) {
  const request = {...cluster.requestOf('node-1-1'), source}
  await using target = await openClickhouse(request, world)
  return await publishTo(target, release, {command, folderId: source}, world)
}

/** What a reader at this node sees of a lender. */
const seenAt = (node: NodeName, source: string) => cluster.read(node, seenSql(source))

/** Other nodes learn of a release a moment after the node it was published through. */
const untilSeen = (node: NodeName, source: string, nth: number) =>
  expect.poll(() => seenAt(node, source), {timeout: 60_000, message: node}).toEqual(wholeOf(nth))

/**
 * Reads at every node until stopped.
 *
 * @returns a function that stops, and returns the answers that are none of these whole releases
 */
function watch(source: string, releases: readonly number[], nodes: readonly NodeName[]) {
  const wanted = new Set(releases.map((nth) => JSON.stringify(wholeOf(nth))))
  const wrong: unknown[] = []
  let isOver = false
  const reading = nodes.map(async (node) => {
    while (!isOver) {
      // A query fails if its node dies meanwhile: only answers count.
      const rows = await seenAt(node, source).catch(() => undefined)
      if (rows && !wanted.has(JSON.stringify(rows))) wrong.push({node, rows})
      await world.realClock.sleep(20)
    }
  })
  return async () => {
    isOver = true
    await Promise.all(reading)
    return wrong
  }
}

test('two lenders publish, and every node shows both whole', async () => {
  for (const source of ['first', 'second'])
    expect(await publish(source, await releaseOf(source, 1))).toMatchObject({outcome: 'published', loaded: 2})
  for (const node of NODES) {
    await untilSeen(node, 'first', 1)
    await untilSeen(node, 'second', 1)
  }
})

test('rows are spread over the shards, and both replicas of a shard are equal', async () => {
  const held = new Map<NodeName, number>()
  for (const node of NODES) {
    const [row] = await cluster.inspect(
      node,
      `select count() as rows from core.deal_local where source = 'first'`,
    )
    held.set(node, Number(row?.rows))
  }
  expect(held.get('node-1-2')).toBe(held.get('node-1-1'))
  expect(held.get('node-2-2')).toBe(held.get('node-2-1'))
  expect(Math.min(...held.values())).toBeGreaterThan(0)
  expect(Number(held.get('node-1-1')) + Number(held.get('node-2-1'))).toBe(DEALS)
})

test('readers at every node see one whole release while another is published', async () => {
  const stop = watch('first', [1, 2], NODES)
  await publish('first', await releaseOf('first', 2))
  for (const node of NODES) await untilSeen(node, 'first', 2)
  expect(await stop()).toEqual([])
})

test('a replica that dies during a publication leaves readers one whole release, and catches up', async () => {
  const lost = 'node-2-2'
  const living = NODES.filter((node) => node !== lost)
  const release = await releaseOf('first', 3)
  let isLost = false
  const stop = watch('first', [2, 3], living)
  // The release may be published or refused, but readers never see a mixture.
  actAt('after', 'insert into `', async () => {
    isLost = true
    await cluster.kill(lost)
  })
  await publish('first', release).catch((error: unknown) => world.log.info({err: error}, 'refused'))
  expect(isLost).toBe(true)
  for (const node of living) expect([wholeOf(2), wholeOf(3)]).toContainEqual(await seenAt(node, 'first'))
  await cluster.restart(lost)
  // From now on, readers at that node count too.
  const stopAll = watch('first', [2, 3], NODES)
  await publish('first', release)
  for (const node of NODES) {
    await untilSeen(node, 'first', 3)
    await untilSeen(node, 'second', 1)
  }
  expect([...(await stop()), ...(await stopAll())]).toEqual([])
  const held = (node: NodeName) =>
    cluster.inspect(
      node,
      `select source, content, count() as rows from core.deal_local group by all order by all`,
    )
  await expect.poll(() => held(lost), {timeout: 60_000}).toEqual(await held('node-2-1'))
})
