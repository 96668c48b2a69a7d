import {hash} from 'node:crypto'
import {z} from 'zod'
import {addDays, DAY_MS, HOUR_MS} from '../core/clock.ts'
import type {DealStore, StoredDeal} from './deals.ts'
import type {FileStore} from './documents.ts'
import madeUp from './portfolio.json' with {type: 'json'}
import type {ServiceDatabase} from './service-database.ts'

/**
 * Fills the store with the portfolio of a bridge and commercial lender: deals created over the 18 months before `today`,
 * older ones mostly funded. The same seed and date give the same rows.
 *
 * @param options.today `YYYY-MM-DD`; all deals are older
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

/** A seeded source of numbers: the same labels give the same sequence on every machine. */
export type Random = ReturnType<typeof createRandom>

const ALPHABET = 'abcdefghijkmnpqrstuvwxyz23456789'

/** Creates the sequence of `labels` (a seed, a date, a purpose): sfc32 over the SHA-256 of the labels. */
export function createRandom(...labels: (string | number)[]) {
  const digest = hash('sha256', labels.join('\n'), 'buffer')
  let a = digest.readInt32LE(0)
  let b = digest.readInt32LE(4)
  let c = digest.readInt32LE(8)
  let counter = digest.readInt32LE(12)

  /** Uniform in [0, 1), 32 bits. */
  function next(): number {
    const sum = (a + b + counter) | 0
    counter = (counter + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = (((c << 21) | (c >>> 11)) + sum) | 0
    return (sum >>> 0) / 2 ** 32
  }

  /** Uniform whole number from `min` to `max`, both included. */
  const integer = (min: number, max: number): number => min + Math.floor(next() * (max - min + 1))
  return {
    next,
    integer,
    /** True with this probability. */
    chance: (probability: number): boolean => next() < probability,
    /** One of the items, each as likely as the others. */
    pick<T>(items: readonly T[]): T {
      const item = items[integer(0, items.length - 1)]
      if (item === undefined) throw new Error('nothing to pick from')
      return item
    },
    /** Normal with mean 0 and standard deviation 1, within ±6. */
    normal(): number {
      let total = -6
      for (let draw = 0; draw < 12; draw++) total += next()
      return total
    },
    /** This many lower-case letters and digits. */
    text(length: number): string {
      let text = ''
      while (text.length < length) text += ALPHABET.charAt(integer(0, ALPHABET.length - 1))
      return text
    },
  }
}

function buildStreet(random: Random): string {
  if (random.chance(0.02))
    return `Lot ${random.integer(1, 90)} Block ${random.integer(1, 12)} Cedar Ridge Subdivision`
  const street = `${random.integer(1, 9_999)} ${random.pick(madeUp.streets)}`
  if (!random.chance(0.15)) return street
  const unit = random.pick(madeUp.units)
  return `${street}, ${unit}${unit === '#' ? '' : ' '}${random.integer(1, 480)}`
}

function buildUsualAddress(random: Random): string {
  const {city, state, stateName, zipPrefix} = random.pick(madeUp.cities)
  const street = buildStreet(random)
  const zip = `${zipPrefix}${String(random.integer(1, 99)).padStart(2, '0')}`
  const shape = random.next()
  if (shape < 0.5) return `${street}, ${city}, ${state} ${zip}`
  if (shape < 0.62) return `${street}, ${city}, ${state}`
  if (shape < 0.7) return `${street}, ${city}, ${state} ${zip}-${random.integer(1000, 9999)}`
  if (shape < 0.78) return `${street}, ${city}, ${stateName} ${zip}`
  if (shape < 0.82) return `${street}, ${city}, ${stateName}`
  if (shape < 0.88) return `${street}, ${city}, ${state} ${zip}, USA`
  if (shape < 0.93) return `${street}, ${city}, ${state} ${zip}`.toLowerCase()
  if (shape < 0.96) return `${street} ${city} ${state} ${zip}`
  if (shape < 0.98) return `${street},${city},${state}  ${zip}`
  return `${street}, ${city}, ${state.toLowerCase()}. ${zip}, United States`
}

const numbered = (text: string, number: number) => text.replaceAll('{n}', String(number))

/**
 * Draws a US property address as people type it: with and without ZIP, full state names, lower case, units, lots; about 3 %
 * name no state, about 1 % hold quotes, accents or a spreadsheet formula.
 */
function buildAddress(random: Random): string {
  const kind = random.next()
  if (kind < 0.01) return numbered(random.pick(madeUp.awkward), random.integer(1, 999))
  if (kind < 0.04) return numbered(random.pick(madeUp.stateless), random.integer(100, 999))
  return buildUsualAddress(random)
}

const SMALLEST_AMOUNT = 60_000
const LARGEST_AMOUNT = 25_000_000
const HISTORY_DAYS = 548
/** Desks are open from 13:00 to 22:00 UTC. */
const OPENS_MS = 13 * HOUR_MS
const OPEN_MS = 9 * HOUR_MS

function pickProgram(random: Random) {
  let left = random.next()
  const found = madeUp.programs.find(({share}) => {
    left -= share
    return left < 0
  })
  return found ?? random.pick(madeUp.programs)
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
 * An amount and a value (cents) whose loan-to-value is spread around 68 %; one deal in eight is exactly at 65, 70 or 75 %.
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

/** Draws one deal with a new id. */
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

/** The status of a deal of this age (days): most are funded after two months, one in twenty takes longer. */
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
    // The exponent makes the lender grow: recent months have more deals.
    const age = Math.floor(HISTORY_DAYS * random.next() ** 1.25)
    times[index] = drawInstant(random, lastDay - age * DAY_MS)
  }
  return times.sort()
}

/** Investors who borrow repeatedly; the first of them most often. */
const REGULARS = 400

/** The share of deals that have a document of a category, by status. */
const DOCUMENTS: Readonly<Record<string, {name: string; shares: Readonly<Record<string, number>>}>> =
  madeUp.documents

const linkedRow = z.object({deal_id: z.string(), what: z.string()})

interface Linking {
  seed: string | number
  /** New records are dated from the deal's creation, or this instant if it is later, to `until`; ms since the epoch. */
  since: number
  until: number
}

/**
 * Adds the missing borrowers to each deal, and the missing documents of its status; the same seed, deals and days give the
 * same records. It draws nothing from the deals' own random numbers.
 */
export function linkPortfolio(
  service: {database: ServiceDatabase; store: DealStore; files: FileStore},
  linking: Linking,
): void {
  const {database, store} = service
  database.transaction(() => {
    const rows = database.all(
      linkedRow,
      `select deal_id, 'borrower' as what from borrower union select deal_id, category as what from document`,
    )
    const linked = new Set(rows.map(({deal_id, what}) => `${deal_id} ${what}`))
    for (const id of store.ids()) {
      const deal = store.get(id)
      if (!deal) continue
      if (!linked.has(`${id} borrower`)) linkBorrowers(database, deal, linking)
      for (const category of Object.keys(DOCUMENTS))
        if (!linked.has(`${id} ${category}`)) attachMissing(service, deal, {...linking, category})
    }
  })
}

function drawMoment(random: Random, deal: StoredDeal, {since, until}: Linking): number {
  const first = Math.max(deal.createdAt, since)
  return first + Math.floor(Math.max(0, until - first) * random.next() ** 2)
}

function linkBorrowers(database: ServiceDatabase, deal: StoredDeal, linking: Linking): void {
  const random = createRandom('borrowers', linking.seed, deal.id)
  const first = random.chance(0.55) ? Math.floor(REGULARS * random.next() ** 3) : deal.id
  const people = random.chance(0.25) ? [first, `${deal.id} second`] : [first]
  for (const label of people) {
    const person = createRandom('person', linking.seed, label)
    const first_name = person.pick(madeUp.firstNames)
    const last_name = person.pick(madeUp.lastNames)
    database.insert('borrower', {
      id: `bor_${random.text(16)}`,
      deal_id: deal.id,
      first_name,
      last_name,
      email: `${first_name}.${last_name}.${person.text(6)}@example.com`.toLowerCase(),
      has_ssn_last_four: 1,
      created_at: drawMoment(random, deal, {...linking, until: Math.max(linking.since, deal.createdAt)}),
    })
  }
}

function attachMissing(
  {database, files}: {database: ServiceDatabase; files: FileStore},
  deal: StoredDeal,
  {category, ...linking}: Linking & {category: string},
): void {
  const {name = '', shares = {}} = DOCUMENTS[category] ?? {}
  const random = createRandom('document', linking.seed, deal.id, category)
  if (random.next() >= (shares[deal.status] ?? 0)) return
  const id = `doc_${random.text(16)}`
  const content = `${name} for ${deal.propertyAddress}\n`
  database.insert('document', {
    id,
    deal_id: deal.id,
    category,
    name,
    media_type: 'text/plain; charset=utf-8',
    bytes: Buffer.byteLength(content),
    sha256: hash('sha256', content),
    created_at: drawMoment(random, deal, linking),
  })
  files.place(id, content)
}
