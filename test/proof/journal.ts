import assert from 'node:assert/strict'
import {copyFileSync, existsSync} from 'node:fs'
import {listIssuedLines} from '../../src/accounting/issued.ts'
import {DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {listClosedPeriods, readPeriodRange} from '../../src/accounting/periods.ts'
import type {JournalLine} from '../../src/accounting/profiles.ts'
import {closePeriod, remapPeriods, reopenPeriod} from '../../src/books/close-period.ts'
import {trueUp} from '../../src/books/true-up.ts'
import {addDays} from '../../src/core/clock.ts'
import {LoantapeError} from '../../src/core/errors.ts'
import type {WireRecord} from '../../src/core/types.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {balancesOf} from '../accounting/journal-lines.ts'
import {type Books, openBooks} from '../support/books.ts'
import {sumByAccount} from '../support/importer.ts'
import {type ProofRequest, type Proved, prove, type Run} from './proof.ts'

const FIRST_DAY = '2026-01-25'
const PERIODS = ['2026-01', '2026-02', '2026-03']

/** A recovery on the last day walks on the day after it. */
const MONTHS = [...PERIODS, '2026-04']

/** One thing that happens; a recovery loses both databases, and the copy from before the last run is restored. */
type Step =
  | {do: 'walk'; deals: Record<string, WireRecord>}
  | {do: 'learn'; back: number; deal: string; amount: string}
  | {do: 'map' | 'remap'; codes: [string, string]}
  | {do: 'export'; back: number}
  | {do: 'close' | 'reopen'}
  | {do: 'recover'; truesUp: boolean}

function drawStep(random: Random): Step {
  const deal = () => ({
    status: random.pick(['draft', 'funded', 'funded', 'funded', 'paid_off']),
    loan_amount: random.integer(1, 5),
    loan_program: random.pick(['bridge', 'dscr', null]),
  })
  const chance = random.integer(1, 15)
  if (chance <= 4)
    return {
      do: 'walk',
      deals: {...(random.chance(0.5) && {a: deal()}), ...(random.chance(0.5) && {b: deal()}), c: deal()},
    }
  if (chance <= 6) {
    const amount = random.pick(['7.01', '9.99'])
    return {do: 'learn', back: random.integer(1, 40), deal: random.pick(['a', 'b', 'c']), amount}
  }
  if (chance <= 9) return {do: 'export', back: random.integer(0, 1)}
  if (chance <= 12) return {do: random.pick(['close', 'close', 'reopen'])}
  if (chance === 13) return {do: 'recover', truesUp: random.chance(0.5)}
  const codes: [string, string] = [random.pick(['1200', '1300']), random.pick(['1200', '1400'])]
  return {do: random.pick(['map', 'remap']), codes}
}

/** Two weeks pass between two walks: months end, and are closed, in between. */
const DAYS_BETWEEN = 13

async function take(books: Books, one: Step, day: string): Promise<void> {
  if (one.do === 'walk') {
    copyFileSync(books.folder.warehouse, `${books.folder.warehouse}.before`)
    return await books.walk(day, one.deals)
  }
  if (one.do === 'learn') return await books.learnLate(addDays(day, -one.back), day, one.deal, one.amount)
  if (one.do === 'map' || one.do === 'remap') {
    const [any, bridge] = one.codes
    const account = (code: string) => ({code, name: `Loans ${code}`})
    books.map({...DEFAULT_MAPPING, receivable: {'*': account(any), bridge: account(bridge)}})
    if (one.do === 'remap') remapPeriods(books.config, {why: null}, books.at(day))
    return
  }
  if (one.do === 'export') {
    const months = PERIODS.filter((month) => month <= day.slice(0, 7))
    return void (await books.export('xero', months.at(-1 - one.back) ?? day.slice(0, 7), addDays(day, 1)))
  }
  if (one.do === 'recover') return await recover(books, one, day)
  const closed = readClosed(books)
  const next = PERIODS[closed.length] ?? ''
  if (one.do === 'close')
    return void (await closePeriod(books.config, {period: next}, books.at(addDays(day, 1))))
  reopenPeriod(books.config, {period: closed.at(-1) ?? day.slice(0, 7), why: 'a proof'}, books.at(day))
}

async function recover(books: Books, {truesUp}: {truesUp: boolean}, day: string): Promise<void> {
  const {warehouse} = books.folder
  const saved = `${warehouse}.before`
  if (!existsSync(saved)) return
  copyFileSync(saved, warehouse)
  await books.walk(addDays(day, 1), {a: {status: 'funded'}, c: {status: 'funded'}})
  if (truesUp) await trueUp(books.config, {isIssued: true, why: null}, books.at(addDays(day, 1)))
}

const withoutOpening = (lines: readonly JournalLine[]) => lines.filter(({event}) => event !== 'opening')

function readClosed({folder}: Books): string[] {
  using stateDb = openStateDb(folder.stateDb)
  return listClosedPeriods(stateDb)
}

async function live({random, add}: Run): Promise<void> {
  const steps = Array.from({length: random.integer(12, 18)}, () => drawStep(random))
  using books = openBooks()
  let day = FIRST_DAY
  await books.walk(day, {a: {status: 'draft'}, b: {status: 'draft'}, c: {status: 'funded'}})
  for (const next of steps) {
    if (next.do === 'walk') day = addDays(day, DAYS_BETWEEN)
    if (day > '2026-03-31') break
    try {
      await take(books, next, day)
      add(next.do)
    } catch (error) {
      // Out of order, unfinished, or nothing to move: refused without any change.
      if (!(error instanceof LoantapeError) || error.exitCode !== 2) throw error
      add('refused')
    }
  }
  const today = addDays(day, 2)
  await trueUp(books.config, {isIssued: true, why: null}, books.at(today))
  const all: JournalLine[] = []
  const {first, last} = await readPeriodRange(books.config, books.at(today))
  for (const month of MONTHS.filter((name) => name >= first && name <= last)) {
    await books.export('xero', month, today)
    const [again] = await books.export('xero', month, today)
    assert.notEqual(again?.outcome, 'written', month)
    const journal = await books.readJournal(month, today)
    all.push(...journal)
    using stateDb = openStateDb(books.folder.stateDb)
    const issued = listIssuedLines(stateDb, 'xero', {period: month})
    assert.deepEqual(balancesOf(withoutOpening(issued)), balancesOf(withoutOpening(journal)), month)
    add('months tied out')
  }
  assert.deepEqual(books.sumBatches('xero', ''), sumByAccount(withoutOpening(all)), 'all batches together')
}

/** A run: months of random walks, late knowledge, mappings, exports, closings, reopenings and true-ups. */
export const proveJournal = (request: ProofRequest): Promise<Proved> => prove('journal', request, live)
