import fc from 'fast-check'
import {expect, test} from 'vitest'
import {aRow} from '../../src/build/case-rows.ts'
import {withAncestors} from '../../src/build/read-models.ts'
import {businessDateOf} from '../../src/core/clock.ts'
import {anyRow} from '../support/data.ts'
import {buildRelease, builtInPlan} from './history.ts'

const HOUR = 3_600_000

/** Instants, many of them around a change of the clocks. */
const instant = fc.oneof(
  fc.integer({min: Date.parse('2000-01-01'), max: Date.parse('2035-01-01')}),
  fc
    .tuple(
      fc.constantFrom('2026-03-08T07:00Z', '2026-11-01T06:00Z', '2026-03-29T01:00Z'),
      fc.integer({min: -12, max: 12}),
    )
    .map(([change, hours]) => Date.parse(change) + hours * HOUR),
)
const zone = fc.record({
  timeZone: fc.constantFrom(
    'America/New_York',
    'America/St_Johns',
    'Asia/Kolkata',
    'Pacific/Auckland',
    'Europe/London',
    'UTC',
  ),
  dayCutoff: fc.constantFrom('00:00', '06:00', '17:30', '23:59'),
})

test('a release dates an instant as the clock does, in every zone and with every cut-off', async () => {
  const {plan} = await builtInPlan()
  const needed = withAncestors(new Set(['core.deal']), plan.reads)
  const models = plan.models.filter(({name}) => needed.has(name))
  await fc.assert(
    fc.asyncProperty(zone, fc.array(instant, {minLength: 100, maxLength: 300}), async (zone, instants) => {
      const versions = instants.map((created, index) =>
        aRow('deal_version', {
          deal_id: String(index).padStart(3, '0'),
          created_at: new Date(created).toISOString().replace('T', ' ').replace('Z', ''),
        }),
      )
      await using db = await buildRelease({deal_version: versions}, zone, {...plan, models})
      const rows = await db.all(anyRow, 'select created_on from core.deal order by deal_id')
      expect(rows).toEqual(instants.map((created) => ({created_on: businessDateOf(created, zone)})))
    }),
    {numRuns: 8},
  )
})
