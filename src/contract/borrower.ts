import {z} from 'zod'
import {instantField, textField} from './fields.ts'

/** A body of `POST /deals/{id}/borrowers`. */
export type NewBorrower = z.output<typeof newBorrowerSchema>
export const newBorrowerSchema = z
  .strictObject({
    first_name: textField(100),
    last_name: textField(100),
    email: z.email().max(254),
    /** The last four digits of a national identification number. */
    ssn_last_four: z
      .string()
      .regex(/^[0-9]{4}$/, 'expected four digits')
      .optional()
      .meta({writeOnly: true}),
  })
  .meta({id: 'NewBorrower'})

/** A borrower as the service returns it: whether digits were sent, never the digits. */
export type Borrower = z.output<typeof borrowerSchema>
export const borrowerSchema = z
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
