import {z} from 'zod'
import {count, dollars, instant, words} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {addressOf, isDimension} from './filter.ts'
import type {Overview} from './overview.ts'
import {hasTable} from './tables.ts'
import type {View} from './view.ts'

/** What of the journal of an ended month has not been issued. */
export interface NotIssued {
  period: string
  profile: string
  entries: number
  amount: string
}

const limitRow = z.object({
  name: z.string(),
  dimension: z.string(),
  bucket: z.string(),
  scope: z.string(),
  exposure: z.string(),
  limit_amount: z.string(),
  state: z.enum(['ok', 'warn', 'breach']),
  breached_since: z.string().nullable(),
  exposure_if_approved_fund: z.string(),
  state_if_approved_fund: z.enum(['ok', 'warn', 'breach']),
})

/** Limits that are exceeded, nearly reached, or would be exceeded if all that is approved funded. */
async function renderLimits({whole, filter}: View): Promise<Html[]> {
  const limits = await whole.all(
    limitRow,
    `from mart.limit_status where state <> 'ok' or state_if_approved_fund = 'breach'
     order by state <> 'breach', state <> 'warn', name`,
  )
  return limits.map((limit) => {
    const {name, dimension, bucket, scope, state, exposure, limit_amount, breached_since} = limit
    const deals = addressOf('/deals', filter, {
      part: [scope],
      ...(isDimension(dimension) && {[dimension]: [bucket]}),
    })
    const then = `${dollars(limit.exposure_if_approved_fund)} if all that is approved funded`
    return html`<b class="${state === 'breach' ? 'failed' : 'warned'}">Limit ${name}${{breach: ' is exceeded', warn: ' is nearly reached', ok: ' would be exceeded'}[state]}</b>${breached_since && ` since ${breached_since}`}: <a href="${deals}">${dollars(exposure)}</a> of ${dollars(limit_amount)}${limit.state_if_approved_fund === 'breach' && limit.exposure_if_approved_fund !== exposure && `, ${then}`}`
  })
}

const needRow = z.object({deals: z.coerce.number(), amount: z.string()})

/** What a person has to look at, the most urgent first. */
export async function renderNeeds(
  view: View,
  {
    alarms,
    lastSync,
    notIssued,
  }: Pick<Overview, 'alarms' | 'lastSync'> & {notIssued: readonly NotIssued[] | string},
): Promise<Html> {
  const {tables, release, filter} = view
  const read = async (name: string, where: string) =>
    hasTable(view, name)
      ? await tables.one(
          needRow,
          `select count(*) as deals, cast(coalesce(sum(loan_amount), 0) as decimal(38, 2)) as amount from ${name} where ${where}`,
        )
      : undefined
  const stuck = await read('mart.pipeline_aging', 'is_stuck')
  const bare = await read('mart.document_coverage', `status = 'underwriting' and not has_appraisal`)
  const quarantined = lastSync?.walk.quarantined ?? 0
  const needs = [
    ...alarms.map(
      ({name, state, since}) =>
        html`<b class="failed">${name}: ${state}</b> since ${instant(since)}; see <a href="/runs">runs</a>`,
    ),
    ...(await renderLimits(view)),
    stuck &&
      stuck.deals > 0 &&
      html`<a href="${addressOf('/pipeline', filter)}">${count(stuck.deals)} deals</a> of ${dollars(stuck.amount)} are in their status for longer than nine in ten were`,
    bare &&
      bare.deals > 0 &&
      html`<a href="${addressOf('/tables/mart.document_coverage', filter)}">${count(bare.deals)} deals</a> of ${dollars(bare.amount)} are in underwriting without an appraisal`,
    quarantined > 0 &&
      html`<a href="/quarantine">${count(quarantined)} ${quarantined === 1 ? 'record' : 'records'}</a> of the last walk could not be read`,
    typeof notIssued === 'string' &&
      html`<b class="warned">What is not issued is not known</b>: ${notIssued}`,
    ...(typeof notIssued === 'string' ? [] : notIssued).map(
      ({period, profile, entries, amount}) =>
        html`<a href="/books/${period}?for=${profile}">${count(entries)} ${entries === 1 ? 'entry' : 'entries'}</a> of ${dollars(amount)} of ${period} ${entries === 1 ? 'is' : 'are'} not issued to ${profile}`,
    ),
    ...release.manifest.checks.results
      .filter(({name}) => name !== 'limit_is_kept')
      .map(
        ({name, failures, samples}) =>
          html`<b class="warned">${words(name)}</b>: ${count(failures)} ${failures === 1 ? 'row' : 'rows'}, such as ${samples.slice(0, 2).join('; ')}`,
      ),
  ].filter((need) => need !== false && need !== undefined)
  return needs.length === 0
    ? html`<p class="passed">Nothing.</p>`
    : html`<ul class="needs">${needs.map((need) => html`<li>${need}</li>`)}</ul>`
}
