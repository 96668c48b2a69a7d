import {hash, timingSafeEqual} from 'node:crypto'
import type {FastifyInstance, FastifyRequest} from 'fastify'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'

const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost'])

/** Where nobody has to show the token: probes say nothing, and webhooks bring their own signature. */
const OPEN_PATHS = new Set(['/healthz', '/readyz', '/webhooks/deals'])

/**
 * Refuses to serve strangers: every address but a loopback one needs a token.
 *
 * @throws ConfigError `WEB_TOKEN_MISSING`
 */
export function requireSafeAddress({webHost, webToken}: Config): void {
  if (LOOPBACK.has(webHost) || webToken !== undefined) return
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
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
}

/** Puts the security headers on every answer, and asks for the token where one is set. */
export function guardAccess(server: FastifyInstance, {webToken}: Pick<Config, 'webToken'>): void {
  server.addHook('onRequest', async (request, reply) => {
    reply.headers(HEADERS)
    const path = request.url.split('?')[0] ?? ''
    if (OPEN_PATHS.has(path)) return
    if (webToken === undefined) {
      // Without a token a page of another site must not reach us under a name that resolves to this machine.
      const host = request.hostname.replace(/^\[|\]$/g, '')
      if (!LOOPBACK.has(host)) await reply.code(403).type('text/plain').send('Host not allowed.\n')
    } else if (!isSame(readToken(request), webToken)) {
      reply.header('www-authenticate', 'Basic realm="loantape", charset="UTF-8"')
      await reply.code(401).type('text/plain').send('Token missing or wrong.\n')
    }
  })
}

/** The token as Bearer, or as the password a browser asks for. */
function readToken({headers}: FastifyRequest): string {
  const [scheme = '', value = ''] = (headers.authorization ?? '').split(' ')
  if (scheme.toLowerCase() === 'bearer') return value
  if (scheme.toLowerCase() !== 'basic') return ''
  const pair = Buffer.from(value, 'base64').toString()
  return pair.slice(pair.indexOf(':') + 1)
}

/** Digests are of one length, so that the comparison tells nothing. */
function isSame(given: string, expected: string): boolean {
  return timingSafeEqual(hash('sha256', given, 'buffer'), hash('sha256', expected, 'buffer'))
}
