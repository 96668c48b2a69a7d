import {expect, test} from 'vitest'
import {dealStream} from '../../src/contract/deal.ts'
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

/** Deals of 1,000.00 each. */
const size = (records: number) => ({records, amountCents: BigInt(records) * 1000_00n})

/** A plan over 100 known deals, 40 of them in the pipeline, all listed and unchanged. */
function aPlan({counts, moved, known = 100, ...plan}: PlanSpec = {}): MeasuredPlan {
  return {
    counts: {created: 0, updated: 0, missing: 0, vanished: 0, restored: 0, unchanged: 100, ...counts},
    staged: 'temp.staged_deal',
    known,
    newlyAbsent: 0,
    moved: {
      before: {...size(known), pipeline: 40},
      after: size(known),
      amounts: 0,
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

test.each([
  ['nothing absent', aPlan()],
  ['exactly the limit absent', aPlan({newlyAbsent: 5})],
  ['three absent of ten', aPlan({known: 10, newlyAbsent: 3})],
  ['exactly the limit changed', aPlan({moved: {amounts: 20, left: 20, columns: {property_address: 20}}})],
  ['three changed of four', aPlan({known: 4, moved: {amounts: 3, columns: {loan_program: 3}}})],
  ['half of the pipeline funded', aPlan({moved: {entered: 20}})],
  ['ten of ten funded', aPlan({known: 12, moved: {before: {...size(12), pipeline: 10}, entered: 10}})],
  ['ten of twenty changing status', aPlan({known: 20, moved: {columns: {status: 10}}})],
  ['twice as many', aPlan({moved: {after: size(200)}})],
  ['three growing to ten', aPlan({known: 3, moved: {after: size(10)}})],
  ['a first walk', aPlan({known: 0, counts: {created: 500, unchanged: 0}, moved: {after: size(500)}})],
  ['an empty first walk', aPlan({known: 0, counts: {unchanged: 0}})],
  [
    'an empty walk with three deals known',
    aPlan({known: 3, newlyAbsent: 3, counts: {missing: 3, unchanged: 0}}),
  ],
])('%s is let through', async (_, plan) => {
  await expect(guard(plan)).resolves.toBeUndefined()
})

test.each([
  ['one more than the limit', aPlan({newlyAbsent: 6})],
  ['four of ten', aPlan({known: 10, newlyAbsent: 4})],
])('more absences than allowed (%s) are refused with the figures', async (_, plan) => {
  const refusal = await failureOf(guard(plan))
  expect(refusal).toMatchObject({code: 'GUARD_SHRINK', exitCode: 8})
  expect(refusal.message).toContain(
    `${plan.newlyAbsent} of ${plan.known} known deals are absent, more than 5 %`,
  )
  expect(refusal.message).toContain('--accept shrink')
})

test.each<[string, MeasuredPlan, Acceptance[]]>([
  [
    'every known deal is absent',
    aPlan({newlyAbsent: 100, counts: {created: 90, missing: 100, unchanged: 0}}),
    [],
  ],
  ['the source has changed', aPlan({newlyAbsent: 6}), ['source']],
])('when %s, nobody is told to accept it', async (_, plan, accepted) => {
  const refusal = await failureOf(guard(plan, accepted))
  expect(refusal.message).toMatch(/another service, give it a folder of its own with --data/)
  expect(refusal.message).not.toContain('--accept')
})

test.each([
  ['amount', {amounts: 21}, '21 of 100 known deals change their loan_amount, more than 20 %'],
  ['settled status', {left: 21}, '21 of 100 known deals leave funded, more than 20 %'],
  ['address', {columns: {property_address: 21}}, '21 of 100 known deals change their property_address'],
  ['status', {columns: {status: 21}}, '21 of 100 known deals change their status'],
  ['pipeline', {entered: 21}, '21 deals become funded, more than half of the 40 in the pipeline'],
])('one more than the limit changing its %s is refused', async (_, moved, words) => {
  const refusal = await failureOf(guard(aPlan({moved})))
  expect(refusal).toMatchObject({code: 'GUARD_CHANGE', exitCode: 8})
  expect(refusal.message).toContain(words)
})

test('each kind of change beyond its limit is named with its number', async () => {
  const columns = {property_address: 90, property_value: 5, loan_program: 80}
  const {message} = await failureOf(guard(aPlan({moved: {amounts: 30, entered: 40, columns}})))
  expect(message).toContain(
    '30 of 100 known deals change their loan_amount, more than 20 %; 40 deals become funded',
  )
  expect(message).toContain('90 of 100 known deals change their property_address, more than 20 %; 80 of 100')
  expect(message).not.toContain('property_value')
})

test.each([
  ['deals', {after: size(201)}, '201 deals where there were 100, more than 100 % more'],
  [
    'amount',
    {after: {records: 100, amountCents: 200_000_01n}},
    'an amount of 200000.01 where there were 100000.00, more than 100 % more',
  ],
])('a book of more than twice the %s is refused until accepted', async (_, moved, words) => {
  const refusal = await failureOf(guard(aPlan({moved})))
  expect(refusal).toMatchObject({code: 'GUARD_GROWTH', exitCode: 8})
  expect(refusal.message).toContain(words)
  expect(refusal.message).toContain('--accept growth')
  await expect(guard(aPlan({moved}), ['growth'])).resolves.toBeUndefined()
})

const emptyWalk = aPlan({newlyAbsent: 100, counts: {missing: 100, unchanged: 0}})
const secondEmptyWalk = aPlan({counts: {vanished: 100, unchanged: 0}})

test.each([
  ['an empty walk', emptyWalk],
  ['a second empty walk', secondEmptyWalk],
])('%s is refused whatever the limit if deals were known', async (_, plan) => {
  expect(await failureOf(guard(plan, [], {shrinkLimitPct: 100}))).toMatchObject({
    code: 'GUARD_SHRINK',
    exitCode: 8,
  })
})

test('an accepted shrink is let through, but not a change with it', async () => {
  await expect(guard(aPlan({newlyAbsent: 50}), ['shrink'])).resolves.toBeUndefined()
  await expect(guard(emptyWalk, ['shrink'])).resolves.toBeUndefined()
  expect(await failureOf(guard(aPlan({newlyAbsent: 50, moved: {amounts: 50}}), ['shrink']))).toMatchObject({
    code: 'GUARD_CHANGE',
  })
})

test('an accepted change is let through, but not a shrink with it', async () => {
  await expect(guard(aPlan({moved: {amounts: 50}}), ['change'])).resolves.toBeUndefined()
  expect(await failureOf(guard(aPlan({newlyAbsent: 50, moved: {amounts: 50}}), ['change']))).toMatchObject({
    code: 'GUARD_SHRINK',
  })
})

test('a list may be as long as the growth guard allows, with some room; 10 million if nothing is known', () => {
  for (const known of [1, 250, 100_000]) {
    expect(mostListed(known, limits, new Set())).toBeGreaterThan(known * 2 + 1000)
    expect(mostListed(known, limits, new Set())).toBeLessThan(known * 2.3 + 1100)
  }
  expect(mostListed(0, limits, new Set())).toBe(10_000_000)
  expect(mostListed(250, limits, new Set(['growth']))).toBe(100_000_000)
})
