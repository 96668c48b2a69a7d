import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {Validator} from '@seriousme/openapi-schema-validator'
import {expect, test} from 'vitest'
import {ENDPOINTS} from '../../src/contract/endpoints.ts'
import {EVENT_TYPES} from '../../src/contract/webhook.ts'
import {createFolder} from '../support/data.ts'
import {startProcess} from '../support/lab.ts'
import {useShared} from '../support/set-up.ts'
import {API_KEY, insertDeals, startTestService} from './client.ts'

interface DescribedOperation {
  operationId: string
  requestBody?: object
  responses: Record<string, {headers?: object; content?: object}>
}

interface Described {
  openapi: string
  servers: {url: string}[]
  paths: Record<string, Record<string, DescribedOperation>>
  webhooks: object
  components: {schemas: Record<string, {properties: Record<string, object>}>}
}

const root = (): string => service.url.replace('/v1', '')

const service = await useShared(startTestService())
const described = (await (await fetch(`${root()}/openapi.json`)).json()) as Described
test('the description is valid OpenAPI 3.1 to a public validator', async () => {
  const validator = new Validator()
  const {valid, errors} = await validator.validate({...structuredClone(described)})
  expect(errors ?? []).toEqual([])
  expect([valid, validator.version]).toEqual([true, '3.1'])
  expect(described.servers).toEqual([{url: service.url}])
})

test('the description names every operation of the contract once, with the problems it may answer', () => {
  const operations = Object.values(described.paths).flatMap((path) => Object.values(path))
  expect(operations.map(({operationId}) => operationId).sort()).toEqual(Object.keys(ENDPOINTS).sort())
  for (const {responses} of operations)
    expect(Object.keys(responses)).toEqual(expect.arrayContaining(['400', '401', '403', '429', '500']))
})

test('no answer is described with the digits of a national id', () => {
  const {NewBorrower, ...others} = described.components.schemas
  expect(NewBorrower?.properties.ssn_last_four).toMatchObject({pattern: '^[0-9]{4}$', writeOnly: true})
  expect(JSON.stringify(others)).not.toContain('"ssn_last_four"')
})

test('the description has patterns that every language reads alike', () => {
  const patterns = [...JSON.stringify(described).matchAll(/"pattern":("(?:[^"\\]|\\.)*")/g)]
  const texts = new Set(patterns.map(([, text = '']) => String(JSON.parse(text))))
  expect(texts.size).toBeGreaterThan(4)
  // Languages differ on property classes, short classes (`\d` in Python matches all Unicode digits), flags and named groups.
  expect(
    [...texts].filter((text) =>
      /\\[pPdDwWsSkuU](?!\\u[0-9a-f]{4})|\(\?[a-z<P]/.test(text.replace(/\\u[0-9a-f]{4}/g, '')),
    ),
  ).toEqual([])
})

test('the description says what happens: headers, files, and a body only where there is one', () => {
  const {paths} = described
  const headersOf = (operation: DescribedOperation | undefined, status: string) =>
    Object.keys(operation?.responses[status]?.headers ?? {})
  expect(headersOf(paths['/deals']?.post, '201')).toEqual(
    expect.arrayContaining(['ETag', 'Location', 'Idempotency-Replayed', 'X-Request-Id']),
  )
  expect(headersOf(paths['/deals']?.get, '429')).toContain('Retry-After')
  const download = paths['/deals/{id}/documents/{document_id}/content']?.get
  expect(Object.keys(download?.responses['200']?.content ?? {})).toEqual(['*/*'])
  expect(headersOf(download, '200')).toContain('Content-Disposition')
  expect(paths['/deals/{id}/documents']?.post?.requestBody).toMatchObject({
    content: {'multipart/form-data': {schema: {$ref: '#/components/schemas/NewDocument'}}},
  })
  expect(paths['/tasks/{id}/complete']?.post).not.toHaveProperty('requestBody')
  expect(Object.keys(described.webhooks)).toEqual([...EVENT_TYPES])
})

test('the description is also a page for people that loads nothing from elsewhere', async () => {
  const url = `${root()}/docs/`
  const response = await fetch(url)
  expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8')
  expect(response.headers.get('content-security-policy')).toMatch(/^default-src 'self';/)
  const page = await response.text()
  const loaded = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path = '']) => new URL(path, url))
  expect(loaded.length).toBeGreaterThan(2)
  for (const {href, origin} of loaded) {
    expect(origin).toBe(root())
    expect([href, (await fetch(href)).status]).toEqual([href, 200])
  }
  expect(page).not.toMatch(/<script>|<style>|style="/)
  const shown = (await (await fetch(`${root()}/docs/json`)).json()) as Described
  expect(shown.paths).toEqual(described.paths)
})

test('the curl commands of docs/service.md run as written', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/service.md'), 'utf8')
  const script = /^```sh curl\n(.*?)^```$/ms.exec(page)?.[1] ?? ''
  await using service = await startTestService({webhooks: {allowPrivate: true}})
  insertDeals(service, 3)
  using data = createFolder()
  const {root: folder} = data.folder

  const env = {BASE_URL: service.url, API_KEY}
  using shell = startProcess(['sh', '-c', script], env, folder)
  const {code, stdout, stderr} = await shell.ended
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout).toContain('Appraised at 500,000.')
  expect(stdout).toContain('"status":"underwriting"')
  expect(stdout).toContain('"status":"completed"')
  // As a whole number: an id may contain these digits by chance.
  expect(stdout).not.toMatch(/\b6789\b/)
  expect(service.store.count()).toBe(3)

  const asked = service.requests.entries.map(
    ({method, path}) => `${method} ${path.replace(/_[0-9a-f]{20}/g, '_')}`,
  )
  expect(asked).toHaveLength(script.match(/^ *(?:\w+=\$\()?curl /gm)?.length ?? 0)
  expect(asked.at(-1)).toBe('DELETE /deals/deal_')
})
