import {bar, type Column, dollars, linked, percent, table, words} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {type RowOf, rowOf} from '../release-row.ts'
import {addressOf, isDimension} from './filter.ts'
import type {View} from './view.ts'

type Limit = RowOf<typeof limitRow>
const limitRow = rowOf('mart.limit_status', [
  'name',
  'dimension',
  'bucket',
  'scope',
  'exposure',
  'limit_amount',
  'share_pct',
  'additional_room',
  'excess',
  'state',
  'breached_since',
  'exposure_if_approved_fund',
  'state_if_approved_fund',
])

/** What a limit's state is said to be. */
const STATES: Record<string, string> = {
  breach: ' is exceeded',
  warn: ' is nearly reached',
  ok: ' would be exceeded',
}

/** Limits are of the whole portfolio, whatever is filtered. */
async function listLimits(view: View): Promise<Limit[]> {
  return view.whole.all(
    limitRow,
    `from mart.limit_status
     order by state <> 'breach', state <> 'warn', state_if_approved_fund <> 'breach', name`,
  )
}

/** The page of the deals that count under a limit. */
const addressOfDeals = ({filter}: View, {scope, dimension, bucket}: Limit) =>
  addressOf('/deals', filter, {part: [scope], ...(isDimension(dimension) && {[dimension]: [bucket]})})

/** Limits that are exceeded, nearly reached, or would be exceeded if all that is approved funded. */
export async function listBrokenLimits(view: View): Promise<Html[]> {
  const limits = await listLimits(view)
  const broken = limits.filter((limit) => limit.state !== 'ok' || limit.state_if_approved_fund === 'breach')
  return broken.map((limit) => {
    const {name, state, exposure, limit_amount, breached_since} = limit
    const then = `${dollars(limit.exposure_if_approved_fund)} if all that is approved funded`
    return html`<b class="${state === 'breach' ? 'failed' : 'warned'}">Limit ${name}${STATES[state]}</b>${breached_since && ` since ${breached_since}`}: <a href="${addressOfDeals(view, limit)}">${dollars(exposure)}</a> of ${dollars(limit_amount)}${limit.state_if_approved_fund === 'breach' && limit.exposure_if_approved_fund !== exposure && `, ${then}`}`
  })
}

/** Every limit as a bar of how much of it is used. */
export async function renderLimits(view: View): Promise<Html | false> {
  const limits = await listLimits(view)
  const usedOf = ({exposure, limit_amount}: Limit) =>
    Number(limit_amount) === 0 ? null : (Number(exposure) / Number(limit_amount)) * 100
  const columns: Column<Limit>[] = [
    {title: 'Limit', cell: ({name}) => name},
    {title: '', kind: 'bar', cell: (limit) => bar(usedOf(limit))},
    {title: 'Used', kind: 'number', cell: (limit) => percent(usedOf(limit))},
    {
      title: 'Exposure',
      kind: 'number',
      cell: (limit) => linked(dollars(limit.exposure), addressOfDeals(view, limit)),
    },
    {title: 'Share', kind: 'number', cell: ({share_pct}) => percent(share_pct)},
    {title: 'Of', cell: ({scope}) => words(scope)},
    {title: 'Limit today', kind: 'number', cell: ({limit_amount}) => dollars(limit_amount)},
    {
      title: 'Room',
      kind: 'number',
      cell: ({state, additional_room: room}) =>
        state === 'breach' ? '–' : room === null ? 'any' : dollars(room),
    },
    {
      title: 'Excess',
      kind: 'number',
      cell: ({state, excess, breached_since}) =>
        state === 'breach'
          ? html`<b class="failed">${dollars(excess)}</b> since <span class="day">${breached_since}</span>`
          : '–',
    },
  ]
  return (
    limits.length > 0 &&
    html`<h2>Limits</h2>
<p class="muted small">Of all deals, whatever is chosen above. Room is what can still be lent until the limit is reached; new lending enlarges the total of which a share is taken.</p>
${table(columns, limits)}`
  )
}
