import {hash, timingSafeEqual} from 'node:crypto'
import type {FastifyInstance, FastifyRequest} from 'fastify'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {refuse, wantsPage} from './refusal.ts'

const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost'])

/** Where nobody has to show the token: probes say nothing, and webhooks bring their own signature. */
const OPEN_PATHS = new Set(['/healthz', '/readyz', '/webhooks/deals'])

/** Whether nobody is asked for a token there. */
export const isOpenPath = ({url}: FastifyRequest) => OPEN_PATHS.has(url.split('?')[0] ?? '')

type Tokens = Pick<Config, 'webToken' | 'webViewerToken' | 'viewerTables'>

/** Routes that are for operators alone: records as they were received, and what may build a release. */
const FOR_OPERATORS = new Set<string | undefined>(['/deals/:id/received', '/quarantine/:id', '/books/:id'])

/** Routes that are left to viewers who can read some tables alone: every other reads whatever it needs. */
const OF_TABLES = new Set<string | undefined>([
  '/tables',
  '/tables/:id',
  '/sql',
  '/pages',
  '/pages/:id',
  '/data/:id',
  '/runs/live',
  '/metrics',
])

/**
 * Refuses to serve strangers: every address but a loopback one needs a token, and so does telling viewers from operators.
 *
 * @throws ConfigError `WEB_TOKEN_MISSING`
 */
export function requireSafeAddress({webHost, webToken, webViewerToken}: Tokens & {webHost: string}): void {
  if (webToken !== undefined) return
  if (webViewerToken !== undefined) {
    throw newError(
      'WEB_TOKEN_MISSING',
      'LOANTAPE_WEB_VIEWER_TOKEN is set, and LOANTAPE_WEB_TOKEN is not: without it nobody is asked for one.',
    )
  }
  if (LOOPBACK.has(webHost)) return
  throw newError(
    'WEB_TOKEN_MISSING',
    `Address '${webHost}' in LOANTAPE_WEB_HOST can be reached from other machines, and LOANTAPE_WEB_TOKEN is not set.`,
  )
}

/** Of every answer. */
export const SECURITY_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // With `no-referrer` a browser would not say of a form where it comes from.
  'referrer-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  // A page that opens ours in a window could count its frames and watch where it goes.
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
}

/**
 * Puts the security headers on every answer, refuses what other sites ask, and asks for a token where one is set. What changes
 * something is for operators, and taken from our own pages alone.
 */
export function guardAccess(server: FastifyInstance, tokens: Tokens): void {
  const {webToken, webViewerToken, viewerTables} = tokens
  server.addHook('onRequest', async (request, reply) => {
    reply.headers(SECURITY_HEADERS)
    const isProbe = isOpenPath(request)
    const isAction = !isProbe && !['GET', 'HEAD'].includes(request.method)
    const asks = askerOf(request)
    if (asks === 'elsewhere' && !isVisit(request))
      return refuse(request, reply, 403, {
        title: 'Not for other sites',
        problem: 'Refused: a page of another site asked for this.',
        next: 'Open the workbench itself.',
      })
    if (isProbe) return
    if (isAction && asks !== 'ours')
      return refuse(request, reply, 403, {
        title: 'Not done',
        problem: 'Not done: expected a form of this server.',
        next: 'Open the page here, and use its form.',
      })
    if (webToken === undefined) {
      // Without a token a page of another site must not reach us under a name that resolves to this machine.
      if (LOOPBACK.has(hostOf(request))) return
      return refuse(request, reply, 403, {
        title: 'Host not allowed',
        problem:
          'Host not allowed: without LOANTAPE_WEB_TOKEN the server answers only by the names of this machine.',
        next: 'Open it as http://127.0.0.1, or set LOANTAPE_WEB_TOKEN.',
      })
    }
    if (isOperator(request, tokens)) return
    if (webViewerToken === undefined || !isSame(readToken(request), webViewerToken)) {
      reply.header('www-authenticate', 'Basic realm="loantape", charset="UTF-8"')
      return refuse(request, reply, 401, {
        title: 'Token missing or wrong',
        problem: 'Token missing or wrong.',
        next: 'Load the page again and give the token as the password, under any name.',
      })
    }
    const {url} = request.routeOptions
    if (viewerTables !== undefined && url === '/') return reply.redirect('/tables', 303)
    if (
      isAction ||
      FOR_OPERATORS.has(url) ||
      (viewerTables !== undefined && !OF_TABLES.has(url) && !url?.startsWith('/assets/'))
    )
      return refuse(request, reply, 403, {
        title: 'For operators',
        problem: 'This is for operators: LOANTAPE_WEB_TOKEN.',
        next: 'A browser forgets the viewers\u2019 token when it is closed, and then asks for another.',
      })
    return
  })
}

/** Who asks: a page of ours, a person who typed or was sent an address, a page of another site, or a tool. */
export type Asker = 'ours' | 'person' | 'elsewhere' | 'tool'

/**
 * Who sent a request, by headers that browsers set and no page can: `Sec-Fetch-Site`, which is not sent to a server without TLS on
 * another machine; there by `Origin` and `Referer`, which a page can leave out, but not fill with our address.
 */
export function askerOf({headers}: FastifyRequest): Asker {
  const site = headers['sec-fetch-site']
  if (site !== undefined) return site === 'same-origin' ? 'ours' : site === 'none' ? 'person' : 'elsewhere'
  const from = headers.origin ?? headers.referer
  if (from !== undefined)
    return URL.canParse(from) && new URL(from).host === headers.host ? 'ours' : 'elsewhere'
  // No page can set it for another site unless that site agrees, and no browser adds it.
  if (headers.authorization?.toLowerCase().startsWith('bearer ')) return 'tool'
  const isBrowser = headers['user-agent']?.startsWith('Mozilla/') && headers['accept-language'] !== undefined
  return isBrowser ? 'person' : 'tool'
}

/** Addresses that are no pages: nobody follows a link of another site to them. */
const NO_PAGES = /^\/(data|assets|metrics|runs\/live)\b/

/** Whether a browser goes to a page of ours as a whole, as by a link. */
function isVisit(request: FastifyRequest): boolean {
  const {headers, method, routeOptions} = request
  if (method !== 'GET' || NO_PAGES.test(routeOptions.url ?? '')) return false
  if (headers['sec-fetch-site'] === undefined) return wantsPage(request)
  return headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document'
}

/** The name we were asked by. Not Fastify's, which a proxy's headers change. */
function hostOf({headers}: FastifyRequest): string {
  const url = `http://${headers.host}`
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, '') : ''
}

/** Whether who asks may change something: without a token everybody, else who shows it. */
export function isOperator(request: FastifyRequest, {webToken}: Pick<Tokens, 'webToken'>): boolean {
  return webToken === undefined || isSame(readToken(request), webToken)
}

/** The token as Bearer, or as the password a browser asks for. */
function readToken({headers}: FastifyRequest): string {
  const [scheme = '', value = ''] = (headers.authorization ?? '').split(' ')
  if (scheme.toLowerCase() === 'bearer') return value
  if (scheme.toLowerCase() !== 'basic') return ''
  const pair = Buffer.from(value, 'base64').toString()
  return pair.slice(pair.indexOf(':') + 1)
}

/** Whether a token is the one that is set, itself or as its digest; digests are of one length, so that the comparison tells nothing. */
function isSame(given: string, expected: string): boolean {
  const digest = hash('sha256', given)
  const [, stored = hash('sha256', expected)] = /^sha256:([0-9a-f]{64})$/.exec(expected) ?? []
  return timingSafeEqual(Buffer.from(digest), Buffer.from(stored))
}
