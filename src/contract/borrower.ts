import {z} from 'zod'
import {dealStream} from './deal.ts'
import {type Endpoint, endpointsOf} from './endpoint.ts'
import {childIdOf, idField, instantField, instantOrDate, type Stream, textField} from './stream.ts'

/** A body of `POST /deals/{id}/borrowers`. */
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

/** A borrower as the service returns it: it shows whether digits were sent, never the digits. */
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

const kept = z.object({
  id: idField,
  deal_id: idField,
  email: hashed.nullish(),
  created_at: instantOrDate.nullish(),
})

const dropped = ['first_name', 'last_name', 'ssn_last_four', 'has_ssn_last_four']

/** The stream of borrowers, one record per link to a deal; a keyed hash of the e-mail address identifies the person. */
export const borrowerStream: Stream = {
  name: 'borrower',
  plural: 'borrowers',
  parent: {stream: dealStream, column: 'deal_id'},
  idColumn: 'link_id',
  idField: 'id',
  listPath: '/deals/{id}/borrowers',
  columns: [
    {name: 'deal_id', type: 'VARCHAR'},
    {name: 'borrower_id', type: 'VARCHAR'},
    {name: 'email_hash', type: 'VARCHAR'},
    {name: 'created_at', type: 'TIMESTAMP', precisionColumn: 'created_at_precision'},
    {name: 'created_at_precision', type: 'VARCHAR'},
  ],
  wireFields: [...Object.keys(kept.shape), ...dropped],
  privacy: {hashed: ['email'], dropped},
  vocabularies: [],
  schema: kept.transform(({id, deal_id, email, created_at}) => ({
    link_id: childIdOf(deal_id, id),
    deal_id,
    borrower_id: id,
    email_hash: email ?? null,
    created_at: created_at?.micros ?? null,
    created_at_precision: created_at?.precision ?? null,
  })),
}

const {list, post} = endpointsOf('Borrowers')

/** The endpoints of borrowers. */
export const borrowerEndpoints = {
  linkBorrower: {
    ...post,
    path: '/deals/{id}/borrowers',
    summary: 'Link a borrower to a deal',
    body: newBorrowerSchema,
    record: borrowerSchema,
  },
  listBorrowers: {
    ...list,
    path: '/deals/{id}/borrowers',
    summary: 'List the borrowers of a deal',
    record: borrowerSchema,
  },
} satisfies Record<string, Endpoint>
