import {hash} from 'node:crypto'
import {z} from 'zod'
import {borrowerSchema} from '../contract/borrower.ts'
import {DEAL_TRANSITIONS, type Deal, type DealChanges, type ListedDeal} from '../contract/deal.ts'
import type {PageQuery} from '../contract/list.ts'
import {type Task, taskSchema} from '../contract/other-records.ts'
import {parseInstant} from '../core/clock.ts'
import {formatCents, parseCents} from '../core/money.ts'
import {
  type Handlers,
  PREFIX,
  readListPage,
  readTablePage,
  refuse,
  requireFound,
  type ServiceWorld,
} from './requests.ts'
import {createId, FIRST, type ListKey, rowInstant, type ServiceDatabase} from './service-database.ts'

/** A column of cents: at most 7e15, as the contract allows, which a number holds exactly. */
const rowCents = z.number().transform(BigInt)

/** A stored deal. Amounts are cents, `createdAt` ms since the epoch. */
export type StoredDeal = z.output<typeof dealRow>

const dealRow = z.object({
  id: z.string(),
  propertyAddress: z.string(),
  loanAmountCents: rowCents,
  propertyValueCents: rowCents.nullable(),
  loanProgram: z.string().nullable(),
  status: z.string(),
  createdAt: z.number(),
})

/** The fields of a deal that may change; `undefined` leaves a field as it is. */
type DealChange = {
  [Field in Exclude<keyof StoredDeal, 'id' | 'createdAt'>]?: StoredDeal[Field] | undefined
}

/** Deals and their amount (cents), per status. */
const totalRow = z.object({
  status: z.string(),
  deals: z.number(),
  // Text: a sum can be larger than a number holds exactly.
  amountCents: z.string().transform(BigInt),
})

const SELECT = `
  select id, property_address as propertyAddress, loan_amount_cents as loanAmountCents,
    property_value_cents as propertyValueCents, loan_program as loanProgram, status, created_at as createdAt
  from deal`

const columnsOf = (deal: StoredDeal) => ({
  property_address: deal.propertyAddress,
  loan_amount_cents: deal.loanAmountCents,
  property_value_cents: deal.propertyValueCents,
  loan_program: deal.loanProgram,
  status: deal.status,
})

const PAGE = '(created_at, id) > (?, ?) order by created_at, id limit ?'

/** The service's deals in SQLite. */
export type DealStore = ReturnType<typeof createDealStore>

/** Creates the store of deals over the service's database. */
export function createDealStore(database: ServiceDatabase) {
  const get = (id: string): StoredDeal | undefined => database.first(dealRow, `${SELECT} where id = ?`, [id])
  return {
    get,
    transaction: <T>(work: () => T): T => database.transaction(work),
    /** Inserts all or none of the deals. */
    insert: (deals: Iterable<StoredDeal>): void =>
      database.transaction(() => {
        for (const deal of deals)
          database.insert('deal', {id: deal.id, created_at: deal.createdAt, ...columnsOf(deal)})
      }),
    /** At most `limit` deals after `after`, in list order. */
    list({after = FIRST, status, limit}: {after?: ListKey; status?: string | undefined; limit: number}) {
      const page = [after.createdAt, after.id, limit]
      return status === undefined
        ? database.all(dealRow, `${SELECT} where ${PAGE}`, page)
        : database.all(dealRow, `${SELECT} where status = ? and ${PAGE}`, [status, ...page])
    },
    /** The ids of all deals, or of those in this status, in list order. */
    ids: (status?: string): string[] =>
      status === undefined
        ? database.column(z.string(), 'select id from deal order by created_at, id')
        : database.column(z.string(), 'select id from deal where status = ? order by created_at, id', [
            status,
          ]),
    /** Changes a deal and returns it; undefined if there is none. */
    update(id: string, change: DealChange): StoredDeal | undefined {
      const found = get(id)
      if (!found) return undefined
      const set = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined))
      const deal: StoredDeal = {...found, ...set}
      database.update('deal', {id}, columnsOf(deal))
      return deal
    },
    /** Whether there was such a deal. */
    remove: (id: string): boolean => database.run('delete from deal where id = ?', [id]).changes > 0,
    count: (): number =>
      database.first(z.object({deals: z.number()}), 'select count(*) as deals from deal')?.deals ?? 0,
    /** The statuses that occur, alphabetically. */
    totals: () =>
      database.all(
        totalRow,
        `select status, count(*) as deals, cast(sum(loan_amount_cents) as text) as amountCents
         from deal group by status order by status`,
      ),
  }
}

/** The deal with this id. @throws Refusal (404) */
export function requireDeal(store: DealStore, id: string): StoredDeal {
  return requireFound(store.get(id), 'deal_not_found')
}

/** Creates the operation that lists a deal's rows of a table. */
export function createDealListing<T extends {id: string; created_at: string}>(
  {database}: ServiceWorld,
  name: string,
  row: z.ZodType<T>,
) {
  return ({id, query}: {id: string; query: PageQuery}) => ({
    body: readTablePage(query, {name, row, parent: {deal_id: id}}, database),
  })
}

/** A row of `GET /deals`: amounts as JSON numbers with cents. */
function formatListedDeal(deal: StoredDeal): ListedDeal {
  return {
    id: deal.id,
    property_address: deal.propertyAddress,
    loan_amount: Number(deal.loanAmountCents) / 100,
    status: deal.status,
    created_at: new Date(deal.createdAt).toISOString(),
  }
}

/** One whole deal on the wire. */
function formatDeal(deal: StoredDeal): Deal {
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

const STAGES = Object.keys(DEAL_TRANSITIONS)

/** Where a status is in the life of a deal; one that is not known comes last. */
const stageOf = ({status}: {status: string}): number => STAGES.indexOf(status) + 1 || STAGES.length + 1

/** What operations on deals work on. */
export interface DealWorld extends ServiceWorld {
  store: DealStore
  files: {removeOfDeal(dealId: string): void}
}

/** Creates the operations on deals, borrowers, tasks and rates. */
export function createDealHandlers(world: DealWorld) {
  const {store, database, files, clock, emit} = world
  return {
    ...createRecordHandlers(world),
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
    getPortfolioReport: () => {
      const totals = store.totals().sort((one, other) => stageOf(one) - stageOf(other))
      const data = {
        deals: totals.reduce((sum, {deals}) => sum + deals, 0),
        amount: formatCents(totals.reduce((sum, {amountCents}) => sum + amountCents, 0n)),
        by_status: totals.map(({amountCents, ...total}) => ({...total, amount: formatCents(amountCents)})),
      }
      return {body: {data}}
    },
  } satisfies Partial<Handlers>
}

const borrowerRow = borrowerSchema.extend({
  has_ssn_last_four: z.number().transform(Boolean),
  created_at: rowInstant,
})

const taskRow = taskSchema.extend({
  created_at: rowInstant,
  completed_at: rowInstant.nullable(),
})

function requireTask(database: ServiceDatabase, id: string): Task {
  return requireFound(database.first(taskRow, 'select * from task where id = ?', [id]), 'task_not_found')
}

const rateRow = z
  .object({
    id: z.string(),
    provider: z.string(),
    loan_program: z.string(),
    rate_pct_e4: z.number(),
    effective_at: rowInstant,
    created_at: rowInstant,
  })
  .transform(({rate_pct_e4, ...rate}) => ({...rate, rate_pct: rate_pct_e4 / 10_000}))

// In force: the latest rate in effect; of two with the same instant, the one received last.
const SELECT_PAGE = `
  select * from rate
  where provider = coalesce(?1, provider)
    and loan_program = coalesce(?2, loan_program)
    and (?3 is null or id = (
      select latest.id from rate as latest
      where latest.provider = rate.provider
        and latest.loan_program = rate.loan_program
        and latest.effective_at <= ?3
      order by latest.effective_at desc, latest.created_at desc, latest.id desc
      limit 1
    ))
    and (created_at, id) > (?4, ?5)
  order by created_at, id
  limit ?6`

/** Creates the operations on borrowers, tasks and rates. */
function createRecordHandlers(world: ServiceWorld) {
  const {database, clock, emit} = world
  return {
    // The digits of the national id are checked and dropped.
    linkBorrower: ({id: deal_id, body: {ssn_last_four, ...given}}) => {
      const has_ssn_last_four = Number(ssn_last_four !== undefined)
      const row = {id: createId('bor'), deal_id, ...given, has_ssn_last_four, created_at: clock.now()}
      return {body: {data: database.create(borrowerRow, 'borrower', row)}}
    },
    listBorrowers: createDealListing(world, 'borrower', borrowerRow),
    createTask: ({id: deal_id, body: {title, due_on = null}}) => {
      const row = {id: createId('task'), deal_id, title, due_on, status: 'open', created_at: clock.now()}
      return {body: {data: database.create(taskRow, 'task', row)}}
    },
    listTasks: createDealListing(world, 'task', taskRow),
    completeTask: ({id}) => {
      const {deal_id} = requireTask(database, id)
      const completed = database.run(
        "update task set status = 'completed', completed_at = ? where id = ? and status = 'open'",
        [clock.now(), id],
      )
      if (completed.changes > 0) emit({type: 'task.completed', data: {id, deal_id, status: 'completed'}})
      return {body: {data: requireTask(database, id)}}
    },
    pushRate: ({body: {provider, loan_program, rate_pct, effective_at}}) => {
      const created_at = clock.now()
      const given = effective_at === undefined ? null : parseInstant(effective_at)
      const data = database.create(rateRow, 'rate', {
        id: createId('rate'),
        provider,
        loan_program,
        rate_pct_e4: Math.round(rate_pct * 10_000),
        effective_at: given === null ? created_at : Number(given / 1000n),
        created_at,
      })
      return {body: {data}}
    },
    listRates: ({query}) => {
      const {provider = null, loan_program = null, current = false} = query
      const now = current ? clock.now() : null
      const fetch = ({createdAt, id}: ListKey, limit: number) =>
        database.all(rateRow, SELECT_PAGE, [provider, loan_program, now, createdAt, id, limit])
      const filter = JSON.stringify([provider, loan_program, current])
      return {body: readListPage(query, {name: 'rates', filter, fetch}, database.secret)}
    },
  } satisfies Partial<Handlers>
}
