import type {FastifyReply, FastifyRequest} from 'fastify'
import {html} from '../page/html.ts'
import {renderWorkbench} from '../page/workbench-page.ts'

/** The pages that every page leads to. */
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

/** Whether a person's browser asks for a page, rather than a tool, a script or an image for data. */
export function wantsPage({headers}: FastifyRequest): boolean {
  return headers.accept?.includes('text/html') ?? false
}

/** Why something is refused or failed: people get a page with the way to the others and back, tools its `problem` as plain text. */
export function refuse(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  {title, problem, next}: {title: string; problem: string; next?: string},
): FastifyReply {
  reply.code(status)
  if (!wantsPage(request)) return reply.type('text/plain').send(`${problem}\n`)
  const isFleet = !reply.server.hasRoute({method: 'GET', url: '/portfolio'})
  const places = isFleet ? ([['Fleet', '/']] as const) : PLACES
  const page = renderWorkbench({
    title,
    path: request.url.split('?')[0] ?? '/',
    places: places.map(([name, href]) => ({title: name, href})),
    facts: [],
    chips: [],
    alarms: 0,
    body: html`<p class="notice">${problem}${next !== undefined && html` ${next}`}</p>
<p><a href="${findWayBack(request)}">Back</a></p>`,
  })
  return reply.type('text/html; charset=utf-8').send(page)
}

/** When to come back, where too much is under way. */
const RETRY_SECONDS = '10'

/** Says that too much is asked for at this moment, and when to come back. */
export function refuseBusy(
  request: FastifyRequest,
  reply: FastifyReply,
  problem = 'Too much is asked for at this moment.',
): FastifyReply {
  const next = 'Load the page again in a moment.'
  return refuse(request, markBusy(reply), 503, {title: 'Busy', problem, next})
}

/** Makes an answer one that says when to come back. */
export const markBusy = (reply: FastifyReply) => reply.code(503).header('retry-after', RETRY_SECONDS)

/** The page of ours that led here, or the first one. */
function findWayBack({headers: {referer = '', host}}: FastifyRequest): string {
  if (!URL.canParse(referer)) return '/'
  const from = new URL(referer)
  return from.host === host ? `${from.pathname}${from.search}` : '/'
}
