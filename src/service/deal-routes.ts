import {randomBytes} from 'node:crypto'
import type {FastifyInstance} from 'fastify'
import type {Clock} from '../clock.ts'
import {DEAL_STATUSES, type Deal, type ListedDeal} from '../contract/deal.ts'
import type {ListBody} from '../contract/page.ts'
import {formatCents} from '../money.ts'
import {formatCursor, parseCursor} from './cursor.ts'
import {dealChangeSchema, formatDeal, formatListedDeal, listQuerySchema, newDealSchema} from './deal-wire.ts'
import {buildProblem, Refusal, refuseInvalid} from './problem-reply.ts'
import type {DealKey, DealStore, StatusTotal, StoredDeal} from './store.ts'

/** What `GET /reports/portfolio` returns in `data`: decimal strings, exact to the cent. */
interface PortfolioReport {
  deals: number
  amount: string
  by_status: {status: string; deals: number; amount: string}[]
}

const LIFECYCLE: readonly string[] = DEAL_STATUSES

interface ById {
  Params: {id: string}
}

function refuseUnknownDeal(): Refusal {
  return new Refusal(buildProblem({status: 404, code: 'deal_not_found', detail: 'There is no such deal.'}))
}

function listDeals(store: DealStore, query: unknown): ListBody<ListedDeal> {
  const parsed = listQuerySchema.safeParse(query)
  if (!parsed.success) throw refuseInvalid('invalid_parameter', parsed.error)
  const {limit, cursor, status} = parsed.data
  const after = cursor === undefined ? undefined : readPlace(store, cursor, status ?? null)
  const found = store.list({after, status, limit: limit + 1})
  const page = found.slice(0, limit)
  const last = page.at(-1)
  const hasMore = found.length > limit && last !== undefined
  return {
    data: page.map(formatListedDeal),
    has_more: hasMore,
    next_cursor: hasMore ? formatCursor({after: last, status: status ?? null}, store.cursorSecret) : null,
  }
}

function readPlace(store: DealStore, cursor: string, status: string | null): DealKey {
  const place = parseCursor(cursor, store.cursorSecret)
  if (place && place.status === status) return place.after
  const detail = place
    ? 'The cursor belongs to a list with another status filter. Start that list anew.'
    : 'The cursor was not issued by this service or was changed. Start the list anew.'
  throw new Refusal(buildProblem({status: 400, code: 'invalid_cursor', detail}))
}

function createDeal(store: DealStore, body: unknown, clock: Clock): StoredDeal {
  const parsed = newDealSchema.safeParse(body)
  if (!parsed.success) throw refuseInvalid('invalid_body', parsed.error)
  const id = `deal_${randomBytes(10).toString('hex')}`
  const deal = {...parsed.data, id, status: 'draft', createdAt: clock.now()}
  store.insert([deal])
  return deal
}

function changeDeal(store: DealStore, id: string, body: unknown): StoredDeal {
  const parsed = dealChangeSchema.safeParse(body)
  if (!parsed.success) throw refuseInvalid('invalid_body', parsed.error)
  const deal = store.update(id, parsed.data)
  if (!deal) throw refuseUnknownDeal()
  return deal
}

function stageOf(total: StatusTotal): number {
  const stage = LIFECYCLE.indexOf(total.status)
  return stage === -1 ? LIFECYCLE.length : stage
}

function reportPortfolio(store: DealStore): PortfolioReport {
  const totals = store.totals().sort((one, other) => stageOf(one) - stageOf(other))
  return {
    deals: totals.reduce((sum, total) => sum + total.deals, 0),
    amount: formatCents(totals.reduce((sum, total) => sum + total.amountCents, 0n)),
    by_status: totals.map(({status, deals, amountCents}) => ({
      status,
      deals,
      amount: formatCents(amountCents),
    })),
  }
}

/** Adds the endpoints of deals and reports. */
export function addDealRoutes(app: FastifyInstance, world: {store: DealStore; clock: Clock}): void {
  const {store, clock} = world

  app.get('/deals', (request): ListBody<ListedDeal> => listDeals(store, request.query))

  app.post('/deals', (request, reply): {data: Deal} => {
    const deal = createDeal(store, request.body, clock)
    reply.code(201).header('Location', `${app.prefix}/deals/${deal.id}`)
    return {data: formatDeal(deal)}
  })

  app.get<ById>('/deals/:id', (request): {data: Deal} => {
    const deal = store.get(request.params.id)
    if (!deal) throw refuseUnknownDeal()
    return {data: formatDeal(deal)}
  })

  app.patch<ById>('/deals/:id', (request): {data: Deal} => ({
    data: formatDeal(changeDeal(store, request.params.id, request.body)),
  }))

  app.delete<ById>('/deals/:id', (request, reply) => {
    if (!store.remove(request.params.id)) throw refuseUnknownDeal()
    return reply.code(204).send()
  })

  app.get('/reports/portfolio', (): {data: PortfolioReport} => ({data: reportPortfolio(store)}))
}
