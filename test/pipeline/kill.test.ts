import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {z} from 'zod'
import {readRelease, requireRelease} from '../../src/release/manifest.ts'
import {openRelease} from '../../src/release/query.ts'
import {seedPortfolio} from '../../src/service/portfolio.ts'
import {createRandom} from '../../src/service/random.ts'
import {digestFile} from '../../src/warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt} from '../../src/warehouse/data-folder.ts'
import {aDeal, createLab, type Lab} from '../support/lab.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
const KILLS = 20
/** Runs side by side: as many as the machine for which the suite is measured has cores. */
const AT_ONCE = 2
const SEED = process.env.KILL_SEED ?? String(Date.now())

let lab: Lab

beforeAll(async () => {
  lab = await createLab()
  seedPortfolio(lab.service.store, {deals: 1500, seed: 7, today: '2026-02-02'})
  await lab.sync(DAY_1)
  changePortfolio()
})

afterAll(() => lab[Symbol.asyncDispose]())

/** New, changed and deleted deals, so that every phase of the second day's run has something to do. */
function changePortfolio(): void {
  const {store} = lab.service
  store.ids().forEach((id, index) => {
    if (index % 100 === 0) store.remove(id)
    else if (index % 25 === 1) store.update(id, {loanAmountCents: BigInt(100_000_00 + index)})
    else if (index % 8 === 2) store.update(id, {propertyAddress: `${index} Elm St, Austin, TX 78701`})
  })
  store.insert(Array.from({length: 20}, (_, index) => aDeal(900_000 + index)))
}

function startSync(folder: DataFolder): ReturnType<Lab['start']> {
  return lab.start(['sync', '--json'], {
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_NOW: DAY_2,
    LOANTAPE_PAGE_SIZE: '20',
    LOANTAPE_LOG_LEVEL: 'error',
  })
}

/** Syncs to the end and says how long it took, ms. */
async function timeSync(folder: DataFolder): Promise<number> {
  const startedAt = performance.now()
  expect(await startSync(folder).ended, folder.root).toMatchObject({code: 0, stderr: ''})
  return performance.now() - startedAt
}

/** What the deals are and were, without instants and ids of runs. */
async function readPortfolio(folder: DataFolder): Promise<unknown[]> {
  await using db = await openRelease(requireRelease(folder))
  const row = z.record(z.string(), z.unknown())
  return [
    ...(await db.all(
      row,
      'select * exclude (first_seen_at, last_changed_at) from core.deal order by deal_id',
    )),
    ...(await db.all(
      row,
      'select * exclude (valid_from, valid_to) from core.deal_history order by deal_id, version',
    )),
  ]
}

/** Every folder under a release's final name holds the files its manifest promises. */
async function expectWholeReleases(folder: DataFolder): Promise<void> {
  for (const name of readdirSync(folder.releases).filter((entry) => !entry.startsWith('.'))) {
    const dir = join(folder.releases, name)
    const release = readRelease(dir)
    expect(release, `${name} has a manifest`).toBeDefined()
    for (const {file, sha256} of release?.manifest.tables ?? []) {
      expect(await digestFile(join(dir, file)), `${name}/${file}`).toBe(sha256)
    }
  }
}

/** How far a run had got, as its traces tell. */
function phaseOf(folder: DataFolder): string {
  const building = readdirSync(folder.releases).find((name) => name.startsWith('.building-'))
  if (building) {
    const hasParquet = readdirSync(join(folder.releases, building)).some((name) => name.endsWith('.parquet'))
    return hasParquet ? 'parquet' : 'build'
  }
  if (existsSync(`${folder.history}.tmp`)) return 'history copy'
  return existsSync(`${folder.warehouse}.wal`) ? 'walk, details or apply' : 'start or end'
}

test(`a sync killed at any moment and run again ends as if it had never been killed (seed ${SEED})`, {
  timeout: 120_000,
}, async () => {
  // The first start compiles the program: it would make the run seem longer than it is.
  await lab.run(['--version'])
  const undisturbed = ['undisturbed-1', 'undisturbed-2'].map((name) => lab.copyFolder(name))
  let durationMs = Math.min(...(await Promise.all(undisturbed.map(timeSync))))
  const expected = await readPortfolio(dataFolderAt(undisturbed[0]?.root ?? ''))

  const random = createRandom('kill', SEED)
  const fractions = Array.from({length: KILLS}, (_, index) => (index + random.next()) / KILLS)
  const phases: string[] = []

  async function killAndFinish(index: number): Promise<void> {
    const moment = (fractions[index] ?? 0) * durationMs
    const folder = lab.copyFolder(`killed-${index}`)
    const startedAt = performance.now()
    const run = startSync(folder)
    const timer = setTimeout(() => run.process.kill('SIGKILL'), moment)
    const {signal} = await run.ended
    clearTimeout(timer)
    if (signal === null) durationMs = Math.min(durationMs, performance.now() - startedAt)
    phases.push(signal === null ? 'ended before' : phaseOf(folder))
    await expectWholeReleases(folder)
    await timeSync(folder)
    expect(await readPortfolio(folder), `after a kill at ${Math.round(moment)} ms`).toEqual(expected)
    await expectWholeReleases(folder)
    expect(leftovers(folder)).toEqual([])
  }

  const queue = fractions.keys()
  await Promise.all(
    Array.from({length: AT_ONCE}, async () => {
      for (const index of queue) await killAndFinish(index)
    }),
  )
  process.stderr.write(`kill seed ${SEED}, ${Math.round(durationMs)} ms a run: ${phases.join(', ')}\n`)
  expect(phases.filter((phase) => phase !== 'ended before').length).toBeGreaterThan(KILLS / 2)
})

/** Temporary names that a finished run leaves behind. */
function leftovers(folder: DataFolder): string[] {
  return readdirSync(folder.root, {recursive: true, encoding: 'utf8'}).filter((path) =>
    /\.tmp|\.building-|\.writing-|\.wal$/.test(path),
  )
}
