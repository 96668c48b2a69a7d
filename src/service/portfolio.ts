import {hash} from 'node:crypto'
import {z} from 'zod'
import type {DealChanges, DealStatus} from '../contract/deal.ts'
import {addDays, DAY_MS, HOUR_MS} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import type {DealStore, StoredDeal} from './deals.ts'
import madeUp from './portfolio.json' with {type: 'json'}
import type {ServiceDatabase} from './service-database.ts'

/**
 * Fills the store with the portfolio of a bridge and commercial lender: deals created over the 18 months before `today`
 * (`YYYY-MM-DD`), older ones mostly funded. The same seed and date give the same rows.
 */
export function seedPortfolio(
  store: DealStore,
  {deals, seed, today}: {deals: number; seed: string | number; today: string},
): void {
  const random = createRandom('portfolio', seed, today)
  const endOfToday = Date.parse(today) + DAY_MS
  const times = drawCreationTimes(random, deals, today)
  const drawn = times.values().map((created_at) => {
    const status = drawStatus(random, (endOfToday - created_at) / DAY_MS)
    return buildDeal(random, {status, created_at})
  })
  store.fill(() => store.insert(drawn))
}

/** The same labels give the same sequence on every machine. */
export type Random = ReturnType<typeof createRandom>

const ALPHABET = 'abcdefghijkmnpqrstuvwxyz23456789'

/** sfc32, seeded with the SHA-256 of `labels` (a seed, a date, a purpose). */
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

  /** From `min` to `max`, both included. */
  const integer = (min: number, max: number): number => min + Math.floor(next() * (max - min + 1))
  return {
    next,
    integer,
    chance: (probability: number): boolean => next() < probability,
    pick: <T>(items: readonly T[]): T => items[integer(0, items.length - 1)] as T,
    /** Mean 0, standard deviation 1, within ±6. */
    normal(): number {
      let total = -6
      for (let draw = 0; draw < 12; draw++) total += next()
      return total
    },
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

/** As people type it. About 3 % name no state; about 1 % hold quotes, accents or a formula. */
function buildAddress(random: Random): string {
  const kind = random.next()
  if (kind < 0.01) return numbered(random.pick(madeUp.awkward), random.integer(1, 999))
  if (kind < 0.04) return numbered(random.pick(madeUp.stateless), random.integer(100, 999))
  return buildUsualAddress(random)
}

const HISTORY_DAYS = 548

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

/** In cents: log-normal around `median` dollars, mostly round, one in four with cents. */
function drawAmountCents(random: Random, median: number): number {
  const dollars = clamp(median * Math.exp(0.65 * random.normal()), 60_000, 25_000_000)
  const shape = random.next()
  if (shape < 0.55) return Math.round(dollars / 500) * 500 * 100
  if (shape < 0.75) return Math.round(dollars) * 100
  return Math.round(dollars * 100)
}

/** In cents. Loan-to-value is spread around 68 %; one deal in eight is exactly at 65, 70 or 75 %. */
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

/** From 13:00 to 22:00 UTC on the day that begins at `day`; both ms since the epoch. */
function drawInstant(random: Random, day: number): number {
  return day + random.integer(13 * HOUR_MS, 22 * HOUR_MS - 1)
}

function buildDeal(random: Random, born: {status: string; created_at: number}): StoredDeal {
  const program = pickProgram(random)
  const {amount, value} = drawAmountAndValue(random, program.medianAmount)
  return {
    id: `deal_${random.text(16)}`,
    property_address: buildAddress(random),
    loan_amount_cents: BigInt(amount),
    property_value_cents: random.chance(0.03) ? null : BigInt(value),
    loan_program: random.chance(0.015) ? null : program.name,
    ...born,
  }
}

/** `age` is in days. Most are funded after two months, one in twenty takes longer. */
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

/** Investors who borrow repeatedly, the first of them most often. */
const REGULARS = 400

/** Documents by category; `shares` of the deals that have one, by status. */
const DOCUMENTS: Readonly<Record<string, {name: string; shares: Readonly<Record<string, number>>}>> =
  madeUp.documents

interface Linking {
  seed: string | number
  /** New records are dated between the deal's creation, or `since` if that is later, and `until`; ms since the epoch. */
  since: number
  until: number
}

/** Adds missing borrowers, and the missing documents of a deal's status: the same for the same seed, deals and days. */
export function linkPortfolio(
  {database, store}: {database: ServiceDatabase; store: DealStore},
  linking: Linking,
): void {
  database.transaction(() => {
    const linked = new Set(
      database.column(
        z.string(),
        "select deal_id || ' borrower' from borrower union select deal_id || ' ' || category from document",
      ),
    )
    for (const deal of store.list({limit: -1})) {
      if (!linked.has(`${deal.id} borrower`)) linkBorrowers(database, deal, linking)
      for (const category of Object.keys(DOCUMENTS))
        if (!linked.has(`${deal.id} ${category}`)) attachMissing(database, deal, {...linking, category})
    }
  })
}

function drawMoment(random: Random, deal: StoredDeal, {since, until}: Linking): number {
  const first = Math.max(deal.created_at, since)
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
      created_at: drawMoment(random, deal, {...linking, until: Math.max(linking.since, deal.created_at)}),
    })
  }
}

function attachMissing(
  database: ServiceDatabase,
  deal: StoredDeal,
  {category, ...linking}: Linking & {category: string},
): void {
  const {name = '', shares = {}} = DOCUMENTS[category] ?? {}
  const random = createRandom('document', linking.seed, deal.id, category)
  if (random.next() >= (shares[deal.status] ?? 0)) return
  const id = `doc_${random.text(16)}`
  const content = Buffer.from(`${name} for ${deal.property_address}\n`)
  database.insert('document', {
    id,
    deal_id: deal.id,
    category,
    name,
    media_type: 'text/plain; charset=utf-8',
    bytes: content.length,
    sha256: hash('sha256', content),
    created_at: drawMoment(random, deal, linking),
  })
  database.insert('document_file', {document_id: id, content})
}

/**
 * Simulates one day (`YYYY-MM-DD`) of a portfolio in one transaction, within the rules of the API: deals are created, change
 * their status or fields, and are deleted. The same seed, day and deals give the same result. All stays far below the guards of a
 * sync; with 2,500 deals every kind of event happens every day.
 * @throws ConfigError if the day has already passed; nothing is changed
 */
export function advanceDay(store: DealStore, options: {seed: string | number; day: string}): void {
  const random = createRandom('day', options.seed, options.day)
  store.transaction(() => {
    const total = store.count()
    const draw = (ids: string[], exact: number) => drawDeals(store, random, ids, drawCount(random, exact))
    const remove = (share: number, ...statuses: DealStatus[]) => {
      const ids = statuses.flatMap((status) => store.ids(status))
      for (const {id} of draw(ids, total * share)) store.remove(id)
    }
    const move = (share: number, from: DealStatus, status: DealStatus) => {
      const waiting = store.ids(from)
      for (const {id} of draw(waiting, waiting.length * share).filter(isComplete)) store.update(id, {status})
    }
    const change = (share: number, changed: (deal: StoredDeal) => Partial<StoredDeal>) => {
      for (const deal of draw(listLiving(store), total * share)) store.update(deal.id, changed(deal))
    }
    remove(0.0012, 'draft', 'underwriting')
    // Deals entered twice.
    remove(0.0005, 'approved')
    // The latest stage first, so that no deal moves twice on one day.
    move(0.0025, 'funded', 'paid_off')
    move(0.06, 'approved', 'funded')
    move(0.035, 'underwriting', 'approved')
    move(0.08, 'draft', 'underwriting')
    change(0.012, (deal) => ({loan_amount_cents: drawNewAmount(random, deal)}))
    change(0.004, (deal) => ({property_value_cents: drawNewValue(random, deal)}))
    createDeals(store, drawCount(random, total * 0.003), options)
  })
}

/** The mean is exactly `exact`: the fraction becomes a chance. */
function drawCount(random: Random, exact: number): number {
  return Math.floor(exact) + (random.chance(exact % 1) ? 1 : 0)
}

/** Draws up to `count`. Changes `ids`. */
function drawDeals(store: DealStore, random: Random, ids: string[], count: number): StoredDeal[] {
  const drawn = Array.from({length: Math.min(count, ids.length)}, () => {
    const index = random.integer(0, ids.length - 1)
    const last = ids.pop() ?? ''
    const picked = ids[index] ?? last
    if (index < ids.length) ids[index] = last
    return picked
  })
  return drawn.flatMap((id) => store.get(id) ?? [])
}

/** Has what the service requires for a later status. */
function isComplete({loan_amount_cents, property_value_cents, loan_program}: StoredDeal): boolean {
  return loan_amount_cents > 0n && (property_value_cents ?? 0n) > 0n && loan_program !== null
}

function drawNewAmount(random: Random, deal: StoredDeal): bigint {
  const cents = Number(deal.loan_amount_cents) * (0.94 + 0.09 * random.next())
  const rounded = random.chance(0.4) ? Math.round(cents) : Math.round(cents / 50_000) * 50_000
  return BigInt(rounded) === deal.loan_amount_cents ? deal.loan_amount_cents - 12_345n : BigInt(rounded)
}

function drawNewValue(random: Random, deal: StoredDeal): bigint {
  const before = Number(deal.property_value_cents ?? (deal.loan_amount_cents * 100n) / 68n)
  const steps = Math.round((before * (0.95 + 0.12 * random.next())) / 100_000)
  const after = BigInt(steps) * 100_000n
  return after === deal.property_value_cents ? after + 100_000n : after
}

function listLiving(store: DealStore): string[] {
  const paidOff = new Set(store.ids('paid_off'))
  return store.ids().filter((id) => !paidOff.has(id))
}

/** Each has its own random numbers, so that a repeated day shows as a repeated id. */
function createDeals(store: DealStore, count: number, options: {seed: string | number; day: string}): void {
  const deals = Array.from({length: count}, (_, index) => {
    const random = createRandom('new deal', options.seed, options.day, index)
    return buildDeal(random, {status: 'draft', created_at: drawInstant(random, Date.parse(options.day))})
  })
  if (deals.some(({id}) => store.get(id)))
    throw newError(
      'USAGE',
      `Day '${options.day}' has already passed in this portfolio: expected a later day.`,
      {kept: 'The portfolio is unchanged.'},
    )
  store.insert(deals)
}

/** For at most `count` deals and one in ten: new amounts, and property values, which lists do not show. Changes nothing. */
export function drawEdits(
  store: DealStore,
  {seed, day, count}: {seed: string | number; day: string; count: number},
): {id: string; changes: DealChanges}[] {
  const random = createRandom('edits', seed, day)
  const most = Math.min(count, Math.ceil(store.count() / 10))
  return drawDeals(store, random, listLiving(store), most).map((deal, index) => ({
    id: deal.id,
    changes:
      index % 3 === 0
        ? {loan_amount: Number(drawNewAmount(random, deal)) / 100}
        : {property_value: Number(drawNewValue(random, deal)) / 100},
  }))
}
