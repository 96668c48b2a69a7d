import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import type {listPeriods, PeriodState} from '../books/close-period.ts'
import type {JournalPreview} from '../books/issue.ts'
import type {NotIssued} from '../books/standing.ts'
import {computedRow, type RowOf, rowOf} from '../build/release-row.ts'
import {explainError} from '../core/errors.ts'
import {askFirst} from './actions.ts'
import {type Column, count, countOf, dollars, instant, linked, table, words} from './figures.ts'
import {addressBehind, addressOfPart, type Filter} from './filter.ts'
import type {History} from './history.ts'
import {type Html, html, prose} from './html.ts'
import type {Page, View} from './view.ts'

const movedRow = rowOf('accounting.journal_line', ['period', 'event'], {entries: 'count', amount: 'sum'})
type Moved = RowOf<typeof movedRow>

/** `/books`: the months, what was issued, what the journal holds, and whether it ties out. */
export async function viewBooks(
  view: View,
  {periods, events}: Awaited<ReturnType<typeof listPeriods>>,
  mayAct: boolean,
): Promise<Page> {
  const {tables, release, filter} = view
  const journal = await tables.all(
    movedRow,
    `select period, event, count(*) as entries, sum(debit) as amount
     from accounting.journal_line where line_no = 1 group by all order by period desc, event`,
  )
  const ties = await tables.one(
    computedRow({funded: 'sum', register: 'sum', closing: 'decimal?', loans: 'count'}),
    `select
       (select funded_amount from mart.portfolio_summary) as funded,
       (select sum(loan_amount) from accounting.loan_register) as register,
       (select count(*) from accounting.loan_register) as loans,
       (select arg_max(closing, month) from mart.funded_rollforward) as closing`,
  )
  const isTied = ties.funded === ties.register && (ties.closing === null || ties.closing === ties.funded)
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
  const body = html`<p class="${isTied ? 'passed' : 'failed'}">${isTied ? 'It ties out' : 'It does not tie out'}: funded ${dollars(ties.funded)}, register of ${linked(countOf(ties.loans, 'loan'), ties.loans > 0 ? addressOfPart(filter, 'funded') : undefined)} ${dollars(ties.register)}, closing of the roll-forward ${dollars(ties.closing)}.</p>
<h2>Periods</h2>
${months.length === 0 ? html`<p class="empty">No month has ended yet.</p>` : table(columns, months)}
${mayAct && due && due.period < release.manifest.as_of.slice(0, 7) && askToClose(due.period)}
${await renderTieOut(view)}
<h2>Journal</h2>
<p class="muted small">Every movement of the funded book is one balanced entry; <a href="/tables/accounting.journal_line">all lines</a>, <a href="/tables/accounting.loan_register">the register</a>, <a href="/tables/mart.funded_rollforward">the roll-forward</a>.</p>
${
  journal.length === 0
    ? html`<p class="empty">Nothing has moved yet.</p>`
    : html`<div class="narrow">${table<Moved>(
        [
          {title: 'Period', cell: ({period}) => period},
          {title: 'Event', cell: ({event}) => event},
          {title: 'Entries', kind: 'number', cell: ({entries}) => count(entries)},
          {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
        ],
        journal,
      )}</div>`
}
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

const tiedRow = rowOf('accounting.tie_out', [
  'month',
  'term',
  'amount',
  'booked',
  'opening_balance',
  'elsewhere',
  'no_account',
  'difference',
])
type Tied = RowOf<typeof tiedRow>

const addressOfTerm = ({month, term}: Tied, filter: Filter) =>
  term === 'opening' ? addressBehind(term, filter, {month}) : addressBehind('term', filter, {month, term})

/** The terms of the roll-forward, in the order in which they are shown. */
const TERMS = `opening found originated refunded restored increased decreased reversed vanished
  paid_off sold refinanced foreclosed charged_off ended_other`

/** Every term of the roll-forward against the journal: what is booked, and what is not and why. */
async function renderTieOut(view: View): Promise<Html> {
  const terms = await view.tables.all(
    tiedRow,
    `from accounting.tie_out order by month desc, list_position(regexp_split_to_array($1, '\\s+'), term)`,
    [TERMS],
  )
  const amount = (title: string, column: keyof Tied): Column<Tied> => ({
    title,
    kind: 'number',
    cell: (row) => (Number(row[column]) === 0 && column !== 'difference' ? '' : dollars(row[column])),
  })
  const columns: Column<Tied>[] = [
    {title: 'Month', cell: ({month}) => month},
    {title: 'Term', cell: ({term}) => words(term)},
    {
      title: 'Roll-forward',
      kind: 'number',
      cell: (row) => linked(dollars(row.amount), addressOfTerm(row, view.filter)),
    },
    amount('Booked', 'booked'),
    amount('Opening balance', 'opening_balance'),
    amount('Booked elsewhere', 'elsewhere'),
    amount('No account', 'no_account'),
    amount('Difference', 'difference'),
  ]
  return html`<h2>Roll-forward and journal</h2>
<p class="muted small">What of each term the journal books, and what it does not: opening balances, unless they are asked for; what <code>accounting.json</code> says another system books; what it names no account for, which stops exports and closing.</p>
${terms.length === 0 ? html`<p class="empty">Nothing has moved yet.</p>` : table(columns, terms)}`
}

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
<p class="muted">${count(batch.rows)} lines in ${count(batch.files)} ${batch.files === 1 ? 'file' : 'files'}, for ${batch.period}.</p>
<div class="narrow">${table(COLUMNS, accounts)}</div>
${files.map(({name, head}) => html`<h3>${name} begins</h3><pre tabindex="0">${head}</pre>`)}`
}
