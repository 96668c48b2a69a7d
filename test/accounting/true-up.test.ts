import fc from 'fast-check'
import {expect, test} from 'vitest'
import {planTrueUp} from '../../src/accounting/plan.ts'
import type {JournalLine} from '../../src/accounting/profiles.ts'
import {parseCents} from '../../src/core/money.ts'
import {anEntry, issueFirst} from './journal-lines.ts'

const FIRST_OPEN_DAY = '2026-02-01'
const MONTH_ENDS = ['2026-02-28', '2026-03-31', '2026-04-30']

const entry = fc.record({
  deal: fc.constantFrom('a', 'b', 'c'),
  date: fc.constantFrom('2026-01-10', '2026-02-01', '2026-02-10', '2026-03-10', '2026-03-20', '2026-04-10'),
  accounts: fc.shuffledSubarray(['1200', '1201', '1090', '1000'], {minLength: 2, maxLength: 2}),
  amount: fc.constantFrom('10.00', '20.00', '30.01'),
  /** Whether it was issued, and whether the journal of the history that came back holds it. */
  was: fc.constantFrom('issued and held', 'issued and lost', 'seen anew'),
})

type Entry = typeof entry extends fc.Arbitrary<infer T> ? T : never

function linesOf({deal, date, accounts, amount, was}: Entry, number: number): JournalLine[] {
  const [debited = '', credited = ''] = accounts
  // What is seen anew is seen after the recovery.
  const entry_date = was === 'seen anew' ? '2026-04-20' : date
  const [debit, credit] = anEntry(number, {deal_id: deal, entry_date, amount})
  return [
    {...debit!, account_code: debited},
    {...credit!, account_code: credited},
  ]
}

/** Cents by deal and account up to the end of a day, nothing where they cancel out. */
function balancesOf(lines: readonly JournalLine[], day = '9999-12-31'): Record<string, bigint> {
  const sums: Record<string, bigint> = {}
  for (const {account_code, deal_id, entry_date, debit, credit} of lines) {
    if (entry_date > day) continue
    const key = `${deal_id} ${account_code}`
    sums[key] = (sums[key] ?? 0n) + BigInt(parseCents(debit ?? '0')) - BigInt(parseCents(credit ?? '0'))
  }
  return Object.fromEntries(Object.entries(sums).filter(([, cents]) => cents !== 0n))
}

test('whatever was lost and seen anew, each open month ends as it should, and all of it comes to the journal', () => {
  fc.assert(
    fc.property(fc.array(entry, {minLength: 3, maxLength: 20}), (entries) => {
      const of = (...kinds: Entry['was'][]) =>
        entries.flatMap((one, index) => (kinds.includes(one.was) ? linesOf(one, index) : []))
      const issued = issueFirst(of('issued and held', 'issued and lost'))
      const journal = of('issued and held', 'seen anew')
      const {net, deals} = planTrueUp(journal, issued, {profile: 'xero', firstOpenDay: FIRST_OPEN_DAY})
      const whole = (lines: readonly JournalLine[]) => lines.filter(({deal_id}) => deals.includes(deal_id))
      expect(balancesOf(whole([...issued, ...net]))).toEqual(balancesOf(whole(journal)))
      for (const [number, lines] of Map.groupBy(net, ({journal_no}) => journal_no)) {
        expect(new Set(lines.map(({deal_id, entry_date}) => `${deal_id} ${entry_date}`)).size).toBe(1)
        expect(lines.every(({entry_date}) => entry_date >= FIRST_OPEN_DAY)).toBe(true)
        const sums = balancesOf(lines.map((line) => ({...line, account_code: ''})))
        expect(sums, number).toEqual({})
      }
      const anew = new Set(of('seen anew').map(({deal_id}) => deal_id))
      const known = (lines: readonly JournalLine[]) => whole(lines).filter(({deal_id}) => !anew.has(deal_id))
      for (const day of MONTH_ENDS)
        expect(balancesOf(known([...issued, ...net]), day), day).toEqual(balancesOf(known(journal), day))
    }),
    {seed: 7, numRuns: 1000},
  )
})
