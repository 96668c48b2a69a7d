import fc from 'fast-check'
import {expect, test} from 'vitest'
import type {JournalLine} from '../../src/accounting/profiles.ts'
import {planTrueUp} from '../../src/books/journal-batch.ts'
import {anEntry, balancesOf, issueFirst} from './journal-lines.ts'

const FIRST_OPEN_DAY = '2026-02-01'
const MONTH_ENDS = ['2026-02-28', '2026-03-31', '2026-04-30']

interface Entry {
  deal: string
  date: string
  accounts: string[]
  amount: string
  /** Whether it was issued, and whether the recovered history's journal has it. */
  was: 'issued and held' | 'issued and lost' | 'seen anew'
}

const entry: fc.Arbitrary<Entry> = fc.record({
  deal: fc.constantFrom('a', 'b', 'c'),
  date: fc.constantFrom('2026-01-10', '2026-02-01', '2026-02-10', '2026-03-10', '2026-03-20', '2026-04-10'),
  accounts: fc.shuffledSubarray(['1200', '1201', '1090', '1000'], {minLength: 2, maxLength: 2}),
  amount: fc.constantFrom('10.00', '20.00', '30.01'),
  was: fc.constantFrom('issued and held', 'issued and lost', 'seen anew'),
})

function linesOf({deal, date, accounts, amount, was}: Entry, number: number): JournalLine[] {
  const [debited = '', credited = ''] = accounts
  // An entry seen again is dated after the recovery.
  const entry_date = was === 'seen anew' ? '2026-04-20' : date
  const [debit, credit] = anEntry(number, {deal_id: deal, entry_date, amount})
  return [
    {...debit!, account_code: debited},
    {...credit!, account_code: credited},
  ]
}

const upTo = (lines: readonly JournalLine[], day: string) =>
  balancesOf(lines.filter(({entry_date}) => entry_date <= day))

test('whatever was lost or seen again, each open month ends as booked or as it is now, and all of it adds up to the journal', () => {
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
      // What is seen again is seen on April 20.
      const anew = new Set(of('seen anew').map(({deal_id}) => deal_id))
      for (const day of MONTH_ENDS)
        for (const deal of deals) {
          const own = (lines: readonly JournalLine[]) => lines.filter(({deal_id}) => deal_id === deal)
          const isBefore = anew.has(deal) && day < '2026-04-20'
          const expected = upTo(own(isBefore ? issued : journal), day)
          expect(upTo(own([...issued, ...net]), day), day).toEqual(expected)
        }
    }),
    {seed: 7, numRuns: 1000},
  )
})

/** Entries of one deal that were lost, the one seen anew, and the days on which a correction is booked. */
const corrections: [what: string, lost: Booked[], seen: Booked, days: string[]][] = [
  [
    'a funding and a decrease seen again as one funding',
    [
      ['2026-03-06', '1200', '1090', '769.62'],
      ['2026-04-06', '1090', '1200', '482.14'],
    ],
    ['2026-04-20', '1200', '1090', '287.48'],
    [],
  ],
  [
    'another program and a reversal seen again as a reversal under the former program',
    [
      ['2026-03-06', '1201', '1200', '417.17'],
      ['2026-04-06', '1090', '1201', '417.17'],
    ],
    ['2026-04-20', '1090', '1200', '417.17'],
    [],
  ],
  [
    'a funding seen again with another amount',
    [['2026-03-06', '1200', '1090', '885.14']],
    ['2026-04-20', '1200', '1090', '523.71'],
    ['2026-04-20'],
  ],
]
type Booked = [date: string, debited: string, credited: string, amount: string]

test('what is seen again is corrected on the day it is seen, by the difference', () => {
  for (const [what, lost, seen, days] of corrections) {
    const linesAs = (was: Entry['was'], [date, debited, credited, amount]: Booked, number: number) =>
      linesOf({deal: 'a', date, accounts: [debited, credited], amount, was}, number)
    const issued = issueFirst(lost.flatMap((booked, number) => linesAs('issued and lost', booked, number)))
    const journal = linesAs('seen anew', seen, lost.length)
    const {net, lines} = planTrueUp(journal, issued, {profile: 'xero', firstOpenDay: FIRST_OPEN_DAY})
    expect([...new Set(net.map(({entry_date}) => entry_date))], what).toEqual(days)
    expect(balancesOf([...issued, ...lines]), what).toEqual(balancesOf(journal))
    expect(balancesOf([...issued, ...net]), what).toEqual(balancesOf(journal))
  }
})
