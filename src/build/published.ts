import {messageOf, newError} from '../core/errors.ts'
import type {BuildPlan, Model, World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {findCurrentRelease, openRelease, type Release, unlessDamaged} from '../store/release.ts'
import {readTables, type TableColumn} from '../store/sql.ts'
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

interface SchemaChange {
  table: string
  /** Null if the change concerns the whole table. */
  column: string | null
  change: 'came' | 'went' | 'type' | 'order'
  /** The column's types; null for a whole table, and on the side that lacks the column. */
  before: string | null
  after: string | null
  contract_before: number | null
  contract_after: number | null
  /** Whether readers miss what they knew without a higher contract number announcing it. */
  is_breaking: boolean
}

/** Changes by table, then in the order of columns, those that came last. */
export function compareSchemas(before: readonly Published[], after: readonly Published[]): SchemaChange[] {
  const tables = new Set([...before, ...after].map(({name}) => name))
  return [...tables].sort().flatMap((table) => {
    const [was, now] = [before, after].map((side) => side.find(({name}) => name === table))
    const contracts = {contract_before: was?.contract ?? null, contract_after: now?.contract ?? null}
    const isAnnounced = was && now && now.contract > was.contract
    const tell = (
      change: SchemaChange['change'],
      {column = null, before = null, after = null}: Partial<SchemaChange> = {},
    ): SchemaChange => {
      // Columns of mapped fields are sorted by name, so each new one moves others.
      const isFine = change === 'came' || (change === 'order' && MAPPED_TABLES.includes(table))
      return {table, column, change, before, after, ...contracts, is_breaking: !isFine && !isAnnounced}
    }
    if (!was || !now) return [tell(was ? 'went' : 'came')]
    const isIn = (columns: readonly TableColumn[], column: TableColumn) =>
      columns.some(({name}) => name === column.name)
    const stays = was.columns.filter((column) => isIn(now.columns, column))
    const known = was.columns.flatMap(({name: column, type}) => {
      const place = now.columns.findIndex(({name}) => name === column)
      const found = now.columns[place]
      if (!found) return [tell('went', {column, before: type})]
      const types = {column, before: type, after: found.type}
      if (found.type !== type) return [tell('type', types)]
      // It has moved if it is in another place among those that stay, or behind a new one.
      return stays[place]?.name === column ? [] : [tell('order', types)]
    })
    const came = now.columns.filter((column) => !isIn(was.columns, column))
    return [...known, ...came.map(({name, type}) => tell('came', {column: name, after: type}))]
  })
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
  const differing = compareSchemas(before, next)
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
