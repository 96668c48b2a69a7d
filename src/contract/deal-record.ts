import {z} from 'zod'
import {DEAL_STATUSES, type Deal, type ListedDeal} from './deal.ts'
import {instantField, moneyField, textField} from './fields.ts'
import {type PageQuery, pageFields} from './page.ts'

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

/** A body of `POST /deals`. */
export interface NewDeal {
  property_address: string
  loan_amount: number
  property_value?: number | null | undefined
  loan_program?: string | null | undefined
}

/** A body of `PATCH /deals/{id}`: null clears the property value or the program. */
export type DealChanges = {[Field in keyof NewDeal]?: NewDeal[Field] | undefined} & {
  status?: DealStatus | undefined
}

/** The query of `GET /deals`. */
export interface DealQuery extends PageQuery {
  status?: DealStatus | undefined
}

const statusField = z.enum(DEAL_STATUSES)

const newDealFields = {
  property_address: textField(500),
  loan_amount: moneyField,
  property_value: moneyField.nullish(),
  loan_program: textField(100)
    .nullish()
    .meta({examples: ['bridge_30yr']}),
}

/** The schema of {@link NewDeal}. */
export const newDealSchema: z.ZodType<NewDeal> = z.strictObject(newDealFields).meta({id: 'NewDeal'})

/** The schema of {@link DealChanges}. */
export const dealChangesSchema: z.ZodType<DealChanges> = z
  .strictObject({
    ...newDealFields,
    property_address: newDealFields.property_address.optional(),
    loan_amount: newDealFields.loan_amount.optional(),
    status: statusField.optional(),
  })
  .refine((body) => Object.keys(body).length > 0, {message: 'expected at least one field to change'})
  .meta({id: 'DealChanges', minProperties: 1})

/** The schema of {@link DealQuery}. */
export const dealQuerySchema: z.ZodType<DealQuery> = z.strictObject({
  ...pageFields,
  status: statusField.optional(),
})

const listedFields = {
  id: z.string().meta({examples: ['deal_7f3a9c0e51b2d4886a10']}),
  property_address: z.string(),
  loan_amount: z.number(),
  status: z.string().meta({examples: [...DEAL_STATUSES]}),
  created_at: instantField,
}

/** The schema of a row of `GET /deals`. */
export const listedDealSchema: z.ZodType<ListedDeal> = z.object(listedFields).meta({id: 'ListedDeal'})

/** The schema of one whole deal. */
export const dealRecordSchema: z.ZodType<Deal> = z
  .object({...listedFields, property_value: z.number().nullable(), loan_program: z.string().nullable()})
  .meta({id: 'Deal'})
