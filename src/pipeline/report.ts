import {z} from 'zod'
import {bucketRow, summaryRow} from '../page/breakdown.ts'
import type {Series} from '../page/chart.ts'
import type {PortfolioReport} from '../page/portfolio-report.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {Queries} from '../warehouse/database.ts'

const count = z.coerce.number()

const positionRow = z.object({day: z.string(), status: z.string(), amount: count})
const qualityRow = z.object({measure: z.string(), value: z.number().nullable(), deals: count})
const cellsRow = z.record(
  z.string(),
  z
    .union([z.string(), z.number(), z.boolean(), z.null()])
    .transform((value) => (value === null ? null : String(value))),
)

/** What there is to say of the deals whose tables these are. */
export async function readPortfolio(tables: Queries, manifest: ReleaseManifest): Promise<PortfolioReport> {
  const readIfThere = async (table: string, order: string) =>
    manifest.tables.some(({name}) => name === table)
      ? await tables.all(cellsRow, `from ${table} order by ${order}`)
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

/** The amount of each open status on each day, in the order of `seed.status`; statuses never held are left out. */
async function readPositions(db: Queries): Promise<{days: string[]; positions: Series[]}> {
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
