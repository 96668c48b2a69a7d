import {hash} from 'node:crypto'
import type {SQLInputValue} from 'node:sqlite'
import {z} from 'zod'
import {borrowerSchema} from '../contract/borrower.ts'
import {
  DEAL_TRANSITIONS,
  type Deal,
  type DealChanges,
  dealRecordSchema,
  isPastFunding,
} from '../contract/deal.ts'
import {type Rate, rateSchema, taskSchema} from '../contract/other-records.ts'
import {parseInstant} from '../core/clock.ts'
import {centsOf, formatCents} from '../core/money.ts'
import {refuse} from './refusal.ts'
import type {Handlers, ServiceWorld} from './requests.ts'
import {createId, FIRST, givenOf, type Kind, kindOf, type ServiceDatabase} from './service-database.ts'

/** A column of cents. The contract allows at most 7e15, which a number holds exactly. */
const rowCents = z.number().transform(BigInt)

/** Amounts are cents, `created_at` is ms since the epoch. */
export type StoredDeal = z.output<typeof storedDeal>
const storedDeal = z.object({
  id: z.string(),
  property_address: z.string(),
  loan_amount_cents: rowCents,
  property_value_cents: rowCents.nullable(),
  loan_program: z.string().nullable(),
  status: z.string(),
  created_at: z.number(),
})

const STORED: Kind<StoredDeal> = {table: 'deal', row: storedDeal}
const IDS = {table: 'deal', row: z.object({id: z.string()})}

/** Access to the deals in SQLite, without HTTP. */
export type DealStore = ReturnType<typeof createDealStore>

export function createDealStore(database: ServiceDatabase) {
  return {
    get: (id: string): StoredDeal | undefined =>
      database.first(storedDeal, 'select * from deal where id = ?', [id]),
    transaction: <T>(work: () => T): T => database.transaction(work),
    fill: (work: () => void): void => database.fill(work),
    insert: (deals: Iterable<StoredDeal>): void =>
      database.transaction(() => {
        for (const deal of deals) database.insert('deal', deal)
      }),
    /** At most `limit` deals, in list order. */
    list: ({status, limit}: {status?: string; limit: number}): StoredDeal[] =>
      database.list(STORED, {after: FIRST, limit}, {status}),
    ids: (status?: string): string[] =>
      database.list(IDS, {after: FIRST, limit: -1}, {status}).map(({id}) => id),
    update: (id: string, change: Partial<StoredDeal>) => database.update('deal', {id}, givenOf(change)),
    remove: (id: string) => database.run('delete from deal where id = ?', [id]),
    count: (): number => database.column(z.number(), 'select count(*) from deal')[0] ?? 0,
  }
}

/** Deals as their own pages show them. */
export const DEALS = kindOf('deal_record', dealRecordSchema, 'deal_not_found')

const LISTED: Kind<Deal> = {...DEALS, json: 'listed'}

function changeOf({loan_amount, property_value, ...texts}: DealChanges): Record<string, SQLInputValue> {
  const cents = (amount: number | null | undefined) =>
    typeof amount === 'number' ? centsOf(amount.toFixed(2)) : amount
  const amounts = {loan_amount_cents: cents(loan_amount), property_value_cents: cents(property_value)}
  return givenOf({...texts, ...amounts})
}

function checkTransition(from: string, to: string): void {
  const allowed = Object.entries(DEAL_TRANSITIONS).find(([status]) => status === from)?.[1]
  if (from === to || allowed === undefined || allowed.some((status) => status === to)) return
  const ways =
    allowed.length > 0 ? `may go to ${allowed.join(' or ')}, not to ${to}` : 'cannot change its status'
  throw refuse('invalid_transition', {detail: `A deal that is ${from} ${ways}.`})
}

/** From underwriting on, all three are required; a change within a status must not remove any. @throws Refusal (409) */
function checkComplete(before: Deal, deal: Deal): void {
  if (deal.status === 'draft') return
  const isMoved = before.status !== deal.status
  const missing = (['loan_amount', 'property_value', 'loan_program'] as const).filter(
    (field) => !deal[field] && (isMoved || before[field]),
  )
  if (missing.length === 0) return
  const advice = isMoved ? 'Send what is missing, too.' : 'It cannot be cleared.'
  const detail = `A deal that is ${deal.status} needs ${missing.join(' and ')}. ${advice}`
  throw refuse('incomplete_deal', {detail, errors: missing.map((path) => ({path, message: 'expected'}))})
}

/** A strong entity tag: equal only for equal bodies. */
export function etagOf(record: unknown): string {
  return `"${hash('sha256', JSON.stringify({data: record}), 'base64url').slice(0, 22)}"`
}

/** RFC 9110, 13.1.1: `*`, or a list of strong tags. @throws Refusal (412) if the record has changed */
function checkIfMatch(ifMatch: string | undefined, record: Deal): void {
  if (ifMatch === undefined || ifMatch.trim() === '*') return
  const tags = ifMatch.split(',').map((tag) => tag.trim())
  if (!tags.includes(etagOf(record))) throw refuse('precondition_failed')
}

// Unknown statuses come last.
const SELECT_TOTALS = `
  select status, deals, high, low
  from deal_total
  left join json_each(?) as stage on stage.value = status
  where deals > 0
  order by stage.key is null, stage.key, status`

const totalRow = z
  .object({status: z.string(), deals: z.number(), high: rowCents, low: rowCents})
  .transform(({high, low, ...counted}) => ({...counted, amount: high * 100_000_000n + low}))

export function createDealHandlers({database, clock, emit}: ServiceWorld) {
  return {
    listDeals: ({query: {status}, page}) => database.page(LISTED, page, {status}),
    createDeal: ({body}) => {
      const id = createId('deal')
      database.insert('deal', {id, status: 'draft', created_at: clock.now(), ...changeOf(body)})
      emit({type: 'deal.created', data: {id, deal_id: id, status: 'draft'}})
      return database.record(DEALS, {id})
    },
    getDeal: ({id}) => database.record(DEALS, {id}),
    updateDeal: ({id, body, ifMatch}) => {
      const before = database.record(DEALS, {id})
      checkIfMatch(ifMatch, before)
      database.update('deal', {id}, changeOf(body))
      const after = database.record(DEALS, {id})
      checkTransition(before.status, after.status)
      checkComplete(before, after)
      if (etagOf(after) !== etagOf(before))
        emit({type: 'deal.updated', data: {id, deal_id: id, status: after.status}})
      return after
    },
    deleteDeal: ({id, ifMatch}) => {
      const deal = database.record(DEALS, {id})
      checkIfMatch(ifMatch, deal)
      if (isPastFunding(deal.status)) throw refuse('deal_funded')
      database.run('delete from deal where id = ?', [id])
      emit({type: 'deal.deleted', data: {id, deal_id: id, status: deal.status}})
    },
    getPortfolioReport: () => {
      const totals = database.all(totalRow, SELECT_TOTALS, [JSON.stringify(Object.keys(DEAL_TRANSITIONS))])
      return {
        deals: totals.reduce((sum, {deals}) => sum + deals, 0),
        amount: formatCents(totals.reduce((sum, {amount}) => sum + amount, 0n)),
        by_status: totals.map((total) => ({...total, amount: formatCents(total.amount)})),
      }
    },
  } satisfies Partial<Handlers>
}

const BORROWERS = kindOf('borrower', borrowerSchema)
const TASKS = kindOf('task', taskSchema, 'task_not_found')
const RATES = kindOf('rate_record', rateSchema)

// In force: the latest rate in effect; of two with the same instant, the one received last.
const RATES_IN_FORCE: Kind<Rate> = {
  ...RATES,
  table: `(
    select * from rate_record
    where id = (
      select latest.id from rate as latest
      where latest.provider = rate_record.provider
        and latest.loan_program = rate_record.loan_program
        and latest.effective_at <= ?1
        and latest.created_at <= ?1
      order by latest.effective_at desc, latest.created_at desc, latest.id desc
      limit 1
    )
  )`,
}

export function createRecordHandlers({database, clock, emit}: ServiceWorld) {
  return {
    // The digits of the national id are validated and dropped.
    linkBorrower: ({id: deal_id, body: {ssn_last_four, ...given}}) => {
      const has_ssn_last_four = Number(ssn_last_four !== undefined)
      const row = {id: createId('bor'), deal_id, ...given, has_ssn_last_four, created_at: clock.now()}
      return database.create(BORROWERS, row)
    },
    listBorrowers: ({id, page}) => database.page(BORROWERS, page, {deal_id: id}),
    createTask: ({id: deal_id, body: {title, due_on = null}}) => {
      const row = {id: createId('task'), deal_id, title, due_on, status: 'open', created_at: clock.now()}
      return database.create(TASKS, row)
    },
    listTasks: ({id, page}) => database.page(TASKS, page, {deal_id: id}),
    completeTask: ({id}) => {
      const {deal_id, status} = database.record(TASKS, {id})
      if (status === 'open') {
        database.update('task', {id}, {status: 'completed', completed_at: clock.now()})
        emit({type: 'task.completed', data: {id, deal_id, status: 'completed'}})
      }
      return database.record(TASKS, {id})
    },
    pushRate: ({body: {rate_pct, effective_at, ...given}}) => {
      const created_at = clock.now()
      const effective = effective_at === undefined ? null : parseInstant(effective_at)
      const id = createId('rate')
      database.insert('rate', {
        id,
        ...given,
        rate_pct_e4: Math.round(rate_pct * 10_000),
        effective_at: effective === null ? created_at : Number(effective / 1000n),
        created_at,
      })
      return database.one(RATES.row, 'select * from rate_record where id = ?', [id])
    },
    listRates: ({query: {provider, loan_program, current}, page}) => {
      if (!current) return database.page(RATES, page, {provider, loan_program})
      const {at = clock.now()} = page.after
      const {records, next} = database.page(RATES_IN_FORCE, page, {provider, loan_program}, [at])
      return {records, next: next && {...next, at}}
    },
  } satisfies Partial<Handlers>
}
