import {addDays} from '../../src/clock.ts'
import {aVersion, type Row} from './history.ts'

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
  status: string
  state: string
}

/** What a deal amounts to at the end of a day. */
export interface Position {
  amount: bigint
  value: bigint | null
  program: string | null
  status: string
  state: string
}

export const FIRST_DAY = '2026-03-02'

const money = (cents: bigint | null | undefined) =>
  cents === null || cents === undefined ? null : `${cents / 100n}.${String(cents % 100n).padStart(2, '0')}`

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
      property_address: `1 Main St, Town, ${state} 12345`,
      property_value: money(value),
      property_value_present: value !== undefined && kind === 'seen',
      loan_program: program ?? null,
      loan_program_present: program !== undefined && kind === 'seen',
    }),
  )
}

/** The positions present at the end of a day, found by replaying the sightings one by one. */
export function replaySightings(sightings: readonly Sighting[], lastDay: number): Position[] {
  const inOrder = sightings
    .map((sighting, seq) => ({...sighting, seq}))
    .filter(({day}) => day <= lastDay)
    .sort((a, b) => a.day - b.day || a.minute - b.minute || a.seq - b.seq)
  const positions = new Map<number, Position & {isPresent: boolean}>()
  for (const {deal, kind, amount, value, program, status, state} of inOrder) {
    const before = positions.get(deal)
    if (kind === 'seen') {
      positions.set(deal, {
        amount,
        value: value === undefined ? (before?.value ?? null) : value,
        program: program === undefined ? (before?.program ?? null) : program,
        status,
        state,
        isPresent: true,
      })
    } else if (before && kind === 'vanished') before.isPresent = false
  }
  return [...positions.values()].filter(({isPresent}) => isPresent)
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

function ltvBandOf({amount, value}: Position): string {
  if (value === null || value <= 0n) return 'unknown'
  const billionths = (2n * amount * 1_000_000_000n + value) / (2n * value)
  if (billionths >= 1_000_000_000_000n) return 'unknown'
  return RATIOS.find(([edge]) => amount * 100n <= value * edge)?.[1] ?? '>90'
}

/** The bucket of a position in each dimension that varies here. */
export const bucketOf: Record<string, (position: Position) => string> = {
  status: ({status}) => status,
  loan_program: ({program}) => program ?? 'unknown',
  state: ({state}) => (state === 'ZZ' ? 'unknown' : state),
  size_band: ({amount}) => SIZES.find(([edge]) => amount < edge * 100n)?.[1] ?? '≥10m',
  ltv_band: ltvBandOf,
  created_month: () => '2026-02',
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
