import {hash, timingSafeEqual} from 'node:crypto'
import type {Server} from 'node:http'
import {isIPv6, type Socket} from 'node:net'
import {type FastifyInstance, type FastifyReply, type FastifyRequest, fastify} from 'fastify'
import ipaddr from 'ipaddr.js'
import {sleepUntilStopped} from '../core/clock.ts'
import {type Config, digestOfToken} from '../core/config.ts'
import {codeOf, findMachineFault, isOfKind, LoantapeError, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt, isDemoFolder} from '../store/data-folder.ts'
import {isForViewers, parseAddress} from './filter.ts'
import {html} from './html.ts'
import {renderWorkbench} from './page-frame.ts'
import {createPlaces} from './turns.ts'

export const PLACES = [
  ['Morning', '/'],
  ['Portfolio', '/portfolio'],
  ['Pipeline', '/pipeline'],
  ['Deals', '/deals'],
  ['Books', '/books'],
  ['Pages', '/pages'],
  ['Tables', '/tables'],
  ['SQL', '/sql'],
  ['Runs', '/runs'],
] as const

export const FLEET_PLACES = [['Fleet', '/']] as const

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller
    /** Aborts once the answer has ended or the connection is gone; HEAD ends before any body. Not of what is open to all. */
    gone: AbortSignal
  }
}

/** Not a script or a tool that asks for data. */
const wantsPage = ({headers}: FastifyRequest) => headers.accept?.includes('text/html') ?? false

/** Answers with a page for people, with plain text for tools. The title is the first part of `problem`; `next` says what to do. */
export function refuse(reply: FastifyReply, status: number, problem: string, next?: string): FastifyReply {
  const {request} = reply.code(status)
  if (!wantsPage(request)) return reply.type('text/plain').send(`${problem}\n`)
  const isFleet = !reply.server.hasRoute({method: 'GET', url: '/portfolio'})
  const page = renderWorkbench({
    title: problem.split(/[:;.]( |$)/)[0] ?? '',
    path: request.url.split('?')[0] ?? '/',
    places: (isFleet ? FLEET_PLACES : PLACES).filter(([, href]) => request.caller.mayOpen(href)),
    ...(!isFleet && {find: {}}),
    body: html`<p class="notice lines">${problem}${next !== undefined && html` ${next}`}</p>
<p><a href="${findWayBack(request)}">Back</a></p>`,
  })
  return sendPage(reply, page)
}

export const formOf = ({body}: Pick<FastifyRequest, 'body'>) =>
  body instanceof URLSearchParams ? body : new URLSearchParams()

export const sendPage = (reply: FastifyReply, page: string) =>
  reply.type('text/html; charset=utf-8').send(page)

export const statusOf = (error: unknown) =>
  isOfKind(error, 'deferred') ? 503 : codeOf(error) === 'QUERY_FAILED' ? 400 : 500

export const markBusy = (reply: FastifyReply) => reply.code(503).header('retry-after', '10')

/** The page of ours that led here, or the first page. */
export function findWayBack({headers: {referer = '', host}}: FastifyRequest): string {
  const from = URL.parse(referer)
  const ours = from?.host === host ? parseAddress(`${from?.pathname}${from?.search}`) : undefined
  return ours ? `${ours.pathname}${ours.search}` : '/'
}

const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost'])

/** Open to all: probes reveal nothing, and webhooks are signed. */
const OPEN = /^\/(healthz|readyz|webhooks\/deals)$/
/** For operators only: records as received, and pages that may build a release. */
const FOR_OPERATORS = /^\/(deals\/[^/]+\/received|quarantine\/[^/]+|books\/[^/]+)$/
/** Open to viewers with a table list; other pages read any table. */
const OF_TABLES = /^\/(find|tables|sql|pages|data|metrics|assets|runs\/live)(\/|$)/

/** @throws ConfigError `WEB_TOKEN_MISSING` on an address that other machines can reach */
function requireSafeAddress({webHost, webToken}: Config): void {
  if (webToken !== undefined || LOOPBACK.has(webHost)) return
  throw newError(
    'WEB_TOKEN_MISSING',
    `Address '${webHost}' in LOANTAPE_WEB_HOST can be reached from other machines, and LOANTAPE_WEB_TOKEN is not set.`,
  )
}

const SECURITY_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // With `no-referrer`, browsers send forms without their origin.
  'referrer-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  // Otherwise a page that opens ours in a window could count its frames and watch its navigation.
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
}

/** Refuses requests from other sites, and those without a token if one is set. Actions need an operator and a form of ours. */
function guardAccess(server: FastifyInstance, config: Config): void {
  server.addHook('onRequest', async (request, reply) => {
    reply.headers(SECURITY_HEADERS)
    const caller = readCaller(request, config)
    request.caller = caller
    const {url = ''} = request.routeOptions
    const asks = askerOf(request)
    const refused = (problem: string, next: string, status = 403) => refuse(reply, status, problem, next)
    if (asks === 'elsewhere' && !isVisit(request))
      return refused('Refused: a page of another site asked for this.', 'Open the workbench itself.')
    if (OPEN.test(url)) return
    const isAction = !['GET', 'HEAD'].includes(request.method)
    if (isAction && asks !== 'ours')
      return refused('Not done: expected a form of this server.', 'Open the page here, and use its form.')
    // Without a token, DNS rebinding must not let a page of another site reach us.
    if (config.webToken === undefined && !LOOPBACK.has(hostOf(request)))
      return refused(
        'Host not allowed: without LOANTAPE_WEB_TOKEN the server answers only by the names of this machine.',
        'Open it as http://127.0.0.1, or set LOANTAPE_WEB_TOKEN.',
      )
    if (!caller.isOperator && !caller.isViewer) {
      reply.header('www-authenticate', 'Basic realm="loantape", charset="UTF-8"')
      const next = 'Load the page again and give the token as the password, under any name.'
      return refused('Token missing or wrong.', next, 401)
    }
    if (caller.only !== undefined && url === '/') return reply.redirect('/tables', 303)
    if (isAction && caller.isOperator && !caller.mayAct)
      return refused('Not done: a demo is only looked at.', 'Begin a folder of your own with loantape init.')
    if ((isAction && !caller.mayAct) || !caller.mayOpen(url))
      return refused(
        'This is for operators: LOANTAPE_WEB_TOKEN.',
        'A browser forgets the viewers\u2019 token when it is closed, and then asks for another.',
      )
    return
  })
}

/**
 * Who sent a request: a page of ours, a person who opened an address, a page of another site, or a tool. Read from headers that
 * pages cannot forge: `Sec-Fetch-Site`; without TLS browsers send it only to loopback, so otherwise `Origin` and `Referer`, which
 * a page can omit but not fill with our address.
 */
export function askerOf({headers}: FastifyRequest): 'ours' | 'person' | 'elsewhere' | 'tool' {
  const site = headers['sec-fetch-site']
  if (site !== undefined) return site === 'same-origin' ? 'ours' : site === 'none' ? 'person' : 'elsewhere'
  const from = headers.origin ?? headers.referer
  if (from !== undefined) return URL.parse(from)?.host === (headers.host ?? '') ? 'ours' : 'elsewhere'
  // Pages cannot send it to another site without that site's consent, and browsers never add it.
  if (headers.authorization?.toLowerCase().startsWith('bearer ')) return 'tool'
  const isBrowser = headers['user-agent']?.startsWith('Mozilla/') && headers['accept-language'] !== undefined
  return isBrowser ? 'person' : 'tool'
}

/** Links of other sites never lead here. */
const NO_PAGES = /^\/(data|assets|metrics|runs\/live)\b/

/** A browser navigates, for example by a link. */
function isVisit(request: FastifyRequest): boolean {
  const {headers, method, routeOptions} = request
  if (method !== 'GET' || NO_PAGES.test(routeOptions.url ?? '')) return false
  if (headers['sec-fetch-site'] === undefined) return wantsPage(request)
  return headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document'
}

/** Fastify's value may come from a proxy. */
const hostOf = ({headers}: FastifyRequest) =>
  URL.parse(`http://${headers.host}`)?.hostname.replace(/^\[|\]$/g, '') ?? ''

export type Caller = ReturnType<typeof readCaller>

/** The token comes as Bearer, or as the password of Basic with any user name. */
function readCaller(
  {headers, ip}: FastifyRequest,
  {webToken, webViewerToken, viewerTables, dataDir}: Config,
) {
  const [, scheme = '', shown = ''] = /^(bearer|basic) (\S*)/i.exec(headers.authorization ?? '') ?? []
  const pair = scheme.toLowerCase() === 'basic' ? Buffer.from(shown, 'base64').toString() : `:${shown}`
  const [, named = '', token = ''] = /^(?:([^:]*):)?(.*)$/s.exec(pair) ?? []
  const name = named.replaceAll(/\p{Cc}/gv, '').slice(0, 60)
  const network = networkOf(ip)
  const isOperator = webToken === undefined || isSame(token, webToken)
  const only = isOperator ? undefined : viewerTables
  return {
    network,
    isOperator,
    isViewer: webViewerToken !== undefined && isSame(token, webViewerToken),
    /** Readable tables, as in `LOANTAPE_VIEWER_TABLES`; undefined for all. */
    only,
    mayAct: isOperator && !isDemoFolder(dataFolderAt(dataDir)),
    mayOpen: (path: string) =>
      isOperator || (!FOR_OPERATORS.test(path) && (only === undefined || OF_TABLES.test(path))),
    mayRead: (name: string) => isForViewers(name, only),
    who: name ? `${name} (web ${ip})` : `web ${ip}`,
    /** The key of personal data such as last queries: the given name or else the network, operators apart. */
    person: `${isOperator ? 'operator' : 'viewer'} ${name ? JSON.stringify(name) : network}`,
  }
}

/** Digests have one length, so that timing leaks nothing. */
const isSame = (given: string, expected: string) =>
  timingSafeEqual(Buffer.from(hash('sha256', given)), Buffer.from(digestOfToken(expected)))

/** Of an IPv6 address the first 64 bits, since one machine may use all behind them. */
function networkOf(ip: string): string {
  if (!isIPv6(ip) || ip.includes('.')) return ip
  return ipaddr.IPv6.parse(ip).parts.slice(0, 4).join(':')
}

/** Beyond `most` connections, closes one that waits: the oldest of the address with the most. */
function limitConnections(server: Server, most: number, answered: ReadonlySet<Socket>): void {
  const open = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
    if (open.size <= most) return
    const waiting = Map.groupBy(
      [...open].filter((one) => !answered.has(one)),
      ({remoteAddress = ''}) => remoteAddress,
    )
    const [of] = [...waiting.values()].toSorted((a, b) => b.length - a.length)
    of?.[0]?.destroy()
  })
}

/** Bytes: the address of a query holds its text. */
const LONGEST_HEADERS = 64 * 1024
const REQUEST_MS = 10_000
const MOST_CONNECTIONS = 200
/** Most answers in progress, in total and for each caller; probes and webhooks do not count. */
const ANSWERS = {all: 60, each: 20}
/** Longest time a slow reader may take. */
export const LONGEST_ANSWER_MS = 3_600_000

function createHttpServer(config: Config, world: World): FastifyInstance {
  requireSafeAddress(config)
  const server: FastifyInstance = fastify({
    bodyLimit: 64 * 1024,
    routerOptions: {maxParamLength: LONGEST_HEADERS},
    requestTimeout: REQUEST_MS,
    http: {
      maxHeaderSize: LONGEST_HEADERS,
      // Node's own limit for headers is longer, and Node gives the longer limit to the whole request.
      headersTimeout: REQUEST_MS,
      connectionsCheckingInterval: 1_000,
    },
    trustProxy: config.webProxy?.split(/\s*,\s*/) ?? false,
    // Longer than an answer can be silent: a page may ask the history, then its blocks one after another.
    connectionTimeout: (config.historyTimeoutSeconds + 10 * config.pageTimeoutSeconds) * 1000,
    keepAliveTimeout: 5_000,
    forceCloseConnections: true,
    // No hook has run for this request.
    frameworkErrors: (error, request, reply) => {
      request.caller = readCaller(request, config)
      return refuse(reply.headers(SECURITY_HEADERS), error.statusCode ?? 400, error.message)
    },
  })
  // People send forms only.
  server.removeAllContentTypeParsers()
  server.addContentTypeParser(
    'application/x-www-form-urlencoded',
    {parseAs: 'string'},
    async (_request: unknown, body: string | Buffer) => new URLSearchParams(String(body)),
  )
  const answered = new Set<Socket>()
  limitConnections(server.server, MOST_CONNECTIONS, answered)
  guardAccess(server, config)
  const enter = createPlaces(ANSWERS)
  server.addHook('onRequest', async (request, reply) => {
    const {url = ''} = request.routeOptions
    if (OPEN.test(url)) return
    const leave = enter(networkOf(request.ip))
    if (!leave) {
      const problem = 'Too much is asked for at this moment.'
      return refuse(markBusy(reply), 503, problem, 'Load the page again in a moment.')
    }
    const {socket} = request.raw
    answered.add(socket)
    const gone = new AbortController()
    request.gone = gone.signal
    reply.raw.once('close', () => {
      gone.abort(newError('QUERY_STOPPED', 'Query stopped: nobody waits for it.'))
      leave()
      answered.delete(socket)
    })
    void sleepUntilStopped(world.realClock, LONGEST_ANSWER_MS, gone.signal).then(
      () => gone.signal.aborted || reply.raw.destroy(),
    )
    return
  })
  server.setErrorHandler<Error & {statusCode?: number}>((error, request, reply) => {
    const status = error.statusCode ?? statusOf(error)
    if (status < 500 || status === 503) return refuse(reply, status, error.message)
    world.log.error({err: error, path: request.routeOptions.url}, 'a request failed')
    const isLetIn = !OPEN.test(request.routeOptions.url ?? '')
    const fault = isLetIn && error instanceof LoantapeError ? error : findMachineFault(error)
    return refuse(reply, status, fault?.problem ?? 'Failed; see the log.', fault?.next)
  })
  server.setNotFoundHandler((_request, reply) => refuse(reply, 404, 'Not found.', 'There is no such page.'))
  server.get('/healthz', async (_request, reply) => reply.type('text/plain').send('ok\n'))
  return server
}

/**
 * `add` returns what to dispose before the server closes. @throws ConfigError `WEB_TOKEN_MISSING`; UnexpectedError `WEB_ADDRESS`
 */
export async function startServer(
  config: Config,
  world: World,
  add: (server: FastifyInstance) => AsyncDisposable | Disposable,
) {
  const {webHost: host, webPort: port} = config
  const server = createHttpServer(config, world)
  await using added = new AsyncDisposableStack()
  added.use(add(server))
  const url = await server.listen({host, port}).catch((error: unknown) => {
    throw newError(
      'WEB_ADDRESS',
      `The web side cannot listen on '${host}:${port}' (${codeOf(error)}): expected an address of this machine and a free port.`,
      {cause: error},
    )
  })
  const listening = added.move()
  return {
    url,
    async [Symbol.asyncDispose]() {
      await listening.disposeAsync()
      await server.close()
    },
  }
}
