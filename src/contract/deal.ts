import {z} from 'zod'
import {parseCents} from '../money.ts'
import {idField, sourceText} from './fields.ts'
import {instantOrDate} from './instant-or-date.ts'
import type {Stream} from './stream.ts'

/** The statuses the specification names, and the one that a funded deal of the local service ends in; a source may know more. */
export const DEAL_STATUSES = ['draft', 'underwriting', 'approved', 'funded', 'paid_off'] as const

/** Money on the wire as exact cents. */
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

/** The column by which rows, also of other streams, belong to deals. */
export const DEAL_ID = 'deal_id'

/** The stream of deals. */
export const dealStream: Stream = {
  name: 'deal',
  plural: 'deals',
  idColumn: DEAL_ID,
  idField: 'id',
  listPath: '/deals',
  columns: [
    {name: 'property_address', type: 'VARCHAR'},
    {name: 'loan_amount', type: 'DECIMAL(18,2)'},
    {name: 'property_value', type: 'DECIMAL(18,2)', mayBeAbsent: true},
    {name: 'loan_program', type: 'VARCHAR', mayBeAbsent: true, mayBeBlank: true},
    {name: 'status', type: 'VARCHAR', isCanonical: true},
    {name: 'created_at', type: 'TIMESTAMP', precisionColumn: 'created_at_precision'},
    {name: 'created_at_precision', type: 'VARCHAR'},
  ],
  wireFields: Object.keys(record.shape),
  mapped: [],
  amountColumn: 'loan_amount',
  vocabularies: [
    {column: 'status', known: DEAL_STATUSES},
    {column: 'loan_program', known: null},
  ],
  settled: {
    column: 'status',
    values: ['funded', 'servicing'],
    ended: [
      'paid_off',
      'sold',
      'refinanced',
      'foreclosed',
      'charged_off',
      'withdrawn',
      'declined',
      'cancelled',
      'expired',
    ],
  },
  confirmed: 'property_value',
  schema: record.transform(({id, created_at, ...rest}) => ({
    deal_id: id,
    ...rest,
    created_at: created_at.micros,
    created_at_precision: created_at.precision,
  })),
}
