import {z} from 'zod'
import {parseCents} from '../core/money.ts'
import {endpointsOf} from './endpoint.ts'
import {pageFields} from './list.ts'
import {
  type Column,
  childIdOf,
  idField,
  instantField,
  instantOrDate,
  moneyField,
  type Stream,
  sourceText,
  textField,
} from './stream.ts'

/** In the order a deal passes through them: the specification's, then `paid_off` of the local service. A source may have others. */
export const DEAL_STATUSES = ['draft', 'underwriting', 'approved', 'funded', 'paid_off'] as const

export const isPastFunding = (status: string): boolean =>
  DEAL_STATUSES.slice(DEAL_STATUSES.indexOf('funded')).some((one) => one === status)

const cents = z.unknown().transform((value, context): bigint => {
  const parsed = parseCents(value)
  if (typeof parsed === 'bigint') return parsed
  context.addIssue({code: 'custom', message: parsed})
  return z.NEVER
})

const record = z.object({
  id: idField,
  property_address: sourceText.nullable(),
  loan_amount: cents,
  property_value: cents.nullable().optional(),
  loan_program: sourceText.nullable().optional(),
  status: sourceText.refine((status) => status !== '', 'expected a status'),
  created_at: instantOrDate,
})

/** The column that links rows of all streams to deals. */
export const DEAL_ID = 'deal_id'

const CREATED_AT: readonly Column[] = [
  {name: 'created_at', type: 'TIMESTAMP', precisionColumn: 'created_at_precision'},
  {name: 'created_at_precision', type: 'VARCHAR'},
]

export const dealStream: Stream = {
  name: 'deal',
  plural: 'deals',
  idColumn: DEAL_ID,
  listPath: '/deals',
  columns: [
    {name: 'property_address', type: 'VARCHAR'},
    {name: 'loan_amount', type: 'DECIMAL(18,2)'},
    {name: 'property_value', type: 'DECIMAL(18,2)', mayBeAbsent: true},
    {name: 'loan_program', type: 'VARCHAR', mayBeAbsent: true, mayBeBlank: true},
    {name: 'status', type: 'VARCHAR', isCanonical: true},
    ...CREATED_AT,
  ],
  wireFields: Object.keys(record.shape),
  mapped: [],
  amountColumn: 'loan_amount',
  vocabularies: [
    {column: 'status', known: DEAL_STATUSES},
    {column: 'loan_program', known: null},
  ],
  settled: {column: 'status', word: 'funded'},
  confirmed: 'property_value',
  // Named one by one: copying the rest of an object would take longer than everything else here.
  schema: record.transform((deal) => ({
    deal_id: deal.id,
    property_address: deal.property_address,
    loan_amount: deal.loan_amount,
    property_value: deal.property_value,
    loan_program: deal.loan_program,
    status: deal.status,
    created_at: deal.created_at.micros,
    created_at_precision: deal.created_at.precision,
  })),
}

/** Keeps the id of each record, its deal's id, its creation time, and one text. */
export function createChildStream(
  child: Required<Pick<Stream, 'name' | 'idColumn' | 'vocabularies' | 'privacy'>> & {
    text: {field: string; column: string; schema: z.ZodType<string>}
  },
): Stream {
  const {text, ...named} = child
  const {name, idColumn} = named
  const createdAt = instantOrDate.nullish()
  const kept: z.ZodObject<{id: typeof idField; deal_id: typeof idField; created_at: typeof createdAt}> =
    z.object({id: idField, deal_id: idField, [text.field]: text.schema.nullish(), created_at: createdAt})
  return {
    ...named,
    plural: `${name}s`,
    parent: {stream: dealStream, column: DEAL_ID},
    listPath: `/deals/{id}/${name}s`,
    columns: [
      {name: DEAL_ID, type: 'VARCHAR'},
      {name: `${name}_id`, type: 'VARCHAR'},
      {name: text.column, type: 'VARCHAR'},
      ...CREATED_AT,
    ],
    wireFields: Object.keys(kept.shape),
    schema: kept.transform(({id, deal_id, created_at, ...rest}) => ({
      [idColumn]: childIdOf(deal_id, id),
      deal_id,
      [`${name}_id`]: id,
      [text.column]: Object.values<string | null | undefined>(rest)[0] ?? null,
      created_at: created_at?.micros ?? null,
      created_at_precision: created_at?.precision ?? null,
    })),
  }
}

export type DealStatus = (typeof DEAL_STATUSES)[number]

/** Keeping the status is always allowed. */
export const DEAL_TRANSITIONS: Record<DealStatus, readonly DealStatus[]> = {
  draft: ['underwriting'],
  underwriting: ['draft', 'approved'],
  approved: ['underwriting', 'funded'],
  funded: ['paid_off'],
  paid_off: [],
}

const statusField = z.enum(DEAL_STATUSES)

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

/** Null clears the property value or the program. */
export type DealChanges = z.output<typeof dealChangesSchema>
const dealChangesSchema = newDealSchema
  .extend({status: statusField})
  .partial()
  .refine((body) => Object.keys(body).length > 0, {message: 'expected at least one field to change'})
  .meta({id: 'DealChanges', minProperties: 1})

const dealQuerySchema = z.strictObject({
  ...pageFields,
  status: statusField.optional(),
})

/** A row of `GET /deals`. */
export type ListedDeal = z.output<typeof listedDealSchema>
const listedDealSchema = z
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

const {get, list, post, patch, remove} = endpointsOf('Deals')

export const dealEndpoints = {
  listDeals: list('/deals', 'List deals, oldest first', dealQuerySchema, listedDealSchema),
  createDeal: post('/deals', 'Create a deal as a draft', newDealSchema, dealRecordSchema, {
    headers: ['ETag', 'Location'],
  }),
  getDeal: get('/deals/{id}', 'Retrieve a deal', dealRecordSchema, {headers: ['ETag']}),
  updateDeal: patch(
    '/deals/{id}',
    'Change the fields that are sent, the status among them',
    dealChangesSchema,
    dealRecordSchema,
    {headers: ['ETag'], problems: ['invalid_transition', 'incomplete_deal', 'precondition_failed']},
  ),
  deleteDeal: remove('/deals/{id}', 'Delete a deal with everything linked to it', {
    problems: ['deal_funded', 'precondition_failed'],
  }),
}
