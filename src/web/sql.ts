import {existsSync, mkdirSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import type {FastifyInstance} from 'fastify'
import {Marked, type Tokens} from 'marked'
import {explainError} from '../core/errors.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {readWritten, writeFileAtomically} from '../store/files.ts'
import {readTables} from '../store/sql.ts'
import {addFormRoutes} from './actions.ts'
import {count, figures, formatValue, renderMeant, words} from './figures.ts'
import {addressOf, hiddenFields, parseFilter} from './filter.ts'
import {type Html, html, markup} from './html.ts'
import {refuse} from './http-server.ts'
import {addressOfDeal} from './portfolio.ts'
import {FORMATS, renderShape, SHAPES} from './tables.ts'
import type {AskingView, Page, View} from './view.ts'

/** What people may call a page or a query: a plain name of a file. */
const NAME = /^[\w-]{1,100}$/

/** The names of the files with an ending in a folder, which need not exist, in order. */
function listNamed(folder: string, ending: '.md' | '.sql'): string[] {
  if (!existsSync(folder)) return []
  return readdirSync(folder)
    .filter((file) => file.endsWith(ending))
    .map((file) => file.slice(0, -ending.length))
    .filter((name) => NAME.test(name))
    .sort()
}

/** The names of the queries that were saved: `queries/*.sql` in the data folder. */
const listSavedQueries = ({queries}: DataFolder) => listNamed(queries, '.sql')

/** The text of a saved query; undefined of none. */
function readSavedQuery(folder: DataFolder, name: string): string | undefined {
  if (!listSavedQueries(folder).includes(name)) return undefined
  return readWritten(join(folder.queries, `${name}.sql`)).toString()
}

/**
 * Adds `POST /sql/queries`: saves the query `q` of a form as `name`. One of this name stays as it is, and the page asks whether
 * to replace it; the form then says so with `replace`, the name once more.
 */
export function addSavedQueries(server: FastifyInstance, folder: DataFolder): void {
  addFormRoutes(server, (scope) => {
    scope.post('/sql/queries', async (request, reply) => {
      const {body} = request
      const form = body instanceof URLSearchParams ? body : new URLSearchParams()
      const name = form.get('name') ?? ''
      const sql = (form.get('q') ?? '').replaceAll('\r\n', '\n').trim()
      if (!NAME.test(name) || sql === '')
        return await refuse(request, reply, 400, {
          title: 'Not saved',
          problem: 'Not saved: expected a query, and a name of letters, digits, _ and -.',
        })
      const filter = parseFilter(form)
      const file = join(folder.queries, `${name}.sql`)
      if (existsSync(file) && form.get('replace') !== name)
        return await reply.redirect(addressOf('/sql', filter, {q: [sql], taken: [name]}), 303)
      mkdirSync(folder.queries, {recursive: true})
      writeFileAtomically(file, `${sql}\n`)
      return await reply.redirect(addressOf('/sql', filter, {saved: [name]}), 303)
    })
  })
}

/** Rows of a block that are shown. */
const MOST_ROWS_OF_OWN_PAGE = 1000

/** The pages in `pages/` of the folder of own models, by name. */
const listOwnPages = (sqlDir: string | undefined) =>
  sqlDir === undefined ? [] : listNamed(join(sqlDir, 'pages'), '.md')

/** `/pages`: the pages people wrote. */
export function viewOwnPages(sqlDir: string | undefined, {filter}: View): Page {
  const names = listOwnPages(sqlDir)
  const body =
    names.length === 0
      ? html`<p class="empty">There are none: a file <code>pages/&lt;name&gt;.md</code> in LOANTAPE_SQL_DIR is one; docs/workbench.md shows an example.</p>`
      : html`<ul>${names.map((name) => html`<li><a href="${addressOf(`/pages/${name}`, filter)}">${name.replaceAll('_', ' ')}</a></li>`)}</ul>`
  return {title: 'Pages', body}
}

/** `/pages/<name>`: Markdown in which a block of SQL stands for its rows; undefined of no page. */
export async function viewOwnPage(
  sqlDir: string | undefined,
  name: string,
  view: AskingView,
): Promise<Page | undefined> {
  if (!listOwnPages(sqlDir).includes(name)) return undefined
  const marked = new Marked()
  const tokens = marked.lexer(readWritten(join(sqlDir ?? '', 'pages', `${name}.md`)).toString())
  const heading = tokens.find(
    (token): token is Tokens.Heading => token.type === 'heading' && token.depth === 1,
  )
  const answers = new Map<unknown, Html>()
  for (const token of tokens) {
    if (token.type !== 'code') continue
    const [language = '', shape = 'table'] = (token.lang ?? '').split(/\s+/)
    if (language === 'sql') answers.set(token, await answerBlock(token.text, shape, view))
  }
  marked.use({
    renderer: {
      code: (token) => (answers.get(token) ?? html`<pre tabindex="0">${token.text}</pre>`).html,
      // The page's own heading stands above it; markup of theirs is only text.
      heading: (token) => (token === heading ? '' : false),
      html: ({text}) => html`${text}`.html,
      image: ({text}) => html`${text}`.html,
      link: ({href, text}) =>
        (/^(https?:|mailto:|[/#?])/.test(href) ? html`<a href="${href}">${text}</a>` : html`${text}`).html,
    },
  })
  return {title: heading?.text ?? name.replaceAll('_', ' '), body: markup(marked.parser(tokens))}
}

async function answerBlock(sql: string, asked: string, {reader, filter}: AskingView): Promise<Html> {
  const shape = SHAPES.find((one) => one === asked)
  if (!shape)
    return html`<p class="notice failed">Block '${asked}': expected one of ${SHAPES.join(', ')}.</p>`
  try {
    const rows = await reader.ask({sql, condition: filter.condition, most: MOST_ROWS_OF_OWN_PAGE})
    if (shape === 'table') return renderMeant(rows, addressOfDeal)
    if (shape !== 'number') return renderShape(rows, shape)
    const [first] = rows.rows
    return figures(
      rows.columns.map((column, index) => ({
        name: words(column.name),
        value: formatValue(column, first?.[index]),
        note: '',
      })),
    )
  } catch (error) {
    return html`<pre class="failed" tabindex="0">${explainError(error).message}</pre>`
  }
}

/** Rows that are shown; a download has all. */
const MOST = 500

/**
 * `/sql`: a SELECT over the tables of the deals that the filter means, given as `q` or by the name it was `saved` under, and its
 * rows as table, figures or chart; undefined of a name that nothing is saved under.
 *
 * @param mayRun whether a text in the address is run: one that another site or a message led to is only shown
 */
export async function viewSql(
  view: AskingView,
  {folder, mayRun}: {folder: DataFolder; mayRun: boolean},
): Promise<Page | undefined> {
  const {reader, filter, query} = view
  const saved = query.get('saved')
  const given = query.get('q') ?? (saved === null ? '' : readSavedQuery(folder, saved))
  if (given === undefined) return undefined
  const shape = SHAPES.find((one) => one === query.get('as')) ?? 'table'
  const names = listSavedQueries(folder)
  const sql = given.trim()
  const isOnlyShown = !mayRun && query.has('q')
  const answer =
    sql === '' || isOnlyShown
      ? undefined
      : await reader
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
<p class="downloads">${isCut ? `The first ${count(MOST)} rows.` : `${count(shown.rows.length)} ${shown.rows.length === 1 ? 'row' : 'rows'}.`} Download all: ${FORMATS.map((format) => html`<a href="${addressOf(`/data/query.${format}`, filter, {q: [sql]})}">${format.toUpperCase()}</a> `)}</p>
${renderSaving(view, sql)}
${renderShape(shown, shape)}`,
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
  {tables, filter, mayRead}: View,
  text: string,
  {shape, failure}: {shape: string; failure: string | undefined},
): Promise<Html> {
  const columnsOf = Object.fromEntries([...(await readTables(tables))].filter(([name]) => mayRead(name)))
  const [, line] = /^LINE (\d+): /m.exec(failure ?? '') ?? []
  return html`<form class="sql" action="/sql">
${hiddenFields(filter)}
<label for="q" class="muted small">One SELECT; tables are named core.deal, mart.portfolio_summary, … <a href="/tables">All tables</a></label>
<textarea id="q" name="q" rows="8" spellcheck="false" data-tables="${JSON.stringify(columnsOf)}"${line !== undefined && html` data-failed-line="${line}"`}>${text}</textarea>
<p><button>Run</button> <label>Show as <select name="as">${SHAPES.map((one) => html`<option${one === shape && html` selected`}>${one}</option>`)}</select></label></p>
</form>
<script src="/assets/sql-editor.js" type="module"></script>`
}
