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

/** Two weeks pass between two walks: months end, and are closed, in between. */
const DAYS_BETWEEN = 13

/** One thing that happens on a day, and its name. */
type Step = [name: string, happen: (books: Books, day: string) => unknown]

/** Where the warehouse from before the last walk is kept. */
const copyOf = ({folder}: Books) => `${folder.warehouse}.before`

function drawStep(random: Random): Step {
  const deal = () => ({
    status: random.pick(['draft', 'funded', 'funded', 'funded', 'paid_off']),
    loan_amount: random.integer(1, 5),
    loan_program: random.pick(['bridge', 'dscr', null]),
  })
  const chance = random.integer(1, 15)
  if (chance <= 4) {
    const [a, b] = [random.chance(0.5) && {a: deal()}, random.chance(0.5) && {b: deal()}]
    const deals = {...a, ...b, c: deal()}
    const walk = (books: Books, day: string) => {
      copyFileSync(books.folder.warehouse, copyOf(books))
      return books.walk(day, deals)
    }
    return ['walk', walk]
  }
  if (chance <= 6) {
    const amount = random.pick(['7.01', '9.99'])
    const [back, id] = [random.integer(1, 40), random.pick(['a', 'b', 'c'])]
    return ['learn', (books, day) => books.learnLate(addDays(day, -back), day, id, amount)]
  }
  if (chance <= 9) {
    const back = random.integer(0, 1)
    const monthOf = (day: string) => PERIODS.filter((month) => month <= day.slice(0, 7)).at(-1 - back)
    return ['export', (books, day) => books.export('xero', monthOf(day) ?? day.slice(0, 7), addDays(day, 1))]
  }
  if (chance <= 12) return random.pick([CLOSE, CLOSE, REOPEN])
  if (chance === 13) {
    const truesUp = random.chance(0.5)
    return ['recover', (books, day) => recover(books, truesUp, day)]
  }
  const [any, bridge] = [random.pick(['1200', '1300']), random.pick(['1200', '1400'])]
  const name = random.pick(['map', 'remap'])
  const account = (code: string) => ({code, name: `Loans ${code}`})
  const map = (books: Books, day: string) => {
    books.map({...DEFAULT_MAPPING, receivable: {'*': account(any), bridge: account(bridge)}})
    if (name === 'remap') remapPeriods(books.config, {why: null}, books.at(day))
  }
  return [name, map]
}

const CLOSE: Step = [
  'close',
  (books, day) =>
    closePeriod(books.config, {period: PERIODS[readClosed(books).length] ?? ''}, books.at(addDays(day, 1))),
]
const REOPEN: Step = [
  'reopen',
  (books, day) => {
    const period = readClosed(books).at(-1) ?? day.slice(0, 7)
    return reopenPeriod(books.config, {period, why: 'a proof'}, books.at(day))
  },
]

/** Both databases are lost, and the copy from before the last walk is restored. */
async function recover(books: Books, truesUp: boolean, day: string): Promise<void> {
  if (!existsSync(copyOf(books))) return
  copyFileSync(copyOf(books), books.folder.warehouse)
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
  for (const [name, happen] of steps) {
    if (name === 'walk') day = addDays(day, DAYS_BETWEEN)
    if (day > '2026-03-31') break
    try {
      await happen(books, day)
      add(name)
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
