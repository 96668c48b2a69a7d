import {z} from 'zod'
import {addAmounts} from '../money.ts'
import type {TiedTerm} from '../types.ts'

/** {@link TiedTerm}, as a release and closed periods keep it. */
export const tiedTermSchema: z.ZodType<TiedTerm> = z.object({
  term: z.string(),
  amount: z.string(),
  booked: z.string(),
  unbooked: z.string(),
  because: z.enum(['opening balance', 'booked elsewhere']).nullable(),
  difference: z.string(),
})

/** The same terms where opening balances are booked. */
export function bookOpenings(terms: readonly TiedTerm[]): TiedTerm[] {
  return terms.map((term) =>
    term.because === 'opening balance'
      ? {...term, booked: addAmounts([term.booked, term.unbooked]), unbooked: '0.00', because: null}
      : term,
  )
}
