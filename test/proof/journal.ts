import assert from 'node:assert/strict'
import {copyFileSync, existsSync} from 'node:fs'
import {isDeepStrictEqual} from 'node:util'
import {listIssuedLines, listIssuedMonths} from '../../src/accounting/issued.ts'
import {type AccountMapping, DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {listClosedPeriods, listPeriodEvents, readPeriodRange} from '../../src/accounting/periods.ts'
import type {IssuedLine, JournalLine} from '../../src/accounting/profiles.ts'
import {closePeriod, remapPeriods, reopenPeriod} from '../../src/books/close-period.ts'
import {listNotIssued} from '../../src/books/standing.ts'
import {trueUp} from '../../src/books/true-up.ts'
import {buildRelease, requireBuilt} from '../../src/build/build.ts'
import {addDays} from '../../src/core/clock.ts'
import {LoantapeError} from '../../src/core/errors.ts'
import type {BatchResult} from '../../src/export/batch.ts'
import {exportRelease, previewExport} from '../../src/outputs.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {balancesByDeal} from '../accounting/journal-lines.ts'
import {type Books, openBooks} from '../support/books.ts'
import {balancesOf, importBatches, sumByAccount} from '../support/importer.ts'
import {type ProofRequest, type Proved, prove, type Run} from './proof.ts'

const FIRST_DAY = '2026-01-25'
const PERIODS = ['2026-01', '2026-02', '2026-03']

/** A recovery on the last day walks one day later, which may be in April. */
const MONTHS = [...PERIODS, '2026-04']

/** Almost two weeks pass between two walks, so that months end and are closed in between. */
const DAYS_BETWEEN = 13

type Step = [name: string, happen: (books: Books, day: string) => unknown]

const copyOf = ({folder}: Books) => `${folder.warehouse}.before`

function drawStep(random: Random): Step {
  const deal = () => ({
    status: random.pick(['draft', 'funded', 'funded', 'funded', 'bought', 'paid_off', 'sold']),
    loan_amount: random.integer(1, 5),
    loan_program: random.pick(['bridge', 'dscr', null]),
  })
  const chance = random.integer(1, 22)
  if (chance <= 4) {
    const [a, b] = [random.chance(0.5) && {a: deal()}, random.chance(0.5) && {b: deal()}]
    const deals = {...a, ...b, c: deal(), late: random.chance(0.5) ? deal() : UNREADABLE}
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
  if (chance <= 11) {
    const [back, withOpening] = [random.integer(0, 2), random.chance(0.2)]
    const monthOf = (day: string) => PERIODS.filter((month) => month <= day.slice(0, 7)).at(-1 - back)
    return [
      'export',
      (books, day) => exportTwice(books, monthOf(day) ?? day.slice(0, 7), addDays(day, 1), withOpening),
    ]
  }
  if (chance <= 15) return random.chance(0.7) ? createClosing(drawMapping(random)) : REOPEN
  if (chance === 16) {
    const truesUp = random.chance(0.5)
    return ['recover', (books, day) => recover(books, truesUp, day)]
  }
  if (chance <= 19) {
    const like = random.pick(['funded', 'approved'])
    const lines = ['a', 'b', 'c'].map((id) => `${id},2026-0${random.integer(1, 3)}-${random.integer(10, 28)}`)
    return ['seed', (books) => seed(books, like, random.chance(0.5) ? lines : [])]
  }
  const mapping = drawMapping(random)
  const name = random.pick(['map', 'remap', 'remap'])
  const map = (books: Books, day: string) => {
    books.map(mapping)
    if (name === 'remap') remapPeriods(books.config, {why: null}, books.at(day))
  }
  return [name, map]
}

function drawMapping(random: Random): AccountMapping {
  const named = ['*', 'bridge', 'dscr'].filter((program) => program === '*' || random.chance(0.5))
  const accounts = named.map((program) => {
    const code = random.pick(['1200', '1300', '1400'])
    return [program, {code, name: `Loans ${code}`}]
  })
  return {...DEFAULT_MAPPING, receivable: Object.fromEntries(accounts)}
}

/** A record that cannot be read: its amount is negative. */
const UNREADABLE = {status: 'funded', loan_amount: -5}

/** Writes seeds: what the status `bought` counts as, and on which days deals were funded. */
function seed(books: Books, like: string, funded: readonly string[]): void {
  books.seed('status', `status,like\nbought,${like}\n`)
  books.seed('funded_on', ['deal_id,funded_on:date', ...funded, ''].join('\n'))
}

/**
 * Exports a month as its preview says. Nothing is left to issue then from the first to the last month of the profile, which are
 * returned if something was issued.
 */
async function exportTwice(books: Books, month: string, day: string, withOpening = false) {
  const request = {profiles: ['xero'], period: month, withOpening}
  await bringUpToDate(books.config, books.at(day))
  const previews = await previewExport(books.config, request, books.at(day))
  const batches = await exportRelease(books.config, request, books.at(day))
  const withoutDir = (batch: BatchResult) => ({...batch, dir: ''})
  assert.deepEqual(
    previews.map(({batch}) => withoutDir(batch)),
    batches.map(withoutDir),
    `preview of ${month}`,
  )
  for (const {outcome} of await books.export('xero', month, day))
    assert.notEqual(outcome, 'written', `${month} again`)
  using stateDb = openStateDb(books.folder.stateDb)
  const {observedUntil} = await readPeriodRange(books.config, books.at(day))
  const release = await requireBuilt(books.config, {asOf: observedUntil}, books.at(day))
  const issued = [...listIssuedMonths(stateDb, 'xero'), month].sort()
  const months = MONTHS.filter((name) => name >= (issued[0] ?? '') && name <= (issued.at(-1) ?? ''))
  const open = await listNotIssued(books.config, [], release)
  assert.deepEqual(
    open.filter(({period}) => months.includes(period)),
    [],
    `left of ${month}`,
  )
  return batches.some(({outcome}) => outcome === 'written') ? months : undefined
}

/** Makes a step that closes the first open month and then changes the mapping. */
function createClosing(next: AccountMapping): Step {
  const close = async (books: Books, day: string) => {
    const period = PERIODS[readClosed(books).length] ?? ''
    await closePeriod(books.config, {period}, books.at(addDays(day, 1)))
    books.map(next)
  }
  return ['close', close]
}

const REOPEN: Step = [
  'reopen',
  (books, day) => {
    const period = readClosed(books).at(-1) ?? day.slice(0, 7)
    return reopenPeriod(books.config, {period, why: 'a proof'}, books.at(day))
  },
]

/** Puts back the warehouse from before the last walk, walks on the next day and, if asked, trues up. */
async function recover(books: Books, truesUp: boolean, day: string): Promise<void> {
  if (!existsSync(copyOf(books))) return
  copyFileSync(copyOf(books), books.folder.warehouse)
  await books.walk(addDays(day, 1), {a: {status: 'funded'}, c: {status: 'funded'}})
  if (truesUp) await trueUp(books.config, {isIssued: true, why: null}, books.at(addDays(day, 1)))
}

function readStanding({folder}: Books) {
  using stateDb = openStateDb(folder.stateDb)
  const trueUps = listPeriodEvents(stateDb).filter(({action}) => action === 'true-up').length
  return {trueUps, issued: listIssuedLines(stateDb, 'xero')}
}

function readClosed({folder}: Books): string[] {
  using stateDb = openStateDb(folder.stateDb)
  return listClosedPeriods(stateDb)
}

/**
 * Returns a check: while exported months stay closed, no further lines are dated in them, but for opening balances that are asked
 * for later.
 */
function watchClosed(books: Books) {
  const held = new Map<string, number>()
  const countLines = (month: string) =>
    Object.values(books.readBatches('xero', ''))
      .flat()
      .filter(({date, memo}) => date.startsWith(month) && !memo.includes('Opening balance')).length
  return (exported: readonly string[] = []) => {
    const closed = readClosed(books)
    for (const [month, count] of held) {
      if (closed.includes(month)) assert.equal(countLines(month), count, `lines dated in ${month}`)
      else held.delete(month)
    }
    for (const month of exported) if (closed.includes(month)) held.set(month, countLines(month))
  }
}

async function live({random, add}: Run): Promise<void> {
  const steps = Array.from({length: random.integer(18, 24)}, () => drawStep(random))
  using books = openBooks()
  const requireHeld = watchClosed(books)
  const booked: IssuedLine[][] = []
  const watch = async <T>(act: () => T): Promise<Awaited<T>> => {
    const before = readStanding(books)
    const done = await act()
    if (readStanding(books).trueUps > before.trueUps) booked.push(before.issued)
    return done
  }
  let day = FIRST_DAY
  seed(books, 'approved', [])
  await books.walk(day, {a: {status: 'draft'}, b: {status: 'draft'}, c: {status: 'funded'}, late: UNREADABLE})
  for (const [name, happen] of steps) {
    if (name === 'walk') day = addDays(day, DAYS_BETWEEN)
    if (day > '2026-03-31') break
    try {
      const exported = await watch(() => happen(books, day))
      requireHeld(Array.isArray(exported) ? exported : [])
      add(name)
    } catch (error) {
      // The step came out of order or had nothing to do: it was refused without any change.
      if (!(error instanceof LoantapeError) || error.exitCode !== 2) throw error
      add('refused')
    }
  }
  const today = addDays(day, 2)
  await watch(() => trueUp(books.config, {isIssued: true, why: null}, books.at(today)))
  const {first, last} = await readPeriodRange(books.config, books.at(today))
  const months = MONTHS.filter((name) => name >= first && name <= last)
  for (const month of months) requireHeld(await exportTwice(books, month, today))
  await buildRelease(books.config, {}, books.at(today))
  assert.deepEqual(await listNotIssued(books.config, []), [], 'not issued')
  const {issued} = readStanding(books)
  const isOpened = issued.some(({event}) => event === 'opening')
  const all: JournalLine[] = []
  for (const month of months) {
    const lines = await books.readJournal(month, today)
    const journal = lines.filter(({event}) => event !== 'opening' || isOpened)
    all.push(...journal)
    if (!readClosed(books).includes(month)) {
      const upTo = (lines: readonly JournalLine[]) =>
        lines.filter(({entry_date}) => entry_date <= `${month}-31`)
      const handedOut = importBatches(books.folder.exports, 'xero')
      assert.deepEqual(balancesOf(handedOut, `${month}-31`), sumByAccount(upTo(issued)), `end of ${month}`)
      // What a true-up takes back may stand until its deal is booked again.
      for (const [deal, own] of Map.groupBy(issued, ({deal_id}) => deal_id)) {
        const isAs = (lines: readonly JournalLine[]) =>
          isDeepStrictEqual(
            balancesByDeal(upTo(own)),
            balancesByDeal(upTo(lines).filter(({deal_id}) => deal_id === deal)),
          )
        assert.ok([all, ...booked].some(isAs), `end of ${month} of ${deal}`)
      }
      add('open months ended')
    }
    const ofMonth = issued.filter(({period}) => period === month)
    assert.deepEqual(balancesByDeal(ofMonth), balancesByDeal(journal), month)
    add('months tied out')
  }
  assert.deepEqual(books.sumBatches('xero', ''), sumByAccount(all), 'all batches together')
}

/**
 * Proves that the batches of a month add up to its journal. A run plays months of random walks, late knowledge, seeds, mappings,
 * exports, closings, reopenings and true-ups.
 */
export const proveJournal = (request: ProofRequest): Promise<Proved> => prove('journal', request, live)
