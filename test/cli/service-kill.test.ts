import {createHash} from 'node:crypto'
import {mkdtempSync, readdirSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, onTestFinished, test, vi} from 'vitest'
import {createRandom} from '../../src/service/random.ts'
import {startReceiver, verifyNotification} from '../service/receiver.ts'
import {MAIN, type Started, startProcess} from '../support/lab.ts'

const API_KEY = 'sk_test_kill'
const ROUNDS = 3

interface Service extends Disposable {
  url: string
  started: Started
}

async function startAgain(dbPath: string): Promise<Service> {
  const options = [
    '--db',
    dbPath,
    '--deals',
    '0',
    '--rate',
    '0',
    '--api-key',
    API_KEY,
    '--allow-private-webhooks',
  ]
  const started = startProcess([process.execPath, MAIN, 'service', ...options, '--json'], {})
  await vi.waitFor(() => expect(started.printed().stdout).toMatch(/\n$/), {timeout: 20_000, interval: 10})
  const {url} = JSON.parse(started.printed().stdout) as {url: string}
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

const dataOf = async <T>(response: Response): Promise<T> => ((await response.json()) as {data: T}).data
const digestOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

test('a service killed amid uploads, deliveries and generation loses nothing it acknowledged', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'loantape-service-kill-'))
  onTestFinished(() => rmSync(folder, {recursive: true}))
  const dbPath = join(folder, 'service.db')
  await using receiver = await startReceiver()
  const random = createRandom('service kill')
  const acknowledged = {
    deals: new Set<string>(),
    documents: new Map<string, string>(),
    generations: new Set<string>(),
  }
  let secret = ''

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
        const content = new TextEncoder().encode(random.text(random.integer(1, 60_000)))
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
    const before = acknowledged.documents.size
    const working = Promise.allSettled(Array.from({length: 6}, work))
    await vi.waitFor(() => expect(acknowledged.documents.size).toBeGreaterThan(before + 8), {
      interval: 1,
      timeout: 20_000,
    })
    service.started.process.kill('SIGKILL')
    expect((await service.started.ended).signal).toBe('SIGKILL')
    await working
  }

  using service = await startAgain(dbPath)
  for (const id of acknowledged.deals) expect((await ask(`${service.url}/deals/${id}`)).status).toBe(200)
  for (const [path, sha256] of acknowledged.documents) {
    const bytes = await (await ask(`${service.url}/deals/${path}/content`)).bytes()
    expect(digestOf(bytes)).toBe(sha256)
  }
  for (const path of acknowledged.generations)
    await vi.waitFor(async () => {
      expect(await dataOf(await ask(`${service.url}/deals/${path}`))).toMatchObject({status: 'completed'})
    })

  const told = (): Set<string> =>
    new Set(receiver.received.map((one) => verifyNotification(one, secret).data.id))
  const owed = [
    ...acknowledged.deals,
    ...[...acknowledged.documents.keys()].map((path) => path.split('/').at(-1)!),
  ]
  await vi.waitFor(() => expect(owed.filter((id) => !told().has(id))).toEqual([]), {
    timeout: 30_000,
    interval: 50,
  })
  expect(readdirSync(`${dbPath}.files`).length).toBeGreaterThanOrEqual(
    acknowledged.documents.size + acknowledged.generations.size,
  )
})
