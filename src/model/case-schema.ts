import {z} from 'zod'
import {isCalendarDate, parseInstant} from '../clock.ts'
import {CheckError} from '../errors.ts'
import {expectOneOf} from '../nearest.ts'
import type {BuildPlan, Seed} from '../types.ts'
import {openDatabase} from '../warehouse/database.ts'
import {migrate} from '../warehouse/migrate.ts'
import type {CaseWalk, Lists, Shown} from './case-history.ts'
import {parseSeed, replaceSeeds} from './seeds.ts'

/** The columns of the raw tables that walks fill, by table and name. */
export type RawColumns = ReadonlyMap<string, ReadonlyMap<string, {type: string; isNullable: boolean}>>

/** Reads what the raw tables can hold from an empty warehouse in memory. */
export async function readRawColumns(): Promise<RawColumns> {
  await using db = await openDatabase({threads: 1, attach: [{path: ':memory:', alias: 'history'}]})
  await migrate(db, 'history')
  const columns = await db.all(
    z.object({table: z.string(), name: z.string(), type: z.string(), isNullable: z.boolean()}),
    `select table_name as "table", column_name as name, data_type as type, is_nullable as "isNullable"
     from duckdb_columns() where database_name = 'history' and schema_name = 'raw'`,
  )
  const tables = Map.groupBy(columns, ({table}) => table)
  return new Map(
    [...tables].map(([table, of]) => [table, new Map(of.map((column) => [column.name, column]))]),
  )
}

/** What cases are read against. */
export interface CaseSource {
  plan: BuildPlan
  raw: RawColumns
}

/** Every scalar is text, so that `100.00` and `2026-03-02` stay as written; the word `null` is a null. */
const scalar = z.string().transform((text) => (text === 'null' ? null : text))
const anyRecord = z.record(z.string(), scalar)

const isTime = (text: string) =>
  isCalendarDate(text) || parseInstant(text) !== null || parseInstant(`${text}Z`) !== null

/** What the text of a column's type looks like, and how that is said. */
const TYPES: [type: RegExp, isFit: (text: string, scale: number) => boolean, expected: string][] = [
  [
    /^DECIMAL\(\d+,(\d+)\)$/,
    (text, scale) => /^-?\d+(\.\d*)?$/.test(text) && (text.split('.')[1] ?? '').length <= scale,
    'a number such as 100.00',
  ],
  [/^U?(BIG|HUGE)INT$/, (text) => /^-?\d+$/.test(text), 'a whole number'],
  [/^BOOLEAN$/, (text) => text === 'true' || text === 'false', 'true or false'],
  [/^DATE$/, isCalendarDate, 'a date such as 2026-03-31'],
  [/^TIMESTAMP$/, isTime, 'a time such as 2026-03-31 02:00:00'],
]

/** What a deal that is seen cannot be without. */
const REQUIRED: Readonly<Record<string, readonly string[]>> = {deal_version: ['status', 'loan_amount']}

/** Columns of a raw table with values that fit them. */
function rowOf(table: string, raw: RawColumns) {
  const columns = raw.get(table) ?? new Map()
  return anyRecord.superRefine((row, context) => {
    for (const [name, value] of Object.entries(row)) {
      const problem = findMisfit({table, name, value}, columns)
      if (problem !== undefined) context.addIssue({code: 'custom', path: [name], ...problem})
    }
  })
}

function findMisfit(
  {table, name, value}: {table: string; name: string; value: string | null},
  columns: ReadonlyMap<string, {type: string; isNullable: boolean}>,
): {message: string; params?: {isName: true}} | undefined {
  const column = columns.get(name)
  if (!column) return {message: expectOneOf(name, [...columns.keys()]), params: {isName: true}}
  const isRequired = !column.isNullable || REQUIRED[table]?.includes(name)
  if (isRequired && (value === null || value === '')) return {message: 'expected a value'}
  for (const [type, isFit, expected] of TYPES) {
    const match = type.exec(column.type)
    if (match && value !== null && !isFit(value, Number(match[1]))) return {message: `expected ${expected}`}
  }
  return undefined
}

function buildWalk(raw: RawColumns): z.ZodType<CaseWalk> {
  const shownIn = (table: string): z.ZodType<Shown> =>
    z.union([z.enum(['missing', 'vanished', 'quarantined', 'confirmed']), rowOf(table, raw)])
  const listsIn = (table: string): z.ZodType<Lists> =>
    z.record(z.string(), z.union([z.literal('failed'), z.record(z.string(), shownIn(table))])).default({})
  return z
    .object({
      certificate: z.union([z.literal('none'), rowOf('walk', raw)]).default({}),
      drift: z.array(rowOf('drift', raw)).default([]),
      rates: z.array(rowOf('rate', raw)).default([]),
      borrowers: listsIn('borrower_version'),
      documents: listsIn('document_version'),
    })
    .catchall(shownIn('deal_version'))
    .transform(({certificate, drift, rates, borrowers, documents, ...deals}) => ({
      certificate,
      drift,
      rates,
      borrowers,
      documents,
      deals,
    }))
}

const moment = z
  .string()
  .refine((key) => isCalendarDate(key) || (key.includes('T') && parseInstant(key) !== null), {
    error: 'expected a business day such as 2026-03-31, or an instant such as 2026-03-31T05:30-04:00',
  })

/** What a case can say. */
export const CASE_KEYS = ['walks', 'rows', 'seeds', 'where', 'as_of', 'known_at']

/** The schema of a case of a table. */
export function buildCase(table: string, {plan, raw}: CaseSource) {
  const columns = plan.columns.get(table)?.map(({name}) => name) ?? []
  const seedNames = plan.seeds.map(({name}) => name)
  const rows = z.array(anyRecord, {error: 'expected the rows of the table as a list, [] where it has none'})
  return z
    .strictObject(
      {
        as_of: z.string().refine(isCalendarDate, 'expected a date such as 2026-03-31').optional(),
        known_at: z.string().refine(isTime, 'expected a time such as 2026-03-31 02:00:00').optional(),
        seeds: z
          .record(z.string(), z.string())
          .default({})
          .transform((texts, context): readonly Seed[] => {
            const given = Object.entries(texts).flatMap(([name, text]) => {
              const known = plan.seeds.filter((seed) => seed.name === name)
              const params = {isName: true}
              if (known.length === 0)
                context.addIssue({
                  code: 'custom',
                  path: [name],
                  params,
                  message: expectOneOf(name, seedNames),
                })
              try {
                return replaceSeeds(known, [parseSeed({name, file: `seeds.${name}`, text})])
              } catch (error) {
                if (!(error instanceof CheckError)) throw error
                context.addIssue({code: 'custom', path: [name], message: error.problem.replace(/\.$/, '')})
                return []
              }
            })
            return given
          }),
        walks: z.record(moment, buildWalk(raw), {
          error: (issue) =>
            issue.code === 'invalid_type' ? 'expected walks by their business day' : undefined,
        }),
        where: z.string().default('true'),
        rows: rows.superRefine((list, context) => {
          const named = Object.keys(list[0] ?? {})
          for (const [index, row] of list.entries()) {
            for (const name of Object.keys(row).filter((column) => !columns.includes(column)))
              context.addIssue({
                code: 'custom',
                path: [index, name],
                params: {isName: true},
                message: expectOneOf(name, columns),
              })
            const other = [...named, ...Object.keys(row)].filter(
              (name) => !named.includes(name) || !(name in row),
            )
            if (other.length > 0)
              context.addIssue({
                code: 'custom',
                path: [index],
                message: `expected the columns of the first row, ${named.join(', ')}; '${other.join("', '")}' differs`,
              })
          }
        }),
      },
      {error: (issue) => (issue.code === 'invalid_type' ? 'expected `walks` and `rows`' : undefined)},
    )
    .transform(({as_of: asOf, known_at: knownAt, ...rest}) => ({asOf, knownAt, ...rest}))
    .refine(({asOf, walks}) => asOf !== undefined || Object.keys(walks).length > 0, {
      error: 'expected walks, or `as_of`',
    })
}
