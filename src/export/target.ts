import type {ReleaseManifest} from '../store/release.ts'

/** Where releases are published. */
export const PUBLISH_TARGETS = ['postgres', 'clickhouse'] as const
export type PublishTarget = (typeof PUBLISH_TARGETS)[number]

/** A column of a published table. */
export interface TargetColumn {
  name: string
  /** As DuckDB names it. */
  type: string
  /** What it means; empty where nobody says. */
  comment: string
}

/** A published table of a release, on its way to a target. */
export interface TargetTable {
  schema: string
  name: string
  comment: string
  columns: readonly TargetColumn[]
  /** The columns that name a row; none of a seed. */
  grain: readonly string[]
  /** The columns that its Parquet file is in order of. */
  order: readonly string[]
  /** Its Parquet file, and the digest that names what the table holds. */
  file: string
  sha256: string
  /** What {@link buildTotals} gives for it in the release. */
  totals: readonly string[]
}

/** A model that is computed over the releases of all lenders together. */
export interface CombinedModel {
  name: string
  comment: string
  columns: readonly TargetColumn[]
  /** Whether people look at it; others are only read by those. */
  isShown: boolean
  /** What it reads: tables of the release, or other models like it. */
  reads: readonly string[]
  /** A SELECT in ClickHouse's SQL; its columns may be of other types than `columns` says. */
  sql: string
}

/** A release to publish. */
export interface PublishedRelease {
  manifest: ReleaseManifest
  /** The DuckDB file that holds its tables. */
  database: string
  tables: readonly TargetTable[]
  /** Each after those it reads; none for a target that holds one lender. */
  combined: readonly CombinedModel[]
}

/** Which release readers of a target see. */
export interface VisibleRelease {
  release_id: string
  /** `YYYY-MM-DD` */
  as_of: string
  /** ISO 8601, UTC. */
  known_at: string
}

/**
 * A place that releases are published to, open for one publication. Its readers see the release before until `activate`,
 * and then the new one, whole; disposing it takes back what was begun and not activated, or leaves it where nobody looks.
 */
export interface ReleaseTarget extends AsyncDisposable {
  /** `host:port/database`, for people. */
  readonly server: string
  /** What the name of a table, or `as_of`, becomes in SQL over all lenders; without it the target holds one lender. */
  readonly combinedName?: (table: string) => string
  /** Keeps other publications out. @returns what readers see now */
  prepare(): Promise<VisibleRelease | undefined>
  /** Makes room for the tables of the release, where nobody looks. */
  begin(release: PublishedRelease): Promise<void>
  /** Whether what nobody looks at yet holds this table, with the same rows and totals. */
  verify(table: TargetTable): Promise<boolean>
  /** Puts the rows of a table there. */
  load(table: TargetTable): Promise<void>
  /** Shows the release to readers, every table at once. */
  activate(): Promise<void>
  /** Removes what readers cannot come back to. */
  prune(): Promise<void>
}

/** Integers, and decimals whose sum cannot outgrow the 38 digits that every engine gives it. */
const SUMMABLE = /^(U?(TINY|SMALL|BIG)INT|U?INTEGER|DECIMAL\(([12]?\d),(\d+)\))$/

const WIDE_DECIMAL = /^DECIMAL\((\d+),(\d+)\)$/

/**
 * What proves that a table has arrived as it is: rows, then of each column its exact sum, or how many values it has, the
 * first and the last. Each is an SQL expression that DuckDB, PostgreSQL and ClickHouse understand, and a text.
 */
export function buildTotals(columns: readonly TargetColumn[], quote: (name: string) => string): string[] {
  const totals = columns.flatMap(({name, type}) => {
    const column = quote(name)
    if (SUMMABLE.test(type))
      return [`sum(cast(${column} as decimal(38, ${type.match(/,(\d+)/)?.[1] ?? 0})))`, `count(${column})`]
    const scale = WIDE_DECIMAL.exec(type)?.[2]
    if (scale !== undefined)
      return [
        // No sum of these leaves the 38 digits.
        `sum(case when ${column} between -1000000000000000000 and 1000000000000000000 then ${column} end)`,
        `count(${column})`,
      ]
    if (type === 'DATE') return [`count(${column})`, `min(${column})`, `max(${column})`]
    return [`count(${column})`]
  })
  return ['count(*)', ...totals].map((total) => `coalesce(cast(${total} as varchar), '')`)
}

/** Whether the totals of two engines are the same: they differ in the zeros at the end of decimals. */
export function isSameTotals(one: readonly string[], other: readonly string[]): boolean {
  const plain = (total: string | undefined) => total?.replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '')
  return one.length === other.length && one.every((total, index) => plain(total) === plain(other[index]))
}
