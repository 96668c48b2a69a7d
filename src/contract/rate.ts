import {z} from 'zod'
import {parseInstant} from '../clock.ts'
import {instantField, wordField} from './fields.ts'
import {type PageQuery, pageFields} from './page.ts'

/** A body of `POST /rates`: one pricing update of a provider. */
export interface NewRate {
  provider: string
  loan_program: string
  /** Percent a year with at most 4 decimals: `7.125`. */
  rate_pct: number
  /** Default: when it is received. */
  effective_at?: string | undefined
}

/** A pricing update as it was received. */
export interface Rate extends Required<Omit<NewRate, 'effective_at'>> {
  id: string
  effective_at: string
  created_at: string
}

/** The query of `GET /rates`. */
export interface RateQuery extends PageQuery {
  provider?: string | undefined
  loan_program?: string | undefined
  /** Only the rate in force of each provider and program. */
  current?: boolean | undefined
}

const ratePct = z
  .number()
  .min(0)
  .max(100)
  .refine((value) => Number(value.toFixed(4)) === value, 'expected at most 4 decimals')
  .meta({description: 'Percent a year with at most 4 decimals.', examples: [7.125]})

/** The schema of {@link NewRate}. */
export const newRateSchema: z.ZodType<NewRate> = z
  .strictObject({
    provider: wordField,
    loan_program: wordField.meta({examples: ['bridge_30yr']}),
    rate_pct: ratePct,
    effective_at: z
      .string()
      .refine((text) => parseInstant(text) !== null, 'expected an ISO 8601 instant with an offset')
      .optional()
      .meta({format: 'date-time'}),
  })
  .meta({id: 'NewRate'})

/** The schema of {@link Rate}. */
export const rateSchema: z.ZodType<Rate> = z
  .object({
    id: z.string(),
    provider: z.string(),
    loan_program: z.string(),
    rate_pct: z.number(),
    effective_at: instantField,
    created_at: instantField,
  })
  .meta({id: 'Rate'})

/** The schema of {@link RateQuery}. */
export const rateQuerySchema: z.ZodType<RateQuery> = z.strictObject({
  ...pageFields,
  provider: wordField.optional(),
  loan_program: wordField.optional(),
  current: z
    .enum(['true', 'false'])
    .transform((text) => text === 'true')
    .pipe(z.boolean())
    .optional(),
})
