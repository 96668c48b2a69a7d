import {z} from 'zod'
import {messageOf, newError} from '../core/errors.ts'
import type {BuildPlan, World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {findCurrentRelease, openRelease, type Release} from '../store/release.ts'
import {type TableColumn, tableColumn} from '../store/sql.ts'

/** A published table: what its readers rely on. */
interface Published {
  /** `core.deal` */
  name: string
  /** The number in the head of its model. */
  contract: number
  /** In order. */
  columns: readonly TableColumn[]
  /** The file of its model, if that is at hand. */
  file?: string
}

/** A table or column that differs between two releases. */
export interface SchemaChange {
  table: string
  /** Null if it is the whole table. */
  column: string | null
  change: 'came' | 'went' | 'type' | 'order'
  /** The column's type; with `order`, its place from 1 among those in both; null for a table, and where it is not. */
  before: string | null
  after: string | null
  contract_before: number | null
  contract_after: number | null
  /** Whether readers who know the table would not find what they know, and no higher contract number tells them. */
  is_breaking: boolean
}

/** The published tables of a release. */
export async function readPublished(release: Release): Promise<Published[]> {
  await using db = await openRelease(release)
  const tables = await db.all(
    z.object({name: z.string(), columns: z.array(tableColumn)}),
    `select concat(schema_name, '.', table_name) as name,
       list({'name': column_name, 'type': data_type} order by column_index) as columns
     from duckdb_columns() where database_name = 'release' and not internal group by all`,
  )
  return release.manifest.tables.flatMap(({name, contract}) => {
    const {columns} = tables.find((table) => table.name === name) ?? {}
    return columns ? {name, contract, columns} : []
  })
}

/** The tables that a plan publishes. */
export const publishedOf = ({models, columns}: Pick<BuildPlan, 'models' | 'columns'>): Published[] =>
  models
    .filter(({isPublished}) => isPublished)
    .map(({name, contract, file}) => ({name, contract, file, columns: columns.get(name) ?? []}))

/** What differs between the published tables of two releases, by table, those of one table in the order of its columns. */
export function compareSchemas(before: readonly Published[], after: readonly Published[]): SchemaChange[] {
  const names = [...new Set([...before, ...after].map(({name}) => name))].sort()
  return names.flatMap((table) => {
    const [was, is] = [before, after].map((side) => side.find(({name}) => name === table))
    const about = {table, contract_before: was?.contract ?? null, contract_after: is?.contract ?? null}
    const isTold = was !== undefined && is !== undefined && is.contract > was.contract
    if (was && is)
      return compareColumns(was.columns, is.columns).map(({change, ...of}) => {
        return {...about, ...of, change, is_breaking: change !== 'came' && !isTold}
      })
    const change = is ? ('came' as const) : ('went' as const)
    return {...about, column: null, change, before: null, after: null, is_breaking: !is}
  })
}

type ColumnChange = Pick<SchemaChange, 'column' | 'change' | 'before' | 'after'>

function compareColumns(before: readonly TableColumn[], after: readonly TableColumn[]): ColumnChange[] {
  const placeIn = (columns: readonly TableColumn[], name: string) =>
    columns.findIndex((one) => one.name === name)
  const kept = before.filter(({name}) => placeIn(after, name) !== -1)
  const gone = before.filter((column) => !kept.includes(column))
  const come = after.filter(({name}) => placeIn(before, name) === -1)
  return [
    ...gone.map(({name, type}) => ({column: name, change: 'went' as const, before: type, after: null})),
    ...kept.flatMap(({name: column, type}, index): ColumnChange[] => {
      const place = placeIn(after, column)
      const now = after[place]?.type ?? ''
      return [
        ...(now === type ? [] : [{column, change: 'type' as const, before: type, after: now}]),
        ...(place === index
          ? []
          : [{column, change: 'order' as const, before: `${index + 1}`, after: `${place + 1}`}]),
      ]
    }),
    ...come.map(({name, type}) => ({column: name, change: 'came' as const, before: null, after: type})),
  ]
}

/**
 * Requires that readers of the current release find what they know in the next one: each table, each column in its place with its
 * type, unless the table's contract number is higher. Without a current release nothing is required.
 *
 * @throws CheckError `MODEL_CONTRACT`
 */
export async function requireContract(
  folder: DataFolder,
  next: readonly Published[],
  {log}: Pick<World, 'log'>,
): Promise<void> {
  const current = findCurrentRelease(folder)
  const before = await (current &&
    readPublished(current).catch((error: unknown): undefined => {
      log.warn(
        {reason: messageOf(error)},
        'the current release cannot be read: columns are not compared with it',
      )
    }))
  const broken = compareSchemas(before ?? [], next).filter(({is_breaking}) => is_breaking)
  if (!current || broken.length === 0) return
  const tables = [...Map.groupBy(broken, ({table}) => table)].map(([table, changes]) => {
    const model = next.find(({name}) => name === table)
    if (!model) return `'${table}' is no longer published`
    const number = (changes[0]?.contract_before ?? 1) + 1
    return `'${table}' ${changes.map(describeChange).join(', ')}: expected them unchanged or \`-- contract: ${number}\` in ${model.file ?? 'its model'}`
  })
  throw newError(
    'MODEL_CONTRACT',
    `Published tables would differ from those of release ${current.manifest.release_id}: ${tables.join('; ')}.`,
    {details: broken},
  )
}

/** A changed column in words. */
function describeChange({column, change, before, after}: SchemaChange): string {
  const words = {
    came: `with ${column} ${after}`,
    went: `without ${column} ${before}`,
    type: `with ${column} as ${after} instead of ${before}`,
    order: `with ${column} in place ${after} instead of ${before}`,
  }
  return words[change]
}
