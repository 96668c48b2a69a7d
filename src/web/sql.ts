import {explainError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {readTables} from '../store/sql.ts'
import {renderBlock, renderExact, SHAPES} from './blocks.ts'
import {count} from './figures.ts'
import {addressOf, hiddenFields} from './filter.ts'
import {type Html, html} from './html.ts'
import {linkOf} from './pages.ts'
import {queriesOf} from './reader.ts'
import {listSaved, readSavedQuery} from './saved.ts'
import {FORMATS} from './tables.ts'
import type {AskingView, Page, View} from './view.ts'

/** Rows that are shown; a download has all. */
const MOST = 500

/**
 * `/sql`: a SELECT over the tables of the deals that the filter means, given as `q` or by the name it was `saved` under, and its
 * rows as table, figures or chart; undefined of a name that nothing is saved under.
 */
export async function viewSql(view: AskingView): Promise<Page | undefined> {
  const {people, filter, query, folder, mayRun} = view
  const saved = query.get('saved')
  const given = query.get('q') ?? (saved === null ? '' : readSavedQuery(folder, saved))
  if (given === undefined) return undefined
  const shape = SHAPES.find((one) => one === query.get('as')) ?? 'table'
  const names = listSaved(folder, '.sql')
  const sql = given.trim()
  const isOnlyShown = !mayRun && query.has('q')
  const answer =
    sql === '' || isOnlyShown
      ? undefined
      : await people
          .ask({sql, condition: filter.condition, most: MOST + 1})
          .catch((error: unknown) => explainError(error))
  const failure = answer && 'message' in answer ? answer.message : undefined
  const form = html`${names.length > 0 && html`<p class="choices">Saved: ${names.map((name) => html`<a href="${addressOf('/sql', filter, {saved: [name]})}"${name === saved && html` aria-current="page"`}>${name.replaceAll('_', ' ')}</a> `)}</p>`}
${await renderForm(view, sql, {shape, failure})}`
  if (answer === undefined)
    return {
      title: 'SQL',
      body: html`${isOnlyShown && html`<p class="notice">This query came with an address from outside the workbench and has not been run. Read it, then press Run.</p>`}${form}`,
    }
  if ('message' in answer)
    return {title: 'SQL', body: html`${form}<pre class="failed" tabindex="0">${failure}</pre>`}
  const shown = {...answer, rows: answer.rows.slice(0, MOST)}
  const isCut = answer.rows.length > MOST
  return {
    title: 'SQL',
    body: html`${form}
<p class="downloads">${isCut ? `The first ${count(MOST)} rows.` : `${quantity(shown.rows.length, 'row')}.`} Download all: ${FORMATS.map((format) => html`<a href="${addressOf(`/data/query.${format}`, filter, {q: [sql]})}">${format.toUpperCase()}</a> `)}</p>
${renderSaving(view, sql)}
${shape === 'table' ? renderExact(shown) : renderBlock(shown, {shape, options: {}}, linkOf(filter))}`,
  }
}

/** The form that saves a query, or asks whether to replace the one of its name. */
function renderSaving({filter, query}: View, sql: string): Html {
  const taken = query.get('taken')
  return html`<details${taken !== null && html` open`}><summary>Save this query</summary>
<form class="sql" method="post" action="/sql/queries">
${hiddenFields(filter)}<input type="hidden" name="q" value="${sql}">
${taken !== null && html`<p class="notice">There is a query ‘${taken}’ already. Save once more to replace it, or under another name.</p><input type="hidden" name="replace" value="${taken}">`}
<p><label>Name <input name="name" value="${taken ?? query.get('saved')}" required pattern="[\\w\\-]{1,100}" title="Letters, digits, _ and -"></label> <button>Save</button></p>
</form></details>`
}

/** The statement in a field, which a script makes an editor that knows the tables. */
async function renderForm(
  {ask, filter, mayRead}: View,
  text: string,
  {shape, failure}: {shape: string; failure: string | undefined},
): Promise<Html> {
  const columnsOf = Object.fromEntries(
    [...(await readTables(queriesOf(ask)))].filter(([name]) => mayRead(name)),
  )
  const [, line] = /^LINE (\d+): /m.exec(failure ?? '') ?? []
  return html`<form class="sql" action="/sql">
${hiddenFields(filter)}
<label for="q" class="muted small">One SELECT; tables are named core.deal, mart.portfolio_summary, … <a href="/tables">All tables</a></label>
<textarea id="q" name="q" rows="8" spellcheck="false" data-tables="${JSON.stringify(columnsOf)}"${line !== undefined && html` data-failed-line="${line}"`}>${text}</textarea>
<p><button>Run</button> <label>Show as <select name="as">${SHAPES.map((one) => html`<option${one === shape && html` selected`}>${one}</option>`)}</select></label></p>
</form>
<script src="/assets/sql-editor.js" type="module"></script>`
}
