import {aVersion, type Row} from '../../src/build/case-rows.ts'
import {addDays} from '../../src/core/clock.ts'

/** One observation of a random history. */
export interface Sighting {
  deal: number
  /** Days after {@link FIRST_DAY}. */
  day: number
  minute: number
  kind: 'seen' | 'missing' | 'vanished'
  amount: bigint
  /** Undefined: the source left the field out. */
  value: bigint | null | undefined
  program: string | null | undefined
  /** As the source spells it. */
  status: string
  state: string
}

/** What a deal amounts to after a sighting. */
export interface Position {
  deal: number
  amount: bigint
  value: bigint | null
  program: string | null
  status: string
  state: string
  isPresent: boolean
  /** The day on which its value was last shown; null when it never was. */
  confirmed: number | null
}

/** One sighting, with what the deal was before and is after it. */
export interface Step {
  day: number
  kind: Sighting['kind']
  before: Position | undefined
  after: Position
}

export const FIRST_DAY = '2026-03-02'

/** When each deal was created, as the source says it, and the day in New York, from 06:00 on, that is. */
const CREATIONS: [created_at: string, precision: 'instant' | 'date', createdOn: string][] = [
  ['2026-02-10 12:00:00', 'instant', '2026-02-10'],
  ['2026-04-01 03:30:00', 'instant', '2026-03-31'],
  ['2026-04-01 00:00:00', 'date', '2026-04-01'],
  ['2026-05-01 09:59:59', 'instant', '2026-04-30'],
  ['2026-05-01 10:00:00', 'instant', '2026-05-01'],
]
const creationOf = (deal: number) => CREATIONS[deal % CREATIONS.length] ?? ['', 'instant', '']

/** The day each deal was created. */
export const createdOn = (deal: number): string => creationOf(deal)[2]

const CLASSES: Record<string, {class: string; order: number; ending?: string}> = {
  draft: {class: 'pipeline', order: 10},
  approved: {class: 'pipeline', order: 60},
  funded: {class: 'funded', order: 90},
  servicing: {class: 'funded', order: 100},
  paid_off: {class: 'ended_funded', order: 110, ending: 'paid_off'},
  sold: {class: 'ended_funded', order: 120, ending: 'sold'},
  charged_off: {class: 'ended_funded', order: 150, ending: 'charged_off'},
  matured: {class: 'ended_funded', order: 155},
  withdrawn: {class: 'ended_unfunded', order: 160},
}

/** The form in which a status is compared. */
const statusOf = (text: string): string => text.trim().toLowerCase()

export const classOf = (status: string): string => CLASSES[status]?.class ?? 'unclassified'
/** The term of the roll-forward by which a status of class ended_funded ends a loan. */
export const endingOf = (status: string): string => CLASSES[status]?.ending ?? 'ended_other'
export const orderOf = (status: string): number => CLASSES[status]?.order ?? 0
/** `seed.status` with a status that no shipped one is, whose ending nobody has named. */
export const statusSeed = [
  'status,class,sort_order,ending',
  ...Object.entries(CLASSES).map(([status, {class: name, order, ending}]) =>
    [status, name, order, ending ?? (status === 'matured' ? 'short_sale' : '')].join(','),
  ),
].join('\n')
export const isFunded = (position: Position | undefined): boolean =>
  position?.isPresent === true && classOf(position.status) === 'funded'

export const isEnded = ({status}: Position): boolean => classOf(status).startsWith('ended')
export const isOpen = (position: Position): boolean => !isEnded(position)

/** Cents as the engine prints them. */
export const money = (cents: bigint): string => `${cents / 100n}.${String(cents % 100n).padStart(2, '0')}`
const moneyOrNull = (cents: bigint | null | undefined) =>
  cents === null || cents === undefined ? null : money(cents)

/** The rows of `raw.deal_version` in the order they were stored. */
export function toVersions(sightings: readonly Sighting[]): Row[] {
  return sightings.map(({deal, day, minute, kind, amount, value, program, status, state}, index) =>
    aVersion({
      seq: index + 1,
      deal_id: `deal_${deal}`,
      day: addDays(FIRST_DAY, day),
      kind,
      observed_at: `${addDays(FIRST_DAY, day)} 03:${String(minute).padStart(2, '0')}:00`,
      loan_amount: money(amount),
      status,
      created_at: creationOf(deal)[0],
      created_at_precision: creationOf(deal)[1],
      property_address: `1 Main St, Town, ${state} 12345`,
      property_value: moneyOrNull(value),
      property_value_present: value !== undefined && kind === 'seen',
      loan_program: program ?? null,
      loan_program_present: program !== undefined && kind === 'seen',
    }),
  )
}

/** Replays the sightings up to a day one by one; those of a deal that was never seen before say nothing. */
export function replaySightings(sightings: readonly Sighting[], lastDay: number): Step[] {
  const inOrder = sightings
    .map((sighting, seq) => ({...sighting, seq}))
    .filter(({day}) => day <= lastDay)
    .sort((a, b) => a.day - b.day || a.minute - b.minute || a.seq - b.seq)
  const latest = new Map<number, Position>()
  const steps: Step[] = []
  for (const {deal, day, kind, amount, value, program, status, state} of inOrder) {
    const before = latest.get(deal)
    if (!before && kind !== 'seen') continue
    const seen = {
      deal,
      amount,
      value: value === undefined ? (before?.value ?? null) : value,
      program: program === undefined ? (before?.program ?? null) : program,
      status: statusOf(status),
      state,
      isPresent: true,
      confirmed: value === undefined ? (before?.confirmed ?? null) : day,
    }
    const absent = before && {...before, isPresent: before.isPresent && kind !== 'vanished'}
    const after = kind === 'seen' ? seen : (absent ?? seen)
    latest.set(deal, after)
    steps.push({day, kind, before, after})
  }
  return steps
}

/** What each deal ever seen is after the steps. */
export function latestPositions(steps: readonly Step[]): Position[] {
  return [...new Map(steps.map(({after}) => [after.deal, after])).values()]
}

/** The positions present at the end of a day. */
export function positionsOn(steps: readonly Step[], day: number): Position[] {
  return latestPositions(steps.filter((step) => step.day <= day)).filter(({isPresent}) => isPresent)
}

const SIZES: [bigint, string][] = [
  [250_000n, '<250k'],
  [500_000n, '250–500k'],
  [1_000_000n, '500k–1m'],
  [2_500_000n, '1–2.5m'],
  [5_000_000n, '2.5–5m'],
  [10_000_000n, '5–10m'],
]
const RATIOS: [bigint, string][] = [
  [50n, '≤50'],
  [60n, '50–60'],
  [65n, '60–65'],
  [70n, '65–70'],
  [75n, '70–75'],
  [80n, '75–80'],
  [85n, '80–85'],
  [90n, '85–90'],
]

/** Loan-to-value in billionths, half up; null where it says nothing. */
export function ltvOf({amount, value}: Position): bigint | null {
  if (value === null || value <= 0n || amount > value * 10n) return null
  return (2n * amount * 1_000_000_000n + value) / (2n * value)
}

function ltvBandOf(position: Position): string {
  const {amount, value} = position
  if (value === null || ltvOf(position) === null) return 'unknown'
  return RATIOS.find(([edge]) => amount * 100n <= value * edge)?.[1] ?? '>90'
}

/** The bucket of a position in each dimension that varies here. */
export const bucketOf: Record<string, (position: Position) => string> = {
  status: ({status}) => status,
  loan_program: ({program}) => program ?? 'unknown',
  state: ({state}) => (state === 'ZZ' ? 'unknown' : state),
  size_band: ({amount}) => SIZES.find(([edge]) => amount < edge * 100n)?.[1] ?? '≥10m',
  ltv_band: ltvBandOf,
  created_month: ({deal}) => createdOn(deal).slice(0, 7),
}

/** Deals and amount by bucket, as `bucket deals amount`, sorted. */
export function totalsBy(positions: readonly Position[], bucket: (position: Position) => string): string[] {
  const totals = new Map<string, {deals: number; amount: bigint}>()
  for (const position of positions) {
    const total = totals.get(bucket(position)) ?? {deals: 0, amount: 0n}
    totals.set(bucket(position), {deals: total.deals + 1, amount: total.amount + position.amount})
  }
  return [...totals].map(([name, {deals, amount}]) => `${name} ${deals} ${money(amount)}`).sort()
}

export const sumAmounts = (positions: readonly Position[]): bigint =>
  positions.reduce((sum, {amount}) => sum + amount, 0n)
