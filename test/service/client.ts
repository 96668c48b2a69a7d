import {expect} from 'vitest'
import {createDealClient} from '../../src/client/client.ts'
import type {ListedDeal} from '../../src/contract/deal.ts'
import type {Problem} from '../../src/contract/problem.ts'
import type {StoredDeal} from '../../src/service/deals.ts'
import type {RunningService, ServiceOptions} from '../../src/service/server.ts'
import {aDeal as storedDeal} from '../support/lab.ts'
import {type SpoiltService, startSpoiltService} from '../support/spoilt-service.ts'

export interface ListBody<T> {
  data: T[]
  has_more: boolean
  next_cursor: string | null
}

export const API_KEY = 'sk_test_service_tests'
export const NOW: number = Date.parse('2026-03-02T15:04:05.678Z')

export function startTestService(options: Partial<ServiceOptions> = {}): Promise<SpoiltService> {
  return startSpoiltService({apiKeys: [API_KEY], clock: {now: () => NOW}, ...options})
}

/** Makes a stored deal created at {@link NOW}; the number sets its id and its place in the list. */
export const aDeal = (number: number, fields: Partial<StoredDeal> = {}): StoredDeal =>
  storedDeal(number, {created_at: NOW + number, ...fields})

export function insertDeals(service: RunningService, count: number): void {
  service.store.insert(Array.from({length: count}, (_, index) => aDeal(index + 1)))
}

/** Sends one request with a valid key; text and bytes are sent as they are, any other body as JSON. */
export const call = (
  service: RunningService,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
) =>
  fetch(service.url + path, {
    method,
    headers: {
      authorization: `Bearer ${API_KEY}`,
      ...(body !== undefined && {'content-type': 'application/json'}),
      ...headers,
    },
    ...(body !== undefined && {
      body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
    }),
  })

export async function readData<T>(answer: Response | Promise<Response>): Promise<T> {
  return ((await (await answer).json()) as {data: T}).data
}

export const get = async <T>(service: RunningService, path: string): Promise<T> =>
  readData(call(service, 'GET', path))

/** Reads status, code and paths of a problem: `400 invalid_body loan_amount status`. */
export async function readRefusal(answer: Response | Promise<Response>): Promise<string> {
  const response = await answer
  expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/)
  const {code, errors = []} = (await response.json()) as Problem
  return [response.status, code, ...errors.map(({path}) => path).sort()].join(' ')
}

export async function readPage(service: RunningService, query = ''): Promise<ListBody<ListedDeal>> {
  return (await (await call(service, 'GET', `/deals${query}`)).json()) as ListBody<ListedDeal>
}

export async function walkIds(
  {url}: RunningService,
  limit: number,
  betweenPages: () => unknown = () => {},
): Promise<string[]> {
  const ids: string[] = []
  const {deals} = createDealClient({baseUrl: url, apiKey: API_KEY})
  for await (const {records} of deals.list({limit}).pages()) {
    ids.push(...records.map(({id}) => id))
    await betweenPages()
  }
  return ids
}

/** The smallest file whose bytes identify it as a PDF. */
export const PDF: string = '%PDF-1.4\n1 0 obj<<>>endobj\ntrailer<<>>\n%%EOF\n'

/** Uploads one file; a null field is left out. */
export function upload(
  service: RunningService,
  dealId: string,
  parts: {
    content?: string | Uint8Array<ArrayBuffer>
    fileName?: string
    category?: string | null
    name?: string | null
  } = {},
  headers: Record<string, string> = {},
): Promise<Response> {
  const {content = PDF, fileName = 'appraisal.pdf', category = 'appraisal', name = 'Appraisal'} = parts
  const form = new FormData()
  if (category !== null) form.set('category', category)
  if (name !== null) form.set('name', name)
  form.set('file', new Blob([content]), fileName)
  const url = `${service.url}/deals/${dealId}/documents`
  return fetch(url, {method: 'POST', headers: {authorization: `Bearer ${API_KEY}`, ...headers}, body: form})
}
