import {Validator} from '@seriousme/openapi-schema-validator'
import {expect, test} from 'vitest'
import {ENDPOINTS} from '../../src/contract/endpoints.ts'
import {useShared} from '../support/set-up.ts'
import {startTestService} from './client.ts'

interface Described {
  openapi: string
  servers: {url: string}[]
  paths: Record<string, Record<string, {operationId: string; responses: object}>>
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
  // Languages differ on property classes, short classes (Unicode's digits in Python), flags and names.
  expect(
    [...texts].filter((text) =>
      /\\[pPdDwWsSkuU](?!\\u[0-9a-f]{4})|\(\?[a-z<P]/.test(text.replace(/\\u[0-9a-f]{4}/g, '')),
    ),
  ).toEqual([])
})

test('the description is also a page for people that loads nothing from elsewhere', async () => {
  const response = await fetch(`${root()}/docs`)
  expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8')
  expect(response.headers.get('content-security-policy')).toContain("default-src 'none'")
  const page = await response.text()
  for (const {path} of Object.values(ENDPOINTS)) expect(page).toContain(path)
  expect(page).toContain(
    '<td><code>loan_amount</code><td>number<td>Required. Dollars with at most 2 decimals. 0 to',
  )
  expect(page).not.toMatch(/<script|(?:src|href)="https?:|@import|url\(/)
})
