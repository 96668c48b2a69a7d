import {Writable} from 'node:stream'
import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import type {Borrower} from '../../src/contract/borrower.ts'
import type {DealDocument, DocumentGeneration} from '../../src/contract/document.ts'
import type {ListBody} from '../../src/contract/list.ts'
import type {Rate, Task} from '../../src/contract/other-records.ts'
import {createLog} from '../../src/core/log.ts'
import type {RunningService} from '../../src/service/server.ts'
import {until} from '../support/until.ts'
import {aDeal, call, NOW, readData, readProblem, startTestService} from './client.ts'

const DEAL = '/deals/deal_000001'

describe('the links of a deal', () => {
  let service: RunningService
  let now: number
  let logged: string

  beforeEach(async () => {
    now = NOW
    logged = ''
    const destination = new Writable({
      write(chunk, _encoding, done) {
        logged += chunk
        done()
      },
    })
    service = await startTestService({
      clock: {now: () => now++},
      log: createLog({level: 'debug'}, destination),
    })
    service.store.insert([aDeal(1), aDeal(2)])
  })
  afterEach(() => service.close())

  const borrower = {first_name: 'Ada', last_name: 'Lovelace', email: 'ada@example.com', ssn_last_four: '6789'}
  const list = async <T>(path: string): Promise<ListBody<T>> =>
    (await (await call(service, 'GET', path)).json()) as ListBody<T>

  test('a borrower is returned with everything but the digits, which are never stored or logged', async () => {
    const response = await call(service, 'POST', `${DEAL}/borrowers`, borrower)
    expect(response.status).toBe(201)
    const {ssn_last_four, ...shown} = borrower
    const linked = await readData<Borrower>(response)
    expect(linked).toMatchObject({...shown, deal_id: 'deal_000001', has_ssn_last_four: true})
    expect((await list<Borrower>(`${DEAL}/borrowers`)).data).toEqual([linked])
    expect((await list<Borrower>('/deals/deal_000002/borrowers')).data).toEqual([])

    const refused = await call(service, 'POST', `${DEAL}/borrowers`, {...borrower, email: 'nobody'})
    expect(await refused.text()).not.toContain('6789')
    const tables = service.database.prepare("select name from sqlite_schema where type = 'table'").all()
    for (const {name} of tables) {
      const rows = service.database.prepare(`select * from ${name}`).all()
      const texts = rows.flatMap((row) => Object.values(row)).filter((value) => value === '6789')
      expect(texts).toEqual([])
    }
    expect(logged).toContain('/deals/:id/borrowers')
    expect(logged).not.toMatch(/6789|Ada|ada@/)
  })

  test.each([
    ['first_name', ''],
    ['last_name', 7],
    ['email', 'no address'],
    ['ssn_last_four', '12345'],
    ['ssn_last_four', 6789],
    ['ssn', '123456789'],
  ])('a borrower with %s %j is refused, naming the field', async (field, value) => {
    const response = await call(service, 'POST', `${DEAL}/borrowers`, {...borrower, [field]: value})
    expect(response.status).toBe(400)
    expect((await readProblem(response)).errors?.map(({path}) => path)).toEqual([field])
  })

  test.each(['borrowers', 'documents', 'tasks', 'document-generations'])(
    'the %s of an unknown deal are 404',
    async (kind) => {
      const response = await call(service, 'GET', `/deals/deal_none/${kind}`)
      expect([response.status, (await readProblem(response)).code]).toEqual([404, 'deal_not_found'])
    },
  )

  test('a task is open until completed, once; one without a title or with a wrong date is refused', async () => {
    const created = await call(service, 'POST', `${DEAL}/tasks`, {title: 'Order title', due_on: '2026-04-01'})
    const task = await readData<Task>(created)
    const open = {title: 'Order title', due_on: '2026-04-01', status: 'open', completed_at: null}
    expect(task).toMatchObject(open)
    const completed = await readData<Task>(await call(service, 'POST', `/tasks/${task.id}/complete`, ''))
    const completed_at = expect.stringMatching(/^2026-03-02T/)
    expect(completed).toMatchObject({...open, status: 'completed', completed_at})
    for (const wrong of [
      {},
      {title: ' '},
      {title: 'x', due_on: '2026-02-30'},
      {title: 'x', status: 'completed'},
    ])
      expect((await call(service, 'POST', `${DEAL}/tasks`, wrong)).status).toBe(400)
    const again = await call(service, 'POST', `/tasks/${task.id}/complete`, {})
    expect([again.status, await readData<Task>(again)]).toEqual([200, completed])
    expect((await list<Task>(`${DEAL}/tasks`)).data).toEqual([completed])
    expect((await call(service, 'POST', '/tasks/task_none/complete', {})).status).toBe(404)
  })

  test('lists of links are paged with their own cursors', async () => {
    for (let n = 1; n <= 5; n++) await call(service, 'POST', `${DEAL}/tasks`, {title: `Task ${n}`})
    await call(service, 'POST', '/deals/deal_000002/tasks', {title: 'Other'})
    const titles: string[] = []
    let cursor = ''
    do {
      const page: ListBody<Task> = await list(`${DEAL}/tasks?limit=2${cursor}`)
      titles.push(...page.data.map(({title}) => title))
      cursor = page.next_cursor === null ? '' : `&cursor=${page.next_cursor}`
    } while (cursor !== '')
    expect(titles).toEqual(['Task 1', 'Task 2', 'Task 3', 'Task 4', 'Task 5'])

    const {next_cursor} = await list<Task>(`${DEAL}/tasks?limit=2`)
    for (const path of ['/deals/deal_000002/tasks', `${DEAL}/borrowers`, '/deals', '/rates']) {
      const response = await call(service, 'GET', `${path}?cursor=${next_cursor}`)
      expect([response.status, (await readProblem(response)).code]).toEqual([400, 'invalid_cursor'])
    }
  })

  test.each(['term_sheet', 'closing_checklist'])(
    'a %s is generated in the background and attached',
    async (template) => {
      const poem = await call(service, 'POST', `${DEAL}/document-generations`, {template: 'poem'})
      expect((await readProblem(poem)).code).toBe('invalid_body')
      service.store.update('deal_000001', {propertyAddress: '1 | Main\n# St'})
      const response = await call(service, 'POST', `${DEAL}/document-generations`, {template})
      const queued = await readData<DocumentGeneration>(response)
      expect([response.status, queued.status, queued.document_id]).toEqual([202, 'queued', null])
      const path = response.headers.get('location')!.replace('/v1', '')
      const done = await until(async () => {
        const generation = await readData<DocumentGeneration>(await call(service, 'GET', path))
        return generation.status === 'completed' && generation
      })
      const document = await readData<DealDocument>(
        await call(service, 'GET', `${DEAL}/documents/${done.document_id}`),
      )
      expect(document).toMatchObject({category: template, media_type: 'text/markdown; charset=utf-8'})
      const content = await call(service, 'GET', `${DEAL}/documents/${document.id}/content`)
      const text = await content.text()
      expect(text).toContain('deal_000001')
      expect(text).toContain('1 \\| Main \\# St')
      expect(text).toContain(
        template === 'term_sheet' ? '| Loan to value | 70.00 % |' : '- [x] Open tasks: 0',
      )
      expect((await list(`${DEAL}/document-generations`)).data).toEqual([done])
    },
  )

  test('a deleted deal takes everything linked to it along', async () => {
    await call(service, 'POST', `${DEAL}/borrowers`, borrower)
    const task = await readData<Task>(await call(service, 'POST', `${DEAL}/tasks`, {title: 'x'}))
    expect((await call(service, 'DELETE', DEAL)).status).toBe(204)
    expect((await call(service, 'POST', `/tasks/${task.id}/complete`, {})).status).toBe(404)
    expect(service.database.prepare('select count(*) as n from borrower').get()).toEqual({n: 0})
  })

  describe('rates', () => {
    const push = async (rate: object): Promise<Rate> =>
      await readData<Rate>(await call(service, 'POST', '/rates', rate))
    const aRate = {provider: 'acme', loan_program: 'bridge_30yr', rate_pct: 7.125}

    test('are kept as received, with history', async () => {
      const first = await push(aRate)
      const second = await push({...aRate, rate_pct: 7.0625})
      expect([first.rate_pct, second.rate_pct]).toEqual([7.125, 7.0625])
      expect((await list<Rate>('/rates?loan_program=bridge_30yr')).data).toEqual([first, second])
      expect((await list<Rate>('/rates?provider=other')).data).toEqual([])
    })

    test('in force are the latest that have taken effect, for each provider and program', async () => {
      await push({...aRate, effective_at: '2026-01-01T00:00:00Z'})
      const inForce = await push({...aRate, rate_pct: 7, effective_at: '2026-03-01T00:00:00-05:00'})
      await push({...aRate, rate_pct: 6, effective_at: '2026-02-01T00:00:00Z'})
      await push({...aRate, rate_pct: 9, effective_at: '2027-01-01T00:00:00Z'})
      const other = await push({...aRate, provider: 'zenith', rate_pct: 8})
      expect(inForce.effective_at).toBe('2026-03-01T05:00:00.000Z')
      expect((await list<Rate>('/rates?current=true')).data).toEqual([inForce, other])
      expect((await list<Rate>('/rates')).data).toHaveLength(5)
    })

    test.each([
      {rate_pct: 7.00001},
      {rate_pct: -1},
      {rate_pct: '7'},
      {provider: 'ACME Inc'},
      {effective_at: 'tomorrow'},
      {effective_at: '2026-03-01T00:00:00'},
    ])('with %j are refused', async (wrong) => {
      const response = await call(service, 'POST', '/rates', {...aRate, ...wrong})
      const problem = await readProblem(response)
      expect(problem.errors?.map(({path}) => path)).toEqual(Object.keys(wrong))
    })
  })
})
