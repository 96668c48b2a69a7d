import {join} from 'node:path'
import {z} from 'zod'
import {parseSelects} from '../build/compile.ts'
import {STREAMS} from '../contract/streams.ts'
import {newError} from '../core/errors.ts'
import {makeTemporaryFolder} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {openDatabase, quoteLiteral, quoteName, quoteTable} from '../store/database.ts'
import {digestFile} from '../store/files.ts'
import {type Release, type ReleaseModel, readReleaseModels} from '../store/release.ts'
import {readColumns} from '../store/sql.ts'
import {createDatabases, describeFields, fieldsOf, type Session, sourceField} from './clickhouse-layout.ts'
import {literal, MADE, NotRewritten, quote, STATE, toClickhouseSql} from './clickhouse-sql.ts'
import {describeTable, readTotals, type TargetTable} from './target.ts'

const SHARED_SEEDS = ['seed.status']

/**
 * What a release can tell of all lenders: `models` as of {@link planCombined}, and `inputs`, the unpublished tables they need.
 * Disposing removes the files of these.
 */
export async function readCombined({dir, database, work}: Release, world: Pick<World, 'log'>) {
  const models = readReleaseModels(dir)
  await using db = await openDatabase({
    attach: [
      {path: database, alias: 'release', readOnly: true},
      {path: work, alias: 'kept', readOnly: true},
    ],
  })
  const kept = await db.column(
    z.string(),
    `select concat(schema_name, '.', table_name) from duckdb_tables() where database_name = 'kept'`,
  )
  const plan = await planCombined({models, kept}, world)
  const folder = makeTemporaryFolder('loantape-publish-')
  const inputs: TargetTable[] = []
  for (const name of plan.inputs) {
    const path = quoteTable(kept.includes(name) ? 'kept' : 'release', name)
    const columns = (await readColumns(db, path)).map(({name, type}) => ({name, type: plainTypeOf(type)}))
    const about = describeTable(models, name, columns)
    const cells = columns.map(({name, type}) => `cast(${quoteName(name)} as ${type}) as ${quoteName(name)}`)
    const order = about.grain.length > 0 ? about.grain : columns.slice(0, 1).map((column) => column.name)
    const file = join(folder.path, `${name}.parquet`)
    const select = `select ${cells.join(', ')} from ${path}`
    await db.run(
      `copy (${select} order by ${order.map(quoteName).join(', ')})
       to ${quoteLiteral(file)} (format parquet, compression zstd, compression_level 1)`,
    )
    const totals = await readTotals(db, columns, `(${select})`)
    inputs.push({...about, order, file, sha256: await digestFile(file), totals})
  }
  return {models: plan.models, inputs, [Symbol.dispose]: () => folder[Symbol.dispose]()}
}

/** Unpublished tables may have integer types that a target lacks. */
function plainTypeOf(type: string): string {
  if (/^U?(TINY|SMALL)?INT(EGER)?$/.test(type)) return 'BIGINT'
  return /^(HUGE|UBIG)INT$/.test(type) ? 'DECIMAL(38,0)' : type
}

/**
 * Finds the marts that can be computed over all lenders from what each publishes: marts that describe deals, whose rows are not
 * single deals, and that read nothing of one lender alone, such as its walks, feeds and limits. `kept` are the `work` tables
 * that the release keeps. Each model comes after those it reads; its `sql` is ClickHouse's, whose types may differ from
 * `columns`.
 */
export async function planCombined(
  {models, kept}: {models: readonly ReleaseModel[]; kept: readonly string[]},
  {log}: Pick<World, 'log'>,
): Promise<{models: ReleaseModel[]; inputs: string[]}> {
  await using db = await openDatabase({threads: 1})
  const ofDeals = new Set(models.filter(({grain}) => grain.includes('deal_id')).map(({name}) => name))
  const given = new Set([
    ...SHARED_SEEDS,
    'mart.run',
    ...models
      .filter(({name}) => name.startsWith('core.') || (kept.includes(name) && ofDeals.has(name)))
      .map(({name}) => name),
  ])
  const selects = await parseSelects(
    db,
    models.map(({name, sql}) => ({name, file: name, sql})),
  )
  const found = new Map<string, ReleaseModel & {describesDeals: boolean}>()
  for (const model of models) {
    const {name, reads, is_published} = model
    const isKnown = reads.every((read) => given.has(read) || found.has(read))
    if (given.has(name) || !isKnown || ofDeals.has(name)) continue
    const describesDeals = reads.some((read) => ofDeals.has(read) || found.get(read)?.describesDeals)
    if (is_published && !describesDeals) continue
    try {
      const sql = await toClickhouseSql(db, selects.get(name)?.statements[0])
      found.set(name, {...model, describesDeals, sql})
    } catch (error) {
      if (!(error instanceof NotRewritten)) throw error
      log.info({reason: `${name}: ${error.message}`}, 'a model is not computed over all lenders')
    }
  }
  const isInput = (name: string) => SHARED_SEEDS.includes(name) || kept.includes(name)
  const together = [...found.values()]
  const inputs = [...new Set(together.flatMap((model) => model.reads))].filter(isInput).sort()
  return {models: together, inputs}
}

/** The database that people read; it shows what the views of {@link MADE} compute. */
const SHOWN = 'fleet'

/** The `source` of rows over all lenders. */
const ALL = '(all)'

/** Makes ClickHouse treat nulls, column names and days before 1970 as DuckDB does, for which the models are written. */
const SETTINGS = `settings join_use_nulls = 1, group_by_use_nulls = 1, aggregate_functions_null_for_empty = 1,
  prefer_column_name_to_alias = 1, enable_extended_results_for_datetime_functions = 1`

/** Ids that are unique only within one lender. */
const OWN_IDS = [...STREAMS.map(({name}) => `${name}_id`), 'walk_id']

/**
 * `fleet.portfolio_summary` has the published rows of each lender, and the rows computed over all. The views read other views,
 * so they show what is published now.
 * @throws ConfigError `CLICKHOUSE_TYPE`
 */
export async function createCombined(
  session: Session,
  {models, tables}: {models: readonly ReleaseModel[]; tables: readonly TargetTable[]},
): Promise<void> {
  if (models.length === 0) return
  const names = [
    ...tables.map(({schema, name}) => `${schema}.${name}`),
    ...models.filter((model) => model.is_published).map(({name}) => `${SHOWN}.${shownName(name)}`),
  ]
  const twice = names.find((name, index) => names.indexOf(name) < index)
  if (twice !== undefined)
    throw newError('CLICKHOUSE_TYPE', `Two tables would be '${twice}', the name over all lenders.`, {
      next: 'Give the model of one another name.',
    })
  await createDatabases(session, [SHOWN, MADE])
  const view = (name: string, select: string, comment = '', columns = '') =>
    `create or replace view ${name}${session.on}${columns} as\n${select}\ncomment ${literal(comment)}`
  const computed = new Set(models.map(({name}) => name))
  const read = new Set(models.flatMap(({reads}) => reads).filter((name) => !computed.has(name)))
  const views = [
    ...tables
      .filter(({schema, name}) => read.has(`${schema}.${name}`))
      .map((table) => view(overAll(`${table.schema}.${table.name}`), selectAll(table))),
    ...models.flatMap((model) => {
      const computed = view(overAll(model.name), computeOverAll(model))
      if (!model.is_published) return computed
      const shown = `${SHOWN}.${quote(shownName(model.name))}`
      const source = sourceField(`the lender; ${ALL}: all lenders together`)
      const fields = describeFields([source, ...fieldsOf(model.columns, model.name)])
      return [computed, view(shown, showModel(model), model.description, ` (${fields})`)]
    }),
  ]
  for (const statement of views) await session.run(statement)
}

const overAll = (table: string): string => `${MADE}.${quote(table)}`

/** Rows of all lenders, with the columns of each. */
function selectAll({schema, name, columns}: TargetTable): string {
  const ids = columns.map((column) => column.name).filter((column) => OWN_IDS.includes(column))
  const named = ids.map((id) => `concat(source, '/', ${quote(id)}) as ${quote(id)}`)
  const cells = `* except (source)${named.length > 0 ? ` replace (${named.join(', ')})` : ''}`
  // If lenders describe a status differently, the first lender by name counts.
  const once = schema === 'seed' ? ` order by source limit 1 by ${quote(columns[0]?.name ?? '')}` : ''
  return `select ${cells} from ${quote(schema)}.${quote(name)}${once}`
}

function computeOverAll({name, sql, columns, is_published}: ReleaseModel): string {
  const cells = (is_published ? fieldsOf(columns, name) : []).map(
    (field) => `cast(${quote(field.name)} as ${field.type}) as ${quote(field.name)}`,
  )
  return `select ${is_published ? cells.join(', ') : '*'} from (\n${sql}\n) ${SETTINGS}`
}

function showModel({name, columns}: ReleaseModel): string {
  const names = columns.map((column) => quote(column.name)).join(', ')
  return `select source, ${names} from ${name.split('.').map(quote).join('.')}
    union all
    select ${literal(ALL)} as source, ${names} from ${overAll(name)}`
}

/** By date columns of a table: the condition that the day or month of a row is over for every lender. */
const CALENDAR: [columns: string[], isWhole: string][] = [
  [['day'], 'toString(day) <= last_day'],
  [['month'], 'month < last_month'],
  [['month_end'], "formatDateTime(month_end, '%Y-%m') < last_month"],
  [
    ['cohort_month', 'age_months'],
    "addMonths(toDate(concat(cohort_month, '-01')), age_months) < toDate(concat(last_month, '-01'))",
  ],
  [
    ['cohort_month', 'months_on_book'],
    "addMonths(toDate(concat(cohort_month, '-01')), months_on_book) < toDate(concat(last_month, '-01'))",
  ],
]

/** A column that adds up: its total over all lenders, and the sum of each lender's total, both exact, as text. */
const totalRow = z.object({column: z.string(), together: z.string(), sum: z.string()})

const nameRow = z.object({name: z.string()})

/**
 * Compares every column that adds up, in tables that every lender publishes, over days and months that the releases of all
 * lenders cover.
 */
export async function compareTotals(
  session: Session,
  models: readonly {name: string; grain: readonly string[]; addsUp: readonly string[]}[],
) {
  const there = await session.rows(
    nameRow,
    `select name from system.tables where database = ${literal(SHOWN)}`,
  )
  const everywhere = await session.rows(
    nameRow,
    `select splitByChar('/', content)[2] as name
     from (select arrayJoin(contents) as content from ${STATE}.release)
     group by name having count() = (select count() from ${STATE}.release)`,
  )
  const totals: (z.output<typeof totalRow> & {table: string})[] = []
  for (const {name, grain, addsUp} of models) {
    const shown = shownName(name)
    const isCompared =
      there.some((table) => table.name === shown) && everywhere.some((table) => table.name === name)
    if (addsUp.length === 0 || !isCompared) continue
    const sumOf = (column: string, isOf: '=' | '<>') =>
      `toString(coalesce(sumIf(toDecimal256(${quote(column)}, 38), source ${isOf} ${literal(ALL)}), 0))`
    const sums = addsUp.map((column) => `(${literal(column)}, ${sumOf(column, '=')}, ${sumOf(column, '<>')})`)
    const calendar = CALENDAR.filter(([columns]) => columns.every((column) => grain.includes(column)))
    const rows = await session.rows(
      totalRow,
      `with
         (select toString(min(as_of)) from ${STATE}.release) as last_day,
         substring(last_day, 1, 7) as last_month
       select of.1 as column, of.2 as together, of.3 as sum
       from (
         select arrayJoin([${sums.join(', ')}]) as of
         from ${SHOWN}.${quote(shown)}
         where ${['true', ...calendar.map(([, isWhole]) => isWhole)].join(' and ')}
       )`,
    )
    totals.push(...rows.map((row) => ({table: `${SHOWN}.${shown}`, ...row})))
  }
  return totals
}

/** The name in {@link SHOWN}. */
function shownName(model: string): string {
  const [schema = '', name = ''] = model.split('.')
  return schema === 'mart' ? name : `${schema}_${name}`
}
