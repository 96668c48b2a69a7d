import assert from 'node:assert/strict'
import {z} from 'zod'
import {dealStream} from '../../src/contract/deal.ts'
import {readPage} from '../../src/contract/list.ts'
import {LoantapeError} from '../../src/core/errors.ts'
import {formatCents} from '../../src/core/money.ts'
import type {NormalisedPage} from '../../src/core/types.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {createNormaliser} from '../../src/source/record.ts'
import type {Database} from '../../src/store/database.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {createFolder, createWorld} from '../support/data.ts'
import {applyStaged, stageWalk} from '../support/walks.ts'
import {type ProofRequest, type Proved, prove, type Run} from './proof.ts'
import {requireSound} from './soundness.ts'

/** Pages of one run, spread evenly over its walks. */
export const PAGES_PER_RUN = 500
const WALKS = 5

const normalise = createNormaliser(dealStream)

/** Reads a spoilt page as a walk would. @returns its records; undefined if it is refused with one of our errors */
function readSpoilt(text: string, add: Run['add']): unknown[] | undefined {
  const body: unknown = JSON.parse(text)
  add('pages')
  try {
    return readPage(body).records
  } catch (error) {
    if (!(error instanceof LoantapeError)) throw error
    add('refused')
    return undefined
  }
}

const stagedRow = z.object({
  ...{deal_id: z.string(), property_address: z.string().nullable(), status: z.string()},
  ...{loan_amount: z.string(), property_value: z.string().nullable(), property_value_present: z.boolean()},
  ...{loan_program: z.string().nullable(), loan_program_present: z.boolean()},
  ...{created_at: z.coerce.bigint(), created_at_precision: z.string(), unknown_fields: z.string().nullable()},
})

async function requireStaged(db: Database, pages: readonly NormalisedPage[]): Promise<void> {
  const sql = `select * replace (epoch_us(created_at) as created_at) from temp.staged_deal order by page_no, position`
  const staged = await db.all(stagedRow, sql)
  const cents = (value: unknown) => (typeof value === 'bigint' ? formatCents(value) : null)
  const text = (value: unknown) => (typeof value === 'string' ? value.toWellFormed() : null)
  const expected = pages.flatMap(({observations}) =>
    observations.map(({id, fields, unknownFields}) => ({
      deal_id: text(id),
      property_address: text(fields.property_address),
      status: text(fields.status),
      loan_amount: cents(fields.loan_amount),
      property_value: cents(fields.property_value),
      property_value_present: fields.property_value !== undefined,
      loan_program: text(fields.loan_program),
      loan_program_present: fields.loan_program !== undefined,
      created_at: fields.created_at,
      created_at_precision: fields.created_at_precision,
      unknown_fields: text(unknownFields),
    })),
  )
  assert.deepEqual(staged, expected)
}

/** Draws the pages of one walk. Most walks keep only pages whose ids are all readable, so that they prove absence. */
function drawPages({random, add}: Run): unknown[][] {
  const keepsIds = random.chance(0.6)
  const pages: unknown[][] = []
  for (let drawn = 0; drawn < PAGES_PER_RUN / WALKS; drawn += 1) {
    const records = readSpoilt(spoilPage(random), add)
    if (!records) continue
    const isProof = normalise(records, 0n).quarantined.every(({id}) => id !== null)
    if (isProof || !keepsIds) pages.push(records)
  }
  return pages
}

interface Known {
  kind: 'seen' | 'missing' | 'vanished'
  cents: bigint
  walk: number
}

/** Applies a walk by the rules, without SQL. @returns the expected certificate */
function applyByHand(known: Map<string, Known>, pages: readonly NormalisedPage[], number: number) {
  const latest = new Map<string, bigint>()
  const rejected = new Set<string>()
  let [observed, quarantined, isProof] = [0, 0, true]
  for (const page of pages) {
    observed += page.observations.length
    quarantined += page.quarantined.length
    // The engine stores only well-formed text.
    for (const {id, fields} of page.observations)
      latest.set(id.toWellFormed(), BigInt(String(fields.loan_amount)))
    for (const {id} of page.quarantined) {
      if (id === null) isProof = false
      else rejected.add(id.toWellFormed())
    }
  }
  for (const [id, before] of known) {
    const isAbsent = isProof && before.kind !== 'vanished' && !latest.has(id) && !rejected.has(id)
    if (!isAbsent) continue
    const kind = before.kind === 'missing' && before.walk === number - 1 ? 'vanished' : 'missing'
    known.set(id, {...before, kind, walk: number})
  }
  for (const [id, cents] of latest) known.set(id, {kind: 'seen', cents, walk: number})
  return {
    records: observed + quarantined,
    distinct: latest.size,
    duplicates: observed - latest.size,
    quarantined,
    amountTotal: formatCents(latest.values().reduce((sum, cents) => sum + cents, 0n)),
  }
}

const headRow = z.object({deal_id: z.string(), kind: z.string(), loan_amount: z.string()})

/**
 * Feeds spoilt pages to everything between the answer and the warehouse. Any page is either stored or refused with one of our
 * errors; every certificate and every state follows the rules, to the cent. A run is {@link PAGES_PER_RUN} pages in a few walks
 * of one warehouse.
 */
export function proveFuzz(request: ProofRequest): Promise<Proved> {
  return prove('fuzz', request, async (run) => {
    using data = createFolder()
    await using db = await openWarehouse(data.folder, createWorld())
    const known = new Map<string, Known>()
    for (let number = 1; number <= WALKS; number += 1) {
      const pages = drawPages(run)
      const at = `2026-02-0${number}T23:30:00Z`
      const normalised = pages.map((records) => normalise(records, 0n))
      const staged = await stageWalk(db, {at, pages})
      await requireStaged(db, normalised)
      await applyStaged(db, staged, at)
      const {certificate, walk: walked} = staged
      const {records, distinct, duplicates, quarantined} = certificate
      const amountTotal = walked.certified?.amount_total
      const expected = applyByHand(known, normalised, number)
      assert.deepEqual({records, distinct, duplicates, quarantined, amountTotal}, expected)
      const heads = await db.all(headRow, 'select deal_id, kind, loan_amount from history.raw.deal_head')
      const stored = new Map(heads.map((head) => [head.deal_id, `${head.kind} ${head.loan_amount}`]))
      const states = [...known].map(([id, {kind, cents}]) => [id, `${kind} ${formatCents(cents)}`] as const)
      assert.deepEqual(stored, new Map(states))
      await requireSound(db)
      run.add('records', records)
      run.add('quarantined', quarantined)
    }
  })
}

/** A JSON value; its strings may hold {@link raw} text. */
type Json = null | boolean | number | string | Json[] | {[name: string]: Json}

/** Marks text that goes into the JSON verbatim, such as numbers that JavaScript cannot represent. */
const raw = (text: string) => `\u0001raw:${text}\u0001`
const RAW = /"\\u0001raw:([^"\\]*)\\u0001"/g

const IDS = Array.from({length: 40}, (_, index) => `deal_${index}`)

function anInstant(random: Random): string {
  const year = random.pick(['0000', '0001', '1900', '2000', '2026', '2028', '9999', '10000', '-0001'])
  const month = random.pick(['00', '01', '02', '06', '12', '13', '2'])
  const day = random.pick(['00', '01', '28', '29', '30', '31', '32'])
  const time = random.pick(['00:00:00', '12:30:00', '23:59:59', '23:59:60', '12:60:00', '24:00:00'])
  const rest = random.pick(['', '', '.999', '.999', '.5', '.123456789', '.1234567890'])
  return `${year}-${month}-${day}${random.pick(['T', 'T', 't', ' '])}${time}${rest}${random.pick(['Z', 'Z', 'z', ''])}`
}

function aRecord(random: Random): Json {
  const cents = random.integer(0, 9_999_999_99)
  return {
    id: random.pick([IDS[0] ?? '', ...IDS]),
    property_address: `${random.integer(1, 999)} Main St, Austin, TX 78701`,
    loan_amount: random.chance(0.3) ? (cents / 100).toFixed(2) : cents / 100,
    status: random.pick(['draft', 'underwriting', 'approved', 'funded']),
    created_at: random.chance(0.6)
      ? new Date(Date.parse('2026-01-05T15:00:00Z') + random.integer(0, 1e9)).toISOString()
      : anInstant(random),
    ...(random.chance(0.3) && {property_value: random.integer(1, 9_999_999), loan_program: 'bridge_30yr'}),
  }
}

const TEXTS: [string, ...string[]] = [
  '',
  ' ',
  '\u0000',
  'a\u0000b',
  '\ud800',
  'deal_\udfff',
  '\u202edeal_1',
  '🏚️',
  '\r\n\t\u001f\u007f',
  'deal_1 ',
  "'; drop table history.raw.deal_head; --",
  '{"id": 1}',
  'null',
  'NaN',
  '__proto__',
  'x'.repeat(20_000),
  '2026-02-30',
  '9999-12-31T23:59:59.999999999Z',
  '0000-01-01',
  '0001-01-01T00:00:00+23:59',
  '2026-01-05',
  '2026-01-05T15:00:00',
  '1e5',
  '-0.01',
  '0.001',
  '9999999999999999.99',
  '99999999999999999.99',
  '٣٤٥',
  ' 12.50 ',
  '+1',
]

/** Numbers at the limits of cents, of JavaScript's numbers and of a column. */
const NUMBERS = [
  ...['0', '-0', '-1', '-0.001', '0.005', '0.1', '0.30000000000000004', '1.0', '35e3', '1e-7', '5e-324'],
  ...['1e21', '1e999', '-1e999', '70000000000000', '70000000000000.01', '69999999999999.99'],
  ...['9007199254740993', '123456789012345678901234567890'],
] as [string, ...string[]]

function aValue(random: Random): Json {
  const nest = (depth: number) => raw(`${'['.repeat(depth)}${']'.repeat(depth)}`)
  const number = () => raw(random.pick(NUMBERS))
  const text = () => random.pick(TEXTS)
  const draw = random.pick<() => Json>([
    () => null,
    () => random.chance(0.5),
    number,
    number,
    text,
    text,
    () => random.pick<Json>([[], {}, [[]], [null], {id: 'deal_1'}, ['deal_1']]),
    () => nest(random.pick([3, 100, 2_000, 20_000])),
    () => aRecord(random),
  ])
  return draw()
}

type Container = Json[] | {[name: string]: Json}

const isContainer = (value: Json): value is Container => typeof value === 'object' && value !== null

function listContainers(body: Json): Container[] {
  if (!isContainer(body)) return []
  return [body, ...Object.values(body).flatMap(listContainers)]
}

const FIELDS = [
  ...['id', 'loan_amount', 'status', 'created_at', 'property_address', 'property_value', 'loan_program'],
  ...['data', 'has_more', 'next_cursor', 'pagination', 'Loan_Amount', 'ünïcode', ''],
  ...['__proto__', 'constructor', 'toString'],
] as [string, ...string[]]

function mutateArray(items: Json[], random: Random): void {
  const index = random.integer(0, Math.max(0, items.length - 1))
  const change = random.pick<() => unknown>([
    () => items.splice(index, random.integer(1, 3)),
    () => items.splice(index, 0, aValue(random)),
    () => items.push(...structuredClone(items.slice(index, index + 1))),
    () => items.splice(index, 1, aValue(random)),
    () => items.splice(index),
  ])
  change()
}

function mutateObject(fields: {[name: string]: Json}, random: Random): void {
  const names = Object.keys(fields)
  const name = names[random.integer(0, Math.max(0, names.length - 1))] ?? 'id'
  const set = (field: string, value: Json): unknown =>
    Object.defineProperty(fields, field, {value, enumerable: true, configurable: true, writable: true})
  const change = random.pick<() => void>([
    () => void delete fields[name],
    () => {
      set(random.pick(FIELDS), fields[name] ?? null)
      delete fields[name]
    },
    () => set(random.pick(FIELDS), aValue(random)),
    () => set(name, aValue(random)),
    () => set(name, aValue(random)),
  ])
  change()
}

function mutate(body: Json, random: Random, isAllowed: (place: Container) => boolean): void {
  const places = listContainers(body).filter(isAllowed)
  const place = places[random.integer(0, places.length - 1)]
  if (Array.isArray(place)) mutateArray(place, random)
  else if (place) mutateObject(place, random)
}

/**
 * Draws one page of a list as JSON text: valid, then changed in up to three places. Changes affect types, fields (dropped,
 * renamed, doubled), amounts, texts, depth, the envelope, and records (repeated, cut off).
 */
function spoilPage(random: Random): string {
  const body: Json = {
    data: Array.from({length: random.integer(0, 6)}, () => aRecord(random)),
    has_more: random.chance(0.5),
    next_cursor: random.chance(0.9) ? random.text(8) : null,
  }
  const changes = random.integer(0, 3)
  // Most pages keep their envelope: a page that is refused at once tests nothing about records.
  const keepsEnvelope = random.chance(0.8)
  for (let done = 0; done < changes; done += 1)
    mutate(body, random, (place) => !keepsEnvelope || (place !== body && place !== body.data))
  const text = JSON.stringify(body)
  const doubled = random.chance(0.05) ? text.replace('"id":', '"id":"deal_0","id":') : text
  return doubled.replace(RAW, (_, number: string) => number)
}
