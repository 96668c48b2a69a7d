import {addDays} from '../clock.ts'
import {buildAddress} from './address.ts'
import {createRandom, type Random} from './random.ts'
import type {DealStore, StoredDeal} from './store.ts'

/** The loan programs of the synthetic lender, by their share of the deals. Amounts are dollars. */
const PROGRAMS = [
  {name: 'bridge_12mo', share: 0.24, medianAmount: 480_000},
  {name: 'bridge_30yr', share: 0.18, medianAmount: 420_000},
  {name: 'fix_and_flip', share: 0.18, medianAmount: 310_000},
  {name: 'dscr_30yr', share: 0.16, medianAmount: 360_000},
  {name: 'multifamily_bridge', share: 0.1, medianAmount: 3_200_000},
  {name: 'ground_up_construction', share: 0.08, medianAmount: 1_400_000},
  {name: 'commercial_bridge', share: 0.06, medianAmount: 4_500_000},
] as const

const SMALLEST_AMOUNT = 60_000
const LARGEST_AMOUNT = 25_000_000
const HISTORY_DAYS = 548
const DAY_MS = 86_400_000
/** Desks are open from 13:00 to 22:00 UTC. */
const OPENS_MS = 13 * 3_600_000
const OPEN_MS = 9 * 3_600_000

function pickProgram(random: Random): (typeof PROGRAMS)[number] {
  let left = random.next()
  const found = PROGRAMS.find(({share}) => {
    left -= share
    return left < 0
  })
  return found ?? PROGRAMS[0]
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value))
}

/** A loan amount in cents: log-normal around `median` dollars, mostly round, one in four with cents. */
function drawAmountCents(random: Random, median: number): number {
  const dollars = clamp(median * Math.exp(0.65 * random.normal()), SMALLEST_AMOUNT, LARGEST_AMOUNT)
  const shape = random.next()
  if (shape < 0.55) return Math.round(dollars / 500) * 500 * 100
  if (shape < 0.75) return Math.round(dollars) * 100
  return Math.round(dollars * 100)
}

/**
 * An amount and a value (cents) whose loan-to-value is spread around 68 %; one deal in eight stands exactly at 65,
 * 70 or 75 %.
 */
function drawAmountAndValue(random: Random, median: number): {amount: number; value: number} {
  const amount = drawAmountCents(random, median)
  if (random.chance(0.125)) {
    const percent = random.pick([65, 70, 75])
    const thousands = Math.round(amount / percent / 1_000)
    return {amount: thousands * percent * 1_000, value: thousands * 100_000}
  }
  const ltv = clamp(0.68 + 0.06 * random.normal(), 0.35, 0.95)
  return {amount, value: Math.round(amount / ltv / 100_000) * 100_000}
}

/** An instant in the business hours of the day that begins at this one; both ms since the epoch. */
export function drawInstant(random: Random, day: number): number {
  return day + OPENS_MS + random.integer(0, OPEN_MS - 1)
}

/** Makes up one deal with a new id. */
export function buildDeal(random: Random, born: {status: string; createdAt: number}): StoredDeal {
  const program = pickProgram(random)
  const {amount, value} = drawAmountAndValue(random, program.medianAmount)
  return {
    id: `deal_${random.text(16)}`,
    propertyAddress: buildAddress(random),
    loanAmountCents: BigInt(amount),
    propertyValueCents: random.chance(0.03) ? null : BigInt(value),
    loanProgram: random.chance(0.015) ? null : program.name,
    ...born,
  }
}

/** Where a deal of this age (days) stands: most are funded after two months, one in twenty lingers. */
function drawStatus(random: Random, age: number): string {
  const pace = random.chance(0.05) ? 6 : 1
  const underwrittenAt = pace * random.integer(2, 25)
  const approvedAt = underwrittenAt + pace * random.integer(10, 55)
  const fundedAt = approvedAt + pace * random.integer(4, 35)
  if (age < underwrittenAt) return 'draft'
  if (age < approvedAt) return 'underwriting'
  return age < fundedAt ? 'approved' : 'funded'
}

function drawCreationTimes(random: Random, deals: number, today: string): Float64Array {
  const lastDay = Date.parse(addDays(today, -1))
  const times = new Float64Array(deals)
  for (let index = 0; index < deals; index++) {
    // The exponent makes the lender grow: recent months hold more deals than early ones.
    const age = Math.floor(HISTORY_DAYS * random.next() ** 1.25)
    times[index] = drawInstant(random, lastDay - age * DAY_MS)
  }
  return times.sort()
}

/**
 * Fills the store with the portfolio of a bridge and commercial lender: created over the 18 months before `today`,
 * older deals mostly funded. The same seed and date give the same rows.
 *
 * @param options.today `YYYY-MM-DD`; no deal is as young as this day
 */
export function seedPortfolio(
  store: DealStore,
  options: {deals: number; seed: string | number; today: string},
): void {
  const {deals, seed, today} = options
  const random = createRandom('portfolio', seed, today)
  const endOfToday = Date.parse(today) + DAY_MS
  const times = drawCreationTimes(random, deals, today)
  store.insert(
    times
      .values()
      .map((createdAt) =>
        buildDeal(random, {status: drawStatus(random, (endOfToday - createdAt) / DAY_MS), createdAt}),
      ),
  )
}
