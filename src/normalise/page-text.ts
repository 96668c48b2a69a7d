import {z} from 'zod'
import type {ColumnValue, NormalisedPage} from '../core/types.ts'

/** A page as it is stored, as JSON text: integers that no JSON number holds stand as `{"integer": "…"}`. */
export function formatNormalised(page: NormalisedPage): string {
  return JSON.stringify(page, (_, value: unknown) =>
    typeof value === 'bigint' ? {integer: String(value)} : value,
  )
}

const integer = z.object({integer: z.string()}).transform((value) => BigInt(value.integer))
const columnValue: z.ZodType<ColumnValue> = z.union([z.string(), z.boolean(), z.null(), integer])
const pageSchema: z.ZodType<NormalisedPage> = z.object({
  observations: z.array(
    z.object({
      id: z.string(),
      values: z.array(columnValue),
      present: z.array(z.boolean()),
      unknownFields: z.string().nullable(),
      observedAt: integer,
    }),
  ),
  quarantined: z.array(
    z.object({
      id: z.string().nullable(),
      path: z.string(),
      reason: z.string(),
      record: z.unknown(),
      position: z.number(),
      observedAt: integer,
    }),
  ),
})

/** Reads what {@link formatNormalised} wrote. */
export function parseNormalised(text: string): NormalisedPage {
  return pageSchema.parse(JSON.parse(text))
}
