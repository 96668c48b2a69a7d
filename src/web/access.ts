import {hash, timingSafeEqual} from 'node:crypto'
import type {FastifyInstance, FastifyRequest} from 'fastify'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'

const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost'])

/** Where nobody has to show the token: probes say nothing, and webhooks bring their own signature. */
const OPEN_PATHS = new Set(['/healthz', '/readyz', '/webhooks/deals'])

type Tokens = Pick<Config, 'webToken' | 'webViewerToken'>

/** Routes that are for operators alone: records as they were received, and what may build a release. */
const FOR_OPERATORS = new Set<string | undefined>(['/deals/:id/received', '/quarantine/:id', '/books/:id'])

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

const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // With `no-referrer` a browser would not say of a form where it comes from.
  'referrer-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
}

/**
 * Puts the security headers on every answer, and asks for a token where one is set. What changes something is for operators, and
 * taken from our own pages alone: a browser would add the password to what a page of another site posts to us, too.
 */
export function guardAccess(server: FastifyInstance, tokens: Tokens): void {
  const {webToken, webViewerToken} = tokens
  server.addHook('onRequest', async (request, reply) => {
    reply.headers(HEADERS)
    const path = request.url.split('?')[0] ?? ''
    if (OPEN_PATHS.has(path)) return
    const isAction = !['GET', 'HEAD'].includes(request.method)
    if (isAction && !isFromOurPages(request)) {
      await reply.code(403).type('text/plain').send('Not done: expected a form of this server.\n')
      return
    }
    if (webToken === undefined) {
      // Without a token a page of another site must not reach us under a name that resolves to this machine.
      const host = request.hostname.replace(/^\[|\]$/g, '')
      if (!LOOPBACK.has(host)) await reply.code(403).type('text/plain').send('Host not allowed.\n')
      return
    }
    if (isOperator(request, tokens)) return
    if (webViewerToken === undefined || !isSame(readToken(request), webViewerToken)) {
      reply.header('www-authenticate', 'Basic realm="loantape", charset="UTF-8"')
      await reply.code(401).type('text/plain').send('Token missing or wrong.\n')
    } else if (isAction || FOR_OPERATORS.has(request.routeOptions.url)) {
      await reply.code(403).type('text/plain').send('This is for operators: LOANTAPE_WEB_TOKEN.\n')
    }
  })
}

/** Whether a page of ours sent this, by headers that a browser sets and no page can. */
function isFromOurPages({headers}: FastifyRequest): boolean {
  const {origin = '', host} = headers
  const site = headers['sec-fetch-site']
  // Not sent to a server without TLS.
  if (site === undefined) return URL.canParse(origin) && new URL(origin).host === host
  return site === 'same-origin'
}

/** Whether who asks may change something: without a token everybody, else who shows it. */
export function isOperator(request: FastifyRequest, {webToken}: Tokens): boolean {
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
