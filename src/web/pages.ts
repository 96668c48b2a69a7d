import {Marked, type Token, type Tokens} from 'marked'
import {listStanding} from '../accounting/notes.ts'
import {dateOfWallTime, wallTimeOf} from '../core/clock.ts'
import {explainError} from '../core/errors.ts'
import {shorten} from '../core/text.ts'
import {QUOTED, quoteName, trimStatement} from '../store/database.ts'
import {readSqlFile} from '../store/sql.ts'
import type {StateDb} from '../store/state-db.ts'
import {DRAWN, parseAsked, readOptions, renderAction, renderBlock, underHeading} from './blocks.ts'
import {type Block, isDollars, isNumeric, objectsOf, renderMeant, withDays} from './cells.ts'
import {type DayNote, dayNote, isOfTime} from './chart.ts'
import {listParams, renderDownloads} from './downloads.ts'
import {count, linked, pageOf} from './figures.ts'
import {
  addressOf,
  addressOfPart,
  ofAllDeals,
  parseAddress,
  parseFilter,
  renderFields,
  without,
} from './filter.ts'
import {Html, html} from './html.ts'
import {
  findHeading,
  isForAll,
  listOwn,
  listPages,
  listShipped,
  NAME,
  nameOf,
  OF_STATE,
  type PageText,
  readPage,
  wordProblem,
} from './page-files.ts'
import {queriesOf} from './reader.ts'
import type {AskingView, Page, View} from './view.ts'

export function viewPages(view: AskingView): Page {
  const own = listOwn(view)
  const shipped = listShipped(view.pageDirs)
  const leadTo = (page: PageText) =>
    linked(nameOf(page), page.name.includes('/') ? undefined : addressOf(`/pages/${page.name}`, view.filter))
  const body = html`${
    own.length === 0
      ? html`<p class="empty">There is none yet: <code>loantape pages new</code> begins one, and a query on <a href="/sql">SQL</a> can become one.</p>`
      : html`<ul>${own.map((page) => html`<li>${leadTo(page)}</li>`)}</ul>`
  }
${view.mayAct && html`<form action="/edit"><label>Name <input name="name" required pattern="[\\w\\-]{1,100}" title="Letters, digits, _ and -"></label> <button>Begin a page</button></form>`}
<details>
<summary>${count(shipped.length)} pages that come with loantape</summary>
<p class="muted small">A file of yours of the same name takes the place of one, except in <code>${OF_STATE}</code>: those read the state database.</p>
${shipped.map((page) => html`<div class="ask">${!page.name.includes('/') && leadTo(page)}<details><summary>pages/${page.name}.md</summary><pre tabindex="0">${readSqlFile(page.path)}</pre></details></div>`)}
</details>`
  return {title: 'Pages', body}
}

/** Values of `$name` in SQL: text, or anything else as JSON; missing ones are null. */
export type Params = Readonly<Record<string, unknown>>

export const textsOf = (params: Params) =>
  Object.fromEntries(
    Object.entries(params)
      .filter(([, value]) => value !== undefined && value !== null)
      .map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  )

/** Parameters that only the program gives to shipped pages, never the address. */
const TOLD = [
  ...['bases', 'base', 'totals', 'moved', 'notes'],
  ...['running', 'next', 'alarms', 'not_issued', 'checks'],
]

/** Most rows of a table and of a mail, and most places of a chart. */
const MOST_ROWS = 1000
const MOST_OF_MAIL = 50
const MOST_PLACES = 50_000

/** Without a release, a page reads the state database. */
type Shown = Pick<View, 'ask' | 'filter' | 'query' | 'pageDirs' | 'mayOpen' | 'isFile' | 'isMail'> &
  Partial<Pick<AskingView, 'release' | 'askAsPerson' | 'mayAct' | 'mayRead'>> & {
    stateDb?: Pick<StateDb, 'all'>
  }

interface Given {
  isAmongOwn?: boolean
  params?: Params
  text?: string
  within?: readonly string[]
}

/**
 * Undefined if there is no such page, if the caller may not see it, or if its title has no rows. Own pages are asked as people's
 * questions; shipped pages are trusted, unless shown among own pages.
 * @param given `params` of its SQL override those of the address; `text` replaces the file; `within` names the pages that hold it
 */
export async function viewPage(
  name: string,
  view: Shown,
  {isAmongOwn = false, params = {}, text, within = []}: Given = {},
): Promise<Page | undefined> {
  const file = listPages(view.pageDirs).find((one) => one.name === name)
  if (!file && text === undefined) return undefined
  const page = readPage({name, path: file?.path ?? ''}, text)
  const {askAsPerson: ask, filter, mayAct} = view
  // Others see the shipped page of that name.
  if (mayAct === false && !isForAll(page))
    return file?.isOwn ? await viewPage(name, {...view, pageDirs: []}, {params}) : undefined
  const isTold = (key: string) => Object.hasOwn(params, key) || (!file?.isOwn && TOLD.includes(key))
  const hasFields = file?.isOwn && text === undefined && within.length === 0 && NAME.test(name)
  // An empty field is null, as on the page of SQL.
  const asked = [...view.query].filter(([key, value]) => !isTold(key) && !(hasFields && value === ''))
  const given = {...Object.fromEntries(asked), ...textsOf(params)}
  const around = {params: given, within: [...within, name]}
  if (!ask || (!file?.isOwn && !isAmongOwn)) return await renderPageText(page, view, around)
  const shown = await renderPageText(page, {...view, ask}, {...around, isAmongOwn: true})
  if (!shown || !hasFields) return shown
  const isAsked = (key: string) => !isTold(key) && !TOLD.includes(key)
  const fields = shown.fields?.flatMap((key) => (isAsked(key) ? [[key] as const] : [])) ?? []
  const edit = html`<p class="small"><a href="${addressOf('/edit', filter, {name})}">Edit this page</a></p>`
  return {...shown, body: html`${renderFields(view.query, fields)}\n${shown.body}\n${mayAct && edit}`}
}

/** Renders a shipped page over the state database. */
export async function viewState(
  name: string,
  {
    stateDb,
    params,
    mayAct = false,
    timeZone = 'UTC',
  }: {stateDb: StateDb | Pick<StateDb, 'db'>; params: Params; mayAct?: boolean; timeZone?: string},
): Promise<Page | undefined> {
  const {db} = stateDb
  const query = new URLSearchParams()
  const given = textsOf(params)
  db.function('local_day', (at) => dateOfWallTime(wallTimeOf(Date.parse(String(at)), timeZone)))
  const ask: View['ask'] = async ({sql}) => {
    const statement = db.prepare(sql)
    statement.setAllowUnknownNamedParameters(true)
    const rows = statement.all(given).map((row) => Object.values(row))
    // SQLite gives no type for an expression.
    const typeOf = (index: number) => {
      const isAll = (is: (value: unknown) => boolean) =>
        rows.length > 0 && rows.every((row) => is(row[index]))
      if (isAll(Number.isInteger)) return 'BIGINT'
      return isAll((value) => typeof value === 'number') ? 'DOUBLE' : ''
    }
    const columns = statement.columns().map(({name, type}, index) => ({name, type: type ?? typeOf(index)}))
    return {columns, rows}
  }
  const view = {filter: parseFilter(query), query, pageDirs: [], ask, mayAct}
  return await viewPage(name, {...view, ...('all' in stateDb && {stateDb})})
}

export function findLacking(
  needs: readonly string[],
  {release, mayRead}: Pick<Shown, 'release' | 'mayRead'>,
) {
  const {release_id, tables} = release?.manifest ?? {}
  const lacking = needs.find((name) => tables?.every((table) => table.name !== name))
  if (lacking !== undefined) return `Release '${release_id}' has no table '${lacking}', which is needed here.`
  const hidden = needs.find((name) => mayRead?.(name) === false)
  return hidden && `Table '${hidden}', which is needed here, is not for viewers.`
}

async function renderPageText(
  page: PageText,
  view: Shown,
  {params, isAmongOwn = false, within}: Given & {params: Record<string, string>; within: readonly string[]},
): Promise<Page | undefined> {
  const {name, about} = page
  const shown = {title: nameOf(page), problems: [...page.problems], rows: {} as Record<string, number>}
  const failed = (problem: string) => html`<pre class="failed" tabindex="0">${problem}</pre>`
  if (page.problems.length > 0) return {...shown, body: html`${page.problems.map(failed)}`}
  const lacking = findLacking(about.needs, view)
  if (lacking !== undefined) {
    shown.problems.push(wordProblem(name, 1, lacking))
    return {...shown, body: html`<p class="notice">${lacking}</p>`}
  }
  const marked = new Marked()
  const tokens = marked.lexer(page.markdown)
  const heading = findHeading(tokens)
  const answers = new Map<Token, Html>()
  const [fields, offered] = [new Set<string>(), new Set<string>()]
  let {line} = page
  const tell = (problem: string, at = 0) => {
    const words = wordProblem(name, line + at, problem)
    shown.problems.push(words)
    return failed(words)
  }
  /** Shipped pages within own pages do not get the program's parameters. */
  const hold = async (part: string, asked: string) => {
    if (within.includes(part)) return tell(`Page '${part}' holds itself.`)
    const {empty, ...own} = readOptions(asked)
    const held = await viewPage(part, view, {
      isAmongOwn,
      within,
      params: isAmongOwn ? own : {...params, ...own},
    })
    if (!held) return tell(`There is no page '${part}', or it has nothing to show.`)
    shown.problems.push(...(held.problems ?? []))
    for (const [name, rows] of Object.entries(held.rows ?? {}))
      shown.rows[name] = (shown.rows[name] ?? 0) + rows
    const isEmpty = held.body.html.replaceAll(/<[^>]*>/g, '').trim() === ''
    // Within an own page it knows too little to say so.
    return isEmpty && empty !== undefined && !isAmongOwn ? html`<p class="passed">${empty}</p>` : held.body
  }
  /** Also within lists and quotations. False if the page has nothing to show. */
  const answerAll = async (some: readonly Token[]): Promise<boolean> => {
    for (const token of some) {
      const next = line + token.raw.split('\n').length - 1
      const {type, lang = '', items, tokens: inner = items ?? []} = token as Tokens.Generic
      const [, part, asked = ''] = (type === 'code' && /^page\s+(\S+)(.*)$/.exec(lang)) || []
      if (part !== undefined) answers.set(token, await hold(part, asked))
      if (type === 'code' && /^sql\b/i.test(lang)) {
        const named = listParams((token as Tokens.Code).text)
        for (const param of named) (/^sql\s+choices\b/i.test(lang) ? offered : fields).add(param)
        const answer = await answerBlock(token as Tokens.Code, {params, tell, shown}, view)
        if (answer === undefined) return false
        answers.set(token, answer)
      }
      if (!(await answerAll(inner))) return false
      line = next
    }
    return true
  }
  if (!(await answerAll(tokens))) return undefined
  const linkTo = linkOf(view)
  marked.use({
    renderer: {
      code: (token) => (answers.get(token) ?? html`<pre tabindex="0">${token.text}</pre>`).html,
      heading(token) {
        if (token === heading) return ''
        const id = token.text
          .toLowerCase()
          .replaceAll(/[^\w\s-]/g, '')
          .replaceAll(/\s+/g, '-')
        return `<h${token.depth} id="${id}">${this.parser.parseInline(token.tokens)}</h${token.depth}>\n`
      },
      html: ({text}) => html`${text}`.html,
      image: ({text}) => html`${text}`.html,
      link({href, text}) {
        const address = /^(https?:|mailto:|[#?])/.test(href) ? href : linkTo(href)
        return (address === undefined ? html`${text}` : html`<a href="${address}">${text}</a>`).html
      },
    },
  })
  const body = html`<div class="written">${new Html(marked.parser(tokens))}</div>`
  return {...shown, body, fields: [...fields].filter((param) => !offered.has(param))}
}

/** Keeps the filter; narrows `part` in the address to what it allows. Undefined if the viewer may not open the page. */
export const linkOf = (view: Pick<View, 'filter' | 'mayOpen'>) => (address: string) => {
  const url = parseAddress(address)
  if (!url) return undefined
  const {pathname, searchParams, hash} = url
  if (view.mayOpen?.(pathname) === false) return undefined
  // Runs belong to no release.
  if (/^\/runs(\/|$)/.test(pathname)) return address
  // A deal outside the filter has a page, too.
  const filter = pathname.startsWith('/deals/') ? ofAllDeals(view.filter) : view.filter
  const part = searchParams.get('part')
  return part !== null && pathname === '/deals'
    ? addressOfPart(filter, part, searchParams)
    : `${addressOf(pathname, filter, searchParams)}${hash}`
}

/** Undefined for a title without rows. `tell` reports a problem at a line of the block; `shown` is the page. */
async function answerBlock(
  {text, lang = ''}: Tokens.Code,
  given: {
    params: Record<string, string>
    tell: (problem: string, at?: number) => Html
    shown: {title: string; rows: Record<string, number>}
  },
  view: Shown,
): Promise<Html | undefined> {
  const {params, tell, shown: page} = given
  const asked = parseAsked(lang.replace(/^sql\s*/i, ''))
  if (typeof asked === 'string') return tell(asked)
  const {shape, options} = asked
  const {ask, filter, query, mayAct, isMail = false} = view
  const {needs, name} = options
  const note = (rows: number) => {
    if (name !== undefined) page.rows[name] = (page.rows[name] ?? 0) + rows
  }
  note(0)
  if (needs !== undefined && findLacking([needs], view) !== undefined) return html``
  const isCounted = !['matrix', 'bar', 'waterfall', 'map'].includes(shape)
  const most = isOfTime(shape) ? MOST_PLACES : isMail && isCounted ? MOST_OF_MAIL : MOST_ROWS
  const isWhole = options.deals === 'all'
  const isOwn = ask === view.askAsPerson
  const read = async (sql: string) => {
    const block = await ask({sql, params, isWhole, most: most + 1})
    return isOwn ? withDays(block) : block
  }
  try {
    const downloads = (sql: string, block: Block) =>
      block.rows.length > 0 && renderDownloads({sql, params, isWhole}, block, view)
    if (shape === 'deals')
      return (await renderListed(text, read, view, {options, note, downloads})) ?? tell(NO_LIST)
    const {columns, rows} = await read(text)
    note(rows.length)
    if (shape === 'pages') return html`${renderPages(query, Number(rows[0]?.[0]), Number(rows[0]?.[1]))}`
    if (shape === 'actions') return html`${mayAct && objectsOf({columns, rows}).map(renderAction)}`
    if (shape === 'title') {
      if (!rows[0]) return undefined
      page.title = shorten(String(rows[0][0]))
      return html``
    }
    const linkTo = linkOf(isWhole ? {...view, filter: ofAllDeals(filter)} : view)
    const notes = isOfTime(shape) ? await listDayNotes(view) : []
    const around = {linkTo, options, notes, tell, ...(isMail && {mostOfMail: MOST_OF_MAIL})}
    const block = {columns, rows: rows.slice(0, most)}
    const shown = renderBlock(block, shape, around)
    return html`${shown}${isOwn && DOWNLOADED.includes(shape) && downloads(text, block)}${options.range !== undefined && !view.isFile && renderRange(query, options.range, rows.length > 1)}${rows.length > most && html`<p class="muted small">The first ${count(most)} rows${isMail && '; the page has more'}.</p>`}`
  } catch (error) {
    const {problem} = explainError(error)
    const {as_of} = view.release?.manifest ?? {}
    const hint =
      as_of !== undefined &&
      /Table with name/.test(problem) &&
      `\n\nThe release of ${as_of} has no such table. Once a model or seed makes it, \`loantape build --as-of ${as_of}\` brings it there; \`needs=\` leaves the block out without it.`
    return tell(`${problem}${hint || ''}`, Number(/^LINE (\d+): /m.exec(problem)?.[1] ?? 0))
  }
}

const DOWNLOADED: readonly string[] = ['table', 'matrix', 'map', 'limits', ...DRAWN]

const DAY_NOTES = {
  'mart.run': `select cast(business_date as varchar) as subject,
      concat_ws(': ', 'Accepted ' || accepted, accepted_why) as text, accepted_by as who
    from mart.run where stream = 'deal' and accepted is not null`,
  'core.note': `select cast(day as varchar) as subject, note as text, written_by as who
    from core.note where about = 'day' and ended_at is null`,
}

/** Notes come from the state database if there is one, otherwise from the release; also why guards were overruled. */
async function listDayNotes(view: Shown): Promise<DayNote[]> {
  const {stateDb, release, ask} = view
  const mayRead = view.mayRead?.('core.note') !== false
  const noted: DayNote[] = stateDb && mayRead ? listStanding(stateDb, 'day') : []
  if (release)
    for (const [table, sql] of Object.entries(DAY_NOTES))
      if (findLacking([table], view) === undefined && !(stateDb && table === 'core.note'))
        noted.push(...(await queriesOf((asked) => ask({...asked, isWhole: true})).all(dayNote, sql)))
  // Those of later days would stand in the last month of an earlier release.
  return noted
    .filter(({subject}) => !release || subject <= release.manifest.as_of)
    .sort((a, b) => (a.subject < b.subject ? -1 : 1))
}

/** Leads to the first page of a list. */
function addressWith(query: URLSearchParams, name: string, value: string): string {
  const changed = without(query, [])
  changed.set(name, value)
  return `?${changed}`
}

/** Dragging over a chart does the same. */
function renderRange(query: URLSearchParams, name: string, isWorthIt: boolean): Html | false {
  const [from, to] = [`${name}_from`, `${name}_to`] as const
  const isChosen = Boolean(query.get(from) || query.get(to))
  const fields = [
    [from, 'Days from', 'date'],
    [to, 'to', 'date'],
  ] as const
  const all = isChosen && html` <a href="?${String(without(query, [from, to]))}">All days</a>`
  return (isWorthIt || isChosen) && html`${renderFields(query, fields)}${all}`
}

/** A list may have become shorter since somebody saw its last page. */
function placeIn(query: URLSearchParams, rows: number, perPage: number) {
  const all = Math.max(1, Math.ceil(rows / perPage))
  return {page: Math.min(pageOf(query), all), all}
}

function renderPages(query: URLSearchParams, rows: number, perPage: number): Html | false {
  const {page, all} = placeIn(query, rows, perPage)
  const addressOfPage = (other: number) => addressWith(query, 'page', String(other))
  if (all === 1) return false
  return html`<nav class="pages" aria-label="Of the list">
${page > 1 && html`<a rel="prev" href="${addressOfPage(page - 1)}">← before</a>`}
<span class="muted">page ${count(page)} of ${count(all)}</span>
${page < all && html`<a rel="next" href="${addressOfPage(page + 1)}">next →</a>`}
</nav>`
}

const PLACE = 'place as written'

/** Looks outside texts, comments and parentheses. */
function isOrdered(sql: string): boolean {
  let text = sql.replaceAll(new RegExp(QUOTED, 'gis'), '')
  while (/\([^()]*\)/.test(text)) text = text.replaceAll(/\([^()]*\)/g, '')
  return /\border\s+by\b/i.test(text)
}

const PER_PAGE = 50

const NO_LIST = 'A list of deals needs a column deal_id and an amount.'

/**
 * Renders a paged list of the rows of a statement with `deal_id`, an amount and, if a deal has several rows, a `day`; above it
 * the number of deals and their sum. The order is that of the address, else of the statement, else by amount. Addresses of
 * properties are added for those who may read them. Undefined if a column is missing.
 */
async function renderListed(
  sql: string,
  read: (sql: string) => Promise<Block>,
  view: Shown,
  {
    options,
    note,
    downloads,
  }: {
    options: Readonly<Record<string, string>>
    note: (rows: number) => void
    downloads: (sql: string, block: Block) => Html | false
  },
): Promise<Html | undefined> {
  const {query, isFile, isMail} = view
  const perPage = isMail ? MOST_OF_MAIL : isFile ? MOST_ROWS : PER_PAGE
  // Nothing stands above the statement, so that line numbers in errors are right.
  const own = `(${trimStatement(sql)}\n)`
  const {columns} = await read(`from ${own} limit 0`)
  const has = (name: string) => columns.some((column) => column.name === name)
  const named = columns.find((column) => column.name === 'amount' && isNumeric(column))
  const amount = (columns.find(isDollars) ?? named)?.name
  if (!has('deal_id') || amount === undefined) return undefined
  const total = await read(
    `select count(*), counted(count(distinct deal_id), 'deal') || ', ' || usd(coalesce(sum(${quoteName(amount)}), 0)) from ${own}`,
  )
  const [rows, sum] = total.rows[0] ?? []
  note(Number(rows))
  const {empty = 'There are none.'} = options
  if (Number(rows) === 0 && empty === '') return html``
  // A file has one page.
  const page = isFile ? 1 : placeIn(query, Number(rows), perPage).page
  const [, sign, sorted = ''] = /^(-?)(.*)$/s.exec(query.get('sort') ?? '') ?? []
  const [addresses] = ['core.deal_history where valid_to is null', 'core.deal'].filter(
    (from) => findLacking([from.split(' ')[0] ?? ''], view) === undefined,
  )
  const hasAddress = has('property_address') || addresses !== undefined
  const sort =
    has(sorted) || (hasAddress && sorted === 'property_address')
      ? {name: sorted, key: quoteName(sorted), isDown: sign === '-'}
      : isOrdered(sql)
        ? {name: PLACE, key: quoteName(PLACE), isDown: false}
        : {name: amount, key: `abs(${quoteName(amount)})`, isDown: true}
  const placed = `(select *, row_number() over () as ${quoteName(PLACE)} from ${own})`
  const beside =
    has('property_address') || addresses === undefined
      ? placed
      : `(select listed.*, property_address from ${placed} as listed
          left join (select deal_id, property_address from ${addresses}) as deal on deal.deal_id = listed.deal_id)`
  const order = `order by ${sort.key} ${sort.isDown ? 'desc' : 'asc'} nulls last, deal_id ${has('day') ? ', day' : ''}`
  const listed = await read(
    `select * exclude (${quoteName(PLACE)}) ${hasAddress ? 'replace (brief(property_address) as property_address)' : ''}
     from (
       from ${beside}
       ${order}
       limit ${perPage} offset ${(page - 1) * perPage}
     )`,
  )
  const titleOf = (title: string, {name}: {name: string}) => {
    const isSorted = name === sort.name
    const arrow = isSorted ? (sort.isDown ? ' ↓' : ' ↑') : ''
    return linked(
      `${title}${arrow}`,
      addressWith(query, 'sort', isSorted && !sort.isDown ? `-${name}` : name),
    )
  }
  const shown = html`<p class="muted" id="total">${String(sum)}</p>
${listed.rows.length === 0 ? html`<p class="empty">${empty}</p>` : renderMeant(listed, linkOf(view), titleOf)}
${isFile ? Number(rows) > perPage && html`<p class="muted small">The first ${count(perPage)} of ${count(Number(rows))}${isMail && '; the page has more'}.</p>` : renderPages(query, Number(rows), perPage)}`
  const whole = `select * exclude (${quoteName(PLACE)}) from ${beside} ${order}`
  return underHeading(html`${shown}${downloads(whole, listed)}`, options, listed.rows.length === 0)
}
