import {z} from 'zod'
import {DEAL_ID} from '../contract/deal.ts'
import {STREAMS} from '../contract/streams.ts'
import type {BuildPlan, Check, Model, Moment} from '../types.ts'
import {type Database, quoteLiteral, quoteName} from '../warehouse/database.ts'

/** The column of each raw table that says which deal a row is of; a raw table without one is of no deal. */
export const DEAL_COLUMNS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(STREAMS.map(({name, parent}) => [`${name}_version`, parent?.column ?? DEAL_ID])),
  deal_confirmation: DEAL_ID,
  deal_extra: DEAL_ID,
  listing: 'parent_id',
  quarantine: 'record_id',
}

/**
 * The models; one that says `per: deal_id` and reads a table of deals that is built whole is built whole, too: somebody's own may have
 * taken the place of one that was not.
 *
 * @param models each behind what it reads
 */
export function markPerDeal(models: readonly Model[], reads: BuildPlan['reads']): Model[] {
  const marked: Model[] = []
  for (const model of models) {
    const isPerDeal = model.isPerDeal && !readsWholeDeals(reads.get(model.name), marked)
    marked.push({...model, isPerDeal})
  }
  return marked
}

/** The checks; one that reads a table of deals that is built whole is run over all of them. */
export function markChecks(
  checks: readonly Check[],
  {models, checkReads}: Pick<BuildPlan, 'models' | 'checkReads'>,
): Check[] {
  return checks.map((check) =>
    readsWholeDeals(checkReads.get(check.name), models) ? {...check, changedSql: undefined} : check,
  )
}

function readsWholeDeals(read: readonly string[] | undefined, models: readonly Model[]): boolean {
  return models.some(
    ({name, isPerDeal, columns}) =>
      !isPerDeal && read?.includes(name) && columns.some((column) => column.name === DEAL_ID),
  )
}

const countRow = z.object({rows: z.coerce.number()})

/** Where tables are found so that those of models `per: deal_id` are those of the changed deals, and others in these schemas. */
export function changedPathOf(models: readonly Model[], others: readonly string[] = []): string {
  const changed = [...schemasOf(models), 'raw'].map((schema) => `changed.${quoteName(schema)}`)
  return ['release.main', ...changed, ...others, 'history.raw'].join(',')
}

function schemasOf(models: readonly Model[]): string[] {
  return [...new Set(models.filter(({isPerDeal}) => isPerDeal).map(({schema}) => schema))]
}

/** SQL: whether a row of a table, or of an alias, counts at a moment. */
function counts(row: string, {asOf, knownAt}: Moment): string {
  return `(${row}.business_date <= date ${quoteLiteral(asOf)} and ${row}.recorded_at <= timestamp ${quoteLiteral(knownAt)})`
}

/** SQL: whether it counts now and did not before; of moments that only go forward none does the reverse. */
function countsNew(row: string, before: Moment, now: Moment): string {
  return `${counts(row, now)} and not coalesce(${counts(row, before)}, false)`
}

/**
 * Whether what counts only since a moment lets every deal without a row of its own be as it was: every walk that was added ended,
 * and was stored, after all that counted before.
 */
export async function doWalksFollow(db: Database, before: Moment, now: Moment): Promise<boolean> {
  const {follow} = await db.one(
    z.object({follow: z.boolean()}),
    `with known as (
       select observed_at, recorded_at from history.raw.deal_version as version where ${counts('version', before)}
       union all
       select observed_at, recorded_at from history.raw.quarantine as record where ${counts('record', before)}
     ),
     added as (
       select min(coalesce(ended_at, started_at)) as ended_at, min(recorded_at) as recorded_at
       from history.raw.walk as walk
       where state = 'applied' and ${countsNew('walk', before, now)}
     )
     select coalesce(
       (select ended_at from added) >= (select max(observed_at) from known)
       and (select recorded_at from added) >= (select max(recorded_at) from known),
       true
     ) as follow`,
  )
  return follow
}

/**
 * Attaches the database `changed`: `main.deal` holds the deals with a row visible at only one of the two moments, the schema `raw` every
 * raw row of theirs, and the schemas of models `per: deal_id` are there, empty.
 *
 * @returns how many deals that are
 */
export async function attachChanged(
  db: Database,
  models: readonly Model[],
  before: Moment,
  now: Moment,
): Promise<number> {
  const schemas = ['raw', ...schemasOf(models)]
  await db.run(`attach ':memory:' as changed`)
  for (const schema of schemas) await db.run(`create schema changed.${quoteName(schema)}`)
  const tables = Object.entries(DEAL_COLUMNS)
  const parts = tables.map(([table, column]) =>
    table === 'listing'
      ? `select listing.${column} as ${DEAL_ID} from history.raw.listing as listing
         join history.raw.walk as walk on walk.walk_id = listing.walk_id
         where ${countsNew('walk', before, now)}`
      : `select ${column} as ${DEAL_ID} from history.raw.${table} as version where ${countsNew('version', before, now)}`,
  )
  await db.run(
    `create table changed.main.deal as select distinct ${DEAL_ID} from (${parts.join(' union all ')}) where ${DEAL_ID} is not null`,
  )
  for (const [table, column] of tables) {
    await db.run(
      `create table changed.raw.${table} as from history.raw.${table} where ${column} in (select ${DEAL_ID} from changed.main.deal)`,
    )
  }
  const {deals} = await db.one(
    z.object({deals: z.coerce.number()}),
    'select count(*) as deals from changed.main.deal',
  )
  return deals
}

/** No model can have a column of this name. */
const ROW = '"row of the table"'

/**
 * Puts the rows of the changed deals in the place of those that a table had of them.
 *
 * @param changed the table of their rows
 * @returns how many rows the table has now, and whether it is as it was
 */
export async function replaceChanged(
  db: Database,
  changed: string,
  table: string,
): Promise<{rows: number; isSame: boolean}> {
  const before = `changed.main.${quoteName(table)}`
  await db.run(
    `create table ${before} as select rowid as ${ROW}, * from ${table} where ${DEAL_ID} in (select ${DEAL_ID} from changed.main.deal)`,
  )
  const those = `select * exclude (${ROW}) from ${before}`
  const count = async (rows: string) =>
    (await db.one(countRow, `select count(*) as "rows" from (${rows})`)).rows
  const differences = await count(
    `((${those}) except all (from ${changed})) union all ((from ${changed}) except all (${those}))`,
  )
  if (differences > 0) {
    await db.run(`delete from ${table} where rowid in (select ${ROW} from ${before})`)
    await db.run(`insert into ${table} by name from ${changed}`)
  }
  return {rows: await count(`from ${table}`), isSame: differences === 0}
}
