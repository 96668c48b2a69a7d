import assert from 'node:assert/strict'
import {rmSync} from 'node:fs'
import {isDeepStrictEqual} from 'node:util'
import {explainError} from '../../src/core/errors.ts'
import {syncDeals} from '../../src/pipeline.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {anyRow, createWorld} from '../support/data.ts'
import type {Fault} from '../support/faults.ts'
import {
  aDeal,
  createLab,
  DAY_1,
  DAY_2,
  DAY_3,
  type Lab,
  type Row,
  someDeals,
  walkOnce,
} from '../support/lab.ts'
import {type ProofRequest, type Proved, proveCases} from './proof.ts'
import {createQuickWorld} from './quick-world.ts'
import {readPortfolio, requireSound} from './soundness.ts'

const PAGE_SIZE = 10
/** In one of this many cases, the run after the failure continues to a release. */
const RELEASE_EVERY = 12
/** More requests than any run makes, so that a fault lasts. */
const FOR_EVER = 5_000

/** How an answer fails, and how a run must end if a list page keeps failing that way. */
interface Kind {
  fault: Fault
  end: {code: string; exitCode: number}
  /** Never retried: one failure counts as permanent. */
  isFinal?: true
}

const FAILING = {code: 'SOURCE_FAILING', exitCode: 6}
const LIMITED = {code: 'SOURCE_RATE_LIMITED', exitCode: 6}
const UNREACHABLE = {code: 'SOURCE_UNREACHABLE', exitCode: 6}
const NOT_JSON = {code: 'SOURCE_NOT_JSON', exitCode: 6}
const UNAUTHORIZED = {code: 'SOURCE_UNAUTHORIZED', exitCode: 5}

const statusOf = (status: number, wait?: string): Fault => ({
  kind: 'status',
  status,
  ...(wait !== undefined && {headers: {'retry-after': wait}}),
})

const KINDS: readonly Kind[] = [
  {fault: statusOf(500), end: FAILING},
  {fault: statusOf(503, '7'), end: LIMITED},
  {fault: statusOf(429), end: LIMITED},
  {fault: statusOf(429, '30'), end: LIMITED},
  {fault: statusOf(401), end: UNAUTHORIZED, isFinal: true},
  {fault: {kind: 'reset', when: 'before_headers'}, end: UNREACHABLE},
  {fault: {kind: 'reset', when: 'mid_body'}, end: UNREACHABLE},
  {fault: {kind: 'truncate'}, end: UNREACHABLE},
  {fault: {kind: 'truncate', framing: 'chunked'}, end: UNREACHABLE},
  {fault: {kind: 'wrong_json'}, end: NOT_JSON},
  {fault: {kind: 'html'}, end: NOT_JSON},
]

async function sync(
  lab: Lab,
  folder: DataFolder,
  now: string,
  how: typeof syncDeals | typeof walkOnce = walkOnce,
): Promise<void> {
  const config = {
    ...lab.config,
    dataDir: folder.root,
    pageSize: PAGE_SIZE,
    maxWaitMinutes: 3,
    // One at a time, so that the nth answer is the same in every run.
    detailConcurrency: 1,
  }
  await how(config, {}, createQuickWorld({now}))
}

/** Syncs until the walk is applied. @returns how it failed, if it did */
async function trySync(lab: Lab, folder: DataFolder) {
  const failure = await sync(lab, folder, DAY_2).then(() => undefined, explainError)
  return failure && {code: failure.code, exitCode: failure.exitCode}
}

/** Reads the latest states of a warehouse, which must be sound; `listed` leaves out what only own pages show. */
async function readHeads(folder: DataFolder): Promise<{listed: Row[]; all: Row[]}> {
  await using db = await openWarehouse(folder, createWorld())
  await requireSound(db)
  const all = await db.all(
    anyRow,
    `select deal_id, kind, property_address, loan_amount, property_value, loan_program, status, created_at
     from history.raw.deal_head order by deal_id`,
  )
  return {all, listed: all.map(({property_value, loan_program, ...listed}) => listed)}
}

/**
 * Syncs a first day and changes the source.
 * @returns the list pages, the requests of an undisturbed second day, and the states before and after it
 */
async function prepare(lab: Lab) {
  const {store} = lab.service
  store.insert(someDeals(28))
  await sync(lab, lab.folder, DAY_1)
  store.insert([aDeal(29)])
  store.update('deal_000003', {loan_amount_cents: 400_000_01n})
  store.update('deal_000015', {status: 'funded', property_value_cents: 600_000_00n})
  store.remove('deal_000007')
  const undisturbed = lab.copyFolder('undisturbed')
  lab.service.requests.clear()
  await trySync(lab, undisturbed)
  const {requests} = lab.service
  return {
    pages: Math.ceil(28 / PAGE_SIZE),
    requests: requests.count,
    before: await readHeads(lab.folder),
    after: await readHeads(undisturbed),
  }
}

/**
 * Makes the nth answer of a small run fail, for every n, in every way, once and permanently. A page that fails once is retried. A
 * list page that keeps failing ends the run with the code of its kind, and stored data stays. A deal's own page never ends a run.
 * The next run reaches the same result as an undisturbed one. A run is one such case, in an order drawn from the seed; there are
 * no more runs than cases.
 */
export async function proveNthAnswer(request: ProofRequest): Promise<Proved> {
  await using lab = await createLab()
  const {pages, requests, before, after} = await prepare(lab)
  const cases = KINDS.flatMap((kind) =>
    Array.from({length: requests}, (_, index) => index + 1).flatMap((nth) =>
      [false, true].map((isForEver) => ({...kind, nth, isForEver})),
    ),
  )
  return await proveCases('nth-answer', request, cases, async (one, {run, add}) => {
    const {fault, end, isFinal = false, nth, isForEver} = one
    const folder = lab.copyFolder(`case-${run}`)
    const due = isForEver ? Array.from({length: FOR_EVER}, (_, index) => nth + index) : nth
    lab.service.faults.add({match: {nth: due}, fault})
    const failure = await trySync(lab, folder)
    lab.service.faults.clear()
    const isOvercome = !isForEver && !isFinal
    assert.deepEqual(failure, nth <= pages && !isOvercome ? end : undefined)
    const stored = await readHeads(folder)
    if (failure) assert.deepEqual(stored, before)
    else if (isOvercome) assert.deepEqual(stored, after)

    const goesOn = run % RELEASE_EVERY === 0
    await sync(lab, folder, DAY_3, goesOn ? syncDeals : walkOnce)
    const heads = await readHeads(folder)
    assert.deepEqual(heads.listed, after.listed, 'the run after')
    // If a deal's own page failed, what only that page shows may come later, when it is the deal's turn again.
    if (nth <= pages || isOvercome) assert.deepEqual(heads.all, after.all, 'the run after')
    else if (!isDeepStrictEqual(heads.all, after.all)) add('details late')
    if (goesOn) await readPortfolio(folder)
    rmSync(folder.root, {recursive: true})
    add('cases')
    add(failure ? 'ended the run' : 'overcome')
  })
}
