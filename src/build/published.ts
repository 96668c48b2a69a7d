import {z} from 'zod'
import {messageOf, newError} from '../core/errors.ts'
import type {BuildPlan, Model, World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {openDatabase} from '../store/database.ts'
import {findCurrentRelease, openRelease, type Release, unlessDamaged} from '../store/release.ts'
import {readQuery, readTables, type TableColumn} from '../store/sql.ts'
import {MAPPED_TABLES} from './sources.ts'

/** What readers of a published table rely on; `columns` are in order. */
interface Published extends Pick<Model, 'name' | 'contract'> {
  columns: readonly TableColumn[]
}

export async function readPublished(release: Release): Promise<Published[]> {
  await using db = await openRelease(release)
  const tables = await readTables(db)
  return release.manifest.tables.map((table) => ({...table, columns: tables.get(table.name) ?? []}))
}

export const publishedOf = ({models, columns}: Pick<BuildPlan, 'models' | 'columns'>): Published[] =>
  models.flatMap(({isPublished, name, contract}) =>
    isPublished ? {name, contract, columns: columns.get(name) ?? []} : [],
  )

export type SchemaChange = z.output<typeof changeRow>
const changeRow = z.object({
  table: z.string(),
  /** Null if the change concerns the whole table. */
  column: z.string().nullable(),
  change: z.enum(['came', 'went', 'type', 'order']),
  /** The column's types; null for a whole table, and on the side that lacks the column. */
  before: z.string().nullable(),
  after: z.string().nullable(),
  contract_before: z.number().nullable(),
  contract_after: z.number().nullable(),
  /** Whether readers miss what they knew without a higher contract number announcing it. */
  is_breaking: z.boolean(),
})

/** Changes by table, then in the order of columns. */
export async function compareSchemas(
  before: readonly Published[],
  after: readonly Published[],
): Promise<SchemaChange[]> {
  await using db = await openDatabase()
  const sides = [before, after].map((side) => JSON.stringify(side))
  const changes = await db.all(changeRow, readQuery('schema_changes'), sides)
  // Columns of mapped fields are sorted by name, so each new one moves others.
  const isOfOrder = ({table, change}: SchemaChange) => change === 'order' && MAPPED_TABLES.includes(table)
  return changes.map((change) => (isOfOrder(change) ? {...change, is_breaking: false} : change))
}

/**
 * Readers of the current release find what they know in the next one: each table, and each column in its place with its type,
 * unless the table's contract number is higher. Nothing is required without a readable current release. Returns all differences.
 * @throws CheckError `MODEL_CONTRACT`
 */
export async function requireContract(
  folder: DataFolder,
  next: readonly Published[],
  {log}: Pick<World, 'log'>,
): Promise<SchemaChange[]> {
  const current = unlessDamaged(() => findCurrentRelease(folder))
  if (!current) return []
  const before = await readPublished(current).catch((error: unknown) => {
    log.warn({reason: messageOf(error)}, 'columns are not compared: the current release cannot be read')
    return []
  })
  const differing = await compareSchemas(before, next)
  const broken = differing.filter(({is_breaking}) => is_breaking)
  if (broken.length === 0) return differing
  // One column that moves moves those after it.
  const isAfter = ({table, change}: SchemaChange, index: number) =>
    change === 'order' && broken[index - 1]?.table === table && broken[index - 1]?.change === 'order'
  const told = broken.filter((change, index) => !isAfter(change, index))
  const changes = told.map(({table, column, change, before, after, contract_before}) => {
    if (column === null) return `'${table}' is no longer published`
    const words = {
      went: `${before} goes`,
      type: `becomes ${after} instead of ${before}`,
      order: 'moves',
      came: '',
    }
    const way = MAPPED_TABLES.includes(table)
      ? '`loantape build --accept columns`'
      : `\`-- contract: ${Number(contract_before) + 1}\` in the head of its model`
    const expected = `expected no change, or ${way}`
    return `column '${column}' of '${table}' ${words[change]}: ${expected}`
  })
  const problem = `Tables would differ from those of release ${current.manifest.release_id}: ${changes.join('; ')}.`
  throw newError('MODEL_CONTRACT', problem, {details: broken})
}
