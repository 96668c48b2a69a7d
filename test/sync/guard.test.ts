import {expect, test} from 'vitest'
import {dealStream} from '../../src/contract/deal.ts'
import {STREAMS} from '../../src/contract/streams.ts'
import {
  type Acceptance,
  guardChanges,
  type MeasuredPlan,
  type Movement,
  mostListed,
} from '../../src/sync/guard.ts'
import {failureOf} from '../support/lab.ts'

const limits = {shrinkLimitPct: 5, changeLimitPct: 20, growthLimitPct: 100}

interface PlanSpec extends Partial<Omit<MeasuredPlan, 'counts' | 'moved'>> {
  counts?: Partial<MeasuredPlan['counts']>
  moved?: Partial<Movement>
}

const size = (records: number) => ({records, amountCents: BigInt(records) * 1000_00n})

/** Makes a plan over 100 known deals, 40 of them in the pipeline, all listed and unchanged. */
function aPlan({counts, moved, known = 100, ...plan}: PlanSpec = {}): MeasuredPlan {
  return {
    counts: {created: 0, updated: 0, missing: 0, vanished: 0, restored: 0, unchanged: 100, ...counts},
    known,
    absent: (counts?.missing ?? 0) + (counts?.vanished ?? 0),
    newlyAbsent: 0,
    moved: {
      before: {...size(known), pipeline: 40},
      after: size(known),
      left: 0,
      entered: 0,
      columns: {},
      ...moved,
    },
    appended: 0,
    late: 0,
    ...plan,
  }
}

const guard = async (plan: MeasuredPlan, accepted: Acceptance[] = [], changes: Partial<typeof limits> = {}) =>
  guardChanges(plan, {...limits, ...changes}, new Set(accepted), dealStream)

const moved = (moved: Partial<Movement>) => aPlan({moved})
const changed = (columns: Movement['columns']) => moved({columns})
const grown = (records: number) => moved({after: size(records)})

const twelve = {before: {...size(12), pipeline: 10}}
const noneListed = {counts: {missing: 3, unchanged: 0}}

test.each<[string, MeasuredPlan]>([
  ['nothing absent', aPlan()],
  ['exactly the limit absent', aPlan({newlyAbsent: 5})],
  ['three absent of ten', aPlan({known: 10, newlyAbsent: 3})],
  ['exactly the limit changed', aPlan({moved: {left: 20, columns: {loan_amount: 20, property_address: 20}}})],
  ['three changed of four', aPlan({known: 4, moved: {columns: {loan_amount: 3, loan_program: 3}}})],
  ['half of the pipeline funded', moved({entered: 20})],
  ['ten of ten funded', aPlan({known: 12, moved: {...twelve, entered: 10}})],
  ['ten of twenty changing status', aPlan({known: 20, moved: {columns: {status: 10}}})],
  ['twice as many', grown(200)],
  ['three growing to ten', aPlan({known: 3, moved: {after: size(10)}})],
  ['a first walk', aPlan({known: 0, counts: {created: 500, unchanged: 0}, moved: {after: size(500)}})],
  ['an empty first walk', aPlan({known: 0, counts: {unchanged: 0}})],
  ['an empty walk with three deals known', aPlan({known: 3, newlyAbsent: 3, ...noneListed})],
])('%s is let through', async (_, plan) => {
  await expect(guard(plan)).resolves.toBeUndefined()
})

const doubleAmount = {records: 100, amountCents: 200_000_01n}

test.each<[Acceptance, string, MeasuredPlan, string]>([
  ['shrink', 'one absence', aPlan({newlyAbsent: 6}), '6 of 100 known deals are absent, more than 5 %'],
  ['shrink', 'of ten, one absence', aPlan({known: 10, newlyAbsent: 4}), '4 of 10 known deals are absent'],
  ['change', 'one amount', changed({loan_amount: 21}), 'deals change their loan_amount, more than 20 %'],
  ['change', 'one status', changed({status: 21}), '21 of 100 known deals change their status'],
  ['change', 'one settled status', moved({left: 21}), '21 of 100 known deals leave funded'],
  ['change', 'one funding', moved({entered: 21}), '21 deals become funded, more than half of the 40 in'],
  ['growth', 'one deal', grown(201), '201 deals where there were 100, more than 100 %'],
  ['growth', 'one cent', moved({after: doubleAmount}), 'an amount of 200000.01 where there were 100000.00'],
])('%s: %s more than the limit is refused with the figures until accepted', async (kind, _, plan, words) => {
  const refusal = await failureOf(guard(plan))
  expect(refusal).toMatchObject({code: `GUARD_${kind.toUpperCase()}`, exitCode: 8})
  expect(refusal.message).toContain(words)
  expect(refusal.message).toContain(`--accept ${kind}`)
  await expect(guard(plan, [kind])).resolves.toBeUndefined()
})

test('if every known deal is absent or the source has changed, nobody is told to accept it', async () => {
  const another = aPlan({newlyAbsent: 100, counts: {created: 90, missing: 100, unchanged: 0}})
  for (const refused of [guard(another), guard(aPlan({newlyAbsent: 6}), ['source'])]) {
    const {message} = await failureOf(refused)
    expect(message).toMatch(/another service, give it a folder of its own with --data/)
    expect(message).not.toContain('--accept')
  }
})

test('an empty walk, or a second one, is refused whatever the limit if deals were known', async () => {
  const emptyWalk = aPlan({newlyAbsent: 100, counts: {missing: 100, unchanged: 0}})
  const secondEmptyWalk = aPlan({counts: {vanished: 100, unchanged: 0}})
  for (const plan of [emptyWalk, secondEmptyWalk])
    expect(await failureOf(guard(plan, [], {shrinkLimitPct: 100}))).toMatchObject({code: 'GUARD_SHRINK'})
  await expect(guard(emptyWalk, ['shrink'])).resolves.toBeUndefined()
})

test('lists of children may grow at once, since they are read where something happened', () => {
  const children = STREAMS.filter(({parent}) => parent)
  expect(children.length).toBeGreaterThan(0)
  for (const stream of children)
    expect(() => guardChanges(grown(500), limits, new Set(), stream)).not.toThrow()
})

test('a limit may have a fraction of a percent', async () => {
  await expect(guard(aPlan({newlyAbsent: 5}), [], {shrinkLimitPct: 5.6})).resolves.toBeUndefined()
  const refused = guard(aPlan({newlyAbsent: 6}), [], {shrinkLimitPct: 5.6})
  expect((await failureOf(refused)).message).toContain('are absent, more than 5.6 %')
})

test('an accepted shrink lets no change through, nor an accepted change a shrink', async () => {
  const both = aPlan({newlyAbsent: 50, moved: {columns: {loan_amount: 50}}})
  expect(await failureOf(guard(both, ['shrink']))).toMatchObject({code: 'GUARD_CHANGE'})
  expect(await failureOf(guard(both, ['change']))).toMatchObject({code: 'GUARD_SHRINK'})
})

test('a list may be as long as the growth guard allows, with some room; 10 million if nothing is known', () => {
  for (const known of [1, 250, 100_000]) {
    expect(mostListed(known, limits, new Set())).toBeGreaterThan(known * 2 + 1000)
    expect(mostListed(known, limits, new Set())).toBeLessThan(known * 2.3 + 1100)
  }
  expect(mostListed(0, limits, new Set())).toBe(10_000_000)
  expect(mostListed(250, limits, new Set(['growth']))).toBe(100_000_000)
})
