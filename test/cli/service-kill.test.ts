import {createHash} from 'node:crypto'
import {readdirSync} from 'node:fs'
import {connect} from 'node:net'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {expect, test} from 'vitest'
import {createDealClient} from '../../src/client/client.ts'
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
  const client = createDealClient({baseUrl: url, apiKey: API_KEY, retries: 0})
  return {url, client, started, [Symbol.dispose]: () => started[Symbol.dispose]()}
}

/** Starts an upload that never ends. */
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

const digestOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

test('a service killed amid uploads, deliveries and generation loses nothing it acknowledged', async () => {
  using data = createFolder()
  const {root: folder} = data.folder
  const dbPath = join(folder, 'service.db')
  await using receiver = await startReceiver()
  const random = createRandom('service kill')
  const acknowledged = {
    deals: new Set<string>(),
    documents: new Map<string, {dealId: string; sha256: string}>(),
    generations: new Map<string, string>(),
  }
  let secret = ''
  // Notifications that are waiting for an answer when the service is killed.
  const unanswered = new Set<number>()
  receiver.answer = (turn) => {
    if (turn % 5 === 4) unanswered.add(turn)
    return turn % 5 === 4 ? 0 : 200
  }

  for (let round = 0; round < ROUNDS; round++) {
    using service = await startAgain(dbPath)
    const {url, client} = service
    if (secret === '') ({secret} = await client.webhookEndpoints.create({url: receiver.url}))

    const work = async (): Promise<void> => {
      for (;;) {
        const {id: dealId} = await client.deals.create({property_address: '1 Main St', loan_amount: 1})
        acknowledged.deals.add(dealId)
        const file = new TextEncoder().encode(random.text(random.integer(1, LARGEST_FILE)))
        const {id} = await client.documents.upload(dealId, {file, category: 'appraisal', name: 'Appraisal'})
        acknowledged.documents.set(id, {dealId, sha256: digestOf(file)})
        const generation = await client.documentGenerations.request(dealId, {template: 'term_sheet'})
        acknowledged.generations.set(generation.id, dealId)
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
  const {deals, documents, documentGenerations} = service.client
  for (const id of acknowledged.deals) expect((await deals.get(id)).id).toBe(id)
  for (const [id, {dealId, sha256}] of acknowledged.documents)
    expect(digestOf(await (await documents.download(dealId, id)).bytes())).toBe(sha256)
  for (const [id, dealId] of acknowledged.generations)
    await until(async () => (await documentGenerations.get(dealId, id)).status === 'completed')

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
  const changed = [...acknowledged.deals, ...acknowledged.documents.keys()]
  expect(changed.filter((id) => !told.has(id))).toEqual([])
  for (const turn of unanswered) {
    const again = receiver.received.findIndex(
      ({id}, later) => later > turn && id === receiver.received[turn]?.id,
    )
    expect(again).toBeGreaterThan(turn)
  }
})
