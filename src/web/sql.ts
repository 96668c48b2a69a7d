import {explainError} from '../errors.ts'
import {count} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {readTables} from '../warehouse/table-columns.ts'
import {addressOf, hiddenFields} from './filter.ts'
import {renderShape, SHAPES} from './shape.ts'
import {FORMATS} from './tables.ts'
import type {Page, View} from './view.ts'

/** Rows that are shown; a download has all. */
const MOST = 500

/** `/sql`: a SELECT over the tables of the deals that the filter means, and its rows as table, figures or chart. */
export async function viewSql(view: View): Promise<Page> {
  const {reader, filter, query} = view
  const text = (query.get('q') ?? '').trim()
  const shape = SHAPES.find((one) => one === query.get('as')) ?? 'table'
  const form = await renderForm(view, text, shape)
  const sql = text.replace(/;\s*$/, '')
  if (sql === '') return {title: 'SQL', body: form}
  const answer = await reader
    .ask({sql, condition: filter.condition, most: MOST + 1})
    .catch((error: unknown) => explainError(error))
  if ('message' in answer)
    return {title: 'SQL', body: html`${form}<pre class="failed" tabindex="0">${answer.message}</pre>`}
  const shown = {...answer, rows: answer.rows.slice(0, MOST)}
  const isCut = answer.rows.length > MOST
  return {
    title: 'SQL',
    body: html`${form}
<p class="downloads">${isCut ? `The first ${count(MOST)} rows.` : `${count(shown.rows.length)} ${shown.rows.length === 1 ? 'row' : 'rows'}.`} Download all: ${FORMATS.map((format) => html`<a href="${addressOf(`/data/query.${format}`, filter, {q: [sql]})}" download>${format.toUpperCase()}</a> `)}</p>
${renderShape(shown, shape)}`,
  }
}

/** The statement in a field, which a script makes an editor that knows the tables. */
async function renderForm({tables, filter}: View, text: string, shape: string): Promise<Html> {
  const columnsOf = Object.fromEntries(await readTables(tables))
  return html`<form class="sql" action="/sql">
${hiddenFields(filter)}
<label for="q" class="muted small">One SELECT; tables are named core.deal, mart.portfolio_summary, … <a href="/tables">All tables</a></label>
<textarea id="q" name="q" rows="8" spellcheck="false" data-tables="${JSON.stringify(columnsOf)}">${text}</textarea>
<p><button>Run</button> <label>Show as <select name="as">${SHAPES.map((one) => html`<option${one === shape && html` selected`}>${one}</option>`)}</select></label></p>
</form>
<script src="/assets/sql-editor.js" type="module"></script>`
}
