import assert from 'node:assert/strict'
import {rmSync} from 'node:fs'
import {isDeepStrictEqual} from 'node:util'
import {explainError} from '../../src/core/errors.ts'
import type {RunStep} from '../../src/core/types.ts'
import {syncDeals} from '../../src/pipeline.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {anyRow, FEW_TABLES} from '../support/data.ts'
import type {Fault} from '../support/faults.ts'
import {aDeal, createLab, type Lab, type Row, someDeals} from '../support/lab.ts'
import {createTally, type ProofRequest, type Proved, runAll, shuffle} from './proof.ts'
import {createQuickWorld, Stopped, untilStopped} from './quick-world.ts'
import {readPortfolio, requireSound} from './soundness.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
const DAY_3 = '2026-02-04T23:30:00-05:00'
const PAGE_SIZE = 10
/** Every this many cases, the run after the failure continues to a release. */
const RELEASE_EVERY = 12
/** More requests than any run makes: a fault from the nth on is permanent. */
const FOR_EVER = 5_000

/** How an answer fails, and how a run must end if one list page keeps failing that way. */
interface Kind {
  name: string
  fault: Fault
  code: string
  exitCode: number
  /** Retrying is no use: once is forever. */
  isFinal?: true
}

const KINDS: readonly Kind[] = [
  {name: '500', fault: {kind: 'status', status: 500}, code: 'SOURCE_FAILING', exitCode: 6},
  {
    name: '503 naming a wait',
    fault: {kind: 'status', status: 503, headers: {'retry-after': '7'}},
    code: 'SOURCE_RATE_LIMITED',
    exitCode: 6,
  },
  {name: '429', fault: {kind: 'status', status: 429}, code: 'SOURCE_RATE_LIMITED', exitCode: 6},
  {
    name: '429 naming a wait',
    fault: {kind: 'status', status: 429, headers: {'retry-after': '30'}},
    code: 'SOURCE_RATE_LIMITED',
    exitCode: 6,
  },
  {
    name: '401',
    fault: {kind: 'status', status: 401},
    code: 'SOURCE_UNAUTHORIZED',
    exitCode: 5,
    isFinal: true,
  },
  {
    name: 'reset before headers',
    fault: {kind: 'reset', when: 'before_headers'},
    code: 'SOURCE_UNREACHABLE',
    exitCode: 6,
  },
  {
    name: 'reset in the body',
    fault: {kind: 'reset', when: 'mid_body'},
    code: 'SOURCE_UNREACHABLE',
    exitCode: 6,
  },
  {name: 'truncated', fault: {kind: 'truncate'}, code: 'SOURCE_UNREACHABLE', exitCode: 6},
  {
    name: 'truncated chunks',
    fault: {kind: 'truncate', framing: 'chunked'},
    code: 'SOURCE_UNREACHABLE',
    exitCode: 6,
  },
  {name: 'wrong JSON', fault: {kind: 'wrong_json'}, code: 'SOURCE_NOT_JSON', exitCode: 7},
  {name: 'web page', fault: {kind: 'html'}, code: 'SOURCE_NOT_JSON', exitCode: 7},
]

/** Which answer fails, and how. */
interface Case {
  kind: Kind
  nth: number
  isForEver: boolean
}

async function sync(lab: Lab, folder: DataFolder, now: string, stopAt?: RunStep): Promise<void> {
  const config = {
    ...lab.config,
    dataDir: folder.root,
    pageSize: PAGE_SIZE,
    maxWaitMinutes: 3,
    // One at a time, so that the nth answer is the same in every run.
    detailConcurrency: 1,
  }
  await syncDeals(config, {}, createQuickWorld({now, stopAt}))
}

/** Syncs up to the apply; returns how it failed, if it did. */
async function trySync(lab: Lab, folder: DataFolder): Promise<{code: string; exitCode: number} | undefined> {
  try {
    await sync(lab, folder, DAY_2, 'changes applied')
  } catch (error) {
    if (error instanceof Stopped) return undefined
    const {code, exitCode} = explainError(error)
    return {code, exitCode}
  }
  throw new Error('the run continued past its stop step')
}

/** The latest states in a warehouse that must be sound; `listed` omits what only a deal's own page shows. */
async function readHeads(folder: DataFolder): Promise<{listed: Row[]; all: Row[]}> {
  await using db = await openWarehouse(folder)
  await requireSound(db)
  const all = await db.all(
    anyRow,
    `select deal_id, kind, property_address, loan_amount, property_value, loan_program, status, created_at
     from warehouse.raw.deal_head order by deal_id`,
  )
  return {all, listed: all.map(({property_value, loan_program, ...listed}) => listed)}
}

type Heads = Awaited<ReturnType<typeof readHeads>>

/** A folder after its first day, and a source that has changed since. */
async function prepare(lab: Lab): Promise<{pages: number; requests: number; before: Heads; after: Heads}> {
  const {store} = lab.service
  store.insert(someDeals(28))
  await untilStopped(sync(lab, lab.folder, DAY_1, 'changes applied'))
  store.insert([aDeal(29)])
  store.update('deal_000003', {loanAmountCents: 400_000_01n})
  store.update('deal_000015', {status: 'funded', propertyValueCents: 600_000_00n})
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

function listCases(requests: number): Case[] {
  return KINDS.flatMap((kind) =>
    Array.from({length: requests}, (_, index) => index + 1).flatMap((nth) =>
      [false, true].map((isForEver) => ({kind, nth, isForEver})),
    ),
  )
}

/**
 * Makes the nth answer of a small run fail, for every n, in every way, once and permanently. A page that fails once is
 * retried; one that keeps failing ends the run with its kind's code, and stored data stays; the page of a single deal never
 * ends a run. The next run reaches the same result as an undisturbed one.
 *
 * A run is one such case, in an order drawn from the seed; there are no more runs than cases.
 */
export async function proveNthAnswer(request: ProofRequest): Promise<Proved> {
  const tally = createTally()
  await using lab = await createLab({tables: FEW_TABLES})
  const {pages, requests, before, after} = await prepare(lab)
  const cases = shuffle(listCases(requests), request.seed)
  const runs = Math.min(request.runs, cases.length - (request.first ?? 0))
  await runAll({name: 'nth-answer'}, {...request, runs}, async (run) => {
    const one = cases[run]
    assert(one)
    const {kind, nth, isForEver} = one
    const words = `answer ${nth} is ${kind.name} ${isForEver ? 'for ever' : 'once'}`
    const folder = lab.copyFolder(`case-${run}`)
    const due = isForEver ? Array.from({length: FOR_EVER}, (_, index) => nth + index) : nth
    lab.service.faults.add({match: {nth: due}, fault: kind.fault})
    const failure = await trySync(lab, folder)
    lab.service.faults.clear()
    const isFatal = nth <= pages && (isForEver || kind.isFinal === true)
    assert.deepEqual(failure, isFatal ? {code: kind.code, exitCode: kind.exitCode} : undefined, words)
    const stored = await readHeads(folder)
    if (failure) assert.deepEqual(stored, before, words)
    else if (!isForEver && !kind.isFinal) assert.deepEqual(stored, after, words)

    const goesOn = run % RELEASE_EVERY === 0
    await untilStopped(sync(lab, folder, DAY_3, goesOn ? undefined : 'changes applied'))
    const heads = await readHeads(folder)
    assert.deepEqual(heads.listed, after.listed, `the run after: ${words}`)
    // If a deal's own page failed, what only that page shows may arrive as late as the deal's turn in the rotation.
    const isLate = nth > pages && (isForEver || kind.isFinal === true)
    if (!isLate) assert.deepEqual(heads.all, after.all, `the run after: ${words}`)
    else if (!isDeepStrictEqual(heads.all, after.all)) tally.add('details late')
    if (goesOn) await readPortfolio(folder)
    rmSync(folder.root, {recursive: true})
    tally.add('cases')
    tally.add(failure ? 'ended the run' : 'overcome')
  })
  return {figures: {...tally.figures, 'of cases': cases.length}}
}
