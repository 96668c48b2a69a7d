import {z} from 'zod'
import {codeOf, explainError, LoantapeError, messageOf, newError} from '../core/errors.ts'
import {type Database, quoteName} from '../store/database.ts'
import type {Release, ReleaseModel} from '../store/release.ts'
import type {TableColumn} from '../store/sql.ts'

/** What errors mean: the first entry whose pattern fits the error's code, a space and its message. */
export type TargetErrors = readonly [kind: Parameters<typeof newError>[0], told: RegExp][]

/** Node's codes, for every target. */
const UNREACHABLE =
  /^(ECONNREFUSED|ECONNRESET|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|EPIPE|EPROTO|ETIMEDOUT) /

/** `server` is such as `PostgreSQL at db.example.com:5432/reporting`. */
export function explainTarget(error: unknown, server: string, errors: TargetErrors): LoantapeError {
  const code = codeOf(error)
  // A proxy answers with a page.
  const text = messageOf(error).replace(/<\/?[a-z][^>]*>/gi, '')
  const [words = ''] = text.trim().split(/\r?\n/)
  const known: TargetErrors = [...errors, ['PUBLISH_UNREACHABLE', UNREACHABLE]]
  const [kind = 'PUBLISH_FAILED'] = known.find(([, told]) => told.test(`${code} ${words}`)) ?? []
  const problems: Partial<Record<typeof kind, string>> = {
    PUBLISH_AUTH: `${server} refused user or password (${code}).`,
    PUBLISH_UNREACHABLE: `The connection to ${server} failed (${/^E/.test(code) ? code : words}).`,
    POSTGRES_TLS: `${server} cannot be trusted: ${words}.`,
  }
  const said = code === 'UNEXPECTED' ? words : `${words} (${code})`
  return newError(kind, problems[kind] ?? `${server} refused: ${said}.`, {cause: error})
}

/** The code of the target's server, before or after {@link explainTarget}. */
export const codeAt = (error: unknown): string => codeOf(error instanceof LoantapeError ? error.cause : error)

/** The statement that shows a release may have been executed even if its answer is an error, such as a proxy's. */
export async function orUnsure<T>(shown: Promise<T>): Promise<T> {
  return await shown.catch((cause: unknown) => {
    const {problem} = explainError(cause)
    throw newError('PUBLISH_UNSURE', `It is not known whether readers see the release: ${problem}`, {cause})
  })
}

export const PUBLISH_TARGETS = ['postgres', 'clickhouse'] as const

/** A seed has no description. */
export interface TargetTable extends Pick<ReleaseModel, 'description' | 'columns'> {
  schema: string
  name: string
  /** The columns its Parquet file is sorted by. */
  order: readonly string[]
  /** `sha256` identifies the content. */
  file: string
  sha256: string
  /** Totals in the release, by {@link selectTotals}. */
  totals: readonly string[]
}

export type VisibleRelease = z.output<typeof visibleRow>
export const visibleRow = z.object({
  release_id: z.string(),
  /** `YYYY-MM-DD` */
  as_of: z.string(),
  /** ISO 8601, UTC. */
  known_at: z.string(),
  /** The id of the data folder that published it. */
  folder_id: z.string(),
})

export interface Publication {
  release: Release
  tables: readonly TargetTable[]
  folderId: string
}

/** Open for one publication. */
export interface ReleaseTarget extends AsyncDisposable {
  /** `host:port/database`, for messages. */
  readonly server: string
  /** Reads what readers see now. PostgreSQL lets in no other publication from here on. */
  prepare(): Promise<VisibleRelease | undefined>
  /**
   * Shows a release to readers, all tables at once, after proving that each is there with its rows and totals. Until then they
   * see the previous one; what a failed publication has created is dropped or stays invisible. Returns the tables that were
   * sent; the target has kept the others from earlier releases.
   * @throws what {@link requireWhole} throws
   */
  publish(publication: Publication): Promise<readonly TargetTable[]>
  /** Removes releases that nobody can read any more. */
  prune(): Promise<void>
}

/** Integers and decimals whose sum fits into 38 digits, the most that every engine has. */
const SUMMABLE = /^(BIGINT|DECIMAL\(([12]?\d),(\d+)\))$/

const WIDE_DECIMAL = /^DECIMAL\(\d+,(\d+)\)$/

/**
 * Columns of a SELECT that prove that a table arrived unchanged. Each is a text expression that DuckDB, PostgreSQL and
 * ClickHouse understand.
 */
function selectTotals(columns: readonly TableColumn[], quote: (name: string) => string): string {
  const totals = columns.flatMap(({name, type}) => {
    const column = quote(name)
    if (SUMMABLE.test(type))
      return [`sum(cast(${column} as decimal(38, ${type.match(/,(\d+)/)?.[1] ?? 0})))`, `count(${column})`]
    const [, scale] = WIDE_DECIMAL.exec(type) ?? []
    if (scale !== undefined) {
      // Limits the values, so that their sum has at most 38 digits.
      const most = (10 ** Math.min(18, 28 - Number(scale))).toFixed(10)
      const [low, high] = [`-${most}`, most].map((limit) => `cast('${limit}' as decimal(38, ${scale}))`)
      return [`sum(case when ${column} between ${low} and ${high} then ${column} end)`, `count(${column})`]
    }
    // The first and last, to the second: an engine may show what is beyond its range as the nearest within.
    const ends = ['min', 'max'].map((end) => `substring(cast(${end}(${column}) as varchar), 1, 19)`)
    if (type === 'DATE' || type === 'TIMESTAMP') return [`count(${column})`, ...ends]
    return [`count(${column})`]
  })
  const texts = ['count(*)', ...totals].map((total) => `coalesce(cast(${total} as varchar), '')`)
  return texts.map((text, index) => `${text} as total_${index}`).join(', ')
}

/** A row of {@link selectTotals}. */
const totalsRow = z.record(z.string(), z.string()).transform((row) => Object.values(row))

export const readTotals = (db: Database, columns: readonly TableColumn[], from: string): Promise<string[]> =>
  db.one(totalsRow, `select ${selectTotals(columns, quoteName)} from ${from}`)

export function describeTable(
  models: readonly ReleaseModel[],
  table: string,
  columns: readonly TableColumn[],
) {
  const model = models.find(({name}) => name === table)
  const meanings = new Map(model?.columns.map(({name, meaning}) => [name, meaning]))
  const described = columns.map((column) => ({...column, meaning: meanings.get(column.name) ?? ''}))
  const [schema = '', name = ''] = table.split('.')
  const {description = '', grain = []} = model ?? {}
  return {schema, name, description, grain, columns: described}
}

/** Apart from zeros at either end of decimals. */
function isSameTotals(one: readonly string[], other: readonly string[]): boolean {
  const plain = (total: string | undefined) =>
    total?.replace(/^-?(?=\.)/, '$&0').replace(/\.0*$|(\.\d*?)0+$/, '$1')
  return one.length === other.length && one.every((total, index) => plain(total) === plain(other[index]))
}

/** Whether `from`, at the target, holds the rows and totals of a table. `quote` is for names. */
export async function isWhole(
  session: {rows<T>(row: z.ZodType<T>, query: string): Promise<T[]>},
  {columns, totals}: TargetTable,
  from: string,
  quote: (name: string) => string,
): Promise<boolean> {
  const [found = []] = await session.rows(totalsRow, `select ${selectTotals(columns, quote)} from ${from}`)
  return isSameTotals(found, totals)
}

/** @throws UnexpectedError `PUBLISH_INCOMPLETE` */
export function requireWhole(isWhole: boolean, {schema, name, totals}: TargetTable, server: string): void {
  if (isWhole) return
  throw newError(
    'PUBLISH_INCOMPLETE',
    `Table '${schema}.${name}' differs at ${server} from what was sent: expected ${totals[0]} rows, and the same totals.`,
  )
}
