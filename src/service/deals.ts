import {DEAL_TRANSITIONS, type Deal, type DealChanges, type ListedDeal} from '../contract/deal-record.ts'
import {parseCents} from '../money.ts'
import {type ListKey, readListPage} from './cursor.ts'
import {checkIfMatch} from './etag.ts'
import {type Handlers, PREFIX, type ServiceWorld} from './handlers.ts'
import {refuse, requireFound} from './problem-reply.ts'
import {createId} from './service-database.ts'
import type {DealChange, DealStore, StoredDeal} from './store.ts'

/** The deal with this id. @throws Refusal (404) */
export function requireDeal(store: DealStore, id: string): StoredDeal {
  return requireFound(store.get(id), 'deal_not_found')
}

/** A row of `GET /deals`: amounts as JSON numbers with cents. */
export function formatListedDeal(deal: StoredDeal): ListedDeal {
  return {
    id: deal.id,
    property_address: deal.propertyAddress,
    loan_amount: Number(deal.loanAmountCents) / 100,
    status: deal.status,
    created_at: new Date(deal.createdAt).toISOString(),
  }
}

/** One whole deal on the wire. */
export function formatDeal(deal: StoredDeal): Deal {
  return {
    ...formatListedDeal(deal),
    property_value: deal.propertyValueCents === null ? null : Number(deal.propertyValueCents) / 100,
    loan_program: deal.loanProgram,
  }
}

function centsOf(amount: number): bigint {
  const cents = parseCents(amount)
  if (typeof cents === 'bigint') return cents
  throw new Error(`an amount passed the contract: ${cents}`)
}

function changeOf(body: DealChanges): DealChange {
  const {loan_amount: amount, property_value: value} = body
  return {
    propertyAddress: body.property_address,
    loanAmountCents: amount === undefined ? undefined : centsOf(amount),
    propertyValueCents: value === undefined || value === null ? value : centsOf(value),
    loanProgram: body.loan_program,
    status: body.status,
  }
}

function checkTransition(from: string, to: string): void {
  const allowed = Object.entries(DEAL_TRANSITIONS).find(([status]) => status === from)?.[1]
  if (from === to || allowed === undefined || allowed.some((status) => status === to)) return
  const ways = allowed.length > 0 ? `may go to ${allowed.join(' or ')}` : 'stays so'
  throw refuse('invalid_transition', {detail: `A deal that is ${from} ${ways}, not to ${to}.`})
}

/** What a deal lacks that it has from underwriting on: an amount, a value and a program are what is underwritten. */
export function listMissing(deal: StoredDeal): string[] {
  return [
    deal.loanAmountCents > 0n ? '' : 'loan_amount',
    (deal.propertyValueCents ?? 0n) > 0n ? '' : 'property_value',
    deal.loanProgram === null ? 'loan_program' : '',
  ].filter((path) => path !== '')
}

function checkComplete(deal: StoredDeal): void {
  const missing = listMissing(deal)
  if (missing.length === 0) return
  const detail = `A deal that is ${deal.status} has ${missing.join(' and ')}. Send it, too.`
  throw refuse('incomplete_deal', {detail, errors: missing.map((path) => ({path, message: 'expected'}))})
}

/** The deal after a change. @throws Refusal (404, 409); the transaction around it takes the change back */
export function changeDeal(store: DealStore, deal: StoredDeal, body: DealChanges): StoredDeal {
  const changed = requireFound(store.update(deal.id, changeOf(body)), 'deal_not_found')
  checkTransition(deal.status, changed.status)
  const isMoved = deal.status !== changed.status
  const isCleared = body.property_value === null || body.loan_program === null
  if (changed.status !== 'draft' && (isMoved || isCleared)) checkComplete(changed)
  return changed
}

/** Makes sure that a deal was never on the books. @throws Refusal (409) */
export function checkDeletable({status}: StoredDeal): void {
  if (status === 'funded' || status === 'paid_off') throw refuse('deal_funded')
}

/** Creates the operations on deals. */
export function createDealHandlers(world: ServiceWorld) {
  const {store, database, files, clock, emit} = world
  return {
    listDeals: ({query}) => {
      const {status} = query
      const fetch = (after: ListKey, limit: number) =>
        store.list({after, status, limit}).map(formatListedDeal)
      const list = {name: 'deals', filter: status ?? null, fetch}
      return {body: readListPage(query, list, database.secret)}
    },
    createDeal: ({body}) => {
      const {property_value: value = null} = body
      const deal: StoredDeal = {
        id: createId('deal'),
        propertyAddress: body.property_address,
        loanAmountCents: centsOf(body.loan_amount),
        propertyValueCents: value === null ? null : centsOf(value),
        loanProgram: body.loan_program ?? null,
        status: 'draft',
        createdAt: clock.now(),
      }
      store.insert([deal])
      emit({type: 'deal.created', data: {id: deal.id, deal_id: deal.id, status: deal.status}})
      return {body: {data: formatDeal(deal)}, headers: {Location: `${PREFIX}/deals/${deal.id}`}}
    },
    getDeal: ({id}) => ({body: {data: formatDeal(requireDeal(store, id))}}),
    updateDeal: ({id, body, ifMatch}) => {
      const deal = requireDeal(store, id)
      const before = {data: formatDeal(deal)}
      checkIfMatch(ifMatch, before)
      const changed = changeDeal(store, deal, body)
      const after = {data: formatDeal(changed)}
      if (JSON.stringify(after) !== JSON.stringify(before))
        emit({type: 'deal.updated', data: {id, deal_id: id, status: changed.status}})
      return {body: after}
    },
    deleteDeal: ({id, ifMatch}) => {
      const deal = requireDeal(store, id)
      checkIfMatch(ifMatch, {data: formatDeal(deal)})
      checkDeletable(deal)
      files.removeOfDeal(id)
      store.remove(id)
      emit({type: 'deal.deleted', data: {id, deal_id: id, status: deal.status}})
      return {body: undefined}
    },
  } satisfies Partial<Handlers>
}
