import fc from 'fast-check'
import {expect, test} from 'vitest'
import type {IssuedLine} from '../../src/accounting/profiles.ts'
import {planIssue} from '../../src/books/journal-batch.ts'
import {anEntry, balancesOf} from './journal-lines.ts'

const ownDates = ''
const laterDates = '2026-03-01'

const journalOf = (numbers: readonly number[]) =>
  [...new Set(numbers)].flatMap((number) =>
    anEntry(number, {amount: `${number * 10}.01`, deal_id: `d${number % 3}`}),
  )

test('whatever a journal was before, the issued entries add up to it, each under its own number', () => {
  fc.assert(
    fc.property(fc.array(fc.array(fc.integer({min: 1, max: 6}))), (journals) => {
      const issued: IssuedLine[] = []
      for (const journal of journals.map(journalOf)) {
        const lines = planIssue(journal, issued, ownDates)
        expect(planIssue(journal.toReversed(), issued, ownDates)).toEqual(lines)
        issued.push(...lines)
        expect(balancesOf(issued)).toEqual(balancesOf(journal))
        expect(balancesOf(lines.map((line) => ({...line, account_code: '', deal_id: ''})))).toEqual({})
        expect(planIssue(journal, issued, ownDates)).toEqual([])
      }
      const numbers = issued.filter(({line_no}) => line_no === 1).map(({journal_no}) => journal_no)
      expect(new Set(numbers).size).toBe(numbers.length)
      for (const number of numbers) expect(number).toMatch(/^LT2602-[0-9a-f]{12}$/)
    }),
    {seed: 7},
  )
})

test('a reversal swaps the sides, names what it reverses, and starts with the debit', () => {
  const issued = planIssue(anEntry(1), [], ownDates)
  const memo = 'Reverses LT2602-000000000001: Funding deal_1, 12 Main St, Austin (bridge)'
  const all = {entry_date: '2026-03-01', issue_no: 1, memo}
  expect(planIssue([], issued, laterDates)).toMatchObject([
    {...all, line_no: 1, account_code: '1090', debit: '1234.56', credit: null},
    {...all, line_no: 2, account_code: '1210', debit: null, credit: '1234.56'},
  ])
})
