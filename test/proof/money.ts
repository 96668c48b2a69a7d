import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {parseConfig} from '../../src/core/config.ts'
import {formatCents} from '../../src/core/money.ts'
import {exportRelease} from '../../src/export.ts'
import {syncDeals} from '../../src/pipeline.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {openRelease, requireRelease} from '../../src/store/release.ts'
import {startTestServer} from '../source/test-server.ts'
import {createFolder, type TestFolder} from '../support/data.ts'
import {createTally, type ProofRequest, type Proved, runAll} from './proof.ts'
import {createQuickWorld} from './quick-world.ts'

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

function drawBelow(random: Random, most: bigint): bigint {
  const draw = (BigInt(random.integer(0, 2 ** 32 - 1)) << 32n) | BigInt(random.integer(0, 2 ** 32 - 1))
  return draw % (most + 1n)
}

function drawCents(random: Random): bigint {
  switch (random.integer(0, 6)) {
    // 0.10, 0.20, 0.70, …: their binary sums are inexact.
    case 0:
      return BigInt(random.integer(0, 99)) * 10n
    case 1:
      return BigInt(random.integer(0, 9_999_999)) * 100n + 99n
    case 2:
      return LARGEST_NUMBER_CENTS - drawBelow(random, 1_000n)
    case 3:
      return drawBelow(random, LARGEST_NUMBER_CENTS)
    case 4:
      return LARGEST_CENTS - drawBelow(random, 1_000n)
    case 5:
      return drawBelow(random, LARGEST_CENTS)
    default:
      return drawBelow(random, 9_999_999_99n)
  }
}

const REJECTED: [string, ...string[]] = [
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
]

/** The ways to write one amount; as a number only if its cents survive `JSON.parse`. */
function drawAmount(random: Random): WireAmount {
  if (random.chance(REJECTED_SHARE)) return {text: random.pick(REJECTED), cents: null}
  const cents = drawCents(random)
  const plain = formatCents(cents)
  const short = plain.replace(/0$/, '').replace(/\.0$/, '')
  const asText: [string, ...string[]] = [plain, `${plain}000`, short, ` ${plain} `].map(
    (text) => `"${text}"`,
  ) as [string, ...string[]]
  const isNumber = cents <= LARGEST_NUMBER_CENTS && random.chance(0.7)
  return {text: isNumber ? random.pick([plain, short, `${plain}0`]) : random.pick(asText), cents}
}

/** One deal on the wire and the expected reading. */
interface WireDeal {
  id: string
  text: string
  amount: bigint | null
  value: bigint | null
  status: string
}

function drawDeal(random: Random, number: number): WireDeal {
  const id = `deal_${String(number).padStart(5, '0')}`
  const amount = drawAmount(random)
  const value: WireAmount = random.chance(0.2) ? {text: 'null', cents: null} : drawAmount(random)
  const isRead = amount.cents !== null && (value.cents !== null || value.text === 'null')
  const status = random.pick(['draft', 'underwriting', 'approved', 'funded'])
  const text = `{"id":"${id}","property_address":"1 Main St, Austin, TX 78701","loan_amount":${amount.text},
    "property_value":${value.text},"status":"${status}","created_at":"2026-01-05T15:00:00Z"}`
  return {id, text, amount: isRead ? amount.cents : null, value: isRead ? value.cents : null, status}
}

const dealRow = z.object({
  deal_id: z.string(),
  loan_amount: z.string(),
  property_value: z.string().nullable(),
})
const totalRow = z.object({
  total: z.string(),
  deals: z.string(),
  amount: z.string(),
  funded_amount: z.string(),
})

const TOTALS = `
  select 'summary' as total, deals, amount, funded_amount from mart.portfolio_summary
  union all
  select dimension, sum(deals), sum(amount), sum(funded_amount) from mart.portfolio_breakdown group by dimension`

/** Some columns of a CSV, row by row. */
function readCsvColumns(path: string, names: readonly string[]): string[][] {
  const [header = '', ...lines] = readFileSync(path, 'utf8').trimEnd().split('\n')
  const indexes = names.map((name) => header.split(',').indexOf(name))
  return lines.map((line) => {
    // Only the address contains commas, in quotes.
    const cells = line.replace(/"[^"]*"/g, 'quoted').split(',')
    return indexes.map((index) => cells[index] ?? '')
  })
}

async function judge(data: TestFolder, deals: readonly WireDeal[], batchDir: string): Promise<void> {
  const read = deals.flatMap(({amount, ...deal}) => (amount === null ? [] : [{...deal, amount}]))
  const sum = (of: typeof read) => formatCents(of.reduce((total, {amount}) => total + amount, 0n))
  const amount = sum(read)
  const funded = sum(read.filter(({status}) => status === 'funded'))
  const expected = read.map(({id, amount: cents, value}) => ({
    deal_id: id,
    loan_amount: formatCents(cents),
    property_value: value === null ? null : formatCents(value),
  }))
  const release = requireRelease(data.folder)
  await using db = await openRelease(release)
  const columns = 'deal_id, loan_amount, property_value'
  assert.deepEqual(await db.all(dealRow, `select ${columns} from core.deal order by deal_id`), expected)
  for (const total of await db.all(totalRow, TOTALS)) {
    assert.deepEqual(
      total,
      {total: total.total, deals: String(read.length), amount, funded_amount: funded},
      total.total,
    )
  }
  assert.deepEqual(release.manifest.source.present, {deals: read.length, amount})
  assert.equal(release.manifest.source.amount_total, amount)

  assert.deepEqual(
    readCsvColumns(join(batchDir, 'core.deal.csv'), ['deal_id', 'loan_amount', 'property_value']),
    expected.map((row) => [row.deal_id, row.loan_amount, row.property_value ?? '']),
  )
  assert.deepEqual(
    readCsvColumns(join(batchDir, 'mart.portfolio_summary.csv'), ['amount', 'funded_amount']),
    [[amount, funded]],
  )
  const manifest: unknown = JSON.parse(readFileSync(join(batchDir, 'manifest.json'), 'utf8'))
  const {files} = z
    .object({files: z.array(z.object({name: z.string(), sum_amount: z.string().nullable()}))})
    .parse(manifest)
  assert.equal(files.find(({name}) => name === 'core.deal.csv')?.sum_amount, amount)
}

/**
 * Sends random amounts, as numbers and as texts, through walk, warehouse, release and CSV, and compares each of them and every
 * total with sums in whole cents.
 *
 * A run is one portfolio of 400 deals, from the wire to the files.
 */
export async function proveMoney(request: ProofRequest): Promise<Proved> {
  const tally = createTally()
  await runAll({name: 'money', atOnce: 2}, request, async (_run, random) => {
    const deals = Array.from({length: DEALS}, (_, index) => drawDeal(random, index))
    await using server = await startTestServer(({query}, response) => {
      const start = Number(query.get('cursor') ?? 0)
      const end = start + PAGE_SIZE
      const texts = deals.slice(start, end).map(({text}) => text)
      const position = end < DEALS ? `"has_more":true,"next_cursor":"${end}"` : '"has_more":false'
      response
        .writeHead(200, {'content-type': 'application/json'})
        .end(`{"data":[${texts.join()}],${position}}`)
    })
    using data = createFolder()
    const env = {
      LOANTAPE_BASE_URL: server.url,
      LOANTAPE_API_KEY: 'sk_test_money',
      LOANTAPE_DATA_DIR: data.folder.root,
      LOANTAPE_RATE_PER_SECOND: '5000',
      LOANTAPE_PAGE_SIZE: String(PAGE_SIZE),
      LOANTAPE_DETAIL: 'off',
    }
    const config = parseConfig(env, {readFile: () => ''})
    const world = createQuickWorld({
      now: '2026-02-02T23:30:00-05:00',
      tables: '+core.deal +mart.portfolio_summary +mart.portfolio_breakdown',
    })
    const {walk} = await syncDeals(config, {}, world)
    const [batch] = await exportRelease(config, {profiles: ['csv']}, world)
    assert(batch)
    await judge(data, deals, batch.dir)
    tally.add('amounts', DEALS)
    tally.add('quarantined', walk.quarantined)
  })
  return tally
}
