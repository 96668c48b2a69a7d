import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import type {listPeriods, PeriodState} from '../books/close-period.ts'
import type {JournalPreview} from '../books/issue.ts'
import type {NotIssued} from '../books/standing.ts'
import {explainError} from '../core/errors.ts'
import {askFirst} from './actions.ts'
import {type Column, count, countOf, dollars, instant, table} from './figures.ts'
import type {History} from './history.ts'
import {type Html, html, prose} from './html.ts'
import {viewPage} from './pages.ts'
import type {Page, View} from './view.ts'

/** `/books`: the months, what was issued, what the journal holds, and whether it ties out. */
export async function viewBooks(
  view: View,
  {periods, events}: Awaited<ReturnType<typeof listPeriods>>,
  mayAct: boolean,
): Promise<Page> {
  const months = periods.toReversed()
  const due = periods.find(({state}) => state === 'open')
  const columns: Column<PeriodState>[] = [
    {title: 'Period', cell: ({period}) => html`<a href="/books/${period}">${period}</a>`},
    {
      title: 'State',
      cell: ({state}) =>
        html`<span class="state ${state === 'closed' ? 'passed' : 'unknown'}">${state}</span>`,
    },
    ...(periods.some(({closed}) => closed) ? CLOSING : []),
    {
      title: 'Not yet issued',
      cell: ({period, not_issued}) =>
        html`${not_issued.map(({profile, entries, amount}) => html`<div><a href="/books/${period}?for=${profile}">${profile}: ${countOf(entries, 'entry', 'entries')}, ${dollars(amount)}</a></div>`)}`,
    },
    {
      title: 'Issued',
      cell: ({batches}) =>
        html`${batches.map(({profile, batch_id}) => html`<div>${profile} <code>${batch_id}</code></div>`)}`,
    },
  ]
  const ties = await viewPage('parts/ties', view)
  const journal = await viewPage('parts/journal', view)
  const body = html`${ties?.body}
<h2>Periods</h2>
${months.length === 0 ? html`<p class="empty">No month has ended yet.</p>` : table(columns, months)}
${mayAct && due && due.period < view.release.manifest.as_of.slice(0, 7) && askToClose(due.period)}
${journal?.body}
${
  events.length > 0 &&
  html`<h2>What was done</h2><ul class="needs">${events.toReversed().map(({period, action, at, who, why}) => html`<li>${instant(at)}: ${who}, ${action} ${period}${why !== null && `: ${why}`}</li>`)}</ul>`
}`
  return {title: 'Books', body}
}

/** The facts of a closed month. */
const CLOSING: Column<PeriodState>[] = [
  {title: 'Loans', kind: 'number', cell: ({closed}) => (closed ? count(closed.loans) : '')},
  {title: 'Funded', kind: 'number', cell: ({closed}) => (closed ? dollars(closed.amount) : '')},
  {title: 'Closed', cell: ({closed}) => (closed ? html`${instant(closed.at)} by ${closed.who}` : '')},
  {title: 'Known later', kind: 'number', cell: ({closed}) => (closed ? count(closed.late) : '')},
]

const askToClose = (period: string) =>
  askFirst(`Close ${period}`, {
    asked: {do: 'close', period},
    says: html`Fixes the journal and register of ${period}; what becomes known later is booked in the month after (<code>loantape period close ${period}</code>).`,
    button: `Yes, close ${period}`,
    inputs: html`<p><label>Remark <input name="why" maxlength="500"></label></p>`,
  })

/** What of ended months is not issued, or why that is unknown. */
export async function readNotIssued({release}: View, history: History): Promise<NotIssued[] | string> {
  try {
    const found = await history.ask('notIssued')
    return found.filter(({period}) => period < release.manifest.as_of.slice(0, 7))
  } catch (error) {
    return explainError(error).message
  }
}

/** `/books/<YYYY-MM>`: what the next export of a month would hand out, for the importer that the address names. */
export async function viewPreview({query}: View, period: string, history: History): Promise<Page> {
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

const COLUMNS: Column<JournalPreview['accounts'][number]>[] = [
  {title: 'Account', cell: ({account_code, account_name}) => html`<b>${account_code}</b> ${account_name}`},
  {title: 'Debit', kind: 'number', cell: ({debit}) => dollars(debit)},
  {title: 'Credit', kind: 'number', cell: ({credit}) => dollars(credit)},
  {title: 'Lines', kind: 'number', cell: ({lines}) => count(lines)},
]

function renderPreview({batch, accounts, files}: JournalPreview): Html {
  if (batch.outcome === 'empty') return html`<p class="empty">There is nothing to book in this month.</p>`
  if (batch.outcome === 'unchanged')
    return html`<p class="passed">All of it is issued; the last batch was <code>${batch.batch_id}</code>.</p>`
  return html`<h2>Batch <code>${batch.batch_id}</code></h2>
<p class="muted">${countOf(batch.rows, 'line')} in ${countOf(batch.files, 'file')}, for ${batch.period}.</p>
<div class="narrow">${table(COLUMNS, accounts)}</div>
${files.map(({name, head}) => html`<h3>${name} begins</h3><pre tabindex="0">${head}</pre>`)}`
}
