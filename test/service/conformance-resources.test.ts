import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import type {Borrower} from '../../src/contract/borrower.ts'
import type {DealDocument} from '../../src/contract/document.ts'
import type {RunningService} from '../../src/service/server.ts'
import {
  aDeal,
  call,
  insertDeals,
  PDF,
  readData,
  readDeal,
  readPage,
  readProblem,
  startTestService,
  upload,
  walkIds,
} from './client.ts'

// Each title quotes the sentence of the specification that the test covers.
let service: RunningService

beforeEach(async () => {
  service = await startTestService()
})
afterEach(() => service.close())

const newDeal = {
  property_address: '12 Main St, Austin, TX 78701',
  loan_amount: 350_000.1,
  property_value: 500_000,
  loan_program: 'bridge_30yr',
}
const create = (body: object = newDeal): Promise<Response> => call(service, 'POST', '/deals', body)

describe('Deal', () => {
  test('"id: string. Deal identifier, prefixed `deal_` followed by an opaque suffix. Assigned by the service."', async () => {
    expect((await readDeal(await create())).id).toMatch(/^deal_[0-9a-z]+$/)
    expect((await create({...newDeal, id: 'deal_mine'})).status).toBe(400)
  })

  test('"property_address: string. Street address of the property, free text. Sent on creation."', async () => {
    const texts = ['Parcel 12-0, behind the mill', '12 "The Foundry"\nUnit 4', 'Calle José Martí 1 🏠']
    for (const property_address of texts)
      expect(await readDeal(await create({...newDeal, property_address}))).toMatchObject({property_address})
    expect((await create({...newDeal, property_address: 12})).status).toBe(400)
  })

  test.each(['loan_amount', 'property_value'])('"%s: number. Sent on creation."', async (field) => {
    for (const amount of [0, 0.01, 350_000.1, 1e6, 69_999_999_999_999.98])
      expect(await readDeal(await create({...newDeal, [field]: amount}))).toMatchObject({[field]: amount})
    expect((await create({...newDeal, [field]: '350000'})).status).toBe(400)
  })

  test('"loan_program: string. Loan program identifier. Sent on creation. The value `bridge_30yr` is known to be accepted."', async () => {
    expect((await readDeal(await create())).loan_program).toBe('bridge_30yr')
    expect((await create({...newDeal, loan_program: 30})).status).toBe(400)
  })

  test('"status: string. Deal status; see States and transitions. A newly created deal has status `draft`."', async () => {
    expect((await readDeal(await create())).status).toBe('draft')
  })

  test('"created_at: string. Creation time. Returned as an ISO 8601 UTC timestamp on creation; list output may show a date only."', async () => {
    const {created_at} = await readDeal(await create())
    expect(created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/)
    expect((await readPage(service)).data[0]?.created_at).toBe(created_at)
  })
})

describe('Borrower (linked to a deal)', () => {
  const borrower = {first_name: 'Ada', last_name: 'Lovelace', email: 'ada@example.com', ssn_last_four: '6789'}
  const link = (body: object): Promise<Response> =>
    call(service, 'POST', '/deals/deal_000001/borrowers', body)

  beforeEach(() => insertDeals(service, 1))

  test.each(['first_name', 'last_name'])('"%s: string. Sent when linking."', async (field) => {
    expect(await readData<Borrower>(await link(borrower))).toMatchObject({
      [field]: borrower[field as 'email'],
    })
    expect((await link({...borrower, [field]: 1})).status).toBe(400)
  })

  test('"email: string. E-mail address, sent when linking."', async () => {
    expect((await readData<Borrower>(await link(borrower))).email).toBe('ada@example.com')
    expect((await link({...borrower, email: 'ada'})).status).toBe(400)
  })

  test('"ssn_last_four: string. Last four digits of a national identification number, sent when linking."', async () => {
    expect((await link(borrower)).status).toBe(201)
    for (const wrong of ['678', '67890', 'abcd', 6789])
      expect((await link({...borrower, ssn_last_four: wrong})).status).toBe(400)
  })
})

describe('Document (attached to a deal)', () => {
  beforeEach(() => insertDeals(service, 1))

  test('"file: binary file. The uploaded file."', async () => {
    const document = await readData<DealDocument>(await upload(service, 'deal_000001'))
    const path = `/deals/deal_000001/documents/${document.id}/content`
    expect(await (await call(service, 'GET', path)).text()).toBe(PDF)
  })

  test('"category: string. Document category. The value `appraisal` is known."', async () => {
    const document = await readData<DealDocument>(await upload(service, 'deal_000001'))
    expect(document.category).toBe('appraisal')
  })

  test('"name: string. Human-readable document name."', async () => {
    const name = 'Appraisal of 12 Main St – final (2)'
    expect((await readData<DealDocument>(await upload(service, 'deal_000001', {name}))).name).toBe(name)
  })
})

describe('Pagination properties', () => {
  beforeEach(() => insertDeals(service, 101))

  test('"limit: number. Maximum records to return; 1 to 100; default 25. Request parameter."', async () => {
    expect((await readPage(service)).data).toHaveLength(25)
    for (const limit of [1, 100])
      expect((await readPage(service, `?limit=${limit}`)).data).toHaveLength(limit)
    for (const limit of [0, 101]) {
      const response = await call(service, 'GET', `/deals?limit=${limit}`)
      expect([response.status, (await readProblem(response)).code]).toEqual([400, 'invalid_parameter'])
    }
  })

  test('"cursor: string. Cursor taken from a previous response to get the next page. Request parameter."', async () => {
    const {next_cursor} = await readPage(service, '?limit=1')
    expect((await readPage(service, `?limit=1&cursor=${next_cursor}`)).data[0]?.id).toBe('deal_000002')
  })

  test('"has_more: boolean. True when more records exist beyond this page. Response property."', async () => {
    const first = await readPage(service, '?limit=100')
    expect(first.has_more).toBe(true)
    expect((await readPage(service, `?limit=100&cursor=${first.next_cursor}`)).has_more).toBe(false)
  })

  test('"next_cursor: string. Cursor value for fetching the next page. Response property."', async () => {
    expect(await walkIds(service, 25)).toHaveLength(101)
  })
})

describe('States and transitions', () => {
  test('"Deal `status` values that occur: `draft`, `underwriting`, `approved`, `funded`."', async () => {
    service.store.insert([aDeal(1)])
    for (const status of ['underwriting', 'approved', 'funded'])
      expect(await readDeal(await call(service, 'PATCH', '/deals/deal_000001', {status}))).toMatchObject({
        status,
      })
    service.store.insert([aDeal(2)])
    expect((await call(service, 'PATCH', '/deals/deal_000002', {status: 'closed'})).status).toBe(400)
  })

  test('"(none) | create a deal | always | draft | the deal receives an id and created_at"', async () => {
    const deal = await readDeal(await create())
    expect(deal).toMatchObject({id: expect.any(String), created_at: expect.any(String), status: 'draft'})
  })
})
