import {z} from 'zod'
import {listAllBatches, listIssuedProfiles} from '../accounting/issued.ts'
import {findJournalProfile} from '../accounting/journal-profiles.ts'
import {explainError} from '../errors.ts'
import {type Column, count, dollars, instant, table} from '../page/figures.ts'
import {html} from '../page/html.ts'
import {askFirst} from './actions.ts'
import type {NotIssued} from './needs.ts'
import type {WebTools} from './overview.ts'
import {hasTable} from './tables.ts'
import type {Page, View} from './view.ts'

/** What `loantape period list --json` says. */
export const periodList = z.object({
  periods: z.array(
    z.object({
      period: z.string(),
      state: z.string(),
      closed: z
        .object({at: z.string(), who: z.string(), loans: z.number(), amount: z.string(), late: z.number()})
        .nullable(),
      batches: z.array(z.object({profile: z.string(), batch_id: z.string()})),
      not_issued: z.array(z.object({profile: z.string(), entries: z.number(), amount: z.string()})),
    }),
  ),
  events: z.array(
    z.object({
      period: z.string(),
      action: z.string(),
      at: z.string(),
      who: z.string(),
      why: z.string().nullable(),
    }),
  ),
})
type PeriodList = z.output<typeof periodList>

const movedRow = z.object({
  period: z.string(),
  event: z.string(),
  entries: z.coerce.number(),
  amount: z.string(),
})
type Moved = z.output<typeof movedRow>

/** `/books`: the months, what of them was issued, what the journal holds, and whether it ties out. */
export async function viewBooks(view: View, {periods, events}: PeriodList, mayAct: boolean): Promise<Page> {
  const {tables, release} = view
  const journal = hasTable(view, 'accounting.journal_line')
    ? await tables.all(
        movedRow,
        `select period, event, count(*) as entries, cast(sum(debit) as decimal(38, 2)) as amount
         from accounting.journal_line where line_no = 1 group by all order by period desc, event`,
      )
    : []
  const ties = await tables.one(
    z.object({
      funded: z.string(),
      register: z.string(),
      closing: z.string().nullable(),
      loans: z.coerce.number(),
    }),
    `select
       (select funded_amount from mart.portfolio_summary) as funded,
       (select cast(coalesce(sum(loan_amount), 0) as decimal(38, 2)) from accounting.loan_register) as register,
       (select count(*) from accounting.loan_register) as loans,
       (select arg_max(closing, month) from mart.funded_rollforward) as closing`,
  )
  const isTied = ties.funded === ties.register && (ties.closing === null || ties.closing === ties.funded)
  const months = periods.toReversed()
  const due = periods.find(({state}) => state === 'open')
  const columns: Column<PeriodList['periods'][number]>[] = [
    {title: 'Period', cell: ({period}) => html`<a href="/books/${period}">${period}</a>`},
    {
      title: 'State',
      cell: ({state}) =>
        html`<span class="state ${state === 'closed' ? 'passed' : 'unknown'}">${state}</span>`,
    },
    {title: 'Loans', kind: 'number', cell: ({closed}) => (closed ? count(closed.loans) : '')},
    {title: 'Funded', kind: 'number', cell: ({closed}) => (closed ? dollars(closed.amount) : '')},
    {title: 'Closed', cell: ({closed}) => (closed ? `${instant(closed.at)} by ${closed.who}` : '')},
    {title: 'Known later', kind: 'number', cell: ({closed}) => (closed ? count(closed.late) : '')},
    {
      title: 'Not yet issued',
      cell: ({period, not_issued}) =>
        html`${not_issued.map(({profile, entries, amount}) => html`<div><a href="/books/${period}?for=${profile}">${profile}: ${count(entries)} ${entries === 1 ? 'entry' : 'entries'}, ${dollars(amount)}</a></div>`)}`,
    },
    {
      title: 'Issued',
      cell: ({batches}) =>
        html`${batches.map(({profile, batch_id}) => html`<div>${profile} <code>${batch_id}</code></div>`)}`,
    },
  ]
  const body = html`<p class="${isTied ? 'passed' : 'failed'}">${isTied ? 'It ties out' : 'It does not tie out'}: funded ${dollars(ties.funded)}, register of ${count(ties.loans)} loans ${dollars(ties.register)}, closing of the roll-forward ${dollars(ties.closing)}.</p>
<h2>Periods</h2>
${months.length === 0 ? html`<p class="empty">No month has ended yet.</p>` : table(columns, months)}
${mayAct && due && due.period < release.manifest.as_of.slice(0, 7) && askToClose(due.period)}
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

const askToClose = (period: string) =>
  askFirst(`Close ${period}`, {
    asked: {do: 'close', period},
    says: html`Fixes the journal and register of ${period}; what becomes known later is booked in the month after (<code>loantape period close ${period}</code>).`,
    button: `Yes, close ${period}`,
    inputs: html`<p><label>Remark <input name="why" maxlength="500"></label></p>`,
  })

/**
 * Finds what of ended months is not issued, for whoever exports journals, or why that is not known; asked again where another release or
 * batch is there.
 */
export function createNotIssued(
  {stateDb, jobs}: Pick<WebTools, 'stateDb' | 'jobs'>,
  ask: () => Promise<PeriodList>,
) {
  let asked: {key: string; answer: Promise<NotIssued[] | string>} | undefined
  const exported = jobs.flatMap(({steps}) =>
    steps.flatMap((step) => (step.do === 'export' ? step.profiles : [])),
  )
  return ({release}: View): Promise<readonly NotIssued[] | string> => {
    const isUsed = listIssuedProfiles(stateDb).length > 0 || exported.some((name) => findJournalProfile(name))
    if (!isUsed) return Promise.resolve([])
    const {release_id, as_of} = release.manifest
    const key = JSON.stringify([release_id, listAllBatches(stateDb).length])
    if (asked?.key !== key) {
      const answer = ask().then(
        ({periods}) =>
          periods
            .filter(({period}) => period < as_of.slice(0, 7))
            .flatMap(({period, not_issued}) => not_issued.map((one) => ({period, ...one}))),
        (error: unknown) => {
          asked = undefined
          return explainError(error).message
        },
      )
      asked = {key, answer}
    }
    return asked.answer
  }
}
