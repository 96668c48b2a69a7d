import {realClock} from '../../src/core/clock.ts'
import type {DealChange, StoredDeal} from '../../src/service/deals.ts'
import {formatDeal, formatListedDeal} from '../../src/service/deals.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {sendJson, startTestServer} from '../source/test-server.ts'
import {startSpoiltService} from '../support/spoilt-service.ts'

/** A source whose deals can be changed while it is walked. */
export interface MovingSource extends AsyncDisposable {
  url: string
  /** All deals it has now. */
  all(): StoredDeal[]
  insert(deal: StoredDeal): void
  update(id: string, change: DealChange): void
  remove(id: string): void
  /** Called after an answer's content is fixed and before it is sent. */
  onAnswer: () => void
}

/** The key that clients of a moving source use. */
export const MOVING_KEY = 'sk_test_moving'

/** The local service: it pages by key, so no change shifts a page. */
export async function startKeysetSource(): Promise<MovingSource> {
  const service = await startSpoiltService({apiKeys: [MOVING_KEY], clock: realClock})
  const {store} = service
  const source: MovingSource = {
    url: service.url,
    all: () => store.list({limit: 1_000_000}),
    insert: (deal) => void store.insert([deal]),
    update: (id, change) => void store.update(id, change),
    remove: (id) => void store.remove(id),
    onAnswer: () => undefined,
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  }
  service.faults.add({
    fault: {
      kind: 'mutate',
      change(body) {
        source.onAnswer()
        return body
      },
    },
  })
  return source
}

/**
 * A source that pages by offset over an unordered list: new deals appear anywhere, a changed deal may move, and every insert and
 * delete shifts the pages after it, so a walk meets a deal twice or never.
 */
export async function startOffsetSource(random: Random): Promise<MovingSource> {
  const deals: StoredDeal[] = []
  const put = (deal: StoredDeal) => void deals.splice(random.integer(0, deals.length), 0, deal)
  const take = (id: string): StoredDeal | undefined => {
    const index = deals.findIndex((deal) => deal.id === id)
    return index === -1 ? undefined : deals.splice(index, 1)[0]
  }
  const server = await startTestServer(({path, query}, response) => {
    const id = /^\/v1\/deals\/(.+)$/.exec(path)?.[1]
    if (id !== undefined) {
      const deal = deals.find((one) => one.id === decodeURIComponent(id))
      const body = deal && {data: formatDeal(deal)}
      source.onAnswer()
      return sendJson(response, body ?? {title: 'There is no such deal.'}, {status: body ? 200 : 404})
    }
    const offset = Number(query.get('cursor') ?? 0)
    const end = offset + Number(query.get('limit'))
    const hasMore = deals.length > end
    const data = deals.slice(offset, end).map(formatListedDeal)
    source.onAnswer()
    return sendJson(response, {data, has_more: hasMore, next_cursor: hasMore ? String(end) : null})
  })
  const source: MovingSource = {
    url: server.url,
    all: () => [...deals],
    insert: put,
    update(id, change) {
      const index = deals.findIndex((deal) => deal.id === id)
      const before = deals[index]
      if (!before) return
      const set = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined))
      const deal: StoredDeal = {...before, ...set}
      if (random.chance(0.5)) deals[index] = deal
      else {
        take(id)
        put(deal)
      }
    },
    remove: (id) => void take(id),
    onAnswer: () => undefined,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
  return source
}
