import {appendFileSync, existsSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {parse} from 'csv-parse/sync'
import {beforeEach, expect, test} from 'vitest'
import {parseDealRows, pushDeals} from '../../src/cli/push.ts'
import {createDealClient} from '../../src/client/index.ts'
import {API_KEY, startTestService} from '../service/client.ts'
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

const push = (csv: string, more: {apiKey?: string; signal?: AbortSignal} = {}) =>
  pushDeals(parseDealRows('deals.csv', csv), {
    client: createDealClient({baseUrl: service.url, apiKey: more.apiKey ?? API_KEY, retries: 0}),
    resultFile,
    signal: more.signal ?? new AbortController().signal,
  })
const readResults = (): Record<string, string>[] => parse(readFileSync(resultFile, 'utf8'), {columns: true})
const stored = () => service.store.list({limit: 100}).map(({id, createdAt, ...deal}) => deal)

test('creates a deal for every row, exact to the cent, and reports its id', async () => {
  expect(await push(CSV)).toEqual({created: 2, known: 0, invalid: 0, refused: 0})
  const first = {loanAmountCents: 35_000_010n, propertyValueCents: 50_000_000n, loanProgram: 'bridge_30yr'}
  const second = {loanAmountCents: 100_000_000n, propertyValueCents: null, loanProgram: null}
  const addresses = ['12 Main St, Austin, TX 78701', 'Lot 7; "The Mill"']
  const expected = [first, second].map((deal, index) => ({...deal, propertyAddress: addresses[index]}))
  expect(stored()).toEqual(expect.arrayContaining(expected.map((deal) => ({...deal, status: 'draft'}))))
  const results = readResults().toSorted((one, other) => Number(one.line) - Number(other.line))
  expect(results.map(({line, outcome}) => `${line} ${outcome}`)).toEqual(['2 created', '3 created'])
  expect(results.map(({deal_id}) => deal_id).sort()).toEqual(service.store.ids().sort())
})

test('creates nothing twice: not on a second run, nor when the result file is missing, torn or saved by a spreadsheet', async () => {
  await push(CSV)
  writeFileSync(resultFile, `\uFEFF${readFileSync(resultFile, 'utf8').replaceAll('\n', '\r\n')}`)
  expect(await push(CSV)).toMatchObject({created: 0, known: 2})
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
  expect(service.store.count()).toBe(2)
})

test('an existing file that holds no results is refused and left as it is, and nothing is sent', async () => {
  const file = join(folder, 'deals.csv')
  writeFileSync(file, CSV.trimEnd())
  const env = {LOANTAPE_BASE_URL: service.url, LOANTAPE_API_KEY: API_KEY}
  await expectRefused(runCommand(['push', 'deals', file, '--result', file, '--json'], env), 'PUSH_FILE')
  expect(readFileSync(file, 'utf8')).toBe(CSV.trimEnd())
  expect(service.store.count()).toBe(0)
})

test('a wrong row is left out with its reason, and the others are sent', async () => {
  const wrong = [
    ...['crm-3,1 Main St,-5,,', 'crm-4,,5,,', 'crm-5,1 Main St,1.234,,', 'crm-1,1 Main St,5,,'],
    ...[',1 Main St,5,,', 'crm-6,1 Main St,5,80000000000000,'],
  ]
  expect(await push(`${CSV}${wrong.join('\n')}\n`)).toEqual({created: 2, known: 0, invalid: 6, refused: 0})
  const messages = readResults().filter(({outcome}) => outcome === 'invalid')
  expect(messages.map(({line, message}) => `${line} ${message?.split(':')[0]}`).sort()).toEqual([
    '4 loan_amount',
    '5 property_address',
    '6 loan_amount',
    '7 external_reference',
    '8 external_reference',
    '9 property_value',
  ])
  expect(messages.find(({line}) => String(line) === '7')?.message).toContain('also in line 2')
})

test('a row that changed under its reference is refused, not created again', async () => {
  await push(CSV)
  rmSync(resultFile)
  expect(await push(CSV.replace('350000.10', '360000'))).toMatchObject({created: 1, refused: 1})
  expect(readResults().find(({outcome}) => outcome === 'refused')?.message).toContain(
    'idempotency_key_reused',
  )
  expect(service.store.count()).toBe(2)
})

test('a file that holds no deals is refused before anything is sent', () => {
  for (const [csv, words] of [
    ['', 'it is empty'],
    ['external_reference,loan_amount\n', 'property_address is missing'],
    [CSV.replace('loan_program', 'ssn'), "'ssn' is not known"],
    [CSV.replace('property_value', 'loan_amount'), "'loan_amount' appears twice"],
    [`${CSV}crm-3,"open`, 'Quote Not Closed'],
    [`${CSV}crm-3,too,few\n`, 'Invalid Record Length'],
  ] as const)
    expect(() => parseDealRows('deals.csv', csv), words).toThrow(words)
})

test('a refused key, a failing service and a stop end the push, and the next one resumes', async () => {
  const refused = {code: 'PUSH_UNAUTHORIZED', exitCode: 5}
  await expect(push(CSV, {apiKey: 'sk_test_other'})).rejects.toMatchObject(refused)
  await expect(push(CSV, {signal: AbortSignal.abort()})).rejects.toMatchObject({code: 'INTERRUPTED'})
  expect(service.store.count()).toBe(0)
  service.faults.add({match: {nth: 2}, fault: {kind: 'reset', when: 'mid_body'}})
  await expect(push(CSV)).rejects.toMatchObject({code: 'PUSH_UNREACHABLE', exitCode: 6})
  expect(await push(CSV)).toMatchObject({created: 1, known: 1})
  expect(service.store.count()).toBe(2)
})

test('the command reports the outcome, in its exit code, too', async () => {
  const file = join(folder, 'deals.csv')
  writeFileSync(file, `\uFEFF${CSV}crm-3,1 Main St,x,,\n`)
  const env = {LOANTAPE_BASE_URL: service.url, LOANTAPE_API_KEY: API_KEY}
  const dry = await runCommand(['push', 'deals', file, '--dry-run', '--json'], {})
  expect(readJson(dry)).toMatchObject({created: 0, invalid: 1})
  expect([dry.code, dry.stderr]).toEqual([3, expect.stringMatching(/^line 4: loan_amount: expected/)])
  expect(existsSync(resultFile)).toBe(false)

  const pushed = await runCommand(['push', 'deals', file, '--json'], env)
  expect(readJson(pushed)).toEqual({created: 2, known: 0, invalid: 1, refused: 0, result_file: resultFile})
  expect(pushed.code).toBe(3)
  await expectRefused(runCommand(['push', 'deals', join(folder, 'none.csv'), '--json'], env), 'PUSH_FILE')
})
