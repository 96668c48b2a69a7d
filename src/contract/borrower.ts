import {z} from 'zod'
import {instantField, textField} from './fields.ts'

/** A body of `POST /deals/{id}/borrowers`. */
export interface NewBorrower {
  first_name: string
  last_name: string
  email: string
  /** The last four digits of a national identification number. */
  ssn_last_four?: string | undefined
}

/** A borrower as the service returns it: whether digits were sent, never the digits. */
export interface Borrower {
  id: string
  deal_id: string
  first_name: string
  last_name: string
  email: string
  has_ssn_last_four: boolean
  created_at: string
}

/** The schema of {@link NewBorrower}. */
export const newBorrowerSchema: z.ZodType<NewBorrower> = z
  .strictObject({
    first_name: textField(100),
    last_name: textField(100),
    email: z.email().max(254),
    ssn_last_four: z
      .string()
      .regex(/^[0-9]{4}$/, 'expected four digits')
      .optional()
      .meta({writeOnly: true}),
  })
  .meta({id: 'NewBorrower'})

/** The schema of {@link Borrower}. */
export const borrowerSchema: z.ZodType<Borrower> = z
  .object({
    id: z.string(),
    deal_id: z.string(),
    first_name: z.string(),
    last_name: z.string(),
    email: z.string(),
    has_ssn_last_four: z.boolean(),
    created_at: instantField,
  })
  .meta({id: 'Borrower'})
