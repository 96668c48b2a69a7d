import {hash} from 'node:crypto'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {linkPortfolio, seedPortfolio} from '../../src/service/portfolio.ts'
import type {RunningService} from '../../src/service/server.ts'
import {anyRow} from '../support/data.ts'
import {startTestService} from './client.ts'

const TODAY = '2026-03-02'
const DEALS = 60
const fileRow = z.object({bytes: z.number(), sha256: z.string(), content: z.instanceof(Uint8Array)})

async function aSeededService(seed = 7): Promise<RunningService> {
  const service = await startTestService()
  seedPortfolio(service.store, {deals: DEALS, seed, today: TODAY})
  linkPortfolio(service, {seed, since: 0, until: Date.parse(TODAY)})
  return service
}

test('every deal has one or two borrowers and the whole documents of its status, the same for the same seed', async () => {
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
  const stored = 'select bytes, sha256, content from document join document_file on document_id = id'
  const files = service.database.all(fileRow, stored)
  expect(files.length).toBeGreaterThan(DEALS * 2)
  for (const {bytes, sha256, content} of files)
    expect([content.length, hash('sha256', content)]).toEqual([bytes, sha256])
})
