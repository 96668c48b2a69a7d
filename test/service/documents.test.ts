import {spawnSync} from 'node:child_process'
import {createHash} from 'node:crypto'
import {existsSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync} from 'node:fs'
import {connect} from 'node:net'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import type {DealDocument} from '../../src/contract/document.ts'
import type {RunningService} from '../../src/service/server.ts'
import {until} from '../support/until.ts'
import {API_KEY, aDeal, call, PDF, readData, readProblem, startTestService, upload} from './client.ts'

const DEAL = 'deal_000001'

describe('documents', () => {
  let root: string
  let dbPath: string
  let service: RunningService

  const start = (): Promise<RunningService> =>
    startTestService({dbPath, maxFileBytes: 200_000, documentsPerDeal: 3})
  const listFiles = (): string[] =>
    existsSync(`${dbPath}.files`) ? readdirSync(`${dbPath}.files`).sort() : []

  beforeEach(async () => {
    root = mkdtempSync(join(tmpdir(), 'loantape-documents-'))
    dbPath = join(root, 'service.db')
    service = await start()
    service.store.insert([aDeal(1), aDeal(2)])
  })
  afterEach(async () => {
    await service.close()
    rmSync(root, {recursive: true})
  })

  test('an upload is kept byte for byte and can be downloaded, even after a restart', async () => {
    const content = new Uint8Array(150_000).map((_, index) => (index * 7919) % 256)
    content.set(new TextEncoder().encode(PDF))
    const response = await upload(service, DEAL, {content, fileName: 'Gutachten "ä".pdf'})
    const document = await readData<DealDocument>(response)
    const sha256 = createHash('sha256').update(content).digest('hex')
    expect(response.status).toBe(201)
    expect(response.headers.get('location')).toBe(`/v1/deals/${DEAL}/documents/${document.id}`)
    expect(document).toMatchObject({
      deal_id: DEAL,
      category: 'appraisal',
      name: 'Appraisal',
      media_type: 'application/pdf',
      bytes: content.length,
      sha256,
    })
    await service.close()
    service = await start()
    const got = await call(service, 'GET', `/deals/${DEAL}/documents/${document.id}/content`)
    expect(Buffer.from(await got.arrayBuffer()).equals(content)).toBe(true)
    expect(got.headers.get('content-type')).toBe('application/pdf')
    expect(got.headers.get('x-content-type-options')).toBe('nosniff')
    expect(got.headers.get('content-disposition')).toMatch(/^attachment; filename\*=UTF-8''/)
    expect(listFiles()).toEqual([document.id])
  })

  test('a document belongs to its deal', async () => {
    const {id} = await readData<DealDocument>(await upload(service, DEAL))
    for (const path of [`/deals/deal_000002/documents/${id}`, `/deals/${DEAL}/documents/doc_none`]) {
      const response = await call(service, 'GET', path)
      expect([response.status, (await readProblem(response)).code]).toEqual([404, 'document_not_found'])
      expect((await call(service, 'GET', `${path}/content`)).status).toBe(404)
    }
  })

  test.each([
    '../../../../etc/passwd',
    '..\\..\\windows\\system.ini',
    '/etc/passwd',
    'a/../../b.pdf',
    '..',
    'nul\u0000byte.pdf',
    '%2e%2e%2fpasswd',
    "x'; drop table document; --.pdf",
    'invoice\u202Efdp.exe',
  ])('the file name %j is a label, never a path', async (fileName) => {
    const document = await readData<DealDocument>(await upload(service, DEAL, {fileName}))
    expect(document.file_name ?? '').not.toMatch(/[\\/\0\p{Bidi_Control}]/u)
    expect(listFiles()).toEqual([document.id])
    expect(readdirSync(root).sort()).toEqual(['', '-shm', '-wal', '.files'].map((end) => `service.db${end}`))
  })

  test.each([
    ['%PDF-1.7 named otherwise', 'photo.png', 'application/pdf'],
    ['address,amount\n1 Main St,5\n', 'rent-roll.csv', 'text/plain; charset=utf-8'],
    ['<html><script>alert(1)</script></html>', 'page.html', 'text/plain; charset=utf-8'],
  ])('the type of %j is read from its bytes', async (content, fileName, mediaType) => {
    const document = await readData<DealDocument>(await upload(service, DEAL, {content, fileName}))
    expect(document.media_type).toBe(mediaType)
  })

  test.each([
    ['a program', [0x4d, 0x5a, 0x90, 0, 3, 0, 0, 0], [415, 'unsupported_file_type']],
    ['an ELF program', [0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0], [415, 'unsupported_file_type']],
    ['unknown bytes', [0, 1, 2, 3, 255, 254], [415, 'unsupported_file_type']],
    ['a file over the limit', Buffer.from(PDF + 'x'.repeat(200_000)), [413, 'body_too_large']],
  ])('%s named .pdf is refused and not kept', async (_, bytes, refusal) => {
    const response = await upload(service, DEAL, {content: new Uint8Array(bytes), fileName: 'deed.pdf'})
    expect([response.status, (await readProblem(response)).code]).toEqual(refusal)
    expect(listFiles()).toEqual([])
  })

  test('a deal has no more documents than allowed', async () => {
    for (let n = 0; n < 3; n++) expect((await upload(service, DEAL)).status).toBe(201)
    const response = await upload(service, DEAL)
    expect([response.status, (await readProblem(response)).code]).toEqual([409, 'too_many_documents'])
    expect(listFiles()).toHaveLength(3)
  })

  test.each([
    ['category', {category: null}],
    ['category', {category: 'Not a Word'}],
    ['name', {name: null}],
    ['file', {content: ''}],
  ])('a missing or wrong %s is refused and nothing is kept', async (path, parts) => {
    const response = await upload(service, DEAL, parts)
    const problem = await readProblem(response)
    expect([response.status, problem.code]).toEqual([400, 'invalid_body'])
    expect(problem.errors?.map((error) => error.path)).toEqual([path])
    expect(listFiles()).toEqual([])
  })

  const send = (body: string, type = 'multipart/form-data; boundary=x'): Promise<Response> =>
    fetch(`${service.url}/deals/${DEAL}/documents`, {
      method: 'POST',
      headers: {authorization: `Bearer ${API_KEY}`, 'content-type': type},
      body,
    })
  const part = (disposition: string, content: string): string =>
    `--x\r\ncontent-disposition: form-data; ${disposition}\r\n\r\n${content}\r\n`

  test('two files, a file under another name, and unknown fields are refused', async () => {
    const fields = part('name="category"', 'appraisal') + part('name="name"', 'A')
    const file = part('name="file"; filename="a.pdf"', PDF)
    for (const body of [
      fields + file + file,
      fields + part('name="other"; filename="a.pdf"', PDF),
      fields + part('name="surprise"', '1') + file,
      fields + part('name="__proto__"', '1') + file,
      fields,
    ]) {
      const response = await send(`${body}--x--\r\n`)
      expect([400, 413]).toContain(response.status)
      expect((await readProblem(response)).code).toMatch(/^(invalid_body|malformed_body|body_too_large)$/)
    }
    expect(service.database.prepare('select count(*) as n from document').get()).toEqual({n: 0})
    expect(listFiles()).toEqual([])
  })

  test.each([
    ['multipart/form-data', 400],
    ['application/json', 415],
    ['text/plain', 415],
    ['multipart/form-data; boundary=other', 400],
  ])('a body sent as %s is refused', async (type, status) => {
    const response = await send(part('name="file"; filename="a.pdf"', PDF), type)
    expect(response.status).toBe(status)
    expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/)
  })

  test('a broken connection leaves nothing behind', async () => {
    const {port} = new URL(service.url)
    const socket = connect(Number(port), '127.0.0.1')
    const head =
      `POST /v1/deals/${DEAL}/documents HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${API_KEY}\r\n` +
      'content-type: multipart/form-data; boundary=x\r\ncontent-length: 100000\r\n\r\n'
    socket.write(head + part('name="file"; filename="a.pdf"', PDF + 'x'.repeat(50_000)))
    await until(() => listFiles().length === 1)
    socket.destroy()
    await until(() => listFiles().length === 0)
    expect((await upload(service, DEAL)).status).toBe(201)
  })

  test('a deleted deal takes its files with it', async () => {
    await upload(service, DEAL)
    const other = await readData<DealDocument>(await upload(service, 'deal_000002'))
    await call(service, 'DELETE', `/deals/${DEAL}`)
    expect(listFiles()).toEqual([other.id])
  })

  test('the next service removes what a killed one left, but not what another one is receiving', async () => {
    const {id} = await readData<DealDocument>(await upload(service, DEAL))
    await service.close()
    const others = `incoming-${process.ppid}-a`
    const stale = `incoming-${process.ppid}-b`
    const dead = spawnSync(process.execPath, ['--version']).pid
    const left = [`incoming-${process.pid}-c`, `incoming-${dead}-d`, 'incoming-e', 'doc_never_committed']
    for (const name of [others, stale, ...left]) writeFileSync(join(`${dbPath}.files`, name), 'x')
    utimesSync(join(`${dbPath}.files`, stale), 0, 0)
    service = await start()
    expect(listFiles()).toEqual([id, others].sort())
  })
})
