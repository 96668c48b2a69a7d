import fc from 'fast-check'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {aQuarantine, aWalk} from '../../src/build/case-rows.ts'
import {requirePassed, runChecks} from '../../src/build/checks.ts'
import {parseSeed, replaceSeeds} from '../../src/build/seeds.ts'
import {addDays} from '../../src/core/clock.ts'
import type {Database} from '../../src/store/database.ts'
import {buildRelease, builtInPlan, noRow} from './history.ts'
import {
  createdOn,
  FIRST_DAY,
  ltvOf,
  positionsOn,
  replaySightings,
  type Sighting,
  type Step,
  statusSeed,
  totalsBy,
  toVersions,
} from './portfolio-oracle.ts'
import {accountSeed, limitSeed, standingSince, type Told, tableOracles} from './table-oracle.ts'

/** The ends of March and April and what lies around them. */
const DAYS = [0, 0, 0, 1, 2, 28, 29, 30, 31, 45, 58, 59, 60, 61, 70] as const

const cents = fc.oneof(
  fc.bigInt(0n, 999_999_999_999_999_999n),
  fc.constantFrom(24_999_999n, 25_000_000n, 50_000_000n, 6_500n, 10_000n, 0n, 100n),
)

const sighting: fc.Arbitrary<Sighting> = fc.record({
  deal: fc.integer({min: 1, max: 10}),
  day: fc.constantFrom(...DAYS),
  minute: fc.integer({min: 0, max: 3}),
  kind: fc.constantFrom('seen', 'seen', 'seen', 'missing', 'vanished'),
  amount: cents,
  value: fc.option(fc.option(cents, {nil: null}), {nil: undefined}),
  program: fc.constantFrom('bridge', 'dscr', null, undefined),
  status: fc.constantFrom(
    'draft',
    'approved',
    'funded',
    ' Funded\t',
    'servicing',
    'paid_off',
    'PAID_OFF',
    'sold',
    'charged_off',
    'matured',
    'withdrawn',
    'odd',
    'Odd\u2028',
  ),
  state: fc.constantFrom('TX', 'NY', 'ZZ'),
})

const told: fc.Arbitrary<Told> = fc.record({
  quarantined: fc.uniqueArray(fc.integer({min: 1, max: 10})).map((deals) => new Set(deals)),
  walks: fc
    .uniqueArray(fc.constantFrom(...DAYS))
    .map((days) => [...new Set([0, ...days])].sort((a, b) => a - b)),
  given: fc
    .array(fc.tuple(fc.integer({min: 1, max: 10}), fc.constantFrom(-20, ...DAYS)))
    .map((dates) => new Map(dates)),
})

const total = z.object({place: z.string(), text: z.string()})

/** Daily positions add up as the positions do. */
async function expectTotals(db: Database, steps: readonly Step[], day: number): Promise<void> {
  const daily = await db.all(
    total,
    `select day as place, concat_ws(' ', status, deals, amount) as text from mart.position_daily where deals <> 0`,
  )
  for (let each = 0; each <= day; each += 1) {
    const texts = daily.filter(({place}) => place === addDays(FIRST_DAY, each)).map(({text}) => text)
    expect(texts.sort(), `day ${each}`).toEqual(totalsBy(positionsOn(steps, each), ({status}) => status))
  }
}

/** Ratio, day of creation, of the last value and of the status of each deal. */
async function expectDeals(db: Database, steps: readonly Step[], day: number, facts: Told): Promise<void> {
  const deals = await db.all(
    noRow,
    `select deal_id, ltv, created_on, value_confirmed_on, status_since, status_since_is_exact, status_since_at_earliest,
       status_since_at_latest
     from core.deal`,
  )
  const since = standingSince(steps, day, facts)
  const expected = positionsOn(steps, day).map((position) => {
    const ltv = ltvOf(position)
    return [
      `deal_${position.deal}`,
      ltv === null ? null : `${ltv / BILLION}.${String(ltv % BILLION).padStart(9, '0')}`,
      createdOn(position.deal),
      position.confirmed === null ? null : addDays(FIRST_DAY, position.confirmed),
      ...(since.get(position.deal) ?? []),
    ]
  })
  expect(sortRows(deals.map(Object.values))).toEqual(sortRows(expected))
}

/** `HISTORIES=200` compares more of them than every run of the tests does. */
const RUNS = Number(process.env.HISTORIES ?? 5)

const BILLION = 1_000_000_000n

test('every total agrees with sightings replayed one by one in BigInt', async () => {
  const {checks, plan} = await builtInPlan()
  await fc.assert(
    fc.asyncProperty(
      fc.array(sighting, {minLength: 20, maxLength: 100, size: 'max'}),
      fc.constantFrom(...DAYS),
      told,
      async (sightings, day, facts) => {
        const {quarantined, given, walks} = facts
        const asOf = addDays(FIRST_DAY, day)
        const history = {
          versions: toVersions(sightings),
          walks: walks.map((each) => aWalk({day: addDays(FIRST_DAY, each)})),
          quarantine: [...quarantined].map((deal) =>
            aQuarantine({day: FIRST_DAY, record_id: `deal_${deal}`}),
          ),
        }
        const dates = [...given].map(([deal, date]) => `deal_${deal},${addDays(FIRST_DAY, date)}`)
        const text = ['deal_id,funded_on', 'other,2020-01-01', ...dates].join('\n')
        const seeds = replaceSeeds(plan.seeds, [
          parseSeed({name: 'funded_on', file: 'funded_on.csv', text}),
          parseSeed({name: 'status', file: 'status.csv', text: statusSeed}),
          parseSeed({name: 'account', file: 'account.csv', text: accountSeed}),
          parseSeed({name: 'limit', file: 'limit.csv', text: limitSeed}),
        ])
        await using db = await buildRelease(history, {asOf}, {...plan, seeds})
        const steps = replaySightings(sightings, day)
        await expectTotals(db, steps, day)
        await expectDeals(db, steps, day, facts)
        for (const [table, oracle] of Object.entries(tableOracles)) {
          const rows = (await db.all(noRow, `from ${table}`)).map((row) => Object.values(row))
          expect(sortRows(rows), table).toEqual(sortRows(oracle(steps, day, facts)))
        }
        const totalsChecks = checks.filter(({name}) => name !== 'certificate_bridge_holds')
        requirePassed(await runChecks(db, totalsChecks))
      },
    ),
    {numRuns: RUNS, seed: 2026},
  )
})

/** In the order of their exact values: a percentage stands for one that is close to it. */
function sortRows(rows: unknown[][]): unknown[][] {
  const key = (row: unknown[]) => row.filter((value) => typeof value === 'string').join(' ')
  return rows.toSorted((a, b) => (key(a) < key(b) ? -1 : 1))
}
