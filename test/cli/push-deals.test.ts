import {appendFileSync, existsSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {parse} from 'csv-parse/sync'
import {beforeEach, expect, onTestFinished, test, vi} from 'vitest'
import {parseDealRows, pushDeals} from '../../src/cli/push.ts'
import {createDealClient} from '../../src/client/index.ts'
import {realClock} from '../../src/core/clock.ts'
import {API_KEY, startTestService} from '../service/client.ts'
import {sendJson, startProxy, startTestServer} from '../source/test-server.ts'
import {runCommand} from '../support/command.ts'
import {useFolder, useShared} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const CSV = `external_reference,property_address,loan_amount,property_value,loan_program
crm-1,"12 Main St, Austin, TX 78701",350000.10,500000,bridge_30yr
crm-2,"Lot 7; ""The Mill""",1000000,,
`

const service = await useShared(startTestService())
const folder = useFolder().folder.root
const resultFile = join(folder, 'deals.csv.result.csv')
beforeEach(service.remember())

type Way = {baseUrl?: string; apiKey?: string; signal?: AbortSignal; retries?: number}
const push = (csv: string, more: Way = {}) => {
  const to = {baseUrl: service.url, apiKey: API_KEY, retries: 0, ...more}
  const {signal = new AbortController().signal} = more
  const client = createDealClient(to)
  return pushDeals(parseDealRows('deals.csv', csv), {...to, client, resultFile, clock: realClock, signal})
}
const expectUnreachable = (csv: string, way?: Way) =>
  expect(push(csv, way)).rejects.toMatchObject({code: 'PUSH_UNREACHABLE', exitCode: 6})
const NONE = {created: 0, known: 0, invalid: 0, refused: 0, unclear: 0}
/** Changes the result file as a person or a spreadsheet does. */
const editResults = (from: string | RegExp, to: string) =>
  writeFileSync(resultFile, readFileSync(resultFile, 'utf8').replaceAll(from, to))
/** Loses the answers of all creations. */
const loseAnswers = () =>
  service.faults.add({match: {method: 'POST'}, fault: {kind: 'reset', when: 'mid_body'}})
const readResults = (): Record<string, string>[] => parse(readFileSync(resultFile, 'utf8'), {columns: true})

test('creates a deal for every row, exact to the cent, and reports its id', async () => {
  expect(await push(CSV)).toEqual({...NONE, created: 2})
  const stored = service.store.list({limit: 100}).map(({id, created_at, ...deal}) => deal)
  expect(stored).toHaveLength(2)
  expect(stored).toContainEqual({
    property_address: '12 Main St, Austin, TX 78701',
    loan_amount_cents: 35_000_010n,
    property_value_cents: 50_000_000n,
    loan_program: 'bridge_30yr',
    status: 'draft',
  })
  expect(stored).toContainEqual({
    property_address: 'Lot 7; "The Mill"',
    loan_amount_cents: 100_000_000n,
    property_value_cents: null,
    loan_program: null,
    status: 'draft',
  })
  const results = readResults().filter(({outcome}) => outcome === 'created')
  expect(results.map(({line}) => line).sort()).toEqual(['2', '3'])
  expect(results.map(({deal_id}) => deal_id).sort()).toEqual(service.store.ids().sort())
})

test('creates nothing twice: not on a second run, nor when the result file is missing, torn or saved by a spreadsheet', async () => {
  await push(CSV)
  writeFileSync(resultFile, `\uFEFF${readFileSync(resultFile, 'utf8').replaceAll('\n', '\r\n')}`)
  const more = `${CSV}crm-9,1 Main St,5,,\n`
  expect(await push(more)).toMatchObject({created: 1, known: 2})
  expect(await push(more)).toMatchObject({created: 0, known: 3})
  rmSync(resultFile)
  await push(CSV)
  const header = readFileSync(resultFile, 'utf8').split('\n')[0]
  expect(await push(CSV)).toMatchObject({created: 0, known: 2})
  rmSync(resultFile)
  expect(await push(CSV)).toMatchObject({created: 2, known: 0})
  appendFileSync(resultFile, '4,"crm-3,created,dea')
  expect(await push(CSV)).toMatchObject({created: 0, known: 2})
  const lines = readFileSync(resultFile, 'utf8').split('\n')
  expect(lines.filter((line) => line === header)).toHaveLength(1)
  expect(service.store.count()).toBe(3)
})

test('a wrong row is left out with its reason, and the others are sent', async () => {
  const wrong = [
    ...['crm-3,1 Main St,-5,,', 'crm-4,,5,,', 'crm-5,1 Main St,1.234,,', 'crm-1,1 Main St,5,,'],
    ...[',1 Main St,5,,', 'crm-6,1 Main St,5,80000000000000,', 'crm-7,1 Main St, Austin,5,,'],
    ',2 Main St,5,,',
  ]
  expect(await push(`${CSV}${wrong.join('\n')}\n`)).toEqual({...NONE, created: 2, invalid: 8})
  const messages = readResults().filter(({outcome}) => outcome === 'invalid')
  expect(messages.map(({line, message}) => `${line} ${message?.replace(/: (?!also).*/, '')}`)).toEqual([
    '4 loan_amount',
    '5 property_address',
    '6 loan_amount',
    '7 external_reference: also in line 2',
    '8 external_reference',
    '9 property_value',
    '10 row',
    '11 external_reference',
  ])
})

test('a row that changed under its reference is unclear, and not sent again until a person has looked', async () => {
  await push(CSV)
  rmSync(resultFile)
  const changed = CSV.replace('350000.10', '360000')
  expect(await push(changed)).toEqual({...NONE, created: 1, unclear: 1})
  expect(readResults().find(({outcome}) => outcome === 'unclear')?.message).toContain(
    'idempotency_key_reused',
  )
  service.requests.clear()
  expect(await push(CSV)).toEqual({...NONE, known: 1, unclear: 1})
  expect(service.requests.count).toBe(0)
  editResults('unclear,,', 'created,deal_7,')
  expect(await push(CSV)).toEqual({...NONE, known: 2})
  expect(service.store.count()).toBe(2)
})

test('a request without an answer is repeated within a day under the same key, and later or under another key never', async () => {
  loseAnswers()
  await expectUnreachable(CSV)
  service.faults.clear()
  const lost = readFileSync(resultFile, 'utf8')
  expect(await push(CSV, {apiKey: 'sk_test_new'})).toEqual({...NONE, unclear: 2})
  for (const at of ['2026-01-02T03:04:05.678Z', '2999-01-02T03:04:05.678Z', '2.1.26 03:04']) {
    writeFileSync(resultFile, lost.replaceAll(/[^,]*Z$/gm, at))
    expect(await push(CSV)).toEqual({...NONE, unclear: 2})
  }
  writeFileSync(resultFile, lost)
  expect(await push(CSV.replace('1000000', '-1'))).toEqual({...NONE, created: 1, invalid: 1})
  expect(await push(CSV)).toEqual({...NONE, created: 1, known: 1})
  expect(service.store.count()).toBe(2)
})

test('a refusal after a lost answer, or of a repeated request, leaves open whether the first created a deal', async () => {
  loseAnswers()
  await expectUnreachable(CSV)
  for (const [status, outcome] of [
    [404, 'sent'],
    [400, 'unclear'],
  ] as const) {
    service.faults.clear()
    service.faults.add({match: {method: 'POST'}, fault: {kind: 'status', status}})
    await push(CSV).catch(() => undefined)
    expect(readResults().at(-1)?.outcome).toBe(outcome)
  }
  service.faults.clear()
  rmSync(resultFile)
  service.faults.add({match: {method: 'POST', nth: 1}, fault: {kind: 'reset', when: 'mid_body'}})
  service.faults.add({match: {method: 'POST', nth: 2}, fault: {kind: 'status', status: 401}})
  const one = CSV.replace(/crm-2.*\n/, '')
  await expect(push(one, {retries: 1})).rejects.toMatchObject({code: 'PUSH_UNAUTHORIZED'})
  expect(readResults().map(({outcome}) => outcome)).toEqual(['sent'])
})

test('the result file names the service: another one gets every deal', async () => {
  await push(CSV)
  await using other = await startTestService()
  expect(await push(CSV, {baseUrl: other.url})).toEqual({...NONE, created: 2})
  expect(other.store.count()).toBe(2)
  for (const baseUrl of [other.url, service.url])
    expect(await push(CSV, {baseUrl})).toEqual({...NONE, known: 2})
})

test('a reference that a spreadsheet took for a number is still known', async () => {
  const csv = CSV.replace('crm-1', '00123').replace('crm-2', '1e5')
  await push(csv)
  editResults(',00123,', ',123,')
  editResults(/^(\d+),1e5,/gm, '$1,100000,')
  expect(await push(csv)).toEqual({...NONE, known: 2})
})

test('an answer that concerns every row ends the push, and the rows go once the cause is gone', async () => {
  for (const status of [301, 404, 405]) {
    service.faults.add({match: {method: 'POST'}, fault: {kind: 'status', status}})
    await expectUnreachable(CSV)
    service.faults.clear()
  }
  expect(readResults().map(({outcome}) => outcome)).not.toContain('unclear')
  editResults(/[^,]*Z$/gm, '2026-01-02T03:04:05.678Z')
  expect(await push(CSV)).toEqual({...NONE, created: 2})
})

test('an answer without the id of a deal counts as none', async () => {
  await using other = await startTestServer((_request, response, turn) => {
    if (turn === 0) response.writeHead(204).end()
    else sendJson(response, {data: turn === 1 ? {} : {id: `D-${turn}`}}, {status: 201})
  })
  const one = CSV.replace(/crm-2.*\n/, '')
  for (let turn = 0; turn < 2; turn += 1) await expectUnreachable(one, {baseUrl: other.url})
  expect(await push(one, {baseUrl: other.url})).toEqual({...NONE, created: 1})
  expect(await push(one, {baseUrl: other.url})).toEqual({...NONE, known: 1})
})

test('a file that cannot hold results, or is no UTF-8, is refused and left as it is, and nothing is sent', async () => {
  const file = join(folder, 'deals.csv')
  const env = {LOANTAPE_BASE_URL: service.url, LOANTAPE_API_KEY: API_KEY}
  const refuse = async (to: string, words: string) => {
    const args = ['push', 'deals', file, '--result', to, '--json']
    await expectRefused(runCommand(args, env), 'PUSH_FILE', words)
  }
  writeFileSync(file, CSV.trimEnd())
  for (const to of [file, join(folder, 'no', 'such.csv'), folder, '/dev/null']) await refuse(to, to)
  expect(readFileSync(file, 'utf8')).toBe(CSV.trimEnd())
  writeFileSync(file, Buffer.from(CSV.replace('12 Main St', 'Stra\xdfe 5'), 'latin1'))
  await refuse(join(folder, 'result.csv'), 'expected UTF-8')
  expect(service.store.count()).toBe(0)
})

test('a file that holds no deals is refused before anything is sent', () => {
  for (const [csv, words] of [
    ['', 'it is empty'],
    ['external_reference,loan_amount\n', 'property_address is missing'],
    [CSV.replace('loan_program', 'ssn'), "'ssn' is not known"],
    [CSV.replace('property_value', 'loan_amount'), "'loan_amount' appears twice"],
    [`${CSV}crm-3,"open`, 'Quote Not Closed'],
    [`${CSV}crm-3,12 "Secret" St,1,,\n`, /field "property_address" at line 4\. Nothing was sent\.$/],
  ] as const)
    expect(() => parseDealRows('deals.csv', csv), `${words}`).toThrow(words)
})

test('a refused key, a failing service and a stop end the push, and the next one resumes', async () => {
  const refused = {code: 'PUSH_UNAUTHORIZED', exitCode: 5}
  await expect(push(CSV, {apiKey: 'sk_test_other'})).rejects.toMatchObject(refused)
  await expect(push(CSV, {signal: AbortSignal.abort()})).rejects.toMatchObject({code: 'INTERRUPTED'})
  expect(service.store.count()).toBe(0)
  service.faults.add({match: {nth: 2}, fault: {kind: 'reset', when: 'mid_body'}})
  await expectUnreachable(CSV)
  expect(await push(CSV)).toMatchObject({created: 1, known: 1})
  expect(service.store.count()).toBe(2)
})

test('the command reports the outcome, in its exit code, too, and goes through the proxy of the environment', async () => {
  const file = join(folder, 'deals.csv')
  writeFileSync(file, `\uFEFF${CSV}crm-3,1 Main St,x,,\n`)
  using proxy = await startProxy(service.url)
  onTestFinished(() => void vi.unstubAllEnvs())
  vi.stubEnv('HTTP_PROXY', proxy.url)
  vi.stubEnv('NO_PROXY', '')
  const env = {LOANTAPE_BASE_URL: 'http://deals.company.test/v1', LOANTAPE_API_KEY: API_KEY}
  const dry = await runCommand(['push', 'deals', file, '--dry-run'], {})
  expect(dry.stdout).toBe('3 rows checked, 1 invalid. Nothing was sent or written.\n')
  expect([dry.code, dry.stderr]).toEqual([3, expect.stringMatching(/^line 4: loan_amount: expected/)])
  expect(existsSync(resultFile)).toBe(false)

  const pushed = await runCommand(['push', 'deals', file, '--json'], env)
  expect(readJson(pushed)).toEqual({...NONE, rows: 3, created: 2, invalid: 1, result_file: resultFile})
  expect(pushed.code).toBe(3)
  await expectRefused(runCommand(['push', 'deals', join(folder, 'none.csv'), '--json'], env), 'PUSH_FILE')
})
