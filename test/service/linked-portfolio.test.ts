import {createHash} from 'node:crypto'
import {expect, test} from 'vitest'
import type {DealDocument} from '../../src/contract/document.ts'
import {linkPortfolio, seedPortfolio} from '../../src/service/portfolio.ts'
import type {RunningService} from '../../src/service/server.ts'
import {anyRow} from '../support/data.ts'
import {call, get, startTestService} from './client.ts'

const TODAY = '2026-03-02'
const DEALS = 60

async function aSeededService(seed = 7): Promise<RunningService> {
  const service = await startTestService()
  seedPortfolio(service.store, {deals: DEALS, seed, today: TODAY})
  linkPortfolio(service, {seed, since: 0, until: Date.parse(TODAY)})
  return service
}

test('every deal has one or two borrowers and the documents of its status, the same for the same seed', async () => {
  await using service = await aSeededService()
  await using again = await aSeededService()
  await using other = await aSeededService(8)
  for (const table of ['borrower', 'document', 'document_file']) {
    const readTable = ({database}: RunningService) =>
      database.all(anyRow, `select * from ${table} order by 1`)
    expect(readTable(again)).toEqual(readTable(service))
    expect(readTable(other)).not.toEqual(readTable(service))
  }
  const borrowers = service.database.all(anyRow, 'select count(*) as n from borrower group by deal_id')
  expect(borrowers).toHaveLength(DEALS)
  expect(new Set(borrowers.map(({n}) => n))).toEqual(new Set([1, 2]))
  const lacking = `select id from deal where status = 'funded' and id not in (
    select deal_id from document where category = 'closing'
  )`
  expect(service.database.all(anyRow, lacking)).toEqual([])
  const late = `select document.id from document join deal on deal.id = deal_id
    where document.created_at not between deal.created_at and ?`
  expect(service.database.all(anyRow, late, [Date.parse(TODAY)])).toEqual([])
})

test('every document downloads as its record says, until its deal is deleted', async () => {
  await using service = await aSeededService()
  const listDocuments = (id: string) => get<DealDocument[]>(service, `/deals/${id}/documents`)
  const documents = (await Promise.all(service.store.ids().map(listDocuments))).flat()
  expect(documents.length).toBeGreaterThan(DEALS * 2)
  for (const {id, deal_id, bytes, sha256, name} of documents) {
    const response = await call(service, 'GET', `/deals/${deal_id}/documents/${id}/content`)
    const content = Buffer.from(await response.arrayBuffer())
    expect(content.toString()).toMatch(new RegExp(`^${name} for .+\n$`))
    expect([content.length, createHash('sha256').update(content).digest('hex')]).toEqual([bytes, sha256])
  }
  const drafts = new Set(service.store.ids('draft'))
  const {deal_id, id} = documents.find((document) => drafts.has(document.deal_id))!
  expect((await call(service, 'DELETE', `/deals/${deal_id}`)).status).toBe(204)
  expect((await call(service, 'GET', `/deals/${deal_id}/documents/${id}/content`)).status).toBe(404)
  const left = 'select document_id from document_file where document_id not in (select id from document)'
  expect(service.database.all(anyRow, left)).toEqual([])
})
