import {expect, test} from 'vitest'
import {dealStream} from '../../src/contract/deal.ts'
import {type Acceptance, guardChanges} from '../../src/load/guard.ts'
import type {ChangePlan} from '../../src/load/plan-changes.ts'
import {failureOf} from '../support/lab.ts'

const limits = {shrinkLimitPct: 5, changeLimitPct: 20}

/** A plan over 100 known deals, all of them listed and unchanged. */
function aPlan({
  counts,
  ...plan
}: Partial<Omit<ChangePlan, 'counts'>> & {counts?: Partial<ChangePlan['counts']>} = {}): ChangePlan {
  return {
    counts: {created: 0, updated: 0, missing: 0, vanished: 0, restored: 0, unchanged: 100, ...counts},
    known: 100,
    newlyAbsent: 0,
    unsettled: 0,
    appended: 0,
    ...plan,
  }
}

const guard = async (plan: ChangePlan, accepted: Acceptance[] = [], changes: Partial<typeof limits> = {}) =>
  guardChanges(plan, {...limits, ...changes}, new Set(accepted), dealStream)

test.each([
  ['nothing absent', aPlan()],
  ['exactly the limit absent', aPlan({newlyAbsent: 5})],
  ['three absent of ten', aPlan({known: 10, newlyAbsent: 3})],
  ['exactly the limit changed', aPlan({unsettled: 20})],
  ['three changed of four', aPlan({known: 4, unsettled: 3})],
  ['a first walk', aPlan({known: 0, counts: {created: 500, unchanged: 0}})],
  ['an empty first walk', aPlan({known: 0, counts: {unchanged: 0}})],
  [
    'an empty walk where three deals were known',
    aPlan({known: 3, newlyAbsent: 3, counts: {missing: 3, unchanged: 0}}),
  ],
])('%s is let through', async (_, plan) => {
  await expect(guard(plan)).resolves.toBeUndefined()
})

test.each([
  ['one more than the limit', aPlan({newlyAbsent: 6})],
  ['four of ten', aPlan({known: 10, newlyAbsent: 4})],
])('%s newly absent is refused with what is known', async (_, plan) => {
  const refusal = await failureOf(guard(plan))
  expect(refusal).toMatchObject({code: 'GUARD_SHRINK', exitCode: 8})
  expect(refusal.message).toContain(
    `${plan.newlyAbsent} of ${plan.known} known deals are absent, more than 5 %`,
  )
  expect(refusal.message).toContain('--accept shrink')
})

test.each<[string, ChangePlan, Acceptance[]]>([
  [
    'every known deal is absent',
    aPlan({newlyAbsent: 100, counts: {created: 90, missing: 100, unchanged: 0}}),
    [],
  ],
  ['the source has changed', aPlan({newlyAbsent: 6}), ['source']],
])('where %s, nobody is told to accept it', async (_, plan, accepted) => {
  const refusal = await failureOf(guard(plan, accepted))
  expect(refusal.message).toMatch(/another service\? Then give it a folder of its own with --data/)
  expect(refusal.message).not.toContain('--accept')
})

test('one more than the limit changing is refused', async () => {
  const refusal = await failureOf(guard(aPlan({unsettled: 21})))
  expect(refusal).toMatchObject({code: 'GUARD_CHANGE', exitCode: 8})
  expect(refusal.message).toContain('21 of 100 known deals')
})

const emptyWalk = aPlan({newlyAbsent: 100, counts: {missing: 100, unchanged: 0}})
const secondEmptyWalk = aPlan({counts: {vanished: 100, unchanged: 0}})

test.each([
  ['an empty walk', emptyWalk],
  ['a second empty walk', secondEmptyWalk],
])('%s where there were deals is refused whatever the limit', async (_, plan) => {
  expect(await failureOf(guard(plan, [], {shrinkLimitPct: 100}))).toMatchObject({
    code: 'GUARD_SHRINK',
    exitCode: 8,
  })
})

test('an accepted shrink is let through, a change beside it is not', async () => {
  await expect(guard(aPlan({newlyAbsent: 50}), ['shrink'])).resolves.toBeUndefined()
  await expect(guard(emptyWalk, ['shrink'])).resolves.toBeUndefined()
  expect(await failureOf(guard(aPlan({newlyAbsent: 50, unsettled: 50}), ['shrink']))).toMatchObject({
    code: 'GUARD_CHANGE',
  })
})

test('an accepted change is let through, a shrink beside it is not', async () => {
  await expect(guard(aPlan({unsettled: 50}), ['change'])).resolves.toBeUndefined()
  expect(await failureOf(guard(aPlan({newlyAbsent: 50, unsettled: 50}), ['change']))).toMatchObject({
    code: 'GUARD_SHRINK',
  })
})
