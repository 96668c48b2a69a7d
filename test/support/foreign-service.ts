import type {IncomingMessage} from 'node:http'
import {text} from 'node:stream/consumers'
import {createDealClient} from '../../src/client/client.ts'
import {sendJson, startTestServer} from '../source/test-server.ts'

export type Wire = Record<string, unknown>

interface Got {
  url: URL
  headers: IncomingMessage['headers']
  body: string
}

interface Answer {
  status?: number
  body: unknown
  headers?: Record<string, string>
}

export interface Dialect {
  /** The path of the list of deals. */
  deals: string
  /** The child lists: the last path segment here, and in the Deal Financing Service. */
  children: Record<string, string>
  /** The query parameter for the size of a page. */
  size: string
  /** Answers a request for a token; undefined for other requests. */
  token?: (got: Got) => Answer | undefined
  isAllowed: (got: Got) => boolean
  /** The index of a page's first record; `page` renders it and names the start of the next. */
  startOf: (url: URL) => number
  page: (records: Wire[], at: {url: URL; next: number | null}) => Answer
  own: (record: Wire) => unknown
  deal: (deal: Wire) => Wire
  child: (kind: string, record: Wire) => Wire
}

const MOST_ROWS = 1000

/** Serves the records of a Deal Financing Service in another dialect; disposing it stops it. */
export async function serveForeign(dialect: Dialect, {base, key}: {base: string; key: string}) {
  const client = createDealClient({baseUrl: base, apiKey: key, retries: 0})
  const readAll = (list: AsyncIterable<Wire>): Promise<Wire[]> => Array.fromAsync(list).catch(() => [])
  const asked: string[] = []
  let served = Number.POSITIVE_INFINITY

  async function answer(got: Got): Promise<Answer> {
    const {url} = got
    const token = dialect.token?.(got)
    if (token) return token
    served -= 1
    if (served < 0) return {status: 503, body: {}}
    asked.push(`${url.pathname}${url.search}`)
    if (!dialect.isAllowed(got)) return {status: 401, body: {}}
    if (!url.pathname.startsWith(dialect.deals)) return {status: 404, body: {}}
    const [id, child] = url.pathname.slice(dialect.deals.length + 1).split('/')
    if (id && child === undefined) {
      const own = await client.deals.get(id).catch(() => undefined)
      return own ? {body: dialect.own(dialect.deal(own))} : {status: 404, body: {}}
    }
    const ours = child === undefined ? '' : dialect.children[child]
    if (ours === undefined) return {status: 404, body: {}}
    const all = id
      ? (await readAll(client[ours as 'borrowers'].list(id))).map((one) => dialect.child(ours, one))
      : (await readAll(client.deals.list())).map(dialect.deal)
    const from = dialect.startOf(url)
    const to = from + Math.min(MOST_ROWS, Number(url.searchParams.get(dialect.size) ?? 7))
    return dialect.page(all.slice(from, to), {url, next: to < all.length ? to : null})
  }

  const server = await startTestServer(async ({incoming, headers}, response) => {
    const url = new URL(incoming.url ?? '/', 'http://here')
    const {body, ...given} = await answer({url, headers, body: await text(incoming)})
    sendJson(response, body, given)
  })
  return {
    origin: new URL(server.url).origin,
    asked,
    /** Serves this many more requests; the rest fail. */
    serveOnly(count: number): void {
      served = count
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
}
