import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {expectOneOf} from '../nearest.ts'
import {requireRelease} from '../release/manifest.ts'
import {openRelease} from '../release/open-release.ts'
import {computedRow, type RowOf, rowOf} from '../release-row.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'

/** A figure of `mart.portfolio_summary` and the deals it is made of. */
export interface FigureTrace {
  figure: string
  value: string | null
  as_of: string
  release_id: string
  /** The largest first; of an ltv those with one of at most 1.5, of the median the deals in the middle. */
  deals: FigureDeal[]
}

/** A deal as the release has it. */
export type FigureDeal = RowOf<typeof dealRow>
const dealRow = rowOf(
  'core.deal',
  ['deal_id', 'status', 'loan_amount', 'property_value', 'last_changed_at'],
  {ltv: 'number?'},
)

/** Which deals a part of the portfolio is, as a condition on `core.deal`. */
const PARTS: Record<string, string> = {
  '': 'true',
  open_: `status_class not in ('ended_funded', 'ended_unfunded')`,
  ended_: `status_class in ('ended_funded', 'ended_unfunded')`,
  pipeline_: `status_class = 'pipeline'`,
  funded_: `status_class = 'funded'`,
}

/** What is computed of them: which of the deals it is made of, as conditions. */
const MEASURES: Record<string, string> = {
  deals: '',
  amount: '',
  wa_ltv: 'and ltv <= 1.5',
  pooled_ltv: 'and ltv <= 1.5',
  ltv_coverage_pct: '',
  average_amount: '',
  largest_amount: 'qualify loan_amount = max(loan_amount) over ()',
  median_amount:
    'qualify row_number() over (order by loan_amount, deal_id) in ((count(*) over () + 1) // 2, (count(*) over () + 2) // 2)',
}

const TABLE = 'mart.portfolio_summary'

/** Whether what is to be traced is a figure, not a deal. */
export const isFigure = (name: string) => name.startsWith(`${TABLE}.`)

/**
 * The deals behind a figure of the current release.
 *
 * @param name `mart.portfolio_summary.funded_amount`
 * @throws ConfigError `UNKNOWN_NAME`, those of a release that is not there
 */
export async function traceFigure(config: Config, name: string): Promise<FigureTrace> {
  const figure = name.slice(TABLE.length + 1)
  const [, part = '', measure = ''] = /^(open_|ended_|pipeline_|funded_|)(\w+)$/.exec(figure) ?? []
  const release = requireRelease(dataFolderAt(config.dataDir))
  await using db = await openRelease(release)
  const columns = await db.all(
    computedRow({name: 'text?'}),
    `select column_name as name from (describe ${TABLE}) where column_name <> 'as_of'`,
  )
  const which = MEASURES[measure]
  const names = columns.flatMap(({name}) => name ?? [])
  if (which === undefined || !names.includes(figure)) {
    throw newError('UNKNOWN_NAME', `Figure '${figure}' of ${TABLE}: ${expectOneOf(figure, names)}.`)
  }
  const {value, as_of} = await db.one(
    rowOf('mart.portfolio_summary', ['as_of'], {value: 'text?'}),
    `select cast(${figure} as varchar) as value, as_of from ${TABLE}`,
  )
  const deals = await db.all(
    dealRow,
    `from (
       select deal_id, status, loan_amount, property_value, ltv, last_changed_at
       from core.deal where ${PARTS[part]} ${which}
     ) order by loan_amount desc, deal_id`,
  )
  return {figure: name, value, as_of, release_id: release.manifest.release_id, deals}
}
