import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {parse} from 'csv-parse/sync'
import {z} from 'zod'
import {formatCents} from '../../src/core/money.ts'
import {exportRelease} from '../../src/outputs.ts'
import {syncDeals} from '../../src/pipeline.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {openRelease, requireRelease} from '../../src/store/release.ts'
import {sendJson, startTestServer} from '../source/test-server.ts'
import {anyRow, createFolder, type TestFolder} from '../support/data.ts'
import {rawJson} from '../support/raw-json.ts'
import {type ProofRequest, type Proved, prove, type Run} from './proof.ts'
import {configOf, createQuickWorld} from './quick-world.ts'

const DEALS = 400
const PAGE_SIZE = 100
/** Below the share of records that may be quarantined. */
const REJECTED_SHARE = 0.008
const LARGEST_NUMBER_CENTS = 7_000_000_000_000_000n
const LARGEST_CENTS = 999_999_999_999_999_999n

/** An amount as written in the JSON; `cents` is null if it is unreadable. */
interface WireAmount {
  text: string
  cents: bigint | null
}

function drawCents(random: Random): bigint {
  const below = (most: bigint) =>
    ((BigInt(random.integer(0, 2 ** 32 - 1)) << 32n) | BigInt(random.integer(0, 2 ** 32 - 1))) % (most + 1n)
  const draw = random.pick([
    // 0.10, 0.20, 0.70, …: their binary sums are inexact.
    () => below(99n) * 10n,
    () => below(9_999_999n) * 100n + 99n,
    () => LARGEST_NUMBER_CENTS - below(1_000n),
    () => below(LARGEST_NUMBER_CENTS),
    () => LARGEST_CENTS - below(1_000n),
    () => below(LARGEST_CENTS),
    () => below(9_999_999_99n),
  ])
  return draw()
}

const REJECTED = [
  '-0.01',
  '0.001',
  '1e999',
  '70000000000000.02',
  '"10000000000000000.00"',
  '"1,000.00"',
  '"1e5"',
  '""',
  'null',
  'true',
  '[1]',
] as const

/** The ways to write one amount; as a number only if its cents survive `JSON.parse`. */
function drawAmount(random: Random): WireAmount {
  if (random.chance(REJECTED_SHARE)) return {text: random.pick(REJECTED), cents: null}
  const cents = drawCents(random)
  const plain = formatCents(cents)
  const short = plain.replace(/0$/, '').replace(/\.0$/, '')
  const isNumber = cents <= LARGEST_NUMBER_CENTS && random.chance(0.7)
  if (isNumber) return {text: random.pick([plain, short, `${plain}0`]), cents}
  return {text: JSON.stringify(random.pick([plain, `${plain}000`, short, ` ${plain} `])), cents}
}

function drawDeal(random: Random, number: number) {
  const id = `deal_${String(number).padStart(5, '0')}`
  const amount = drawAmount(random)
  const value: WireAmount = random.chance(0.2) ? {text: 'null', cents: null} : drawAmount(random)
  const isRead = amount.cents !== null && (value.cents !== null || value.text === 'null')
  const status = random.pick(['draft', 'underwriting', 'approved', 'funded'])
  // Only numbers, texts and words can be written as they are.
  const onWire = ({text}: WireAmount) => (text.startsWith('[') ? JSON.parse(text) : rawJson(text))
  const record = {
    id,
    property_address: '1 Main St, Austin, TX 78701',
    loan_amount: onWire(amount),
    property_value: onWire(value),
    status,
    created_at: '2026-01-05T15:00:00Z',
  }
  return {id, record, status, amount: isRead ? amount.cents : null, value: value.cents}
}
type WireDeal = ReturnType<typeof drawDeal>

const TOTALS = `
  select deals, amount, funded_amount from mart.portfolio_summary
  union all
  select sum(deals), sum(amount), sum(funded_amount) from mart.portfolio_breakdown group by dimension`

async function judge({folder}: TestFolder, deals: readonly WireDeal[], batchDir: string): Promise<void> {
  const read = deals.flatMap(({amount, ...deal}) => (amount === null ? [] : [{...deal, amount}]))
  const sum = (of: typeof read) => formatCents(of.reduce((total, {amount}) => total + amount, 0n))
  const amount = sum(read)
  const funded_amount = sum(read.filter(({status}) => status === 'funded'))
  const expected = read.map(({id, amount: cents, value}) => ({
    deal_id: id,
    loan_amount: formatCents(cents),
    property_value: value === null ? null : formatCents(value),
  }))
  const release = requireRelease(folder)
  await using db = await openRelease(release)
  const columns = 'deal_id, loan_amount, property_value'
  assert.deepEqual(await db.all(anyRow, `select ${columns} from core.deal order by deal_id`), expected)
  for (const total of await db.all(anyRow, TOTALS))
    assert.deepEqual(total, {deals: String(read.length), amount, funded_amount})
  const {present, amount_total} = release.manifest.source
  assert.deepEqual({...present, amount_total}, {deals: read.length, amount, amount_total: amount})

  const fileOf = (name: string) => readFileSync(join(batchDir, name), 'utf8')
  const rowsOf = (table: string) => parse<Record<string, string>>(fileOf(`${table}.csv`), {columns: true})
  assert.deepEqual(
    rowsOf('core.deal').map((row) => [row.deal_id, row.loan_amount, row.property_value]),
    expected.map((row) => [row.deal_id, row.loan_amount, row.property_value ?? '']),
  )
  const [summary] = rowsOf('mart.portfolio_summary')
  assert.deepEqual([summary?.amount, summary?.funded_amount], [amount, funded_amount])
  const {files} = z
    .object({files: z.array(z.object({name: z.string(), sum_amount: z.string().nullable()}))})
    .parse(JSON.parse(fileOf('manifest.json')))
  assert.equal(files.find(({name}) => name === 'core.deal.csv')?.sum_amount, amount)
}

/**
 * Sends random amounts, as numbers and as texts, through walk, warehouse, release and CSV, and compares each of them and every
 * total with sums in whole cents.
 *
 * A run is one portfolio of 400 deals, from the wire to the files.
 */
export function proveMoney(request: ProofRequest): Promise<Proved> {
  const work = async ({random, add}: Run) => {
    const deals = Array.from({length: DEALS}, (_, index) => drawDeal(random, index))
    await using server = await startTestServer(({query}, response) => {
      const start = Number(query.get('cursor') ?? 0)
      const end = start + PAGE_SIZE
      const data = deals.slice(start, end).map(({record}) => record)
      sendJson(response, {data, has_more: end < DEALS, next_cursor: end < DEALS ? String(end) : null})
    })
    using data = createFolder()
    const config = configOf(server.url, data.folder, {LOANTAPE_PAGE_SIZE: String(PAGE_SIZE)})
    const world = createQuickWorld({
      now: '2026-02-02T23:30:00-05:00',
      tables: '+core.deal +mart.portfolio_summary +mart.portfolio_breakdown',
    })
    const {walk} = await syncDeals(config, {}, world)
    const [batch] = await exportRelease(config, {profiles: ['csv']}, world)
    assert(batch)
    await judge(data, deals, batch.dir)
    add('amounts', DEALS)
    add('quarantined', walk.quarantined)
  }
  return prove('money', request, work, {atOnce: 2})
}
