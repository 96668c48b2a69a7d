/** Records one list request may ask for. */
export const PAGE_LIMIT: {min: number; max: number; default: number} = {min: 1, max: 100, default: 25}

/**
 * A list response. The specification does not say where `has_more` and `next_cursor` stand; this is where the
 * local service puts them.
 */
export interface ListBody<T> {
  data: T[]
  has_more: boolean
  next_cursor: string | null
}
