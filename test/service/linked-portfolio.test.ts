import {createHash} from 'node:crypto'
import {existsSync, mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterAll, beforeAll, describe, expect, test} from 'vitest'
import {z} from 'zod'
import type {DealDocument} from '../../src/contract/document.ts'
import {linkPortfolio, seedPortfolio} from '../../src/service/portfolio.ts'
import type {RunningService} from '../../src/service/server.ts'
import {call, startTestService} from './client.ts'

const TODAY = '2026-03-02'
const DEALS = 60

const anyRow = z.record(z.string(), z.unknown())
const readTable = (service: RunningService, table: string) =>
  service.database.all(anyRow, `select * from ${table} order by 1`)

function seed(service: RunningService, seed = 7): void {
  seedPortfolio(service.store, {deals: DEALS, seed, today: TODAY})
  linkPortfolio(service, {seed, since: 0, until: Date.parse(TODAY)})
}

describe('the links of a synthetic portfolio', () => {
  let root: string
  let dbPath: string
  let service: RunningService

  beforeAll(async () => {
    root = mkdtempSync(join(tmpdir(), 'loantape-linked-'))
    dbPath = join(root, 'service.db')
    service = await startTestService({dbPath})
    seed(service)
  })
  afterAll(async () => {
    await service.close()
    rmSync(root, {recursive: true})
  })

  const listDocuments = async (id: string): Promise<DealDocument[]> =>
    ((await (await call(service, 'GET', `/deals/${id}/documents`)).json()) as {data: DealDocument[]}).data

  test('are the same for the same seed and date, and different for others', async () => {
    await using again = await startTestService()
    seed(again)
    await using other = await startTestService()
    seed(other, 8)
    for (const table of ['borrower', 'document', 'made_up_file']) {
      expect(readTable(again, table)).toEqual(readTable(service, table))
      expect(readTable(other, table)).not.toEqual(readTable(service, table))
    }
  })

  test('are one or two borrowers for every deal, and what a lender has on file for its status', () => {
    const borrowers = service.database.all(anyRow, 'select count(*) as n from borrower group by deal_id')
    expect(borrowers).toHaveLength(DEALS)
    expect(new Set(borrowers.map(({n}) => n))).toEqual(new Set([1, 2]))
    const lacking = `select id from deal where status = 'funded' and id not in (
      select deal_id from document where category = 'closing'
    )`
    expect(service.database.all(anyRow, lacking)).toEqual([])
    const late = `select document.id from document join deal on deal.id = deal_id
      where document.created_at not between deal.created_at and ?`
    expect(service.database.all(anyRow, late, Date.parse(TODAY))).toEqual([])
  })

  test('every document downloads as its record says: bytes, length, type and digest, even after a restart', async () => {
    await service.close()
    service = await startTestService({dbPath})
    const documents = (await Promise.all(service.store.ids().map(listDocuments))).flat()
    expect(documents.length).toBeGreaterThan(DEALS * 2)
    for (const {id, deal_id, bytes, sha256, media_type, name} of documents) {
      const response = await call(service, 'GET', `/deals/${deal_id}/documents/${id}/content`)
      const content = Buffer.from(await response.arrayBuffer())
      expect(content.toString()).toMatch(new RegExp(`^${name} for .+\n$`))
      expect({
        status: response.status,
        type: response.headers.get('content-type'),
        length: response.headers.get('content-length'),
        bytes: content.length,
        sha256: createHash('sha256').update(content).digest('hex'),
        digest: response.headers.get('repr-digest'),
      }).toEqual({
        status: 200,
        type: media_type,
        length: String(bytes),
        bytes,
        sha256,
        digest: `sha-256=:${Buffer.from(sha256, 'hex').toString('base64')}:`,
      })
    }
    expect(existsSync(`${dbPath}.files`)).toBe(false)
  })

  test('are deleted with their deal', async () => {
    const documents = (await Promise.all(service.store.ids('draft').map(listDocuments))).flat()
    const {deal_id, id} = documents[0]!
    expect((await call(service, 'DELETE', `/deals/${deal_id}`)).status).toBe(204)
    expect((await call(service, 'GET', `/deals/${deal_id}/documents/${id}/content`)).status).toBe(404)
    const left = 'select document_id from made_up_file where document_id not in (select id from document)'
    expect(service.database.all(anyRow, left)).toEqual([])
  })
})
