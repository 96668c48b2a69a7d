import {z} from 'zod'

/** Records one list request may ask for. */
const PAGE_LIMIT = {min: 1, max: 100, default: 25}

/** The paging parameters of every list, for the query of one with filters of its own. */
export const pageFields = {
  limit: z
    .string()
    .regex(/^\d{1,4}$/, 'expected a whole number')
    .transform(Number)
    .pipe(z.number().int().min(PAGE_LIMIT.min).max(PAGE_LIMIT.max))
    .default(PAGE_LIMIT.default)
    .meta({description: 'Maximum records to return.'}),
  cursor: z.string().optional().meta({description: 'next_cursor of a page before.'}),
}

/** The query of a list without filters; an unknown parameter is refused, for an ignored filter lists the wrong records. */
export type PageQuery = z.output<typeof pageQuerySchema>
export const pageQuerySchema = z.strictObject(pageFields)

/** The query of an endpoint that takes none. */
export const noQuerySchema = z.strictObject({})

/**
 * A list response. The specification does not say where `has_more` and `next_cursor` stand; this is where the
 * local service puts them.
 */
export interface ListBody<T> {
  data: T[]
  has_more: boolean
  next_cursor: string | null
}
