import {bucketRow, summaryRow} from '../page/breakdown.ts'
import type {Series} from '../page/chart.ts'
import type {Cells, PortfolioReport} from '../page/portfolio-report.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import {anyRow, type ReleaseQueries, type RowOf, rowOf} from '../release-row.ts'

const positionRow = rowOf('mart.position_daily', ['day', 'status'], {amount: 'number?'})
const qualityRow = rowOf('mart.data_quality', ['value', 'deals'], {measure: 'text?'})

/** What there is to say of the deals whose tables these are. */
export async function readPortfolio(
  tables: ReleaseQueries,
  manifest: ReleaseManifest,
): Promise<PortfolioReport> {
  const readIfThere = async (table: string, order: string) =>
    manifest.tables.some(({name}) => name === table)
      ? (await tables.all(anyRow, `from ${table} order by ${order}`)).map(asTexts)
      : null
  return {
    ...manifest,
    summary: await tables.one(summaryRow, 'from mart.portfolio_summary'),
    buckets: await tables.all(
      bucketRow,
      'from mart.portfolio_breakdown order by dimension, sort_order, bucket',
    ),
    ...(await readPositions(tables)),
    quality: await tables.all(
      qualityRow,
      `select concat_ws(' ', nullif(scope, 'deals'), metric, field, found) as measure, value, deals
       from mart.data_quality order by all`,
    ),
    rollforward: await readIfThere('mart.funded_rollforward', 'month'),
    concentration: await readIfThere('mart.concentration', 'dimension'),
    exposures: await readIfThere('mart.top_exposure', 'rank'),
  }
}

const asTexts = (row: RowOf<typeof anyRow>): Cells =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [name, value === null ? null : String(value)]),
  )

/** The amount of each open status on each day, in the order of `seed.status`; statuses never held are left out. */
async function readPositions(db: ReleaseQueries): Promise<{days: string[]; positions: Series[]}> {
  const rows = await db.all(
    positionRow,
    `select position.day, position.status, cast(position.amount as double) as amount
     from mart.position_daily as position
     left join seed.status on status.status = position.status
     where not starts_with(coalesce(status.class, 'unclassified'), 'ended')
     order by position.day, status.sort_order desc nulls last, position.status`,
  )
  const days = [...new Set(rows.map(({day}) => day))]
  const byStatus = Map.groupBy(rows, ({status}) => status)
  const positions = [...byStatus]
    .map(([name, entries]) => ({name, values: entries.map(({amount}) => amount)}))
    .filter(({values}) => values.some((value) => value !== 0))
  return {days, positions}
}
