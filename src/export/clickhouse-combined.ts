import {hash} from 'node:crypto'
import {z} from 'zod'
import type {ReleaseModel} from '../store/release.ts'
import {createDatabases, type Session, STATE, type Topology, typeOf, VISIBLE} from './clickhouse-layout.ts'
import {literal, quote} from './clickhouse-sql.ts'
import type {PublishedRelease, TargetTable} from './target.ts'

/** The database that people see, and the database of the views it is made from. */
const [SHOWN, MADE] = ['fleet', 'total']

/** The source of rows over all lenders. */
const ALL = '(all)'

/** Nulls and column names as in DuckDB, for which models are written. */
const SETTINGS = 'settings join_use_nulls = 1, group_by_use_nulls = 1, prefer_column_name_to_alias = 1'

/** Ids that two lenders may share. */
const OWN_IDS = ['deal_id', 'borrower_id', 'document_id', 'walk_id']

interface View {
  name: string
  /** `name Type comment '…'`; left out for internal views. */
  columns?: string[]
  select: string
  comment: string
}

/**
 * Creates the views of every model over all lenders: `fleet.portfolio_summary` has the published rows of each lender, and the rows
 * computed over all. The views read other views, so that they always show what is published now. Unchanged views are kept.
 */
export async function createCombined(
  session: Session,
  topology: Topology,
  {combined, tables}: PublishedRelease,
): Promise<void> {
  if (combined.length === 0) return
  await createDatabases(session, topology, [SHOWN, MADE])
  const there = await session.rows(
    z.object({name: z.string(), comment: z.string()}),
    `select name, comment from system.tables where database = ${literal(MADE)}`,
  )
  const models = new Set(combined.map(({name}) => name))
  const inputs = tables.filter(({schema, name}) => {
    const full = `${schema}.${name}`
    return !models.has(full) && combined.some(({reads}) => reads.includes(full))
  })
  const wanted = [
    ...inputs.map((table) => ({name: `${table.schema}.${table.name}`, views: [viewOfAll(table)]})),
    ...combined.map((model) => ({name: model.name, views: viewsOf(model)})),
  ]
  for (const {name, views} of wanted) {
    const [made, shown] = views as [View, View?]
    const digest = hash('sha256', JSON.stringify(views))
    if (there.some((view) => view.name === name && view.comment === digest)) continue
    // The digest is written last, so views that a crash left half made are made again.
    if (shown) await makeView(session, topology, {...made, comment: ''})
    if (shown) await makeView(session, topology, shown)
    await makeView(session, topology, {...made, comment: digest})
  }
}

/** Names a table, or `as_of`, in SQL over all lenders. */
export const combinedName = (table: string): string =>
  table === 'as_of' ? `${VISIBLE}.2` : `${MADE}.${quote(table)}`

/** The view of a published table over all lenders. */
function viewOfAll({schema, name, columns}: TargetTable): View {
  const cells = columns.map((column) => {
    const cell = quote(column.name)
    return OWN_IDS.includes(column.name) ? `concat(source, '/', ${cell}) as ${cell}` : cell
  })
  // When lenders describe a status differently, the first by name counts.
  const once = schema === 'seed' ? ` order by source limit 1 by ${quote(columns[0]?.name ?? '')}` : ''
  return {
    name: combinedName(`${schema}.${name}`),
    select: `select ${cells.join(', ')} from ${quote(schema)}.${quote(name)}${once}`,
    comment: '',
  }
}

/** The view of a model over all lenders; for a shown model also the view that adds each lender's rows. */
function viewsOf(model: ReleaseModel): View[] {
  const cast = (column: {name: string; type: string}) =>
    `cast(${quote(column.name)} as ${typeOf(column, model.name)}) as ${quote(column.name)}`
  const cells = model.is_published ? model.columns.map(cast).join(', ') : '*'
  const made = {
    name: combinedName(model.name),
    select: `select ${cells} from (\n${model.sql}\n) ${SETTINGS}`,
    comment: '',
  }
  if (!model.is_published) return [made]
  const columns = model.columns.map(({name}) => quote(name)).join(', ')
  const described = model.columns.map(
    (column) => `${quote(column.name)} ${typeOf(column, model.name)} comment ${literal(column.meaning)}`,
  )
  const own = model.name.split('.').map(quote).join('.')
  return [
    made,
    {
      name: `${SHOWN}.${quote(shownName(model.name))}`,
      columns: [`source String comment ${literal(`the lender; ${ALL}: all lenders together`)}`, ...described],
      select: `select source, ${columns} from ${own}
        union all
        select ${literal(ALL)} as source, ${columns} from ${made.name}`,
      comment: model.description,
    },
  ]
}

function makeView(session: Session, {on}: Topology, {name, columns, select, comment}: View): Promise<void> {
  const described = columns === undefined ? '' : ` (${columns.join(',\n')})`
  return session.run(
    `create or replace view ${name}${on}${described} as\n${select}\ncomment ${literal(comment)}`,
  )
}

/** A column that adds up: its total over all lenders, and the sum of each lender's total. */
export interface CombinedTotal {
  /** `fleet.portfolio_summary` */
  table: string
  column: string
  /** Exact, as text. */
  together: string
  sum: string
}

/** For each set of date columns: the condition that every lender has the whole day or month of a row. */
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

/**
 * Computes the {@link CombinedTotal} of every column that adds up. Only days and months that the releases of all lenders cover count.
 */
export async function compareTotals(
  session: Session,
  models: readonly {name: string; grain: readonly string[]; addsUp: readonly string[]}[],
): Promise<CombinedTotal[]> {
  const there = await session.rows(
    z.object({name: z.string()}),
    `select name from system.tables where database = ${literal(SHOWN)}`,
  )
  const totals: CombinedTotal[] = []
  for (const {name, grain, addsUp} of models) {
    const shown = shownName(name)
    if (addsUp.length === 0 || !there.some((table) => table.name === shown)) continue
    const sums = addsUp.flatMap((column, index) => [
      `toString(coalesce(sumIf(toDecimal128(${quote(column)}, 2), source = ${literal(ALL)}), 0)) as together_${index}`,
      `toString(coalesce(sumIf(toDecimal128(${quote(column)}, 2), source <> ${literal(ALL)}), 0)) as sum_${index}`,
    ])
    const calendar = CALENDAR.filter(([columns]) => columns.every((column) => grain.includes(column)))
    const [found = {}] = await session.rows(
      z.record(z.string(), z.string()),
      `with
         (select toString(min(as_of)) from ${STATE}.release) as last_day,
         substring(last_day, 1, 7) as last_month
       select ${sums.join(', ')} from ${SHOWN}.${quote(shown)}
       where ${['true', ...calendar.map(([, isWhole]) => isWhole)].join(' and ')}`,
    )
    for (const [index, column] of addsUp.entries())
      totals.push({
        table: `${SHOWN}.${shown}`,
        column,
        together: found[`together_${index}`] ?? '',
        sum: found[`sum_${index}`] ?? '',
      })
  }
  return totals
}

function shownName(model: string): string {
  const [schema = '', name = ''] = model.split('.')
  return schema === 'mart' ? name : `${schema}_${name}`
}
