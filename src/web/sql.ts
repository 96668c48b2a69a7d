import {explainError} from '../errors.ts'
import {count} from '../page/figures.ts'
import {html} from '../page/html.ts'
import {addressOf, hiddenFields} from './filter.ts'
import {FORMATS, renderRows} from './tables.ts'
import type {Page, View} from './view.ts'

/** Rows that are shown; a download has all. */
const MOST = 500

/** `/sql`: a SELECT over the tables of the deals that the filter means, and its rows. */
export async function viewSql({reader, filter, query}: View): Promise<Page> {
  const sql = (query.get('q') ?? '').trim()
  const answer =
    sql === ''
      ? undefined
      : await reader
          .ask({sql: sql.replace(/;\s*$/, ''), condition: filter.condition, most: MOST + 1})
          .catch((error: unknown) => explainError(error))
  const form = html`<form class="sql" action="/sql">
${hiddenFields(filter)}
<label for="q" class="muted small">One SELECT; tables are named core.deal, mart.portfolio_summary, … <a href="/tables">All tables</a></label>
<textarea id="q" name="q" rows="8" spellcheck="false">${sql}</textarea>
<button>Run</button>
</form>`
  if (!answer) return {title: 'SQL', body: form}
  if ('message' in answer)
    return {title: 'SQL', body: html`${form}<pre class="failed" tabindex="0">${answer.message}</pre>`}
  const shown = {...answer, rows: answer.rows.slice(0, MOST)}
  const isCut = answer.rows.length > MOST
  const statement = {q: [sql.replace(/;\s*$/, '')]}
  return {
    title: 'SQL',
    body: html`${form}
<p class="downloads">${isCut ? `The first ${count(MOST)} rows.` : `${count(shown.rows.length)} ${shown.rows.length === 1 ? 'row' : 'rows'}.`} Download all: ${FORMATS.map((format) => html`<a href="${addressOf(`/data/query.${format}`, filter, statement)}" download>${format.toUpperCase()}</a> `)}</p>
${renderRows(shown)}`,
  }
}
