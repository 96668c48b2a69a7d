import {z} from 'zod'
import {borrowerSchema} from '../contract/borrower.ts'
import {DEAL_STATUSES} from '../contract/deal.ts'
import {type Task, taskSchema} from '../contract/other-records.ts'
import {parseInstant} from '../core/clock.ts'
import {formatCents} from '../core/money.ts'
import type {StatusTotal} from './deal-store.ts'
import {createDealListing, requireDeal} from './deals.ts'
import {requireFound} from './refusal.ts'
import {type Handlers, readListPage, type ServiceWorld} from './requests.ts'
import {createId, type ListKey, rowInstant, type ServiceDatabase} from './service-database.ts'

const borrowerRow = borrowerSchema.extend({
  has_ssn_last_four: z.bigint().transform((flag) => flag === 1n),
  created_at: rowInstant,
})

/** Creates the operations on borrowers; the digits of the national id are checked and dropped. */
export function createBorrowerHandlers(world: ServiceWorld) {
  const {store, database, clock} = world
  return {
    linkBorrower: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const {ssn_last_four, ...given} = body
      const id = createId('bor')
      const has_ssn_last_four = ssn_last_four !== undefined
      const now = clock.now()
      database.insert('borrower', {
        id,
        deal_id: dealId,
        ...given,
        has_ssn_last_four: Number(has_ssn_last_four),
        created_at: now,
      })
      const created_at = new Date(now).toISOString()
      return {body: {data: {id, deal_id: dealId, ...given, has_ssn_last_four, created_at}}}
    },
    listBorrowers: createDealListing(world, 'borrower', borrowerRow),
  } satisfies Partial<Handlers>
}

const taskRow = taskSchema.extend({
  created_at: rowInstant,
  completed_at: rowInstant.nullable(),
})

function requireTask(database: ServiceDatabase, id: string): Task {
  return requireFound(database.get(taskRow, 'select * from task where id = ?', id), 'task_not_found')
}

/** Creates the operations on tasks. */
export function createTaskHandlers(world: ServiceWorld) {
  const {store, database, clock, emit} = world
  return {
    createTask: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const id = createId('task')
      const {title, due_on = null} = body
      database.insert('task', {id, deal_id: dealId, title, due_on, status: 'open', created_at: clock.now()})
      return {body: {data: requireTask(database, id)}}
    },
    listTasks: createDealListing(world, 'task', taskRow),
    completeTask: ({id}) => {
      const {deal_id} = requireTask(database, id)
      const completed = database.run(
        "update task set status = 'completed', completed_at = ? where id = ? and status = 'open'",
        clock.now(),
        id,
      )
      if (completed > 0) emit({type: 'task.completed', data: {id, deal_id, status: 'completed'}})
      return {body: {data: requireTask(database, id)}}
    },
  } satisfies Partial<Handlers>
}

const LIFECYCLE: readonly string[] = DEAL_STATUSES

function stageOf({status}: StatusTotal): number {
  const stage = LIFECYCLE.indexOf(status)
  return stage === -1 ? LIFECYCLE.length : stage
}

/** Creates the reports. */
export function createReportHandlers({store}: ServiceWorld) {
  return {
    getPortfolioReport: () => {
      const totals = store.totals().sort((one, other) => stageOf(one) - stageOf(other))
      const data = {
        deals: totals.reduce((sum, total) => sum + total.deals, 0),
        amount: formatCents(totals.reduce((sum, total) => sum + total.amountCents, 0n)),
        by_status: totals.map(({status, deals, amountCents}) => ({
          status,
          deals,
          amount: formatCents(amountCents),
        })),
      }
      return {body: {data}}
    },
  } satisfies Partial<Handlers>
}

const rateRow = z
  .object({
    id: z.string(),
    provider: z.string(),
    loan_program: z.string(),
    rate_pct_e4: z.bigint(),
    effective_at: rowInstant,
    created_at: rowInstant,
  })
  .transform(({rate_pct_e4, ...rate}) => ({...rate, rate_pct: Number(rate_pct_e4) / 10_000}))

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

/** Creates the operations on rates: providers push, all callers read the history or the rates in force. */
export function createRateHandlers(world: ServiceWorld) {
  const {database, clock} = world
  return {
    pushRate: ({body}) => {
      const createdAt = clock.now()
      const given = body.effective_at === undefined ? null : parseInstant(body.effective_at)
      const effectiveAt = given === null ? createdAt : Number(given / 1000n)
      const {provider, loan_program, rate_pct} = body
      const named = {id: createId('rate'), provider, loan_program}
      database.insert('rate', {
        ...named,
        rate_pct_e4: Math.round(rate_pct * 10_000),
        effective_at: effectiveAt,
        created_at: createdAt,
      })
      const effective_at = new Date(effectiveAt).toISOString()
      return {body: {data: {...named, rate_pct, effective_at, created_at: new Date(createdAt).toISOString()}}}
    },
    listRates: ({query}) => {
      const {provider = null, loan_program = null, current = false} = query
      const now = current ? clock.now() : null
      const fetch = ({createdAt, id}: ListKey, limit: number) =>
        database.all(rateRow, SELECT_PAGE, provider, loan_program, now, createdAt, id, limit)
      const filter = JSON.stringify([provider, loan_program, current])
      return {body: readListPage(query, {name: 'rates', filter, fetch}, database.secret)}
    },
  } satisfies Partial<Handlers>
}
