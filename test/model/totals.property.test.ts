import fc from 'fast-check'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {requirePassed, runChecks} from '../../src/check/run-checks.ts'
import {addDays} from '../../src/clock.ts'
import {aWalk, buildRelease, builtInPlan} from './history.ts'
import {
  bucketOf,
  FIRST_DAY,
  replaySightings,
  type Sighting,
  totalsBy,
  toVersions,
} from './portfolio-oracle.ts'

const LAST_DAY = 12

const cents = fc.oneof(
  fc.bigInt(0n, 999_999_999_999_999_999n),
  fc.constantFrom(24_999_999n, 25_000_000n, 50_000_000n, 6_500n, 10_000n, 0n, 100n),
)

const sighting: fc.Arbitrary<Sighting> = fc.record({
  deal: fc.integer({min: 1, max: 12}),
  day: fc.integer({min: 0, max: LAST_DAY}),
  minute: fc.integer({min: 0, max: 3}),
  kind: fc.constantFrom('seen', 'seen', 'seen', 'missing', 'vanished'),
  amount: cents,
  value: fc.option(fc.option(cents, {nil: null}), {nil: undefined}),
  program: fc.constantFrom('bridge', 'dscr', null, undefined),
  status: fc.constantFrom('draft', 'approved', 'funded', 'paid_off', 'on_the_moon'),
  state: fc.constantFrom('TX', 'NY', 'ZZ'),
})

const total = z.object({place: z.string(), text: z.string()})

test('every total agrees with sightings replayed one by one in BigInt', async () => {
  const {checks} = await builtInPlan()
  await fc.assert(
    fc.asyncProperty(
      fc.array(sighting, {maxLength: 60}),
      fc.integer({min: 0, max: LAST_DAY}),
      async (sightings, day) => {
        const asOf = addDays(FIRST_DAY, day)
        // A deal's first row is always a sighting.
        const first: Sighting[] = [1, 2, 3].map((deal) => ({
          deal,
          day: 0,
          minute: 0,
          kind: 'seen',
          amount: 100n,
          value: undefined,
          program: undefined,
          status: 'draft',
          state: 'TX',
        }))
        const history = [...first, ...sightings]
        await using db = await buildRelease(
          {versions: toVersions(history), walks: [aWalk({day: FIRST_DAY})]},
          {asOf},
        )

        const positions = replaySightings(history, day)
        const summary = `select 'x' as place, concat_ws(' ', 'all', deals, amount) as text from mart.portfolio_summary`
        const all = totalsBy(positions, () => 'all')
        expect((await db.all(total, summary)).map(({text}) => text)).toEqual(
          all.length > 0 ? all : ['all 0 0.00'],
        )

        const breakdown = await db.all(
          total,
          `select dimension as place, concat_ws(' ', bucket, deals, amount) as text from mart.portfolio_breakdown`,
        )
        for (const [dimension, bucket] of Object.entries(bucketOf)) {
          const texts = breakdown.filter(({place}) => place === dimension).map(({text}) => text)
          expect(texts.sort(), dimension).toEqual(totalsBy(positions, bucket))
        }

        const daily = await db.all(
          total,
          `select day as place, concat_ws(' ', status, deals, amount) as text from mart.position_daily where deals <> 0`,
        )
        for (let each = 0; each <= day; each += 1) {
          const texts = daily.filter(({place}) => place === addDays(FIRST_DAY, each)).map(({text}) => text)
          expect(texts.sort(), `day ${each}`).toEqual(
            totalsBy(replaySightings(history, each), ({status}) => status),
          )
        }
        const totalsChecks = checks.filter(({name}) => name !== 'certificate_bridge_holds')
        requirePassed(await runChecks(db, totalsChecks))
      },
    ),
    {numRuns: 20},
  )
})
