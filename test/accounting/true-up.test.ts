import fc from 'fast-check'
import {expect, test} from 'vitest'
import type {JournalLine} from '../../src/accounting/profiles.ts'
import {planIssue, planTrueUp} from '../../src/books/journal-batch.ts'
import {anEntry, balancesByDeal, issueFirst} from './journal-lines.ts'

const FIRST_OPEN_DAY = '2026-02-01'
/** Entries that are seen anew are dated April 20. */
const SEEN = '2026-04-20'
const DAYS = ['2026-02-28', '2026-03-31', '2026-04-19', '2026-04-30']

interface Entry {
  deal: string
  date: string
  accounts: string[]
  amount: string
  /** Whether it was issued, and whether the journal of the recovered history has it. */
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
  const entry_date = was === 'seen anew' ? SEEN : date
  const [debit, credit] = anEntry(number, {deal_id: deal, entry_date, amount})
  return [
    {...debit!, account_code: debited},
    {...credit!, account_code: credited},
  ]
}

const upTo = (lines: readonly JournalLine[], day: string) =>
  balancesByDeal(lines.filter(({entry_date}) => entry_date <= day))

test('whatever was lost or seen again, each day of an open month ends as booked or as it is now, and all of it adds up to the journal', () => {
  fc.assert(
    fc.property(fc.array(entry, {minLength: 3, maxLength: 20}), (entries) => {
      const linesThat = (...kinds: Entry['was'][]) =>
        entries.flatMap((one, index) => (kinds.includes(one.was) ? linesOf(one, index) : []))
      const first = issueFirst(linesThat('issued and held', 'issued and lost'))
      const issued = first.map((line) => ({...line, batch_id: 'first'}))
      const journal = linesThat('issued and held', 'seen anew')
      const of = {firstOpenDay: FIRST_OPEN_DAY, withOpening: true}
      const {handedOut: net, lines: all, deals} = planTrueUp(journal, issued, of)
      const whole = (lines: readonly JournalLine[]) => lines.filter(({deal_id}) => deals.includes(deal_id))
      expect(balancesByDeal(whole([...issued, ...net]))).toEqual(balancesByDeal(whole(journal)))
      expect(balancesByDeal(whole([...issued, ...all]))).toEqual(balancesByDeal(whole(journal)))
      expect(net.filter(({debit, credit}) => /^0*\.00$/.test(debit ?? credit ?? '.00'))).toEqual([])
      for (const [number, lines] of Map.groupBy(net, ({journal_no}) => journal_no)) {
        expect(new Set(lines.map(({deal_id, entry_date}) => `${deal_id} ${entry_date}`)).size).toBe(1)
        expect(lines.every(({entry_date}) => entry_date >= FIRST_OPEN_DAY)).toBe(true)
        const sums = balancesByDeal(lines.map((line) => ({...line, account_code: ''})))
        expect(sums, number).toEqual({})
      }
      const anew = new Set(linesThat('seen anew').map(({deal_id}) => deal_id))
      for (const day of DAYS)
        for (const deal of deals) {
          const own = (lines: readonly JournalLine[]) => lines.filter(({deal_id}) => deal_id === deal)
          const isBefore = anew.has(deal) && day < SEEN
          const expected = upTo(own(isBefore ? issued : journal), day)
          expect(upTo(own([...issued, ...net]), day), day).toEqual(expected)
          expect(upTo(own([...issued, ...all]), day), day).toEqual(expected)
        }
    }),
    {seed: 7, numRuns: 1000},
  )
})

test('what comes back from one month into another, and from there into its own, names its own day once', () => {
  // A program's name may have a line end.
  const issued = issueFirst(anEntry(1, {entry_date: '2026-01-20', memo: 'Funding d1 (a\nb)'}))
  for (const firstOpenDay of ['2026-03-01', '2026-02-01', '2026-01-01'])
    issued.push(...planIssue([], issued, firstOpenDay))
  expect(new Set(issued.map(({memo}) => memo.replace(/^Reverses \S+: /, '')))).toEqual(
    new Set(['Funding d1 (a\nb)', 'Funding d1 (a\nb), of 2026-01-20']),
  )
})
