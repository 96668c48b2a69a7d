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

  test('creates a deal as a draft with an id, a location and the instant of the clock', async () => {
    const whole = {...body, property_value: 500_000, loan_program: 'bridge_30yr'}
    const response = await call(service, 'POST', '/deals', whole)
    const deal = await readDeal(response)
    expect(response.status).toBe(201)
    expect(response.headers.get('location')).toBe(`/v1/deals/${deal.id}`)
    expect(deal.id).toMatch(/^deal_[a-z0-9]{20}$/)
    expect(deal).toEqual({
      ...whole,
      id: deal.id,
      status: 'draft',
      created_at: new Date(NOW).toISOString(),
    })
  })

  test('creates a deal from an address and an amount alone', async () => {
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

  test('refuses an amount as text', async () => {
    const response = await call(service, 'POST', '/deals', {...body, loan_amount: '350000'})
    expect((await readProblem(response)).errors?.[0]?.path).toBe('loan_amount')
  })

  test.each(['{"property_address": "12', '{"__proto__": {"loan_amount": 1}}'])(
    'answers malformed JSON %j with a problem',
    async (text) => {
      const response = await call(service, 'POST', '/deals', text)
      expect(response.status).toBe(400)
      expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/)
      expect((await readProblem(response)).code).toBe('malformed_json')
    },
  )

  test.each(['null', '[]', '"deal"'])('refuses the JSON body %s', async (text) => {
    const response = await call(service, 'POST', '/deals', text)
    expect((await readProblem(response)).code).toBe('invalid_body')
  })

  test('shows the property value and the program of one deal', async () => {
    service.store.insert([aDeal(1, {loanAmountCents: 1_234_567_89n})])
    const response = await call(service, 'GET', '/deals/deal_000001')
    expect(response.status).toBe(200)
    expect(await readDeal(response)).toEqual({
      id: 'deal_000001',
      property_address: '1 Main St, Austin, TX 78701',
      loan_amount: 1_234_567.89,
      property_value: 500_000,
      loan_program: 'bridge_30yr',
      status: 'draft',
      created_at: new Date(NOW + 1).toISOString(),
    })
  })

  test('changes the fields that were sent and leaves the others', async () => {
    service.store.insert([aDeal(1)])
    const response = await call(service, 'PATCH', '/deals/deal_000001', {
      status: 'underwriting',
      loan_amount: 360_000.55,
      property_value: 510_000,
    })
    expect(response.status).toBe(200)
    const changed = {status: 'underwriting', loan_amount: 360_000.55, property_value: 510_000}
    expect(await readDeal(response)).toMatchObject({...changed, loan_program: 'bridge_30yr'})
    expect(await readDeal(await call(service, 'GET', '/deals/deal_000001'))).toMatchObject(changed)
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
    const response = await call(
      service,
      method,
      '/deals/deal_none',
      method === 'PATCH' ? {status: 'draft'} : undefined,
    )
    expect(response.status).toBe(404)
    expect(await readProblem(response)).toMatchObject({
      type: 'about:blank',
      title: 'Not Found',
      status: 404,
      code: 'deal_not_found',
    })
  })

  test('sums the portfolio per status, exact to the cent where doubles are not', async () => {
    service.store.insert([
      aDeal(1, {status: 'funded', loanAmountCents: 69_999_999_999_999_99n}),
      aDeal(2, {status: 'funded', loanAmountCents: 69_999_999_999_999_98n}),
      aDeal(3, {status: 'draft', loanAmountCents: 10n}),
      aDeal(4, {status: 'on_hold', loanAmountCents: 5n}),
    ])
    const response = await call(service, 'GET', '/reports/portfolio')
    expect(await response.json()).toEqual({
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

  test('reports an empty portfolio as zero', async () => {
    const response = await call(service, 'GET', '/reports/portfolio')
    expect(await response.json()).toEqual({data: {deals: 0, amount: '0.00', by_status: []}})
  })
})
