import {existsSync, mkdirSync, rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import type {FastifyInstance} from 'fastify'
import {z} from 'zod'
import {explainError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {shorten} from '../core/text.ts'
import type {World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {quoteName, trimStatement} from '../store/database.ts'
import {isFile, readWritten, writeFileAtomically} from '../store/files.ts'
import {readQuery, readTables} from '../store/sql.ts'
import {noteDone} from './actions.ts'
import {DRAWN, renderBlock, type Shape, shapeNamed} from './blocks.ts'
import {type Block, isNumeric, renderExact, withDays} from './cells.ts'
import {fillIn, listParams} from './downloads.ts'
import {instant, LONGEST_ADDRESS, linked} from './figures.ts'
import {
  addressOf,
  CLOCKS,
  type Filter,
  findFault,
  hidden,
  parseFilter,
  renderRemoval,
  without,
} from './filter.ts'
import {type Html, html} from './html.ts'
import {formOf, refuse} from './http-server.ts'
import {A_NAME, listNamed, NAME} from './page-files.ts'
import {linkOf} from './pages.ts'
import {queriesOf} from './reader.ts'
import {FORMATS} from './tables.ts'
import type {AskingView, Page, View, WebTools} from './view.ts'

/** Shown; a download has all. */
const MOST = 500
const MOST_CELLS = 5_000

const MEASURES = ['sum', 'count', 'avg', 'min', 'max']

/** Recent queries of each person, and in total. */
const KEPT = {each: 30, all: 3_000}

/** Drops the oldest. Returns why, if the query cannot be kept. */
function keepQuery({stateDb, person, overview}: AskingView, sql: string): string | undefined {
  const keep = () => {
    stateDb.run(`delete from page_action where command = 'sql' and who = ? and words = ?`, [person, sql])
    noteDone(stateDb, {who: person, command: 'sql', words: sql}, overview.now)
    stateDb.run(readQuery('forget_queries'), [KEPT.each, KEPT.all])
  }
  try {
    // No waiting for another writer: it would block all answers.
    stateDb.transaction(keep, 0)
  } catch (error) {
    return explainError(error).problem
  }
}

function renderKept({stateDb, person, filter}: AskingView): Html | false {
  const select = `select began_at, words from page_action where command = 'sql' and who = ? order by action_id desc`
  const kept = stateDb.all(z.object({began_at: z.string(), words: z.string()}), select, [person])
  return (
    kept.length > 0 &&
    html`<details><summary>Your last queries</summary><ul>${kept.map(({began_at, words}) => html`<li>${linked(shorten(words.replaceAll(/\s+/g, ' ')), addressOf('/sql', filter, {q: words}))} <span class="muted small">${instant(began_at)}</span></li>`)}</ul></details>`
  )
}

/** Values of parameters, as the fields below a query send them. An empty one is null. */
const listGiven = (query: URLSearchParams) =>
  [...query].filter(([name, value]) => name.startsWith('$') && value !== '')
export const paramsOf = (query: URLSearchParams) =>
  Object.fromEntries(listGiven(query).map(([name, value]) => [name.slice(1), value]))

type Columns = Block['columns']

function readPivot(query: URLSearchParams) {
  const [rows, columns, of] = ['rows', 'columns', 'of'].map((name) => query.get(name))
  const by = MEASURES.find((name) => name === query.get('by')) ?? 'sum'
  return rows && columns && of ? {rows, columns, of, by} : undefined
}
type Pivot = NonNullable<ReturnType<typeof readPivot>>

const namesOf = ({rows, columns, of, by}: Pivot) => [rows, columns, by === 'count' ? 'count' : of, 'is_total']

/** A row for each cell, for a matrix with totals. Column totals come first, so that they name every column in order. */
function writePivot(sql: string, pivot: Pivot, known: Columns, hasTotals: boolean): string {
  const {rows, columns, of, by} = pivot
  const [, places] = /^DECIMAL\(\d+,(\d+)\)$/.exec(known.find(({name}) => name === of)?.type ?? '') ?? []
  const whole = `${by}(asked.value)`
  const measure = by === 'avg' && places !== undefined ? `cast(${whole} as decimal(38, ${places}))` : whole
  const [row, column, value] = [rows, columns, of].map((name) => `given.${quoteName(name)}`)
  const cells = ['asked.row', 'asked.col', measure, 'grouping(asked.row, asked.col)']
  const names = namesOf(pivot).slice(0, hasTotals ? 4 : 3)
  const named = names.map((name, index) => `${cells[index]} as ${quoteName(name)}`)
  return `select ${named.join(', ')}
from (select ${row} as row, ${column} as col, ${value} as value from (
${sql}
) as given) as asked
group by ${hasTotals ? 'cube' : ''} (asked.row, asked.col)
order by grouping(asked.row) desc, asked.row, grouping(asked.col), asked.col`
}

/** Returns the columns of the query, and rows with their SQL, or the error. */
async function askSql({askAsPerson, query}: AskingView, sql: string, pivot: Pivot | undefined) {
  const ask = async (text: string, most: number) => {
    const {columns, rows} = await askAsPerson({sql: text, params: paramsOf(query), most: most + 1})
    return {sql: text, download: text, columns, rows: rows.slice(0, most), isCut: rows.length > most}
  }
  const bare = trimStatement(sql)
  let columns: Columns = []
  try {
    const asked = await ask(pivot ? `describe (${bare}\n)` : sql, MOST)
    if (!pivot) return {columns: asked.columns, answer: asked, failure: undefined}
    columns = asked.rows.map(([name, type]) => ({name: String(name), type: String(type)}))
    const cells = await ask(writePivot(bare, pivot, columns, true), MOST_CELLS)
    // The engine renames the second of two equal column names.
    const named = namesOf(pivot).map((name, index) => ({name, type: cells.columns[index]?.type ?? ''}))
    const download = writePivot(bare, pivot, columns, false)
    return {columns, answer: {...cells, columns: named, asNamed: 3, download}, failure: undefined}
  } catch (error) {
    return {columns, answer: undefined, failure: explainError(error).message}
  }
}

function renderPivot({filter, query}: AskingView, sql: string, columns: Columns, pivot?: Pivot): Html {
  const choose = (label: string, name: keyof Pivot, names: readonly string[], usual: string | undefined) =>
    html`<label>${label} <select name="${name}">${names.map((one) => html`<option${one === (pivot?.[name] ?? usual) && html` selected`}>${one}</option>`)}</select></label> `
  const names = columns.map(({name}) => name)
  const usual = columns.findLast(isNumeric)?.name
  return html`<details${pivot && html` open`}><summary>Pivot</summary><form class="sql" action="/sql" autocomplete="off">
${hidden([...filter.values, ...listGiven(query)])}<input type="hidden" name="q" value="${sql}">
<p>${choose('Rows', 'rows', names, names[0])}${choose('columns', 'columns', names, names[1])}${choose('cells', 'by', MEASURES, 'sum')}${choose('of', 'of', names, usual)}<button>Pivot</button></p></form></details>\n`
}

/**
 * `/sql`: runs the SELECT in `q`, or the query `saved`, over the filtered tables. Undefined if no query is saved under that name.
 */
export async function viewSql(view: AskingView): Promise<Page | undefined> {
  const {filter, query, folder, mayAct, mayRun} = view
  const saved = query.get('saved')
  const sql = (query.get('q') ?? (saved === null ? '' : readSavedQuery(folder, saved)))?.trim()
  if (sql === undefined) return undefined
  const pivot = readPivot(query)
  const shape = shapeNamed(query.get('as'))
  const isOnlyShown = !mayRun && query.has('q')
  const isAsked = sql !== '' && !isOnlyShown
  const {columns = [], answer, failure} = (isAsked && (await askSql(view, sql, pivot))) || {}
  const notKept = isAsked && keepQuery(view, sql)
  const names = listNamed(folder.queries, '.sql')
  const as = pivot && shape === 'table' ? 'matrix' : shape
  const linkTo = linkOf(view)
  const body = html`${isOnlyShown && html`<p class="notice">This query came with an address from outside the workbench and has not been run. Read it, then press Run.</p>`}${names.length > 0 && html`<p class="choices">Saved: ${names.map((name) => html`<a href="${addressOf('/sql', filter, {saved: name})}"${name === saved && html` aria-current="page"`}>${name.replaceAll('_', ' ')}</a> `)}</p>`}${mayAct && saved !== null && renderRemoval('/sql/queries', saved, [...filter.values, ['path', '/sql']])}
${await renderForm(view, sql, {shape, failure: pivot ? undefined : failure, pivot: isOnlyShown && pivot})}${notKept && html`<p class="notice">The query is not kept: ${notKept}</p>`}
<div class="beside">${columns.length > 0 && renderPivot(view, sql, columns, pivot)}${answer && mayAct && renderSaving(view, answer.sql, as)}${renderKept(view)}</div>
${failure !== undefined && html`<pre class="failed" tabindex="0">${failure}</pre>`}${
  answer &&
  html`<p class="downloads">${answer.isCut && 'The first '}${quantity(answer.rows.length, pivot ? 'cell' : 'row')}. Download ${answer.download === answer.sql ? 'all' : 'the cells without totals'}: ${FORMATS.map((format) => html`<a href="${addressOf(`/data/query.${format}`, filter, {q: fillIn(answer.download, paramsOf(query))})}">${format.toUpperCase()}</a> `)}</p>
${as === 'table' ? renderExact(answer, linkTo) : renderBlock(withDays(answer), as, {linkTo, options: {}})}`
}`
  return {title: 'SQL', body}
}

/** As a query, and as a page. */
const renderSaving = ({filter, query}: AskingView, sql: string, as: Shape) =>
  html`<details><summary>Save this query</summary>
<form class="sql" method="post" action="/sql/queries">
${hidden([...filter.values, ...listGiven(query)])}<input type="hidden" name="q" value="${sql}"><input type="hidden" name="as" value="${as}">
<p><label>Name <input name="name" value="${query.get('saved')}" required pattern="[\\w\\-]{1,100}" title="Letters, digits, _ and -"></label> <button>Save</button></p>
<p>Or under this name as a page that shows it as ${as}: <label>Title <input name="title"></label> <button formaction="${addressOf('/edit', filter)}" name="do" value="save">Make this query a page</button></p>
</form></details>`

/** A script turns the text area into an editor that knows the tables. */
async function renderForm(
  {ask, filter, query, mayRead}: View,
  text: string,
  {shape, failure, pivot}: {shape: string; failure: string | undefined; pivot: Pivot | false | undefined},
): Promise<Html> {
  const tables = [...(await readTables(queriesOf(ask)))].filter(([name]) => mayRead(name))
  const columnsOf = Object.fromEntries(
    tables.map(([name, columns]) => [name, columns.map((one) => one.name)]),
  )
  const [, line] = /^LINE (\d+): /m.exec(failure ?? '') ?? []
  // `autocomplete=off`: after Back, the form shows what the address asks for, not what was typed.
  return html`<form class="sql" action="/sql" autocomplete="off">
${hidden(filter.values)}${hidden(Object.entries(pivot || {}))}
<label for="q" class="muted small">One SELECT; tables are named core.deal, mart.portfolio_summary, … <a href="/tables">All tables</a></label>
<textarea id="q" name="q" rows="8" spellcheck="false" data-tables="${JSON.stringify(columnsOf)}"${line !== undefined && html` data-failed-line="${line}"`}>${text}</textarea>
<p><button>Run</button> <label>Show as <select name="as">${[...new Set(['table', 'number', 'matrix', ...DRAWN, shape])].map((one) => html`<option${one === shape && html` selected`}>${one}</option>`)}</select></label>${[...listParams(text)].map((name) => html` <label>$${name} <input name="$${name}" value="${query.get(`$${name}`)}"></label>`)}</p>
</form>
<script src="/assets/sql-editor.js" type="module"></script>`
}

function readSavedQuery(folder: DataFolder, name: string): string | undefined {
  if (!listNamed(folder.queries, '.sql').includes(name)) return undefined
  return readWritten(join(folder.queries, `${name}.sql`)).toString()
}

/** Invalid files are left out. */
export const listSavedFilters = (folder: DataFolder): {name: string; filter: Filter}[] =>
  listNamed(folder.queries, '.filter').flatMap((name) => {
    const file = join(folder.queries, `${name}.filter`)
    if (!isFile(file) || statSync(file).size > LONGEST_ADDRESS) return []
    const filter = parseFilter(without(new URLSearchParams(readWritten(file).toString().trim()), CLOCKS))
    return filter.condition === undefined || findFault(filter) !== undefined ? [] : [{name, filter}]
  })

/** The page that the form was on. */
const findPage = (form: URLSearchParams, filter: Filter) => linkOf({filter})(form.get('path') ?? '/') ?? '/'

/** `read` returns what is saved, and the address of the page then, or says what is wrong; `show` leads to a text. */
const SAVED = {
  '/sql/queries': {
    what: 'query',
    ending: '.sql',
    read(form: URLSearchParams, filter: Filter) {
      const name = form.get('name') ?? ''
      const text = (form.get('q') ?? '').replaceAll('\r\n', '\n').trim()
      if (!NAME.test(name) || text === '') return `expected a query, and ${A_NAME}`
      const shown = {saved: name, as: shapeNamed(form.get('as')), ...Object.fromEntries(listGiven(form))}
      return {name, text, address: addressOf('/sql', filter, shown)}
    },
    show: (text: string) => `/sql?${new URLSearchParams({q: text})}`,
  },
  '/filters': {
    what: 'filter',
    ending: '.filter',
    read(form: URLSearchParams, filter: Filter) {
      // The form shows it with spaces again.
      const name = (form.get('save_as') ?? '').trim().replaceAll(/ +/g, '_')
      const fault = findFault(filter)
      if (fault !== undefined) return fault.problem.replace(/\.$/, '')
      if (!NAME.test(name) || filter.condition === undefined)
        return `expected a choice of deals, and ${A_NAME}`
      // A saved filter applies to whatever day is shown.
      const text = String(without(filter.values, CLOCKS))
      if (text.length >= LONGEST_ADDRESS) return 'expected fewer values'
      return {name, text, address: findPage(form, filter)}
    },
    show: (text: string) => `/deals?${text}`,
  },
} as const

/**
 * `POST /sql/queries` and `POST /filters` save a query or filter for everybody, as a file in `queries/`, or remove the one named
 * in `remove`. A taken name is refused. Who did what is recorded, with an address that shows the text.
 */
export function addSaved(
  server: FastifyInstance,
  {folder, stateDb}: Pick<WebTools, 'folder' | 'stateDb'>,
  {realClock}: Pick<World, 'realClock'>,
): void {
  for (const [path, {what, ending, read, show}] of Object.entries(SAVED))
    server.post(path, async (request, reply) => {
      const form = formOf(request)
      const fileOf = (name: string) => join(folder.queries, `${name}${ending}`)
      // Recorded only if it is done.
      const act = (deed: 'save' | 'remove', name: string, text: string, work: () => void) =>
        stateDb.transaction(() => {
          const {who} = request.caller
          const action = {who, command: `${deed} ${what} ${name}`, words: show(text.trim())}
          noteDone(stateDb, action, realClock.now())
          work()
        })
      const removed = form.get('remove')
      if (removed !== null) {
        if (!listNamed(folder.queries, ending).includes(removed))
          return await refuse(reply, 404, `Not removed: there is no ${what} '${removed}'.`)
        const file = fileOf(removed)
        act('remove', removed, readWritten(file).toString(), () => rmSync(file))
        return await reply.redirect(findPage(form, parseFilter(form)), 303)
      }
      const given = read(form, parseFilter(form))
      const notSaved = (status: number, why: string) => refuse(reply, status, `Not saved: ${why}.`)
      if (typeof given === 'string') return await notSaved(400, given)
      const file = fileOf(given.name)
      if (existsSync(file))
        return await notSaved(409, `there is a ${what} '${given.name}' already; take another name`)
      act('save', given.name, given.text, () => {
        mkdirSync(folder.queries, {recursive: true})
        writeFileAtomically(file, `${given.text}\n`)
      })
      return await reply.redirect(given.address, 303)
    })
}
