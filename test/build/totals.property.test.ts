import fc from 'fast-check'
import {expect, test} from 'vitest'
import {aRow, type Row as RawRow} from '../../src/build/case-rows.ts'
import {requirePassed, runChecks} from '../../src/build/checks.ts'
import {parseSeed, replaceSeeds} from '../../src/build/seeds.ts'
import {addDays} from '../../src/core/clock.ts'
import type {Reference} from '../proof/world/reference.ts'
import {findDifference} from '../proof/world/release.ts'
import {dollars, listTables, type Row} from '../proof/world/tables.ts'
import type {Facts, Sighting} from '../proof/world/truth.ts'
import {buildRelease, builtInPlan, noRow} from './history.ts'

const FIRST_DAY = '2026-03-02'
const dateOf = (day: number) => addDays(FIRST_DAY, day)

/** The ends of March and April and the days around them. */
const DAYS = [0, 0, 0, 1, 2, 28, 29, 30, 31, 45, 58, 59, 60, 61, 70] as const

/** When each deal was created, and how precisely the source says so. */
const CREATIONS = [
  ['2026-02-10 12:00:00', 'instant'],
  ['2026-04-01 03:30:00', 'instant'],
  ['2026-04-01 00:00:00', 'date'],
  ['2026-05-01 09:59:59', 'instant'],
  ['2026-05-01 10:00:00', 'instant'],
] as const
const creationOf = (deal: number) => CREATIONS[deal % CREATIONS.length]!

/** One of them is no shipped status, and ends a loan in a way no term is named after. */
const STATUSES: Reference['statuses'] = {
  draft: ['pipeline', 10],
  approved: ['pipeline', 60],
  funded: ['funded', 90],
  servicing: ['funded', 100],
  paid_off: ['ended_funded', 110, 'paid_off'],
  sold: ['ended_funded', 120, 'sold'],
  charged_off: ['ended_funded', 150, 'charged_off'],
  matured: ['ended_funded', 155, 'short_sale'],
  withdrawn: ['ended_unfunded', 160],
}
const statusSeed = [
  'status,class,sort_order,ending',
  ...Object.entries(STATUSES).map(
    ([status, [name, order, ending = '']]) => `${status},${name},${order},${ending}`,
  ),
].join('\n')

const cents = fc.oneof(
  fc.bigInt(0n, 999_999_999_999_999_999n),
  fc.constantFrom(24_999_999n, 25_000_000n, 50_000_000n, 6_500n, 10_000n, 0n, 100n),
)

/** One observation; an undefined field was not shown. */
const shown = fc.record({
  deal: fc.integer({min: 1, max: 10}),
  day: fc.constantFrom(...DAYS),
  minute: fc.integer({min: 0, max: 3}),
  kind: fc.constantFrom(
    'seen' as const,
    'seen' as const,
    'seen' as const,
    'missing' as const,
    'vanished' as const,
  ),
  amount: cents,
  value: fc.option(fc.option(cents, {nil: null}), {nil: undefined}),
  program: fc.constantFrom('bridge', 'dscr', null, undefined),
  status: fc.constantFrom(...Object.keys(STATUSES), ' Funded\t', 'PAID_OFF', 'odd', 'Odd\u2028'),
  state: fc.constantFrom('TX', 'NY', 'ZZ'),
})
type Shown = typeof shown extends fc.Arbitrary<infer One> ? One : never

const history = fc.record({
  shown: fc.array(shown, {minLength: 20, maxLength: 100, size: 'max'}),
  quarantined: fc.uniqueArray(fc.integer({min: 1, max: 10})),
  walks: fc.uniqueArray(fc.constantFrom(...DAYS)),
  /** The lender's own funding dates. */
  given: fc.uniqueArray(fc.tuple(fc.integer({min: 1, max: 10}), fc.constantFrom(-20, ...DAYS)), {
    selector: ([deal]) => deal,
  }),
})
type Drawn = typeof history extends fc.Arbitrary<infer One> ? One : never

const instantOf = (day: number, minute: number) => `${dateOf(day)} 03:${String(minute).padStart(2, '0')}:00`
const addressOf = (state: string) => `1 Main St, Town, ${state} 12345`
const walkDaysOf = ({shown, walks}: Drawn) =>
  [...new Set([0, ...walks, ...shown.map(({day}) => day)])].sort((a, b) => a - b)

/** The rows of `raw.deal_version` in the order they were stored. */
function toVersions(shown: readonly Shown[]): RawRow[] {
  return shown.map(({deal, day, minute, kind, amount, value, program, status, state}, index) => ({
    ...aRow('deal_version', {day: dateOf(day)}),
    seq: index + 1,
    deal_id: `deal_${deal}`,
    kind,
    observed_at: instantOf(day, minute),
    loan_amount: dollars(amount),
    status,
    created_at: creationOf(deal)[0],
    created_at_precision: creationOf(deal)[1],
    property_address: addressOf(state),
    property_value: value === null || value === undefined ? null : dollars(value),
    property_value_present: value !== undefined && kind === 'seen',
    loan_program: program ?? null,
    loan_program_present: program !== undefined && kind === 'seen',
  }))
}

/** The same facts for the world's oracle: a walk that shows nothing new of a deal saw it again unchanged. */
function toFacts(drawn: Drawn): Facts {
  const days = walkDaysOf(drawn)
  const deals = new Map<string, Sighting[]>()
  const inOrder = drawn.shown.toSorted((a, b) => a.day - b.day || a.minute - b.minute)
  for (const [index, day] of days.entries()) {
    const today = inOrder.filter((one) => one.day === day)
    const place = {on: dateOf(day), walk: index + 1}
    for (const [id, known] of deals) {
      const last = known.at(-1)!
      if (last.kind !== 'seen' || today.some(({deal}) => `deal_${deal}` === id)) continue
      const {value: _value, program: _program, ...fields} = last.fields!
      known.push({...place, kind: 'seen', at: Date.parse(`${instantOf(day, 9)}Z`), fields})
    }
    for (const {deal, minute, kind, amount, value, program, status, state} of today) {
      const id = `deal_${deal}`
      const known = deals.get(id)
      // Nothing is known of a deal that nobody has seen.
      if (!known && kind !== 'seen') continue
      const [createdAt, precision] = creationOf(deal)
      const fields = {
        address: addressOf(state),
        amount,
        ...(value !== undefined && {value}),
        ...(program !== undefined && {program}),
        status: status.trim().toLowerCase(),
        statusText: status,
        createdAt: precision === 'date' ? createdAt.slice(0, 10) : `${createdAt}Z`,
      }
      const at = Date.parse(`${instantOf(day, minute)}Z`)
      deals.set(id, [...(known ?? []), {...place, kind, at, ...(kind === 'seen' && {fields})}])
    }
  }
  const counts = {created: 0, updated: 0, restored: 0, unchanged: 0, missing: 0, vanished: 0}
  const none = {pages: 1, records: 0, distinct: 0, quarantined: 0, amount: 0n, present: 0, presentAmount: 0n}
  return {
    deals,
    walks: days.map((day, index) => ({
      ...none,
      id: index + 1,
      startedAt: Date.parse(`${dateOf(day)}T02:00:00Z`),
      endedAt: Date.parse(`${dateOf(day)}T04:00:00Z`),
      on: dateOf(day),
      counts,
    })),
    quarantine: drawn.quarantined.map((deal) => ({
      id: `deal_${deal}`,
      at: Date.parse(`${FIRST_DAY}T02:05:00Z`),
      on: FIRST_DAY,
      walk: 1,
      isOfRefused: false,
      batch: 1,
      record: {},
      isOwn: false,
      isReplayed: false,
    })),
    reference: {
      statuses: STATUSES,
      fundedOn: Object.fromEntries(drawn.given.map(([deal, day]) => [`deal_${deal}`, dateOf(day)])),
    },
  }
}

/** `HISTORIES=200` compares more of them than an ordinary test run. */
const RUNS = Number(process.env.HISTORIES ?? 5)

test('every table agrees with an oracle that takes random sightings one by one', async () => {
  const {checks, plan} = await builtInPlan()
  await fc.assert(
    fc.asyncProperty(history, fc.constantFrom(...DAYS), async (drawn, day) => {
      const facts = toFacts(drawn)
      const asOf = dateOf(day)
      const raw = {
        deal_version: toVersions(drawn.shown),
        walk: walkDaysOf(drawn).map((each) => aRow('walk', {day: dateOf(each)})),
        quarantine: drawn.quarantined.map((deal) =>
          aRow('quarantine', {day: FIRST_DAY, record_id: `deal_${deal}`}),
        ),
      }
      const dates = Object.entries(facts.reference.fundedOn).map((date) => date.join(','))
      const given = ['deal_id,funded_on', 'other,2020-01-01', ...dates].join('\n')
      const seeds = replaceSeeds(plan.seeds, [
        parseSeed({name: 'funded_on', file: 'funded_on.csv', text: given}),
        parseSeed({name: 'status', file: 'status.csv', text: statusSeed}),
      ])
      await using db = await buildRelease(raw, {asOf}, {...plan, seeds})
      for (const [table, rows] of Object.entries(listTables(facts, asOf, true))) {
        if (table.includes('mart.run')) continue
        const names = Object.keys(rows[0] ?? {})
        const columns = names.length === 0 ? '*' : names.map((name) => `"${name}"`).join(', ')
        const seen = (await db.all(noRow, `select ${columns} from ${table}`)) as Row[]
        expect(findDifference(rows, seen), table).toBeNull()
      }
      const totalsChecks = checks.filter(({name}) => name !== 'certificate_bridge_holds')
      requirePassed(await runChecks(db, totalsChecks))
    }),
    {numRuns: RUNS, seed: 2026, endOnFailure: true},
  )
})
