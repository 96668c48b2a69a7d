import {createHash} from 'node:crypto'
import {readdirSync} from 'node:fs'
import {connect} from 'node:net'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {z} from 'zod'
import type {DealDocument, DocumentGeneration} from '../../src/contract/document.ts'
import type {RunningService} from '../../src/service/server.ts'
import {useFolder} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {
  API_KEY,
  aDeal,
  call,
  get,
  PDF,
  readData,
  readPage,
  readRefusal,
  startTestService,
  upload,
} from './client.ts'

const DEAL = 'deal_000001'

const {root} = useFolder().folder
const dbPath = join(root, 'service.db')
let service: RunningService

const start = (): Promise<RunningService> => startTestService({dbPath})
const countFiles = () => service.database.column(z.number(), 'select count(*) from document_file')[0]
async function uploadTo(number: number, parts: Parameters<typeof upload>[2] = {}): Promise<DealDocument> {
  service.store.insert([aDeal(number)])
  return readData<DealDocument>(upload(service, aDeal(number).id, parts))
}

beforeEach(async () => {
  service = await start()
  service.store.insert([aDeal(1), aDeal(2)])
})
afterEach(() => service.close())

test('an upload, byte for byte, and a cursor outlive a restart; its deal alone shows a file', async () => {
  const content = new Uint8Array(150_000).map((_, index) => (index * 7919) % 256)
  content.set(new TextEncoder().encode(PDF))
  const name = 'Appraisal of 12 Main St – final (2)'
  const response = await upload(service, DEAL, {content, fileName: `Gutachten "ä" (O'Malley*).pdf`, name})
  const document = await readData<DealDocument>(response)
  const path = `/deals/${DEAL}/documents/${document.id}`
  expect([response.status, response.headers.get('location')]).toEqual([201, `/v1${path}`])
  expect(document).toMatchObject({
    deal_id: DEAL,
    file_name: `Gutachten "ä" (O'Malley*).pdf`,
    category: 'appraisal',
    name,
    media_type: 'application/pdf',
    bytes: content.length,
    sha256: createHash('sha256').update(content).digest('hex'),
  })
  const {next_cursor} = await readPage(service, '?limit=1')
  await service.close()
  service = await start()
  expect((await readPage(service, `?cursor=${next_cursor}`)).data).toMatchObject([{id: 'deal_000002'}])
  const got = await call(service, 'GET', `${path}/content`)
  expect(Buffer.from(await got.arrayBuffer()).equals(content)).toBe(true)
  expect(got.headers.get('content-type')).toBe('application/pdf')
  expect(got.headers.get('x-content-type-options')).toBe('nosniff')
  expect(got.headers.get('content-length')).toBe(String(content.length))
  const digest = createHash('sha256').update(content).digest('base64')
  expect(got.headers.get('repr-digest')).toBe(`sha-256=:${digest}:`)
  expect(got.headers.get('content-disposition')).toBe(
    `attachment; filename*=UTF-8''Gutachten%20%22%C3%A4%22%20%28O%27Malley%2A%29.pdf`,
  )
  for (const wrong of [path.replace(DEAL, 'deal_000002'), path.replace(document.id, 'doc_none')])
    for (const part of ['', '/content'])
      expect(await readRefusal(call(service, 'GET', wrong + part))).toBe('404 document_not_found')
  expect(await readRefusal(upload(service, 'deal_none'))).toBe('404 deal_not_found')
})

test('a file name is a label, never a path', async () => {
  const names = [
    '../../../../etc/passwd',
    '..\\..\\windows\\system.ini',
    '/etc/passwd',
    'a/../../b.pdf',
    '..',
    'nul\u0000byte.pdf',
    '%2e%2e%2fpasswd',
    "x'; drop table document; --.pdf",
    'invoice\u202Efdp.exe',
    'two\r\nlines/a.pdf',
    `${'😀'.repeat(300)}.pdf`,
  ]
  for (const [index, fileName] of names.entries()) {
    const {file_name} = await uploadTo(index + 10, {fileName})
    expect(file_name ?? '').not.toMatch(/[\\/\0\p{Bidi_Control}\ufffd]|%0[AD]/u)
  }
  expect(readdirSync(root).sort()).toEqual(['', '-shm', '-wal'].map((end) => `service.db${end}`))
})

test('the type of a file is read from its bytes; programs and unknown bytes are refused and not kept', async () => {
  const typeOf = async (number: number, content: string, fileName: string) =>
    (await uploadTo(number, {content, fileName})).media_type
  const text = 'text/plain; charset=utf-8'
  expect(await typeOf(11, '%PDF-1.7 named otherwise', 'photo.png')).toBe('application/pdf')
  expect(await typeOf(12, 'address,amount\n1 Main St,5\n', 'rent-roll.csv')).toBe(text)
  expect(await typeOf(13, '<html><script>alert(1)</script></html>', 'page.html')).toBe(text)
  for (const [index, words] of ['BMW lease', 'MZ Holding LLC', 'GIF of house', 'FORM 1040'].entries())
    expect(await typeOf(14 + index, words, 'note.txt')).toBe(text)
  const kept = countFiles()
  for (const bytes of [
    [0x4d, 0x5a, 0x90, 0, 3, 0, 0, 0],
    [0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0],
    [0, 1, 2, 3, 255, 254],
  ]) {
    const content = new Uint8Array(bytes)
    expect(await readRefusal(upload(service, DEAL, {content, fileName: 'deed.pdf'}))).toBe(
      '415 unsupported_file_type',
    )
  }
  expect(countFiles()).toBe(kept)
})

const part = (disposition: string, content: string): string =>
  `--x\r\ncontent-disposition: form-data; ${disposition}\r\n\r\n${content}\r\n`
const file = part('name="file"; filename="a.pdf"', PDF)

test('an upload that is too large, incomplete, doubled or no form is refused and not kept', async () => {
  for (const [refusal, parts] of [
    ['413 body_too_large', {content: PDF + 'x'.repeat(25 * 1024 * 1024)}],
    ['400 invalid_body category', {category: null}],
    ['400 invalid_body category', {category: 'Not a Word'}],
    ['400 invalid_body name', {name: null}],
    ['413 body_too_large', {name: 'x'.repeat(1001)}],
    ['400 invalid_body file', {content: ''}],
  ] as const)
    expect(await readRefusal(upload(service, DEAL, parts))).toBe(refusal)

  const send = async (body: string | Buffer, type = 'multipart/form-data; boundary=x') =>
    readRefusal(call(service, 'POST', `/deals/${DEAL}/documents`, body, {'content-type': type}))
  const fields = part('name="category"', 'appraisal') + part('name="name"', 'A')
  expect(await send(`${fields}${file}${file}--x--\r\n`)).toBe('400 invalid_body file')
  expect(await send(`${fields}${part('name="name"', 'B')}${file}--x--\r\n`)).toBe('400 invalid_body name')
  for (const [path, damaged] of [
    ['name', part('name="category"', 'appraisal') + part('name="name"', 'Straße') + file],
    ['file', fields + part('name="file"; filename="Straße.pdf"', PDF)],
  ] as const)
    expect(await send(Buffer.from(`${damaged}--x--\r\n`, 'latin1'))).toBe(`400 invalid_body ${path}`)
  const broken = part('name="name"\r\ncontent-type: application/json', '{')
  expect(await send(`${broken}${file}--x--\r\n`)).toBe('400 malformed_body')
  for (const body of [
    fields + part('name="other"; filename="a.pdf"', PDF),
    fields + part('name="surprise"', '1') + file,
    fields + part('name="__proto__"', '1') + file,
    fields,
  ])
    expect(await send(`${body}--x--\r\n`)).toMatch(/^4(00|13) (invalid_body|malformed_body|body_too_large)/)
  // The body lacks its end.
  expect(await send(fields + file)).toBe('400 malformed_body')
  for (const type of ['multipart/form-data', 'multipart/form-data; boundary=other'])
    expect(await send(file, type)).toMatch(/^400 /)
  for (const type of ['application/json', 'text/plain']) expect(await send(file, type)).toMatch(/^415 /)
  expect(service.database.db.prepare('select count(*) as n from document').get()).toEqual({n: 0})
  expect(countFiles()).toBe(0)
})

test('a broken connection leaves nothing behind', async () => {
  const {port} = new URL(service.url)
  const socket = connect(Number(port), '127.0.0.1')
  const head =
    `POST /v1/deals/${DEAL}/documents HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${API_KEY}\r\n` +
    'content-type: multipart/form-data; boundary=x\r\ncontent-length: 100000\r\n\r\n'
  const half = head + part('name="file"; filename="a.pdf"', PDF + 'x'.repeat(50_000))
  await new Promise((resolve) => socket.write(half, resolve))
  socket.destroy()
  expect((await upload(service, DEAL)).status).toBe(201)
  expect(countFiles()).toBe(1)
})

test('a deal has no more documents than allowed, and takes its files along when it is deleted', async () => {
  expect((await upload(service, DEAL)).status).toBe(201)
  const copied = `insert into document
    select 'doc_' || key, deal_id, category, name, file_name, media_type, bytes, sha256, created_at
    from document, json_each(?)`
  service.database.run(copied, [JSON.stringify(Array(198).fill(0))])
  expect((await upload(service, DEAL)).status).toBe(201)
  expect(await readRefusal(upload(service, DEAL))).toBe('409 too_many_documents')
  const generations = `/deals/${DEAL}/document-generations`
  await call(service, 'POST', generations, {template: 'term_sheet'})
  const [ended] = await until(async () => {
    const found = await get<DocumentGeneration[]>(service, generations)
    return found[0]?.status !== 'queued' && found
  })
  expect(ended).toMatchObject({status: 'failed', document_id: null})
  expect(countFiles()).toBe(2)
  await upload(service, 'deal_000002')
  await call(service, 'DELETE', `/deals/${DEAL}`)
  expect(countFiles()).toBe(1)
})
