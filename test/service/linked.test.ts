import {createHmac} from 'node:crypto'
import {beforeEach, expect, test} from 'vitest'
import type {Borrower} from '../../src/contract/borrower.ts'
import type {DealDocument, DocumentGeneration} from '../../src/contract/document.ts'
import type {Rate, Task} from '../../src/contract/other-records.ts'
import {createLog} from '../../src/core/log.ts'
import {useShared} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {aDeal, call, get, type ListBody, NOW, readData, readRefusal, startTestService} from './client.ts'

const DEAL = '/deals/deal_000001'

let [now, logged] = [NOW, '']
const keep = (line: string) => {
  logged += line
}
const log = createLog({level: 'debug'}, {write: keep})
const service = await useShared(startTestService({clock: {now: () => now++}, log}))
service.store.insert([aDeal(1), aDeal(2)])
beforeEach(service.remember())
beforeEach(() => {
  ;[now, logged] = [NOW, '']
})

const post = <T>(path: string, body: unknown): Promise<T> =>
  call(service, 'POST', path, body).then(readData<T>)
const refusalOf = async (path: string, body: unknown) => readRefusal(call(service, 'POST', path, body))

/** The digits on their own: an id may contain them by chance. */
const DIGITS = /(?<![\w.-])6789(?![\w-])/

const ADA = {first_name: 'Ada', last_name: 'Lovelace', email: 'ada@example.com', ssn_last_four: '6789'}

test('a borrower is returned with everything but the digits, which are never stored or logged', async () => {
  const {ssn_last_four, ...shown} = ADA
  const linked = await post<Borrower>(`${DEAL}/borrowers`, ADA)
  expect(linked).toMatchObject({...shown, deal_id: 'deal_000001', has_ssn_last_four: true})
  expect(await get(service, `${DEAL}/borrowers`)).toEqual([linked])
  expect(await get(service, '/deals/deal_000002/borrowers')).toEqual([])

  const refused = await call(service, 'POST', `${DEAL}/borrowers`, {...ADA, email: 'nobody'})
  expect(await refused.text()).not.toMatch(DIGITS)
  const tables = service.database.db.prepare("select name from sqlite_schema where type = 'table'").all()
  for (const {name} of tables) {
    const rows = service.database.db.prepare(`select * from ${name}`).all()
    expect(rows.flatMap(Object.values)).not.toContain('6789')
  }
  // Nor can they be guessed from what is stored for an Idempotency-Key.
  await call(service, 'POST', `${DEAL}/borrowers`, ADA, {'idempotency-key': 'ada'})
  const told = JSON.stringify(['POST', `/v1${DEAL}/borrowers`, ADA])
  const guess = createHmac('sha256', service.database.secret).update(told).digest('base64url')
  const kept = 'select fingerprint from idempotent_answer'
  expect(service.database.db.prepare(kept).get()).not.toEqual({fingerprint: guess})
  expect(logged).toContain('/deals/:id/borrowers')
  expect(logged).not.toMatch(/Ada|ada@/)
  expect(logged).not.toMatch(DIGITS)
})

test('a borrower with a wrong field is refused, naming it, and so is anything of an unknown deal', async () => {
  for (const [field, value] of [
    ['first_name', ''],
    ['last_name', 7],
    ['email', 'no address'],
    ['ssn', '123456789'],
    ...['67890', 'abcd', '678', 6789].map((digits) => ['ssn_last_four', digits]),
  ] as const)
    expect(await refusalOf(`${DEAL}/borrowers`, {...ADA, [field]: value})).toBe(`400 invalid_body ${field}`)
  for (const kind of ['borrowers', 'documents', 'tasks', 'document-generations'])
    expect(await readRefusal(call(service, 'GET', `/deals/deal_none/${kind}`))).toBe('404 deal_not_found')
  expect(await refusalOf('/deals/deal_none/borrowers', ADA)).toBe('404 deal_not_found')
})

test('a task is open until completed, once; one without a title or with a wrong date is refused', async () => {
  const open = {title: 'Order title', due_on: '2026-04-01', status: 'open', completed_at: null}
  const task = await post<Task>(`${DEAL}/tasks`, {title: 'Order title', due_on: '2026-04-01'})
  expect(task).toMatchObject(open)
  const completed = await post<Task>(`/tasks/${task.id}/complete`, '')
  const completed_at = expect.stringMatching(/^2026-03-02T/)
  expect(completed).toMatchObject({...open, status: 'completed', completed_at})
  for (const wrong of [
    {},
    {title: ' '},
    {title: 'x', due_on: '2026-02-30'},
    {title: 'x', due_on: '0000-01-01'},
    {title: 'x', status: 'completed'},
  ])
    expect(await refusalOf(`${DEAL}/tasks`, wrong)).toMatch('400 invalid_body')
  expect(await post(`/tasks/${task.id}/complete`, {})).toEqual(completed)
  expect(await get(service, `${DEAL}/tasks`)).toEqual([completed])
  expect((await call(service, 'POST', '/tasks/task_none/complete', {})).status).toBe(404)
})

test('lists of links are paged with their own cursors', async () => {
  for (const title of ['A', 'B', 'C']) await post(`${DEAL}/tasks`, {title})
  await post('/deals/deal_000002/tasks', {title: 'Other'})
  const ask = (path: string) => call(service, 'GET', path)
  const first = (await (await ask(`${DEAL}/tasks?limit=2`)).json()) as ListBody<Task>
  const cursor = `cursor=${first.next_cursor}`
  const rest = await get<Task[]>(service, `${DEAL}/tasks?${cursor}`)
  expect([...first.data, ...rest].map(({title}) => title)).toEqual(['A', 'B', 'C'])
  for (const path of ['/deals/deal_000002/tasks', `${DEAL}/borrowers`, '/deals', '/rates'])
    expect(await readRefusal(ask(`${path}?${cursor}`))).toMatch('400 invalid_cursor')
})

test.each([
  ['term_sheet', '| Loan to value | 70.00 % |'],
  ['closing_checklist', '- [x] Open tasks: 0'],
])('a %s is generated in the background and attached', async (template, line) => {
  const path = `${DEAL}/document-generations`
  expect(await refusalOf(path, {template: 'poem'})).toMatch('400 invalid_body')
  service.store.update('deal_000001', {property_address: '1 | Main\n# St'})
  const response = await call(service, 'POST', path, {template})
  expect(await readData(response)).toMatchObject({status: 'queued', document_id: null})
  expect(response.status).toBe(202)
  const done = await until(async () => {
    const location = response.headers.get('location')!.replace('/v1', '')
    const generation = await get<DocumentGeneration>(service, location)
    return generation.status === 'completed' && generation
  })
  const documentPath = `${DEAL}/documents/${done.document_id}`
  expect(await get<DealDocument>(service, documentPath)).toMatchObject({
    category: template,
    media_type: 'text/markdown; charset=utf-8',
  })
  const text = await (await call(service, 'GET', `${documentPath}/content`)).text()
  for (const words of ['deal_000001', '1 \\| Main \\# St', line]) expect(text).toContain(words)
  expect(await get(service, path)).toEqual([done])
})

const RATE = {provider: 'acme', loan_program: 'bridge_30yr', rate_pct: 7.125}

test('rates are kept as received, with history; those in force are the latest that have taken effect', async () => {
  const push = (rate: object) => post<Rate>('/rates', {...RATE, ...rate})
  const first = await push({effective_at: '2026-01-01T00:00:00Z'})
  const inForce = await push({rate_pct: 7.0625, effective_at: '2026-03-01T00:00:00-05:00'})
  const late = await push({rate_pct: 6, effective_at: '2026-02-01T00:00:00Z'})
  const future = await push({rate_pct: 9, effective_at: '2027-01-01T00:00:00Z'})
  const other = await push({provider: 'zenith', loan_program: 'other', rate_pct: 8})
  expect([first.rate_pct, inForce.rate_pct]).toEqual([7.125, 7.0625])
  expect(inForce.effective_at).toBe('2026-03-01T05:00:00.000Z')
  expect(await get(service, '/rates')).toEqual([first, inForce, late, future, other])
  expect(await get(service, '/rates?loan_program=other')).toEqual([other])
  expect(await get(service, '/rates?provider=none')).toEqual([])
  expect(await get(service, '/rates?current=true')).toEqual([inForce, other])
  for (const wrong of [
    {rate_pct: 7.00001},
    {rate_pct: -1},
    {rate_pct: '7'},
    {provider: 'ACME Inc'},
    {effective_at: 'tomorrow'},
    {effective_at: '2026-03-01T00:00:00'},
    {effective_at: '9999-12-31T23:59:59-14:00'},
    {effective_at: '0000-01-01T00:00:00+23:59'},
  ])
    expect(await refusalOf('/rates', {...RATE, ...wrong})).toBe(`400 invalid_body ${Object.keys(wrong)}`)
})

test('the rates in force are those of one instant, however long their pages take', async () => {
  const push = (number: number, effective_at?: string) =>
    post<Rate>('/rates', {...RATE, provider: `p${number}`, effective_at})
  const rates = [await push(0), await push(1), await push(2)]
  await push(2, '2026-03-03T00:00:00Z')
  const read = async (cursor = '') => {
    const answer = await call(service, 'GET', `/rates?current=true&limit=2${cursor}`)
    return (await answer.json()) as ListBody<Rate>
  }
  const first = await read()
  await push(0)
  now += 86_400_000
  const second = await read(`&cursor=${first.next_cursor}`)
  expect([...first.data, ...second.data]).toEqual(rates)
  expect(second.has_more).toBe(false)
})
