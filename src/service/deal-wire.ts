import {z} from 'zod'
import {DEAL_STATUSES, type Deal, type ListedDeal} from '../contract/deal.ts'
import {PAGE_LIMIT} from '../contract/page.ts'
import {parseCents} from '../money.ts'
import type {DealChange, StoredDeal} from './store.ts'

const cents = z.number().transform((value, context): bigint => {
  const parsed = parseCents(value)
  if (typeof parsed === 'bigint') return parsed
  context.addIssue({code: 'custom', message: parsed})
  return z.NEVER
})

const address = z.string().trim().min(1).max(500)
const program = z.string().trim().min(1).max(100)
const status = z.enum(DEAL_STATUSES)

/** A body of `POST /deals` as stored fields. */
export const newDealSchema: z.ZodType<
  Required<Pick<StoredDeal, 'propertyAddress' | 'loanAmountCents' | 'propertyValueCents' | 'loanProgram'>>
> = z
  .strictObject({
    property_address: address,
    loan_amount: cents,
    property_value: cents.nullish(),
    loan_program: program.nullish(),
  })
  .transform((body) => ({
    propertyAddress: body.property_address,
    loanAmountCents: body.loan_amount,
    propertyValueCents: body.property_value ?? null,
    loanProgram: body.loan_program ?? null,
  }))

/** A body of `PATCH /deals/{id}`: at least one field; null clears the property value or the program. */
export const dealChangeSchema: z.ZodType<DealChange> = z
  .strictObject({
    property_address: address.optional(),
    loan_amount: cents.optional(),
    property_value: cents.nullish(),
    loan_program: program.nullish(),
    status: status.optional(),
  })
  .refine((body) => Object.keys(body).length > 0, {message: 'expected at least one field to change'})
  .transform((body) => ({
    propertyAddress: body.property_address,
    loanAmountCents: body.loan_amount,
    propertyValueCents: body.property_value,
    loanProgram: body.loan_program,
    status: body.status,
  }))

/** The query of `GET /deals`; an unknown parameter is refused, for a filter that is ignored lists the wrong deals. */
export const listQuerySchema: z.ZodType<{
  limit: number
  cursor?: string | undefined
  status?: string | undefined
}> = z.strictObject({
  limit: z
    .string()
    .regex(/^\d{1,4}$/, 'expected a whole number')
    .transform(Number)
    .pipe(z.number().min(PAGE_LIMIT.min).max(PAGE_LIMIT.max))
    .default(PAGE_LIMIT.default),
  cursor: z.string().optional(),
  status: status.optional(),
})

/** A row of `GET /deals`: amounts as JSON numbers with cents. */
export function formatListedDeal(deal: StoredDeal): ListedDeal {
  return {
    id: deal.id,
    property_address: deal.propertyAddress,
    loan_amount: Number(deal.loanAmountCents) / 100,
    status: deal.status,
    created_at: new Date(deal.createdAt).toISOString(),
  }
}

/** One whole deal on the wire. */
export function formatDeal(deal: StoredDeal): Deal {
  return {
    ...formatListedDeal(deal),
    property_value: deal.propertyValueCents === null ? null : Number(deal.propertyValueCents) / 100,
    loan_program: deal.loanProgram,
  }
}
