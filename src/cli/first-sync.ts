import {burstOf, type Config} from '../config.ts'
import {dealStream} from '../contract/deal.ts'
import type {MappedField} from '../contract/mapped-field.ts'
import {optionalColumnsOf} from '../contract/stream.ts'
import {parseChildStreams} from '../contract/streams.ts'
import {findValue} from '../json.ts'
import {groupThousands, quantity} from '../money.ts'

/** What the number of requests of a sync depends on. */
type Asked = Pick<Config, 'ratePerSecond' | 'pageSize' | 'detail' | 'detailBudgetMinutes' | 'streams'>

/** Deals that the time is told for where nobody knows how many there are. */
const UNKNOWN_DEALS = 1000

/**
 * How long a first sync takes by its requests: each page of the list, and for each deal its own page and its lists.
 *
 * @param deals undefined where nobody knows
 */
export function describeFirstSync(config: Asked, deals: number | undefined): string {
  const {ratePerSecond, pageSize, detail, detailBudgetMinutes, streams} = config
  const children = parseChildStreams(streams).map(({plural}) => plural)
  const wanted = detailBudgetMinutes === 0 ? [] : [...(detail === 'off' ? [] : ['details']), ...children]
  const counted = deals ?? UNKNOWN_DEALS
  const most = Math.floor((detailBudgetMinutes * 60 * ratePerSecond) / Math.max(1, wanted.length))
  const fetched = deals === undefined ? counted : most
  const requests = Math.ceil(counted / pageSize) + Math.min(counted, fetched) * wanted.length
  const time = formatTime(Math.max(0, requests - burstOf(config)) / ratePerSecond)
  const what = wanted.length > 0 ? ` with ${new Intl.ListFormat('en-GB').format(wanted)}` : ''
  const subject = `${quantity(counted, 'deal')}${what}`
  const words = deals === undefined ? `takes ${time} for every ${subject}` : `of ${subject} takes ${time}`
  const isWhole = wanted.length === 0 || (deals !== undefined && deals <= most)
  const rest = `; LOANTAPE_DETAIL_BUDGET_MINUTES lets one run get those of ${groupThousands(most)} deals, later runs the rest`
  return `a first sync ${words} at ${ratePerSecond} requests/s${isWhole ? '' : rest}`
}

/** Whether list rows such as these leave nothing to ask single deals for. */
export function isWholeList(records: readonly unknown[], mapped: readonly MappedField[]): boolean {
  const names = (path: readonly string[]) => (record: unknown) => findValue(record, path) !== undefined
  return (
    records.length > 0 &&
    optionalColumnsOf(dealStream).every(({name}) => records.every(names([name]))) &&
    mapped.every(({path}) => records.some(names(path)))
  )
}

function formatTime(seconds: number): string {
  if (seconds < 60) return `about ${Math.max(1, Math.ceil(seconds))} s`
  if (seconds < 90 * 60) return `about ${Math.round(seconds / 60)} min`
  return `about ${Math.round(seconds / 3600)} h`
}
