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
  /** `order`: it is in another place among the columns that are in both, or behind a new one. */
  change: 'came' | 'went' | 'type' | 'order'
  /** Its type; null of a table, and where it is not. */
  before: string | null
  after: string | null
  contract_before: number | null
  contract_after: number | null
  /** Whether readers do not find what they knew, and no higher contract number tells them. */
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

/** What differs between the published tables of two releases, by table, its columns in their order. */
export function compareSchemas(before: readonly Published[], after: readonly Published[]): SchemaChange[] {
  const tables = [...new Set([...before, ...after].map(({name}) => name))].sort()
  return tables.flatMap((table) => {
    const [was, is] = [before, after].map((side) => side.find(({name}) => name === table))
    const note = (
      change: SchemaChange['change'],
      column: string | null = null,
      [before = null, after = null]: readonly (string | null | undefined)[] = [],
    ): SchemaChange => {
      const [contract_before, contract_after] = [was?.contract ?? null, is?.contract ?? null]
      const is_breaking = change !== 'came' && (contract_after ?? 0) <= (contract_before ?? 0)
      return {table, column, change, before, after, contract_before, contract_after, is_breaking}
    }
    if (!was || !is) return note(is ? 'came' : 'went')
    const [types, now] = [was, is].map(({columns}) => new Map(columns.map(({name, type}) => [name, type])))
    const kept = was.columns.filter(({name}) => now?.has(name))
    return [...new Map([...(types ?? []), ...(now ?? [])]).keys()].flatMap((column) => {
      const [before, after] = [types?.get(column), now?.get(column)]
      if (before === undefined || after === undefined)
        return note(after === undefined ? 'went' : 'came', column, [before, after])
      if (before !== after) return note('type', column, [before, after])
      const isMoved = is.columns[kept.findIndex(({name}) => name === column)]?.name !== column
      return isMoved ? note('order', column, [before, after]) : []
    })
  })
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
  if (!current) return
  const before = await readPublished(current).catch((error: unknown) => {
    log.warn({reason: messageOf(error)}, 'columns are not compared: the current release cannot be read')
    return []
  })
  const broken = compareSchemas(before, next).filter(({is_breaking}) => is_breaking)
  if (broken.length === 0) return
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

/** A column that went, moved or changed its type, in words. */
function describeChange({column, change, before, after}: SchemaChange): string {
  if (change === 'order') return `with ${column} in another place`
  return change === 'went' ? `without ${column} ${before}` : `with ${column} as ${after} instead of ${before}`
}
