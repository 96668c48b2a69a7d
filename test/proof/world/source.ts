import type {ServerResponse} from 'node:http'
import {setImmediate} from 'node:timers/promises'
import type {Random} from '../../../src/service/portfolio.ts'
import {sendJson, startTestServer} from '../../source/test-server.ts'
import type {Change, Deal, Fault} from './story.ts'

export type WireRecord = Record<string, unknown>

export type Answer = {
  /** The business clock when the request came, ms since the epoch. */
  at: number
} & (
  | {page: {cursor: string | null; next: string | null; records: WireRecord[]}}
  | {own: {id: string; status: number; record?: WireRecord}}
)

export type Source = Awaited<ReturnType<typeof startSource>>

export interface SourceClock {
  now(): number
  afterPage(page: number): void
}

const REPLACED = {property_address: '1 Test St, Austin, TX 78701'}
const REPLACED_MORE = {property_value: 1_000_000, loan_program: 'test'}

/** An unreadable amount; once the schema is fixed it reads as {@link READABLE}. */
export const UNREADABLE = 'about a million'
export const READABLE = '1000000.00'

/** Pages after which the source hangs up; a run gets there only if a list is endless. */
const MOST_PAGES = 300

/**
 * Starts a source without deals. It pages by key, in the order of ids. With `shifting`, it pages by offset over a list in which
 * new deals appear anywhere and changed ones may move, so that a walk may meet a deal twice or never.
 */
export async function startSource(shifting?: Random) {
  const deals = new Map<string, Deal>()
  let order: string[] = []
  /** The deals when the previous run began, as a lagging replica shows them. */
  let before = new Map<string, Deal>()
  let atLastRun = new Map<string, Deal>()
  let faults: readonly Fault[] = []
  let clock: SourceClock = {now: () => 0, afterPage: () => undefined}
  let page = 0
  let fresh = 0
  const attempts = new Map<Fault, number>()
  const find = <Kind extends Fault['is']>(...kinds: Kind[]) =>
    faults.filter((fault): fault is Fault & {is: Kind} => kinds.some((kind) => kind === fault.is))

  function show(id: string, deal: Deal, isListed: boolean): WireRecord {
    const {property_value, loan_program, ...listed} = deal
    const shown: WireRecord = {id, ...(isListed ? listed : deal)}
    for (const {status} of find('mass')) shown.status = status
    if (find('replaced').length > 0)
      Object.assign(shown, isListed ? REPLACED : {...REPLACED, ...REPLACED_MORE})
    for (const {how} of find('spelling')) shown.status = spell(deal.status, how)
    for (const {ids} of find('unreadable')) if (ids.includes(id)) shown.loan_amount = UNREADABLE
    // Not part of the contract: it changes by itself, and on some days no column can hold it.
    const week = Math.floor(clock.now() / 86_400_000 + Number.parseInt(id.slice(5), 10) / 7) % 7
    shown.terms = {note_rate: week === 0 ? 'none' : week / 100}
    return shown
  }

  function listPage(cursor: string | null, limit: number) {
    if (shifting) {
      const [from, to] = [Number(cursor ?? 0), Number(cursor ?? 0) + limit]
      const records = order.slice(from, to).map((id) => show(id, deals.get(id)!, true))
      return {records, next: to < order.length ? String(to) : null}
    }
    const isStale = find('stale').some((fault) => fault.page === page)
    const [after = '', loop] = (cursor ?? '').split('~')
    const known = [...(isStale ? before : deals)].sort(([a], [b]) => (a < b ? -1 : 1))
    const rest = known.filter(([id]) => `c${id}` > after)
    const records = rest.slice(0, limit).map(([id, deal]) => show(id, deal, true))
    const lastId = rest[limit - 1]?.[0]
    let next = rest.length > limit && lastId !== undefined ? `c${lastId}` : null
    const loops = find('stuck', 'endless')
    if (loops.some((fault) => loop !== undefined || fault.page === page)) {
      fresh += 1
      next = find('stuck').length > 0 ? `${after}~stuck` : `${after}~${fresh}`
    }
    return {records, next}
  }

  function answerOwn(id: string, at: number, response: ServerResponse): void {
    const isFailing = find('page fails').some(({ids}) => ids.includes(id))
    if (isFailing) sendJson(response, {}, {status: 500})
    if (isFailing) return
    const isHidden = find('no pages').length > 0 || find('no page').some(({ids}) => ids.includes(id))
    const deal = isHidden ? undefined : deals.get(id)
    const record = deal && show(id, deal, false)
    source.onAnswer({at, own: {id, status: record ? 200 : 404, ...(record && {record})}})
    if (record) sendJson(response, {data: record})
    else sendJson(response, {title: 'There is no such deal.'}, {status: 404})
  }

  /** Fails a request if a fault says so. @returns whether it did */
  async function failOn(response: ServerResponse): Promise<boolean> {
    if (find('bytes').some((fault) => fault.page === page + 1)) {
      response.writeHead(200, {'content-type': 'application/json'})
      response.end(Buffer.from('{"data": [{"id": "deal_\u00e9"}], "has_more": false}', 'latin1'))
      return true
    }
    const fault = find('500', '429', 'reset', 'truncated', 'silent').find(
      (one) => one.page === page + 1 && (attempts.get(one) ?? 0) < one.times,
    )
    if (!fault) return false
    attempts.set(fault, (attempts.get(fault) ?? 0) + 1)
    if (fault.is === '500') sendJson(response, {title: 'Oh'}, {status: 500})
    else if (fault.is === 'silent') return true
    else if (fault.is === '429') sendJson(response, {}, {status: 429, headers: {'retry-after': '7'}})
    else {
      if (fault.is === 'truncated') {
        response.writeHead(200, {'content-type': 'application/json', 'content-length': '5000'})
        response.write('{"data": [{"id": "de')
        await setImmediate()
      }
      response.destroy()
    }
    return true
  }

  const server = await startTestServer(async ({path, query}, response) => {
    const at = clock.now()
    const id = /^\/v1\/deals\/(.+)$/.exec(path)?.[1]
    if (id !== undefined) return answerOwn(decodeURIComponent(id), at, response)
    if (page === MOST_PAGES) return void response.destroy()
    if (await failOn(response)) return
    page += 1
    await source.meanwhile(page)
    const cursor = query.get('cursor')
    const {records, next} = listPage(cursor, Number(query.get('limit')))
    for (const fault of find('moving'))
      if (fault.page === page) for (const change of fault.changes) source.change(change)
    source.onAnswer({at, page: {cursor, next, records}})
    clock.afterPage(page)
    sendJson(response, {data: records, has_more: next !== null, next_cursor: next})
  })
  const source = {
    url: server.url,
    deals: deals as ReadonlyMap<string, Deal>,
    change(change: Change) {
      const known = deals.get(change.id)
      if (shifting && (change.do !== 'set' || shifting.chance(0.5))) {
        order = order.filter((id) => id !== change.id)
        if (change.do !== 'remove') order.splice(shifting.integer(0, order.length), 0, change.id)
      }
      if (change.do === 'remove') deals.delete(change.id)
      else if (change.do === 'put') deals.set(change.id, change.deal)
      else if (known) deals.set(change.id, {...known, ...change.fields})
    },
    begin(next: readonly Fault[], world: SourceClock) {
      faults = next
      clock = world
      page = 0
      attempts.clear()
      before = atLastRun
      atLastRun = new Map(deals)
    },
    onAnswer: (_: Answer): void => undefined,
    meanwhile: async (_: number): Promise<void> => undefined,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
  return source
}

function spell(status: string, how: 'title' | 'upper' | 'padded'): string {
  if (how === 'upper') return status.toUpperCase()
  if (how === 'padded') return ` ${status} `
  return status.slice(0, 1).toUpperCase() + status.slice(1)
}
