import {countOf, dollars, instant} from '../page/figures.ts'
import {type Html, html, prose} from '../page/html.ts'
import type {NotIssued} from '../pipeline/not-issued.ts'
import {computedRow} from '../release-row.ts'
import {describeFindings} from './checks.ts'
import {addressBehind} from './filter.ts'
import {listBrokenLimits} from './limits.ts'
import type {Overview} from './overview.ts'
import type {View} from './view.ts'

const needRow = computedRow({deals: 'count', amount: 'sum'})

/** What a person has to look at, the most urgent first. */
export async function renderNeeds(
  view: View,
  {
    alarms,
    lastSync,
    notIssued,
  }: Pick<Overview, 'alarms' | 'lastSync'> & {notIssued: readonly NotIssued[] | string},
): Promise<Html> {
  const {tables, filter} = view
  const read = (name: string, where: string) =>
    tables.one(needRow, `select count(*) as deals, sum(loan_amount) as amount from ${name} where ${where}`)
  const stuck = await read('mart.pipeline_aging', 'is_stuck')
  const bare = await read('mart.document_coverage', `status = 'underwriting' and not has_appraisal`)
  const quarantined = lastSync?.walk.quarantined ?? 0
  const needs = [
    // Limits are told one by one, with the deals behind them.
    ...alarms.flatMap(({name, title, words, since}) =>
      name === 'limits'
        ? []
        : html`<b class="failed">${title}</b> since ${instant(since)}. ${prose(words)} See <a href="/runs">runs</a>.`,
    ),
    ...(await listBrokenLimits(view)),
    stuck.deals > 0 &&
      html`<a href="${addressBehind('stuck', filter)}">${countOf(stuck.deals, 'deal')}</a> of ${dollars(stuck.amount)} ${stuck.deals === 1 ? 'is in its' : 'are in their'} status for longer than nine in ten were, even counted from when it was first seen`,
    bare.deals > 0 &&
      html`<a href="${addressBehind('without_appraisal', filter)}">${countOf(bare.deals, 'deal')}</a> of ${dollars(bare.amount)} ${bare.deals === 1 ? 'is' : 'are'} in underwriting without an appraisal`,
    quarantined > 0 &&
      html`<a href="/quarantine">${countOf(quarantined, 'record')}</a> of the last walk could not be read`,
    typeof notIssued === 'string' &&
      html`<b class="warned">What is not issued is not known</b>: ${notIssued}`,
    ...(typeof notIssued === 'string' ? [] : notIssued).map(
      ({period, profile, entries, amount}) =>
        html`<a href="/books/${period}?for=${profile}">${countOf(entries, 'entry', 'entries')}</a> of ${dollars(amount)} of ${period} ${entries === 1 ? 'is' : 'are'} not issued to ${profile}`,
    ),
    ...describeFindings(view, ['limit_is_kept']),
  ].filter((need) => need !== false && need !== undefined)
  return needs.length === 0
    ? html`<p class="passed">Nothing.</p>`
    : html`<ul class="needs">${needs.map((need) => html`<li>${need}</li>`)}</ul>`
}
