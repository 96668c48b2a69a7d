import {hash} from 'node:crypto'
import type {z} from 'zod'
import {DEAL_TRANSITIONS, type Deal, type DealChanges, type ListedDeal} from '../contract/deal.ts'
import type {PageQuery} from '../contract/list.ts'
import {parseCents} from '../core/money.ts'
import type {DealChange, DealStore, StoredDeal} from './deal-store.ts'
import {refuse, requireFound} from './refusal.ts'
import {type Handlers, PREFIX, readListPage, readTablePage, type ServiceWorld} from './requests.ts'
import {createId, type ListKey} from './service-database.ts'

/** The deal with this id. @throws Refusal (404) */
export function requireDeal(store: DealStore, id: string): StoredDeal {
  return requireFound(store.get(id), 'deal_not_found')
}

/** Creates the operation that lists a deal's rows of a table. */
export function createDealListing<T extends {id: string; created_at: string}>(
  {store, database}: ServiceWorld,
  name: string,
  row: z.ZodType<T>,
) {
  return ({id, query}: {id: string; query: PageQuery}) => {
    requireDeal(store, id)
    return {body: readTablePage(query, {name, row, parent: {deal_id: id}}, database)}
  }
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
  const ways =
    allowed.length > 0 ? `may go to ${allowed.join(' or ')}, not to ${to}` : 'cannot change its status'
  throw refuse('invalid_transition', {detail: `A deal that is ${from} ${ways}.`})
}

/** The fields a deal still lacks for underwriting: amount, value and program. */
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
  const detail = `A deal that is ${deal.status} needs ${missing.join(' and ')}. Send what is missing, too.`
  throw refuse('incomplete_deal', {detail, errors: missing.map((path) => ({path, message: 'expected'}))})
}

/** Changes a deal and returns it. @throws Refusal (404, 409); the surrounding transaction rolls the change back */
export function changeDeal(store: DealStore, deal: StoredDeal, body: DealChanges): StoredDeal {
  const changed = requireFound(store.update(deal.id, changeOf(body)), 'deal_not_found')
  checkTransition(deal.status, changed.status)
  const isMoved = deal.status !== changed.status
  const isCleared = body.property_value === null || body.loan_program === null
  if (changed.status !== 'draft' && (isMoved || isCleared)) checkComplete(changed)
  return changed
}

/** The strong entity tag of an answer: equal only for equal bodies. */
export function etagOf(body: unknown): string {
  return `"${hash('sha256', JSON.stringify(body), 'base64url').slice(0, 22)}"`
}

/** Checks `If-Match` (RFC 9110, 13.1.1): `*`, or a list of strong tags. @throws Refusal (412) if the record has changed */
function checkIfMatch(ifMatch: string | undefined, body: unknown): void {
  if (ifMatch === undefined || ifMatch.trim() === '*') return
  const tags = ifMatch.split(',').map((tag) => tag.trim())
  if (!tags.includes(etagOf(body))) throw refuse('precondition_failed')
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
      if (deal.status === 'funded' || deal.status === 'paid_off') throw refuse('deal_funded')
      files.removeOfDeal(id)
      store.remove(id)
      emit({type: 'deal.deleted', data: {id, deal_id: id, status: deal.status}})
      return {body: undefined}
    },
  } satisfies Partial<Handlers>
}
