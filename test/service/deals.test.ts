import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import type {RunningService} from '../../src/service/server.ts'
import {aDeal, call, NOW, readDeal, readPage, readProblem, startTestService} from './client.ts'

const body = {property_address: '12 Main St, Austin, TX 78701', loan_amount: 350_000.1}

describe('deals', () => {
  let service: RunningService

  beforeEach(async () => {
    service = await startTestService()
  })
  afterEach(() => service.close())

  test('creates a deal from only an address and an amount', async () => {
    const deal = await readDeal(await call(service, 'POST', '/deals', body))
    expect(deal).toMatchObject({...body, property_value: null, loan_program: null})
  })

  test('refuses unknown, missing and wrong fields of a new deal, and names every path', async () => {
    const wrong = {loan_amount: 1.234, property_value: -1, ssn: '1', status: 'funded'}
    const response = await call(service, 'POST', '/deals', wrong)
    const problem = await readProblem(response)
    expect(response.status).toBe(400)
    expect(problem.code).toBe('invalid_body')
    expect(problem.errors?.map(({path}) => path).sort()).toEqual([
      'loan_amount',
      'property_address',
      'property_value',
      'ssn',
      'status',
    ])
    expect(service.store.count()).toBe(0)
  })

  test.each([
    ['{"property_address": "12', 'malformed_json'],
    ['{"__proto__": {"loan_amount": 1}}', 'malformed_json'],
    ['null', 'invalid_body'],
    ['[]', 'invalid_body'],
    ['"deal"', 'invalid_body'],
  ])('answers the body %j with a problem', async (text, code) => {
    const response = await call(service, 'POST', '/deals', text)
    expect([response.status, (await readProblem(response)).code]).toEqual([400, code])
    expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/)
  })

  test('changes the fields sent and leaves the others', async () => {
    service.store.insert([aDeal(1)])
    const changed = {status: 'underwriting', loan_amount: 1_234_567.89, property_value: 510_000}
    const response = await call(service, 'PATCH', '/deals/deal_000001', changed)
    const deal = {
      ...changed,
      id: 'deal_000001',
      property_address: '1 Main St, Austin, TX 78701',
      loan_program: 'bridge_30yr',
      created_at: new Date(NOW + 1).toISOString(),
    }
    expect([response.status, await readDeal(response)]).toEqual([200, deal])
    expect(await readDeal(await call(service, 'GET', '/deals/deal_000001'))).toEqual(deal)
  })

  test.each([{}, {status: 'closed'}, {id: 'deal_2'}, {created_at: '2026-01-01'}, {loan_amount: null}])(
    'refuses the change %j',
    async (change) => {
      service.store.insert([aDeal(1)])
      const response = await call(service, 'PATCH', '/deals/deal_000001', change)
      expect(response.status).toBe(400)
      expect((await readProblem(response)).code).toBe('invalid_body')
      expect(service.store.get('deal_000001')).toEqual(aDeal(1))
    },
  )

  test('deletes a deal without a body', async () => {
    service.store.insert([aDeal(1), aDeal(2)])
    const response = await call(service, 'DELETE', '/deals/deal_000001')
    expect([response.status, await response.text()]).toEqual([204, ''])
    expect((await readPage(service)).data.map(({id}) => id)).toEqual(['deal_000002'])
  })

  test.each(['GET', 'PATCH', 'DELETE'])('answers %s of an unknown deal with 404', async (method) => {
    const body = method === 'PATCH' ? {status: 'draft'} : undefined
    const response = await call(service, method, '/deals/deal_none', body)
    expect(response.status).toBe(404)
    const problem = {type: 'about:blank', title: 'Not Found', status: 404, code: 'deal_not_found'}
    expect(await readProblem(response)).toMatchObject(problem)
  })

  test('sums the portfolio by status, exact to the cent even where doubles are not', async () => {
    const readReport = async () => await (await call(service, 'GET', '/reports/portfolio')).json()
    expect(await readReport()).toEqual({data: {deals: 0, amount: '0.00', by_status: []}})
    service.store.insert([
      aDeal(1, {status: 'funded', loanAmountCents: 69_999_999_999_999_99n}),
      aDeal(2, {status: 'funded', loanAmountCents: 69_999_999_999_999_98n}),
      aDeal(3, {status: 'draft', loanAmountCents: 10n}),
      aDeal(4, {status: 'on_hold', loanAmountCents: 5n}),
    ])
    expect(await readReport()).toEqual({
      data: {
        deals: 4,
        amount: '140000000000000.12',
        by_status: [
          {status: 'draft', deals: 1, amount: '0.10'},
          {status: 'funded', deals: 2, amount: '139999999999999.97'},
          {status: 'on_hold', deals: 1, amount: '0.05'},
        ],
      },
    })
  })
})
