import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import type {JournalPreview} from '../books/issue.ts'
import type {NotIssued} from '../books/standing.ts'
import {explainError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {askFirst} from './actions.ts'
import {renderObjects} from './blocks.ts'
import {count, dollars, instant} from './figures.ts'
import {type Html, html, prose} from './html.ts'
import {viewPage} from './pages.ts'
import type {AskingView, Page} from './view.ts'

/** `/books`: the months, what was issued, what the journal holds, and whether it ties out. */
export async function viewBooks(view: AskingView): Promise<Page> {
  const {periods, events} = await view.history.ask('periods')
  const due = periods.find(({state}) => state === 'open')
  const hasClosed = periods.some(({closed}) => closed)
  const months = periods.toReversed().map(({period, state, closed, not_issued, batches}) => ({
    period,
    period_href: `/books/${period}`,
    state: html`<span class="state ${state === 'closed' ? 'passed' : 'unknown'}">${state}</span>`,
    ...(hasClosed && {
      loans: closed ? count(closed.loans) : '',
      funded_usd: closed?.amount ?? '',
      closed: closed ? html`${instant(closed.at)} by ${closed.who}` : '',
      known_later: closed ? count(closed.late) : '',
    }),
    not_yet_issued: html`${not_issued.map(({profile, entries, amount}) => html`<div><a href="/books/${period}?for=${profile}">${profile}: ${quantity(entries, 'entry')}, ${dollars(amount)}</a></div>`)}`,
    issued: html`${batches.map(({profile, batch_id}) => html`<div>${profile} <code>${batch_id}</code></div>`)}`,
  }))
  const [ties, journal] = [await viewPage('parts/ties', view), await viewPage('parts/journal', view)]
  const body = html`${ties?.body}
<h2>Periods</h2>
${renderObjects('table', months, {empty: 'No month has ended yet.'})}
${view.mayAct && due && due.period < view.release.manifest.as_of.slice(0, 7) && askToClose(due.period)}
${journal?.body}
${
  events.length > 0 &&
  html`<h2>What was done</h2><ul class="needs">${events.toReversed().map(({period, action, at, who, why}) => html`<li>${instant(at)}: ${who}, ${action} ${period}${why !== null && `: ${why}`}</li>`)}</ul>`
}`
  return {title: 'Books', body}
}

const askToClose = (period: string) =>
  askFirst(`Close ${period}`, {
    asked: {do: 'close', period},
    says: html`Fixes the journal and register of ${period}; what becomes known later is booked in the month after (<code>loantape period close ${period}</code>).`,
    button: `Yes, close ${period}`,
    inputs: html`<p><label>Remark <input name="why" maxlength="500"></label></p>`,
  })

/** What of ended months is not issued, or why that is unknown. */
export async function readNotIssued({release, history}: AskingView): Promise<NotIssued[] | string> {
  try {
    const found = await history.ask('notIssued')
    return found.filter(({period}) => period < release.manifest.as_of.slice(0, 7))
  } catch (error) {
    return explainError(error).message
  }
}

/** `/books/<YYYY-MM>`: what the next export of a month would hand out, for the importer that the address names; undefined of no month. */
export async function viewPreview({query, history}: AskingView, period: string): Promise<Page | undefined> {
  if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(period)) return undefined
  const profile = JOURNAL_NAMES.find((name) => name === query.get('for')) ?? JOURNAL_NAMES[0] ?? ''
  // If the export would be refused, the page says why.
  const answer = await history.ask('preview', profile, period).catch(explainError)
  return {
    title: `Journal of ${period}`,
    body: html`<p>What <code>loantape export ${profile} --period ${period}</code> would issue. Looking at it issues nothing.</p>
<p class="choices">For ${JOURNAL_NAMES.map((name) => html`<a href="/books/${period}?for=${name}"${name === profile && html` aria-current="true"`}>${name}</a> `)}</p>
${Array.isArray(answer) ? answer.map(renderPreview) : html`<p class="notice">${prose(answer.message)}</p>`}`,
  }
}

function renderPreview({batch, accounts, files}: JournalPreview): Html {
  if (batch.outcome === 'empty') return html`<p class="empty">There is nothing to book in this month.</p>`
  if (batch.outcome === 'unchanged')
    return html`<p class="passed">All of it is issued; the last batch was <code>${batch.batch_id}</code>.</p>`
  const listed = accounts.map(({account_code, account_name, debit, credit, lines}) => ({
    account: html`<b>${account_code}</b> ${account_name}`,
    debit_usd: debit,
    credit_usd: credit,
    lines,
  }))
  return html`<h2>Batch <code>${batch.batch_id}</code></h2>
<p class="muted">${quantity(batch.rows, 'line')} in ${quantity(batch.files, 'file')}, for ${batch.period}.</p>
<div class="narrow">${renderObjects('table', listed)}</div>
${files.map(({name, head}) => html`<h3>${name} begins</h3><pre tabindex="0">${head}</pre>`)}`
}
