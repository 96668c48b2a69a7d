import {createHash} from 'node:crypto'
import {readdirSync} from 'node:fs'
import {connect} from 'node:net'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {expect, test} from 'vitest'
import {createRandom} from '../../src/service/portfolio.ts'
import {startReceiver, verifyNotification} from '../service/receiver.ts'
import {createFolder} from '../support/data.ts'
import {MAIN, startProcess, untilPrinted} from '../support/lab.ts'
import {until} from '../support/until.ts'

const API_KEY = 'sk_test_kill'
const ROUNDS = 2
const LARGEST_FILE = 60_000

async function startAgain(dbPath: string) {
  const options = `--db ${dbPath} --deals 0 --rate 0 --api-key ${API_KEY} --allow-private-webhooks --json`
  const started = startProcess([process.execPath, MAIN, 'service', ...options.split(' ')], {})
  const {url}: {url: string} = await untilPrinted(started)
  return {url, started, [Symbol.dispose]: () => started[Symbol.dispose]()}
}

function ask(url: string, body?: object | FormData): Promise<Response> {
  const isForm = body instanceof FormData
  const type = body === undefined || isForm ? {} : {'content-type': 'application/json'}
  return fetch(url, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {authorization: `Bearer ${API_KEY}`, ...type},
    ...(body !== undefined && {body: isForm ? body : JSON.stringify(body)}),
  })
}

/** Starts an upload and never ends it. */
async function uploadHalf(url: string, dealId: string): Promise<void> {
  const {port, pathname} = new URL(url)
  const socket = connect(Number(port), '127.0.0.1')
  socket.on('error', () => undefined)
  const head =
    `POST ${pathname}/deals/${dealId}/documents HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${API_KEY}\r\n` +
    'content-type: multipart/form-data; boundary=x\r\ncontent-length: 1000000\r\n\r\n'
  const part = '--x\r\ncontent-disposition: form-data; name="file"; filename="half.txt"\r\n\r\n'
  await new Promise((resolve) => socket.write(head + part + 'half '.repeat(20_000), resolve))
}

const dataOf = async <T>(response: Response): Promise<T> => ((await response.json()) as {data: T}).data
const digestOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

test('a service killed amid uploads, deliveries and generation loses nothing it acknowledged', async () => {
  using data = createFolder()
  const {root: folder} = data.folder
  const dbPath = join(folder, 'service.db')
  await using receiver = await startReceiver()
  const random = createRandom('service kill')
  const acknowledged = {
    deals: new Set<string>(),
    documents: new Map<string, string>(),
    generations: new Set<string>(),
  }
  let secret = ''
  // The service is killed while these notifications wait for an answer.
  const unanswered = new Set<number>()
  receiver.answer = (turn) => {
    if (turn % 5 === 4) unanswered.add(turn)
    return turn % 5 === 4 ? 0 : 200
  }

  for (let round = 0; round < ROUNDS; round++) {
    using service = await startAgain(dbPath)
    const {url} = service
    if (secret === '')
      ({secret} = await dataOf<{secret: string}>(await ask(`${url}/webhook-endpoints`, {url: receiver.url})))

    const work = async (): Promise<void> => {
      for (;;) {
        const deal = {property_address: '1 Main St', loan_amount: 1}
        const {id} = await dataOf<{id: string}>(await ask(`${url}/deals`, deal))
        acknowledged.deals.add(id)
        const content = new TextEncoder().encode(random.text(random.integer(1, LARGEST_FILE)))
        const form = new FormData()
        form.set('category', 'appraisal')
        form.set('name', 'Appraisal')
        form.set('file', new Blob([content]), 'appraisal.txt')
        const document = await dataOf<{id: string}>(await ask(`${url}/deals/${id}/documents`, form))
        acknowledged.documents.set(`${id}/documents/${document.id}`, digestOf(content))
        const asked = await ask(`${url}/deals/${id}/document-generations`, {template: 'term_sheet'})
        const generation = await dataOf<{id: string}>(asked)
        acknowledged.generations.add(`${id}/document-generations/${generation.id}`)
      }
    }
    const before = {documents: acknowledged.documents.size, unanswered: unanswered.size}
    const working = Promise.allSettled(Array.from({length: 6}, work))
    await until(
      () => acknowledged.documents.size > before.documents + 8 && unanswered.size > before.unanswered,
    )
    const [deal = ''] = acknowledged.deals
    await uploadHalf(url, deal)
    service.started.process.kill('SIGKILL')
    expect((await service.started.ended).signal).toBe('SIGKILL')
    await working
  }

  receiver.answer = () => 200
  using service = await startAgain(dbPath)
  for (const id of acknowledged.deals) expect((await ask(`${service.url}/deals/${id}`)).status).toBe(200)
  for (const [path, sha256] of acknowledged.documents) {
    const bytes = await (await ask(`${service.url}/deals/${path}/content`)).bytes()
    expect(digestOf(bytes)).toBe(sha256)
  }
  for (const path of acknowledged.generations)
    await until(async () => {
      const {status} = await dataOf<{status: string}>(await ask(`${service.url}/deals/${path}`))
      return status === 'completed'
    })

  using kept = new DatabaseSync(dbPath, {readOnly: true})
  const list = (sql: string) => kept.prepare(sql).all().flatMap(Object.values).map(String)
  await until(
    () =>
      list("select id from document_generation where status <> 'completed'").length === 0 &&
      list("select id from webhook_delivery where status <> 'delivered'").length === 0,
  )
  expect(list('select document_id from document_file order by 1')).toEqual(
    list('select id from document order by 1'),
  )
  expect(readdirSync(folder).sort()).toEqual(['', '-shm', '-wal'].map((end) => `service.db${end}`))

  const taken = receiver.received.filter((_, turn) => !unanswered.has(turn))
  expect(new Set(taken.map(({id}) => id))).toEqual(new Set(list('select id from event')))
  const told = new Set(taken.map((one) => verifyNotification(one, secret).data.id))
  const documents = [...acknowledged.documents.keys()].map((path) => path.split('/').at(-1) ?? '')
  expect([...acknowledged.deals, ...documents].filter((id) => !told.has(id))).toEqual([])
  for (const turn of unanswered) {
    const again = receiver.received.findIndex(
      ({id}, later) => later > turn && id === receiver.received[turn]?.id,
    )
    expect(again).toBeGreaterThan(turn)
  }
})
