import {z} from 'zod'
import {DEAL_STATUSES} from './deal.ts'
import {instantField, moneyField, textField} from './fields.ts'
import {pageFields} from './page.ts'

/** A status of {@link DEAL_STATUSES}. */
export type DealStatus = (typeof DEAL_STATUSES)[number]

/** The statuses a deal may go to from each; staying is always allowed. */
export const DEAL_TRANSITIONS: Record<DealStatus, readonly DealStatus[]> = {
  draft: ['underwriting'],
  underwriting: ['draft', 'approved'],
  approved: ['underwriting', 'funded'],
  funded: ['paid_off'],
  paid_off: [],
}

const statusField = z.enum(DEAL_STATUSES)

/** A body of `POST /deals`. */
export type NewDeal = z.output<typeof newDealSchema>
export const newDealSchema = z
  .strictObject({
    property_address: textField(500),
    loan_amount: moneyField,
    property_value: moneyField.nullish(),
    loan_program: textField(100)
      .nullish()
      .meta({examples: ['bridge_30yr']}),
  })
  .meta({id: 'NewDeal'})

/** A body of `PATCH /deals/{id}`: null clears the property value or the program. */
export type DealChanges = z.output<typeof dealChangesSchema>
export const dealChangesSchema = newDealSchema
  .extend({status: statusField})
  .partial()
  .refine((body) => Object.keys(body).length > 0, {message: 'expected at least one field to change'})
  .meta({id: 'DealChanges', minProperties: 1})

/** The query of `GET /deals`. */
export const dealQuerySchema = z.strictObject({
  ...pageFields,
  status: statusField.optional(),
})

/** A row of `GET /deals`: these five fields and no others. */
export type ListedDeal = z.output<typeof listedDealSchema>
export const listedDealSchema = z
  .object({
    id: z.string().meta({examples: ['deal_7f3a9c0e51b2d4886a10']}),
    property_address: z.string(),
    loan_amount: z.number(),
    status: z.string().meta({examples: [...DEAL_STATUSES]}),
    created_at: instantField,
  })
  .meta({id: 'ListedDeal'})

/** One deal as `POST /deals` and `GET /deals/{id}` return it. */
export type Deal = z.output<typeof dealRecordSchema>
export const dealRecordSchema = listedDealSchema
  .extend({property_value: z.number().nullable(), loan_program: z.string().nullable()})
  .meta({id: 'Deal'})
