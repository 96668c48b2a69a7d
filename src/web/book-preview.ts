import {JOURNAL_NAMES} from '../accounting/journal-profiles.ts'
import {explainError} from '../errors.ts'
import {type Column, count, dollars, table} from '../page/figures.ts'
import {type Html, html, prose} from '../page/html.ts'
import type {JournalPreview} from '../pipeline/journal-preview.ts'
import type {History} from './history.ts'
import type {Page, View} from './view.ts'

/** `/books/<YYYY-MM>`: what the next export of a month would hand out, for the importer that the address names. */
export async function viewPreview({query}: View, period: string, history: History): Promise<Page> {
  const profile = JOURNAL_NAMES.find((name) => name === query.get('for')) ?? JOURNAL_NAMES[0] ?? ''
  // An export that would be refused says why.
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
