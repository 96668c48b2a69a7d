import type {DuckDBValue} from '@duckdb/node-api'
import {z} from 'zod'
import {COLUMNS} from './release-columns.ts'

const KINDS = {
  text: z.string(),
  /** Exact decimal text. */
  decimal: z.string(),
  number: z.union([z.string(), z.number()]).transform(Number),
  truth: z.boolean(),
}
/** A count or sum; 0 for no rows. */
const TOTALS = {
  count: KINDS.number,
  sum: z
    .string()
    .nullable()
    .transform((amount) => amount ?? '0.00'),
}

type Kind = keyof typeof KINDS
type Total = keyof typeof TOTALS
type ValueOf<K> = K extends `${infer Plain extends Kind}?`
  ? z.output<(typeof KINDS)[Plain]> | null
  : K extends Kind
    ? z.output<(typeof KINDS)[K]>
    : K extends Total
      ? z.output<(typeof TOTALS)[K]>
      : never

/** A computed value: a total, or a value that may be null. */
type Computed = Record<string, Total | `${Kind}?`>
type Columns<T extends keyof typeof COLUMNS> = (typeof COLUMNS)[T]
type Values<K> = {[C in keyof K]: ValueOf<K[C]>}

declare const made: unique symbol
/** The schema of a row of a release, made by {@link rowOf} or {@link computedRow}, never by hand. */
export type RowSchema<T> = z.ZodType<T> & {readonly [made]: true}
/** A row that a schema parses. */
export type RowOf<S> = S extends RowSchema<infer T> ? T : never

/** Queries over a release, whose types say which values may be null. */
export interface ReleaseQueries {
  all<T>(row: RowSchema<T>, sql: string, params?: DuckDBValue[]): Promise<T[]>
  first<T>(row: RowSchema<T>, sql: string, params?: DuckDBValue[]): Promise<T | undefined>
  one<T>(row: RowSchema<T>, sql: string, params?: DuckDBValue[]): Promise<T>
}

/** The schema of some columns of a table, nullable unless its header says `not_null`, and of values computed beside them. */
export function rowOf<
  T extends keyof typeof COLUMNS,
  C extends keyof Columns<T>,
  X extends Computed = Record<never, never>,
>(table: T, columns: readonly C[], computed?: X): RowSchema<Values<Pick<Columns<T>, C>> & Values<X>> {
  return schemaOf({...Object.fromEntries(columns.map((name) => [name, COLUMNS[table][name]])), ...computed})
}

/** The schema of a row in which everything is computed. */
export function computedRow<X extends Computed>(computed: X): RowSchema<Values<X>> {
  return schemaOf(computed)
}

function schemaOf<T>(kinds: Record<string, unknown>): RowSchema<T> {
  const schemas = Object.entries(kinds).map(([name, kind]) => {
    const plain = String(kind).replace(/\?$/, '')
    const schema = {...KINDS, ...TOTALS}[plain as Kind | Total]
    return [name, plain === kind ? schema : schema.nullable()]
  })
  return z.object(Object.fromEntries(schemas)) as unknown as RowSchema<T>
}
