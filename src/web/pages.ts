import {basename, join} from 'node:path'
import {Marked, type Token, type Tokens} from 'marked'
import {explainError} from '../core/errors.ts'
import {shorten} from '../core/text.ts'
import {quoteName} from '../store/database.ts'
import {listFiles, readSqlFile} from '../store/sql.ts'
import type {StateDb} from '../store/state-db.ts'
import {
  type Block,
  isDollars,
  objectsOf,
  parseAsked,
  renderAction,
  renderBlock,
  renderMeant,
} from './blocks.ts'
import {capitalised, count, instant, linked, pageOf} from './figures.ts'
import {addressOf, addressOfPart, ofAllDeals, parseFilter} from './filter.ts'
import {type Html, html, markup} from './html.ts'
import type {AskingView, Page, View} from './view.ts'

/** What people may call a page or a query: a plain name of a file. */
export const NAME = /^[\w-]{1,100}$/

/** The names of the files with an ending in a folder, which need not exist, in order. */
export const listNamed = (folder: string, ending: '.md' | '.sql' | '.filter'): string[] =>
  listFiles(folder, ending)
    .map((file) => basename(file, ending))
    .filter((name) => NAME.test(name))
    .sort()

/** The pages that come with loantape; those of `parts/` and `behind/` are shown at other addresses. */
export const SHIPPED = join(import.meta.dirname, '../../pages')

/** A page: Markdown in which blocks of SQL stand for their rows. */
interface PageFile {
  name: string
  path: string
  /** In `pages/` of the folder of own models; it takes the place of a shipped one. */
  isOwn: boolean
}

const FOLDERS = ['', 'parts/', 'behind/']

/** Pages over the state database, which holds more than viewers may read, and is read in this process. */
const OF_STATE = ['parts/dictionary', 'parts/fleet', 'parts/found_runs', 'parts/run', 'parts/runs']

/** The pages of a folder of own models, and those that come with loantape. */
export function listPages(sqlDir: string | undefined): PageFile[] {
  const listIn = (root: string, isOwn: boolean) =>
    FOLDERS.flatMap((folder) =>
      listNamed(join(root, folder), '.md').map((file) => {
        const name = `${folder}${file}`
        return {name, path: join(root, `${name}.md`), isOwn}
      }),
    )
  const given = sqlDir === undefined ? [] : listIn(join(sqlDir, 'pages'), true)
  const own = given.filter(({name}) => !OF_STATE.includes(name))
  return [...own, ...listIn(SHIPPED, false).filter(({name}) => own.every((page) => page.name !== name))]
}

/** The name of a page in words. */
export const wordsOf = (name: string) => capitalised(name.replaceAll('_', ' '))

/** `/pages`: the pages people wrote, and those that came with loantape as they are written. */
export function viewPages({sqlDir, filter}: View): Page {
  const pages = listPages(sqlDir)
  const own = pages.filter(({isOwn}) => isOwn)
  const leadTo = ({name}: PageFile) =>
    linked(wordsOf(name), name.includes('/') ? undefined : addressOf(`/pages/${name}`, filter))
  const body = html`${
    own.length === 0
      ? html`<p class="empty">You wrote none: a file <code>pages/&lt;name&gt;.md</code> in LOANTAPE_SQL_DIR is one.</p>`
      : html`<ul>${own.map((page) => html`<li>${leadTo(page)}</li>`)}</ul>`
  }
<h2>Pages that come with loantape</h2>
<p class="muted small">A file of yours of the same name takes the place of one, except of ${OF_STATE.join(', ')}: they read the state database.</p>
${pages.filter(({isOwn}) => !isOwn).map((page) => html`<div class="ask">${!page.name.includes('/') && leadTo(page)}<details><summary>pages/${page.name}.md</summary><pre tabindex="0">${readSqlFile(page.path)}</pre></details></div>`)}`
  return {title: 'Pages', body}
}

/** Values that SQL names as `$month`: texts, or what is read as JSON; one without is null. */
export type Params = Readonly<Record<string, unknown>>

/** The values as texts, as both engines take them. */
export const textsOf = (params: Params) =>
  Object.fromEntries(
    Object.entries(params)
      .filter(([, value]) => value !== undefined && value !== null)
      .map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  )

/** Rows of a table and of a chart that are shown. */
const MOST_ROWS = 1000
const MOST_PLACES = 50_000

/** What a page needs of a view; the state database has no release. */
type Shown = Pick<View, 'ask' | 'filter' | 'query' | 'sqlDir' | 'mayOpen'> &
  Partial<Pick<AskingView, 'release' | 'people' | 'mayAct' | 'mayRead'>>

/**
 * A page by its name; undefined of none, and where its title has no rows. What people wrote is asked as their questions are, a shipped page as our own, unless it is
 * one among people's pages.
 *
 * @param params of its SQL, in place of those of the address
 */
export async function viewPage(
  name: string,
  view: Shown,
  {isAmongOwn = false, params = {}}: {isAmongOwn?: boolean; params?: Params} = {},
): Promise<Page | undefined> {
  const page = listPages(view.sqlDir).find((one) => one.name === name)
  if (!page) return undefined
  const {people, filter} = view
  // What the program does not know is not for the address to say.
  const own = [...view.query].filter(([key]) => !Object.hasOwn(params, key))
  const given = {...Object.fromEntries(own), ...textsOf(params)}
  if (!people || (!page.isOwn && !isAmongOwn)) return await renderPageFile(page, view, given)
  const ask: View['ask'] = ({sql, most, isWhole}) =>
    people.ask({sql, most, params: given, condition: isWhole ? undefined : filter.condition})
  return await renderPageFile(page, {...view, ask}, given)
}

/** A page of ours over the state database; nobody's own takes its place, since it reads more than a release. */
export async function viewState(
  name: string,
  {stateDb: {db}, params, mayAct = false}: {stateDb: Pick<StateDb, 'db'>; params: Params; mayAct?: boolean},
): Promise<Page | undefined> {
  const query = new URLSearchParams()
  const given = textsOf(params)
  const ask: View['ask'] = async ({sql}) => {
    const statement = db.prepare(sql)
    statement.setAllowUnknownNamedParameters(true)
    const rows = statement.all(given).map((row) => Object.values(row).map(withInstant))
    // An expression has no type there.
    const typeOf = (index: number) =>
      rows.length > 0 && rows.every((row) => Number.isInteger(row[index])) ? 'BIGINT' : ''
    const columns = statement.columns().map(({name, type}, index) => ({name, type: type ?? typeOf(index)}))
    return {columns, rows}
  }
  return await viewPage(name, {filter: parseFilter(query), query, sqlDir: undefined, ask, mayAct})
}

/** Instants of the state database are text. */
const withInstant = (value: unknown) =>
  typeof value === 'string' && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? instant(value) : value

/** A page with the rows of its blocks. */
async function renderPageFile(
  {name, path}: Pick<PageFile, 'name' | 'path'>,
  view: Shown,
  params: Record<string, string>,
): Promise<Page | undefined> {
  const marked = new Marked()
  const tokens = marked.lexer(readSqlFile(path))
  const heading = tokens.find(
    (token): token is Tokens.Heading => token.type === 'heading' && token.depth === 1,
  )
  let title = heading?.text ?? wordsOf(name)
  const answers = new Map<Token, Html>()
  let line = 1
  for (const token of tokens) {
    if (token.type === 'code' && /^sql\b/.test(token.lang ?? '')) {
      const answer = await answerBlock(token as Tokens.Code, {name, line, params}, view)
      if (answer === undefined) return undefined
      if ('title' in answer) title = answer.title
      answers.set(token, 'title' in answer ? html`` : answer)
    }
    line += token.raw.split('\n').length - 1
  }
  const linkTo = linkOf(view)
  marked.use({
    renderer: {
      code: (token) => (answers.get(token) ?? html`<pre tabindex="0">${token.text}</pre>`).html,
      // The page's own heading stands above it; markup of theirs is only text.
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
  return {
    title,
    body: html`<div class="written">${markup(marked.parser(tokens))}</div>`,
  }
}

/** Stands for this site where an address is read. */
const SITE = 'http://site.invalid'

/**
 * The page at an address of this site, with the filter; of a part of the deals, as far as the filter has some of them; undefined of one
 * that the viewer may not open.
 */
export const linkOf = (view: Pick<View, 'filter' | 'mayOpen'>) => (address: string) => {
  const url = URL.parse(address, SITE)
  if (!address.startsWith('/') || url?.origin !== SITE || url.pathname.startsWith('//')) return undefined
  const {pathname, searchParams, hash} = url
  if (view.mayOpen?.(pathname) === false) return undefined
  // Runs are of no release.
  if (/^\/runs(\/|$)/.test(pathname)) return address
  // A deal that is none of the filtered ones has a page, too.
  const filter = pathname.startsWith('/deals/') ? ofAllDeals(view.filter) : view.filter
  const changes = Object.fromEntries(
    [...new Set(searchParams.keys())].map((key) => [key, searchParams.getAll(key)]),
  )
  const {part, ...others} = changes
  return part?.[0] !== undefined && pathname === '/deals'
    ? addressOfPart(filter, part[0], others)
    : `${addressOf(pathname, filter, changes)}${hash}`
}

/** What a block shows, or the title it is; undefined of a title without rows. */
async function answerBlock(
  {text, lang = ''}: Tokens.Code,
  {name, line, params}: {name: string; line: number; params: Record<string, string>},
  view: Shown,
): Promise<Html | {title: string} | undefined> {
  const failed = (problem: string, at = 0) =>
    html`<pre class="failed" tabindex="0">pages/${name}.md, line ${line + at}: ${problem}</pre>`
  const asked = parseAsked(lang.replace(/^sql\s*/, ''))
  if (typeof asked === 'string') return failed(asked)
  const {shape, options} = asked
  const {ask, filter, query, release, mayAct} = view
  const {needs} = options
  if (
    needs !== undefined &&
    (view.mayRead?.(needs) === false || release?.manifest.tables.every(({name}) => name !== needs))
  )
    return html``
  const most = ['line', 'area'].includes(shape) ? MOST_PLACES : MOST_ROWS
  const isWhole = options.deals === 'all'
  const read = (sql: string) => ask({sql, params, isWhole, most: most + 1})
  try {
    if (shape === 'deals') return await renderListed(text, read, view, options.empty)
    const {columns, rows} = await read(text)
    if (shape === 'pages') return html`${renderPages(query, Number(rows[0]?.[0]), Number(rows[0]?.[1]))}`
    if (shape === 'actions') return html`${mayAct && objectsOf({columns, rows}).map(renderAction)}`
    if (shape === 'title') return rows[0] && {title: shorten(String(rows[0][0]))}
    const shown = renderBlock(
      {columns, rows: rows.slice(0, most)},
      {shape, options},
      linkOf(isWhole ? {...view, filter: ofAllDeals(filter)} : view),
    )
    return html`${shown}${rows.length > most && html`<p class="muted small">The first ${count(most)} rows.</p>`}`
  } catch (error) {
    const {problem} = explainError(error)
    return failed(problem, Number(/^LINE (\d+): /m.exec(problem)?.[1] ?? 0))
  }
}

/** The same address with another value of a parameter; another order begins at the first page. */
function addressWith(query: URLSearchParams, name: string, value: string): string {
  const changed = new URLSearchParams(query)
  changed.delete('page')
  changed.set(name, value)
  return `?${changed}`
}

/** Links to the pages before and after of a list, at its address; false if there is only one page. */
function renderPages(query: URLSearchParams, rows: number, perPage: number): Html | false {
  const page = pageOf(query)
  const all = Math.max(1, Math.ceil(rows / perPage))
  const addressOfPage = (other: number) => addressWith(query, 'page', String(other))
  if (all === 1 && page === 1) return false
  return html`<nav class="pages" aria-label="Of the list">
${page > 1 && html`<a rel="prev" href="${addressOfPage(page - 1)}">← before</a>`}
<span class="muted">page ${count(page)} of ${count(all)}</span>
${page < all && html`<a rel="next" href="${addressOfPage(page + 1)}">next →</a>`}
</nav>`
}

/** Deals that a page of a list holds. */
const PER_PAGE = 50

/**
 * The rows of a statement that selects `deal_id`, an amount and, where a deal has several rows, a `day`: page by page, with the number
 * of deals and their sum, in the order that the address asks for, by default the largest first. The property stands beside each.
 */
async function renderListed(
  sql: string,
  read: (sql: string) => Promise<Block>,
  view: Shown,
  empty = 'There are none.',
): Promise<Html> {
  const {query} = view
  // Errors name lines of the statement: nothing stands above it.
  const own = `(${sql.replace(/[;\s]+$/, '')}\n)`
  const {columns} = await read(`from ${own} limit 0`)
  const amount = columns.find(isDollars)?.name ?? 'amount'
  const has = (name: string) => columns.some((column) => column.name === name)
  // Counting different deals takes many times as long; what tells rows of one deal apart is their `day`.
  const deals = has('day') ? 'count(distinct deal_id)' : 'count(*)'
  const total = await read(
    `select count(*), counted(${deals}, 'deal') || ', ' || usd(coalesce(sum(${quoteName(amount)}), 0)) from ${own}`,
  )
  const [rows, sum] = total.rows[0] ?? []
  const [, sign = '-', sorted = amount] = /^(-?)(.*)$/.exec(query.get('sort') ?? '') ?? []
  const isKnown = sorted === 'property_address' || has(sorted)
  const sort = isKnown ? {name: sorted, isDown: sign === '-'} : {name: amount, isDown: true}
  const key = quoteName(sort.name)
  const order = [
    `${isKnown ? key : `abs(${key})`} ${sort.isDown ? 'desc' : 'asc'} nulls last`,
    'deal_id',
    ...(has('day') ? ['day'] : []),
  ]
  const beside = has('property_address')
    ? own
    : `(select listed.*, property_address from ${own} as listed
        left join core.deal_history as history on history.deal_id = listed.deal_id and valid_to is null)`
  const listed = await read(
    `select * replace (brief(property_address) as property_address)
     from (from ${beside} order by ${order.join(', ')} limit ${PER_PAGE} offset ${(pageOf(query) - 1) * PER_PAGE})`,
  )
  const titleOf = (title: string, {name}: {name: string}) => {
    const isSorted = name === sort.name
    const arrow = isSorted ? (sort.isDown ? ' ↓' : ' ↑') : ''
    return linked(
      `${title}${arrow}`,
      addressWith(query, 'sort', isSorted && !sort.isDown ? `-${name}` : name),
    )
  }
  return html`<p class="muted" id="total">${String(sum)}</p>
${listed.rows.length === 0 ? html`<p class="empty">${empty}</p>` : renderMeant(listed, linkOf(view), titleOf)}
${renderPages(query, Number(rows), PER_PAGE)}`
}
