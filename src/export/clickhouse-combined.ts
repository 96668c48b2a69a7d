import {hash} from 'node:crypto'
import {z} from 'zod'
import type {Session} from './clickhouse-layout.ts'
import {createDatabases, literal, type Place, quote, STATE, typeOf, VISIBLE} from './clickhouse-layout.ts'
import type {CombinedModel, PublishedRelease, TargetColumn, TargetTable} from './target.ts'

/** The database of what people look at, and that of what it is made of. */
const [SHOWN, MADE] = ['fleet', 'total']

/** The name under which the rows of all lenders together stand. */
const ALL = '(all)'

/** As the engine that models are written for has it: a join or a group without a value has none, a name is first a column's. */
const SETTINGS = 'settings join_use_nulls = 1, group_by_use_nulls = 1, prefer_column_name_to_alias = 1'

/** Ids are of their lender: those of two may be alike. */
const OWN_IDS = ['deal_id', 'borrower_id', 'document_id', 'walk_id']

/** A view, as it is made. */
interface View {
  name: string
  /** `name Type comment '…'`; as they come where nobody looks at them. */
  columns?: string[]
  select: string
  comment: string
}

/**
 * Makes a view of every model over all lenders: `fleet.portfolio_summary` has the rows of each, as published, and the same computed
 * over all. Views of views: they show what is published at the moment they are asked. Those that are there as they should be stay.
 */
export async function createCombined(
  session: Session,
  place: Place,
  {combined, tables}: PublishedRelease,
): Promise<void> {
  if (combined.length === 0) return
  await createDatabases(session, place, [SHOWN, MADE])
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
    // What people look at comes first to go and last to come: its digest is the last to be written.
    if (shown) await makeView(session, place, {...made, comment: ''})
    if (shown) await makeView(session, place, shown)
    await makeView(session, place, {...made, comment: digest})
  }
}

/** What the name of a table becomes in SQL over all lenders. */
export const combinedName = (table: string): string =>
  table === 'as_of' ? `${VISIBLE}.2` : `${MADE}.${quote(table)}`

/** A published table of all lenders. */
function viewOfAll({schema, name, columns}: TargetTable): View {
  const cells = columns.map((column) => {
    const cell = quote(column.name)
    return OWN_IDS.includes(column.name) ? `concat(source, '/', ${cell}) as ${cell}` : cell
  })
  // Where lenders say different things of a status, the first by name is taken.
  const once = schema === 'seed' ? ` order by source limit 1 by ${quote(columns[0]?.name ?? '')}` : ''
  return {
    name: combinedName(`${schema}.${name}`),
    select: `select ${cells.join(', ')} from ${quote(schema)}.${quote(name)}${once}`,
    comment: '',
  }
}

/** A model over all lenders, and where people look at it each lender's rows with it. */
function viewsOf(model: CombinedModel): View[] {
  const cast = (column: TargetColumn) =>
    `cast(${quote(column.name)} as ${typeOf(column, model.name)}) as ${quote(column.name)}`
  // The columns of a model that nobody looks at are of the types they have.
  const cells = model.isShown ? model.columns.map(cast).join(', ') : '*'
  const made = {
    name: combinedName(model.name),
    select: `select ${cells} from (\n${model.sql}\n) ${SETTINGS}`,
    comment: '',
  }
  if (!model.isShown) return [made]
  const columns = model.columns.map(({name}) => quote(name)).join(', ')
  const described = model.columns.map(
    (column) => `${quote(column.name)} ${typeOf(column, model.name)} comment ${literal(column.comment)}`,
  )
  const own = model.name.split('.').map(quote).join('.')
  return [
    made,
    {
      name: `${SHOWN}.${quote(shownName(model.name))}`,
      columns: [
        `source String comment ${literal(`whose rows they are; ${ALL}: of all lenders together`)}`,
        ...described,
      ],
      select: `select source, ${columns} from ${own}
        union all
        select ${literal(ALL)} as source, ${columns} from ${made.name}`,
      comment: model.comment,
    },
  ]
}

function makeView(session: Session, {on}: Place, {name, columns, select, comment}: View): Promise<void> {
  const described = columns === undefined ? '' : ` (${columns.join(',\n')})`
  return session.run(
    `create or replace view ${name}${on}${described} as\n${select}\ncomment ${literal(comment)}`,
  )
}

/** A column that adds up, over all lenders and as the sum of what each says. */
export interface CombinedTotal {
  /** `fleet.portfolio_summary` */
  table: string
  column: string
  /** Exact, as text. */
  together: string
  sum: string
}

const totalRow = z.record(z.string(), z.string())

/** Of which day or month a row is, by the columns that say so. */
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
 * Adds up what each lender says and compares it with what is computed over all. Of days and months those count that every lender has
 * whole: after the day of the earliest release the others have nothing to add to.
 *
 * @param models with the columns that add up
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
    const calendar = CALENDAR.filter(([columns]) => columns.every((column) => grain.includes(column))).map(
      ([, isWhole]) => isWhole,
    )
    const [found = {}] = await session.rows(
      totalRow,
      `with
         (select toString(min(as_of)) from ${STATE}.release) as last_day,
         substring(last_day, 1, 7) as last_month
       select ${sums.join(', ')} from ${SHOWN}.${quote(shown)}
       ${calendar.length > 0 ? `where ${calendar.join(' and ')}` : ''}`,
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
