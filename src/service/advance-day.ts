import type {DealChanges, DealStatus} from '../contract/deal.ts'
import {newError} from '../core/errors.ts'
import {changeDeal, type DealStore, listMissing, type StoredDeal} from './deals.ts'
import {buildDeal, createRandom, drawInstant, type Random} from './portfolio.ts'

/** The daily share of deals per event; removals and repricings stay far below the guards of a sync. */
const DAILY = {
  created: 0.003,
  /** draft → underwriting */
  submitted: 0.08,
  /** underwriting → approved */
  approved: 0.035,
  /** approved → funded */
  funded: 0.06,
  /** Another loan amount. */
  repriced: 0.012,
  /** Another property value. */
  reappraised: 0.004,
  /** Deleted as a draft or in underwriting. */
  withdrawn: 0.0012,
  /** Deleted as approved: duplicates. */
  removed: 0.0005,
  /** funded → paid_off */
  paid_off: 0.0025,
}

/** The number of deals per event on one day. */
type DayEvents = Record<keyof typeof DAILY, number>

/**
 * Simulates one day of a portfolio of `seedPortfolio` in one transaction: deals are created, change status, change fields and
 * are deleted, within the rules of the API. The same seed, day and deals give the same result. About 1.2 % of the deals change
 * their amount and 0.2 % are deleted; with 2,500 deals every kind of event happens every day.
 *
 * @param options.day `YYYY-MM-DD`; the day of new deals
 * @throws ConfigError if the day has already passed; nothing is changed
 */
export function advanceDay(store: DealStore, options: {seed: string | number; day: string}): DayEvents {
  const random = createRandom('day', options.seed, options.day)
  return store.transaction(() => {
    const total = store.count()
    const countOf = (share: number): number => drawCount(random, total, share)

    const withdrawn = removeDeals(store, random, ['draft', 'underwriting'], countOf(DAILY.withdrawn))
    const removed = removeDeals(store, random, ['approved'], countOf(DAILY.removed))
    // The latest stage first, so that no deal moves twice on one day.
    const paid_off = moveStage(store, random, {from: 'funded', to: 'paid_off', share: DAILY.paid_off})
    const funded = moveStage(store, random, {from: 'approved', to: 'funded', share: DAILY.funded})
    const approved = moveStage(store, random, {from: 'underwriting', to: 'approved', share: DAILY.approved})
    const submitted = moveStage(store, random, {from: 'draft', to: 'underwriting', share: DAILY.submitted})
    const repriced = changeDeals(store, random, 'loan_amount', countOf(DAILY.repriced))
    const reappraised = changeDeals(store, random, 'property_value', countOf(DAILY.reappraised))
    const created = createDeals(store, countOf(DAILY.created), options)
    return {created, submitted, approved, funded, repriced, reappraised, withdrawn, removed, paid_off}
  })
}

/** `share` of `total` as a whole number whose mean is exact: the fraction becomes a chance. */
function drawCount(random: Random, total: number, share: number): number {
  const exact = total * share
  return Math.floor(exact) + (random.chance(exact % 1) ? 1 : 0)
}

/** Draws up to `count` of the deals with these ids; changes the array. */
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

function moveStage(
  store: DealStore,
  random: Random,
  move: {from: DealStatus; to: DealStatus; share: number},
): number {
  const waiting = store.ids(move.from)
  const drawn = drawDeals(store, random, waiting, drawCount(random, waiting.length, move.share))
  // The service would refuse a deal without value or program.
  const moved = drawn.filter((deal) => listMissing(deal).length === 0)
  for (const deal of moved) changeDeal(store, deal, {status: move.to})
  return moved.length
}

function drawNewAmount(random: Random, deal: StoredDeal): bigint {
  const cents = Number(deal.loanAmountCents) * (0.94 + 0.09 * random.next())
  const rounded = random.chance(0.4) ? Math.round(cents) : Math.round(cents / 50_000) * 50_000
  return BigInt(rounded) === deal.loanAmountCents ? deal.loanAmountCents - 12_345n : BigInt(rounded)
}

function drawNewValue(random: Random, deal: StoredDeal): bigint {
  const before = Number(deal.propertyValueCents ?? (deal.loanAmountCents * 100n) / 68n)
  const steps = Math.round((before * (0.95 + 0.12 * random.next())) / 100_000)
  const after = BigInt(steps) * 100_000n
  return after === deal.propertyValueCents ? after + 100_000n : after
}

type Repriced = 'loan_amount' | 'property_value'

function drawChange(random: Random, deal: StoredDeal, field: Repriced): DealChanges {
  const draw = field === 'loan_amount' ? drawNewAmount : drawNewValue
  return {[field]: Number(draw(random, deal)) / 100}
}

function changeDeals(store: DealStore, random: Random, field: Repriced, count: number): number {
  const deals = drawDeals(store, random, listLiving(store), count)
  for (const deal of deals) changeDeal(store, deal, drawChange(random, deal, field))
  return deals.length
}

/** Deals that are not paid off. */
function listLiving(store: DealStore): string[] {
  const paidOff = new Set(store.ids('paid_off'))
  return store.ids().filter((id) => !paidOff.has(id))
}

function removeDeals(store: DealStore, random: Random, statuses: readonly string[], count: number): number {
  const ids = statuses.flatMap((status) => store.ids(status))
  const deals = drawDeals(store, random, ids, count)
  for (const deal of deals) store.remove(deal.id)
  return deals.length
}

/** Each new deal has its own random numbers, so that a repeated day shows as a repeated id. */
function createDeals(store: DealStore, count: number, options: {seed: string | number; day: string}): number {
  const deals = Array.from({length: count}, (_, index) => {
    const random = createRandom('new deal', options.seed, options.day, index)
    return buildDeal(random, {status: 'draft', createdAt: drawInstant(random, Date.parse(options.day))})
  })
  if (deals.some(({id}) => store.get(id)))
    throw newError(
      'USAGE',
      `Day '${options.day}' has already passed in this portfolio: expected a later day.`,
      {kept: 'The portfolio is unchanged.'},
    )
  store.insert(deals)
  return deals.length
}

/**
 * Draws changes as people make them: a new loan amount, or a new property value, which the list of deals does not show. At most
 * `count` deals and one in ten; the same seed, day and deals give the same changes. Changes nothing itself.
 */
export function drawEdits(
  store: DealStore,
  {seed, day, count}: {seed: string | number; day: string; count: number},
): {id: string; changes: DealChanges}[] {
  const random = createRandom('edits', seed, day)
  const most = Math.min(count, Math.ceil(store.count() / 10))
  return drawDeals(store, random, listLiving(store), most).map((deal, index) => ({
    id: deal.id,
    changes: drawChange(random, deal, index % 3 === 0 ? 'loan_amount' : 'property_value'),
  }))
}
