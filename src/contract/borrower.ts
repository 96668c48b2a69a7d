import {z} from 'zod'
import {createChildStream} from './deal.ts'
import {endpointsOf} from './endpoint.ts'
import {pageQuerySchema} from './list.ts'
import {instantField, type Stream, textField} from './stream.ts'

export type NewBorrower = z.output<typeof newBorrowerSchema>
const newBorrowerSchema = z
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

/** Shows whether digits were sent, never the digits. */
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

/** The keyed hash that replaces a field before parsing. */
const hashed = z
  .string()
  .regex(/^hmac-sha256:[0-9a-f]{64}$/)
  .transform((text) => text.slice('hmac-sha256:'.length))

/** One record per link to a deal. A keyed hash of the e-mail address identifies the person. */
export const borrowerStream: Stream = createChildStream({
  name: 'borrower',
  idColumn: 'link_id',
  text: {field: 'email', column: 'email_hash', schema: hashed},
  privacy: {hashed: ['email'], dropped: ['first_name', 'last_name', 'ssn_last_four', 'has_ssn_last_four']},
  vocabularies: [],
})

const {list, post} = endpointsOf('Borrowers')
const path = '/deals/{id}/borrowers'

export const borrowerEndpoints = {
  linkBorrower: post(path, 'Link a borrower to a deal', newBorrowerSchema, borrowerSchema),
  listBorrowers: list(path, 'List the borrowers of a deal', pageQuerySchema, borrowerSchema),
}
