import type {Random} from '../../src/service/portfolio.ts'

/** Anything JSON can say, and {@link Raw} text. */
type Json = null | boolean | number | string | Json[] | {[name: string]: Json}

/** Marks text to be put into the JSON verbatim: numbers JavaScript cannot represent. */
const raw = (text: string) => `\u0001raw:${text}\u0001`
const RAW = /"\\u0001raw:([^"\\]*)\\u0001"/g

const IDS = Array.from({length: 40}, (_, index) => `deal_${index}`)

function aRecord(random: Random): Json {
  const cents = random.integer(0, 9_999_999_99)
  return {
    id: random.pick([IDS[0] ?? '', ...IDS]),
    property_address: `${random.integer(1, 999)} Main St, Austin, TX 78701`,
    loan_amount: random.chance(0.3) ? (cents / 100).toFixed(2) : cents / 100,
    status: random.pick(['draft', 'underwriting', 'approved', 'funded']),
    created_at: new Date(Date.parse('2026-01-05T15:00:00Z') + random.integer(0, 1e9)).toISOString(),
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
  "'; drop table warehouse.raw.deal_head; --",
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

/** Around the limits of cents, of JavaScript's numbers and of what a column holds. */
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

/** Every place in a body: itself and the containers inside it. */
function listContainers(body: Json): Container[] {
  if (!isContainer(body)) return []
  return [body, ...Object.values(body).flatMap(listContainers)]
}

const FIELDS = [
  ...['id', 'loan_amount', 'status', 'created_at', 'property_address', 'property_value', 'loan_program'],
  ...['data', 'has_more', 'next_cursor', 'pagination', 'Loan_Amount', 'ünïcode', ''],
  ...['__proto__', 'constructor', 'toString'],
] as [string, ...string[]]

/** Drops, inserts, repeats, replaces or cuts off items. */
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

/** Drops, renames, adds or changes a field. */
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
 * One page of a list as JSON text: valid, then changed in up to three places: types, fields dropped, renamed and doubled,
 * impossible amounts, texts of every kind, depth, another envelope, records repeated and cut off.
 */
export function spoilPage(random: Random): string {
  const body: Json = {
    data: Array.from({length: random.integer(0, 6)}, () => aRecord(random)),
    has_more: random.chance(0.5),
    next_cursor: random.chance(0.9) ? random.text(8) : null,
  }
  const changes = random.integer(0, 3)
  // Most pages keep their envelope: an immediate refusal says nothing about records.
  const keepsEnvelope = random.chance(0.8)
  for (let done = 0; done < changes; done += 1)
    mutate(body, random, (place) => !keepsEnvelope || (place !== body && place !== body.data))
  const text = JSON.stringify(body)
  const doubled = random.chance(0.05) ? text.replace('"id":', '"id":"deal_0","id":') : text
  return doubled.replace(RAW, (_, number: string) => number)
}
