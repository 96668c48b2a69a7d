import {mkdtempDisposable} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../errors.ts'
import type {Release} from '../release/manifest.ts'
import {readReleaseModels} from '../release/models-file.ts'
import {
  buildTotals,
  type PublishedRelease,
  type ReleaseTarget,
  type TargetColumn,
  type TargetTable,
} from '../release-target.ts'
import type {World} from '../types.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import {type Database, openDatabase, quoteLiteral, quoteName} from '../warehouse/database.ts'
import {planCombined} from './combined.ts'

const columnRow = z.object({table: z.string(), name: z.string(), type: z.string(), comment: z.string()})
const tableRow = z.object({table: z.string(), comment: z.string()})

/** What the tables of a release are, from the database attached as `release` or `kept`. */
async function describeTables(db: Database, catalog: 'release' | 'kept') {
  const columns = await db.all(
    columnRow,
    `select concat(schema_name, '.', table_name) as "table", column_name as name, data_type as type, coalesce(comment, '') as comment
     from duckdb_columns() where database_name = '${catalog}' order by column_index`,
  )
  const tables = await db.all(
    tableRow,
    `select concat(schema_name, '.', table_name) as "table", coalesce(comment, '') as comment
     from duckdb_tables() where database_name = '${catalog}'`,
  )
  return new Map(
    tables.map(({table, comment}) => [
      table,
      {comment, columns: columns.filter((one) => one.table === table)},
    ]),
  )
}

/** A table as an SQL identifier. */
const nameOf = (catalog: string, table: string) => [catalog, ...table.split('.').map(quoteName)].join('.')

/**
 * Reads what the published tables of a release are, and what is in them; for a target that holds several lenders also the tables that
 * models over all of them need, written to files that go when this is disposed.
 *
 * @throws UnexpectedError `PUBLISH_INCOMPLETE` where a table is not what the manifest says
 */
export async function readPublished(
  {dir, database, work, manifest}: Pick<Release, 'dir' | 'database' | 'work' | 'manifest'>,
  {combinedName}: Pick<ReleaseTarget, 'combinedName'>,
  world: Pick<World, 'log'>,
): Promise<PublishedRelease & AsyncDisposable> {
  const models = readReleaseModels(dir)
  const grainOf = (table: string) => models.find(({name}) => name === table)?.grain ?? []
  await using db = await openDatabase({
    attach: [
      {path: database, alias: 'release', readOnly: true},
      ...(combinedName ? [{path: work, alias: 'kept', readOnly: true}] : []),
    ],
  })
  const described = await describeTables(db, 'release')
  const tables: TargetTable[] = []
  for (const {name, rows, file, sha256, order} of manifest.tables) {
    const {comment = '', columns = []} = described.get(name) ?? {}
    const totals = await readTotals(db, nameOf('release', name), columns)
    if (totals[0] !== String(rows))
      throw newError(
        'PUBLISH_INCOMPLETE',
        `Table '${name}' has ${totals[0]} rows: its manifest says ${rows}.`,
      )
    const place = {...splitName(name), file: join(dir, file), sha256, order}
    tables.push({...place, comment, columns, grain: grainOf(name), totals})
  }
  if (!combinedName)
    return {manifest, database, tables, combined: [], [Symbol.asyncDispose]: async () => undefined}
  const kept = await describeTables(db, 'kept')
  const plan = await planCombined({models, kept: [...kept.keys()], nameOf: combinedName}, world)
  const folder = await mkdtempDisposable(join(tmpdir(), 'loantape-publish-'))
  for (const name of plan.inputs) {
    const catalog = kept.has(name) ? 'kept' : 'release'
    const {comment = '', columns = []} = (kept.get(name) ?? described.get(name)) || {}
    const plain = columns.map((column) => ({...column, type: plainTypeOf(column.type)}))
    const cells = plain.map(
      (column) => `cast(${quoteName(column.name)} as ${column.type}) as ${quoteName(column.name)}`,
    )
    const grain = grainOf(name)
    const order = grain.length > 0 ? grain : plain.slice(0, 1).map((column) => column.name)
    const file = join(folder.path, `${name}.parquet`)
    await db.run(
      `copy (select ${cells.join(', ')} from ${nameOf(catalog, name)} order by ${order.map(quoteName).join(', ')})
       to ${quoteLiteral(file)} (format parquet, compression zstd, compression_level 1)`,
    )
    tables.push({
      ...splitName(name),
      comment: models.find((model) => model.name === name)?.description ?? comment,
      columns: plain,
      grain,
      order,
      file,
      sha256: await digestFile(file),
      totals: await readTotals(db, `(select ${cells.join(', ')} from ${nameOf(catalog, name)})`, plain),
    })
  }
  return {
    manifest,
    database,
    tables,
    combined: plan.models,
    [Symbol.asyncDispose]: () => folder.remove(),
  }
}

function splitName(table: string): {schema: string; name: string} {
  const [schema = '', name = ''] = table.split('.')
  return {schema, name}
}

/** The type that every target knows, for one that only a table has that is not published. */
function plainTypeOf(type: string): string {
  if (/^U?(TINY|SMALL)?INT(EGER)?$/.test(type)) return 'BIGINT'
  return /^(HUGE|UBIG)INT$/.test(type) ? 'DECIMAL(38,0)' : type
}

async function readTotals(db: Database, from: string, columns: readonly TargetColumn[]): Promise<string[]> {
  const totals = buildTotals(columns, quoteName)
  const found = await db.one(z.record(z.string(), z.string()), `select ${totals.join(', ')} from ${from}`)
  return Object.values(found)
}
