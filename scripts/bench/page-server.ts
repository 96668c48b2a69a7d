import {createServer} from 'node:http'
import type {AddressInfo} from 'node:net'

/** Deals per page. */
const PAGE = 100
const PROGRAMS = ['bridge_12mo', 'bridge_30yr', 'dscr_30yr', 'fix_and_flip']
const STATUSES = ['draft', 'underwriting', 'approved', 'funded', 'funded', 'funded']

const [, , dealsText = '10000', delayText = '0'] = process.argv
const deals = Number(dealsText)
const delayMs = Number(delayText)
let changed = false

/** Renders one list row; its number determines it, and whether `/change` was called. */
function renderDeal(number: number): string {
  const cents = 6_000_000 + ((number * 7919) % 250_000_000) + (changed && number % 100 === 0 ? 1 : 0)
  const amount = `${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, '0')}`
  const created = new Date(1_700_000_000_000 + number * 1000).toISOString()
  const status = STATUSES[number % STATUSES.length]
  const program = PROGRAMS[number % PROGRAMS.length]
  return `{"id":"deal_${number}","property_address":"${number} Main St, Austin, TX 78701","loan_amount":${amount},"property_value":${Math.floor(cents / 65)},"loan_program":"${program}","status":"${status}","created_at":"${created}"}`
}

function renderPage(start: number): string {
  const end = Math.min(start + PAGE, deals)
  const rows = Array.from({length: end - start}, (_, index) => renderDeal(start + index))
  const next = end < deals ? `"c${end}"` : 'null'
  return `{"data":[${rows.join(',')}],"has_more":${end < deals},"next_cursor":${next}}`
}

const server = createServer((request, response) => {
  const url = new URL(request.url ?? '/', 'http://localhost')
  if (url.pathname === '/change') changed = true
  const start = Number(url.searchParams.get('cursor')?.slice(1) ?? 0)
  const body = renderPage(start)
  const send = () => response.writeHead(200, {'content-type': 'application/json'}).end(body)
  if (delayMs === 0) send()
  else setTimeout(send, delayMs)
})

server.listen(0, '127.0.0.1', () => {
  process.send?.({url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`})
})
process.on('disconnect', () => process.exit(0))
