import {createHash} from 'node:crypto'
import {appendFileSync, chmodSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {initAccounting} from '../../src/accounting/mapping.ts'
import {applyEvents} from '../../src/pipeline.ts'
import {pruneData} from '../../src/record/prune.ts'
import type {FigureTrace, Trace} from '../../src/record/trace.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {storeEvent} from '../../src/sync/webhook-events.ts'
import {BOOK_TABLES, setAccounts} from '../support/books.ts'
import {importBatches} from '../support/importer.ts'
import {aDeal, createLab, day, someDeals} from '../support/lab.ts'
import {changeRecords, useLab} from '../support/set-up.ts'

const lab = await useLab({tables: '+core.deal +mart.portfolio_summary', deals: someDeals(17)})
beforeEach(lab.remember())

async function trace(id: string, ...options: string[]): Promise<Trace[]> {
  const {code, stdout, stderr} = await lab.run(['trace', id, '--json', ...options])
  expect([code, stderr]).toEqual([0, ''])
  return JSON.parse(stdout).versions
}

/** The body of a tape line. */
async function readBody({tape, line}: Trace): Promise<string> {
  const unit = /([^/]+)\.jsonl\.zst$/.exec(tape ?? '')?.[1] ?? ''
  const {stdout} = await lab.run(['tape', 'cat', unit])
  return JSON.parse(stdout.split('\n')[(line ?? 0) - 1] ?? '').body
}

const idOf = (number: number) => aDeal(number).id

test('every version of every deal leads to the record as the source sent it', async () => {
  await lab.walk(day(2))
  lab.service.store.update(idOf(3), {status: 'funded'})
  using stateDb = openStateDb(lab.folder.stateDb)
  storeEvent(stateDb, {eventId: 'evt_1', type: 'deal.updated', dealId: idOf(3)}, Date.now())
  await applyEvents(lab.config, lab.createWorld(day(3, '12:00')))
  lab.service.store.update(idOf(4), {loan_amount_cents: 12_345n})
  lab.service.store.remove(idOf(5))
  await lab.walk(day(3), {config: {detail: 'off', pageSize: 7}})
  await lab.walk(day(4))
  // As a run leaves it that is killed amid a line.
  stateDb.db.exec(`update tape set ended_at = null where name = '2026-02-03'`)
  const torn = join(lab.folder.tapes, '2026/02/2026-02-03.jsonl.zst')
  chmodSync(torn, 0o600)
  appendFileSync(torn, 'half of a line')
  const stored = await lab.queryHistory('select count(*) as versions from raw.deal_version')
  let versions = 0
  for (const {id} of someDeals(17)) {
    for (const version of await trace(id, '--field', 'loan_amount')) {
      versions += 1
      const record = JSON.parse(version.record ?? 'null')
      const body = await readBody(version)
      if (version.kind === 'seen') {
        expect(createHash('sha256').update(body).digest('hex')).toBe(version.sha256)
        expect(record).toMatchObject({id})
        expect(record.loan_amount.toFixed(2)).toBe(version.value)
        expect(body).toContain(version.record)
        expect(Object.hasOwn(record, 'loan_program')).toBe(version.source !== 'list')
      } else {
        expect(version).toMatchObject({record: null, tape: expect.stringContaining('w_')})
      }
    }
  }
  expect(stored).toEqual([{versions: String(versions)}])
  expect((await trace(idOf(3))).map(({source}) => source)).toEqual(['detail', 'webhook'])
  expect((await trace(idOf(4))).at(-1)).toMatchObject({
    source: 'list',
    request: '/deals?limit=7',
    record: expect.stringContaining('"loan_amount":123.45,'),
  })
  expect((await trace(idOf(5))).map(({kind}) => kind)).toEqual(['seen', 'missing', 'vanished'])
  expect(await trace(idOf(5), '--as-of', '2026-02-02')).toHaveLength(1)
})

test('if a deal’s own page leaves out a field, its list row is shown, too', async () => {
  changeRecords(lab, '/deals/', ([deal]) => delete deal?.loan_amount)
  await lab.walk(day(2))
  const [version] = await trace(idOf(1))
  expect(version).toMatchObject({source: 'detail', request: `/deals/${idOf(1)}`})
  expect(version?.record).not.toContain('loan_amount')
  expect(version?.list_row).toContain('"loan_amount":350000,')
  const {stdout} = await lab.run(['trace', idOf(1)])
  expect(stdout).toContain(version?.list_row)
  expect(stdout).toMatch(
    / asked at 2026-02-03T04:30.*\n {2}tape\/2026\/02\/w_\S+, line \d+, sha256 [0-9a-f]{64}\n/,
  )
})

test('a version whose tape is gone says so, and an unknown deal or field is refused', async () => {
  await lab.walk(day(2))
  lab.ageTapes(401)
  await lab.run(['backup', join(lab.folder.root, '..', 'backup')])
  await lab.walk(day(3))
  await pruneData(lab.config, {isDryRun: false}, lab.createWorld(day(3)))
  expect(await trace(idOf(1))).toMatchObject([{kind: 'seen', tape: null, record: null}])
  expect((await lab.run(['trace', idOf(1)])).stdout).toContain('not at hand: pruned')
  for (const [args, words] of [
    [['deal_x'], "Deal 'deal_x'"],
    [[idOf(1), '--field', 'name'], 'UNKNOWN_NAME'],
    [['mart.funded_rollforward.closing'], 'figures are those of mart.portfolio_summary'],
  ] as const) {
    const {code, stderr} = await lab.run(['trace', ...args])
    expect([code, stderr]).toEqual([2, expect.stringContaining(words)])
  }
})

test('every figure of the portfolio traces to its deals', async () => {
  const {store} = lab.service
  const statuses = ['draft', 'approved', 'funded', 'funded', 'paid_off', 'withdrawn', 'strange']
  someDeals(17).forEach((_, index) => {
    store.update(idOf(index + 1), {
      status: statuses[index % statuses.length]!,
      loan_amount_cents: BigInt(index + 1) * 1_000_001n,
      property_value_cents: index % 3 === 0 ? null : BigInt(index + 1) * 1_500_000n,
    })
  })
  await lab.sync(day(2))
  const [summary] = await lab.query('select * from mart.portfolio_summary')
  const traceFigure = (name: string, ...options: string[]) =>
    lab.run(['trace', `mart.portfolio_summary.${name}`, ...options])
  const sum = (numbers: number[]) => numbers.reduce((one, other) => one + other, 0)
  for (const [name, value] of Object.entries(summary ?? {})) {
    if (name === 'as_of') continue
    const {deals, ...figure} = JSON.parse((await traceFigure(name, '--json')).stdout) as FigureTrace
    expect(figure, name).toMatchObject({value: String(value), as_of: '2026-02-02'})
    const amounts = deals.map(({loan_amount}) => Number(loan_amount))
    const inLtv = deals.map(({ltv}, index) => (ltv === null || ltv > 1.5 ? 0 : (amounts[index] ?? 0)))
    const perDeal = [sum(amounts) / deals.length, 1] as const
    const measures: Record<string, readonly [value: number, digits: number]> = {
      deals: [deals.length, 2],
      amount: [sum(amounts), 2],
      average_amount: perDeal,
      median_amount: perDeal,
      largest_amount: perDeal,
      ltv_coverage_pct: [(sum(inLtv) / sum(amounts)) * 100, 5],
      pooled_ltv: [sum(amounts) / sum(deals.map(({property_value}) => Number(property_value))), 8],
      wa_ltv: [sum(deals.map(({ltv}, index) => Number(ltv) * (amounts[index] ?? 0))) / sum(amounts), 8],
    }
    const [computed, digits] = measures[name.replace(/^(open|ended|pipeline|funded)_/, '')]!
    expect(computed, name).toBeCloseTo(Number(value), digits)
  }
  const {stdout} = await traceFigure('open_largest_amount')
  expect(stdout).toContain(`${idOf(17)}  `)
  for (const column of ['as_of', 'of_funded', '']) {
    const {code, stderr} = await traceFigure(column)
    expect([code, stderr]).toEqual([2, expect.stringContaining('expected one of deals, amount, open_deals')])
  }
})

test('a journal number leads to what was issued under it, and on to the records of its deal', async () => {
  await using books = await createLab({tables: BOOK_TABLES, deals: [aDeal(1)]})
  await books.walk(day(2))
  books.service.store.update(idOf(1), {status: 'funded'})
  await books.sync(day(3))
  await initAccounting(books.config)
  setAccounts(books.folder)
  const say = async (...args: string[]) => (await books.run(args, {LOANTAPE_NOW: day(4)})).stdout
  for (const profile of ['xero', 'netsuite']) await say('export', profile, '--period', '2026-02')
  const [{number} = {number: ''}] = importBatches(books.folder.exports, 'xero')
  const told = JSON.parse(await say('trace', number, '--json'))
  expect(told).toMatchObject({
    deal_id: idOf(1),
    entry: [
      {profile: 'xero', journal_no: number, account_code: '1200', debit: '350000.00', credit: null},
      {profile: 'xero', journal_no: number, account_code: '1090', debit: null, credit: '350000.00'},
      {profile: 'netsuite'},
      {profile: 'netsuite'},
    ],
    versions: [{kind: 'seen'}, {business_date: '2026-02-03', record: expect.stringContaining('"funded"')}],
  })
  const words = await say('trace', number)
  expect(words).toMatch(/^Journal entry LT2602-\w+ of deal_000001: Funding deal_000001, .*\n/)
  expect(words).toContain(
    `xero      ${told.entry[0].batch_id}  2026-02-03  1200 Loans receivable  350,000.00`,
  )
  expect(words).toContain('"status":"funded"')
})
