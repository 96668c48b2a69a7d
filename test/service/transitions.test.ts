import {describe, expect, onTestFinished, test} from 'vitest'
import {DEAL_STATUSES} from '../../src/contract/deal.ts'
import type {RunningService} from '../../src/service/server.ts'
import {aDeal, call, callWith, readDeal, readProblem, startTestService} from './client.ts'

const PATH = '/deals/deal_000001'

async function aService(status: string, fields: Parameters<typeof aDeal>[1] = {}): Promise<RunningService> {
  const service = await startTestService()
  onTestFinished(() => service.close())
  service.store.insert([aDeal(1, {status, ...fields})])
  return service
}

describe('status transitions', () => {
  const allowed = new Set([
    'draft>underwriting',
    'underwriting>draft',
    'underwriting>approved',
    'approved>underwriting',
    'approved>funded',
    'funded>paid_off',
    ...DEAL_STATUSES.map((status) => `${status}>${status}`),
  ])
  const pairs = DEAL_STATUSES.flatMap((from) => DEAL_STATUSES.map((to) => ({from, to})))

  test('every status follows another only as the table says', async () => {
    const service = await aService('draft')
    for (const [index, {from, to}] of pairs.entries()) {
      const deal = aDeal(index + 2, {status: from})
      service.store.insert([deal])
      const response = await call(service, 'PATCH', `/deals/${deal.id}`, {status: to})
      const isAllowed = allowed.has(`${from}>${to}`)
      expect([from, to, response.status]).toEqual([from, to, isAllowed ? 200 : 409])
      if (!isAllowed) expect((await readProblem(response)).code).toBe('invalid_transition')
      expect(service.store.get(deal.id)).toEqual({...deal, ...(isAllowed && {status: to})})
    }
  })

  test('a deal enters underwriting with an amount, a value and a program, sent with the status or before', async () => {
    const bare = {loanAmountCents: 0n, propertyValueCents: null, loanProgram: null}
    const service = await aService('draft', bare)
    const refused = await call(service, 'PATCH', PATH, {status: 'underwriting'})
    const problem = await readProblem(refused)
    expect([refused.status, problem.code]).toEqual([409, 'incomplete_deal'])
    expect(problem.errors?.map(({path}) => path)).toEqual(['loan_amount', 'property_value', 'loan_program'])
    expect(service.store.get('deal_000001')).toEqual(aDeal(1, bare))
    const whole = {status: 'underwriting', loan_amount: 1, property_value: 2, loan_program: 'bridge_30yr'}
    expect(await readDeal(await call(service, 'PATCH', PATH, whole))).toMatchObject(whole)
  })

  test('the fields underwriting rests on cannot be removed again', async () => {
    const service = await aService('approved')
    for (const change of [{property_value: null}, {loan_program: null}]) {
      const response = await call(service, 'PATCH', PATH, change)
      expect([response.status, (await readProblem(response)).code]).toEqual([409, 'incomplete_deal'])
    }
    expect((await call(service, 'PATCH', PATH, {loan_amount: 360_000})).status).toBe(200)
  })

  test.each(['funded', 'paid_off'])('a deal that is %s cannot be deleted', async (status) => {
    const service = await aService(status)
    const response = await call(service, 'DELETE', PATH)
    expect([response.status, (await readProblem(response)).code]).toEqual([409, 'deal_funded'])
    expect(service.store.count()).toBe(1)
  })
})

describe('If-Match', () => {
  test('lets a change through only on the deal the caller saw', async () => {
    const service = await aService('draft')
    const etag = (await call(service, 'GET', PATH)).headers.get('etag')!
    const change = (ifMatch: string, loan_amount: number) =>
      callWith(service, {method: 'PATCH', path: PATH, body: {loan_amount}, headers: {'if-match': ifMatch}})

    const first = await change(etag, 1)
    expect(first.status).toBe(200)
    const late = await change(etag, 2)
    expect([late.status, (await readProblem(late)).code]).toEqual([412, 'precondition_failed'])
    expect(service.store.get('deal_000001')?.loanAmountCents).toBe(100n)

    expect((await change(`W/${first.headers.get('etag')}`, 3)).status).toBe(412)
    expect((await change(`"other", ${first.headers.get('etag')}`, 3)).status).toBe(200)
    expect((await change('*', 4)).status).toBe(200)
  })

  test('protects deletion, too', async () => {
    const service = await aService('draft')
    const path = PATH
    const stale = await callWith(service, {method: 'DELETE', path, headers: {'if-match': '"old"'}})
    expect(stale.status).toBe(412)
    const etag = (await call(service, 'GET', PATH)).headers.get('etag')!
    expect((await callWith(service, {method: 'DELETE', path, headers: {'if-match': etag}})).status).toBe(204)
  })
})
