import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import {Marked, type Token, type Tokens} from 'marked'
import {explainError} from '../core/errors.ts'
import {readSqlFile} from '../store/sql.ts'
import {parseAsked, renderBlock} from './blocks.ts'
import {count} from './figures.ts'
import {addressOf, addressOfPart, type Filter, ofAllDeals} from './filter.ts'
import {type Html, html, markup} from './html.ts'
import type {AskingView, Page, View} from './view.ts'

/** What people may call a page or a query: a plain name of a file. */
export const NAME = /^[\w-]{1,100}$/

/** The names of the files with an ending in a folder, which need not exist, in order. */
export function listNamed(folder: string, ending: '.md' | '.sql'): string[] {
  if (!existsSync(folder)) return []
  return readdirSync(folder)
    .filter((file) => file.endsWith(ending))
    .map((file) => file.slice(0, -ending.length))
    .filter((name) => NAME.test(name))
    .sort()
}

/** The pages that come with loantape. */
const SHIPPED = join(import.meta.dirname, '../../pages')

/** A page: Markdown in which blocks of SQL stand for their rows. */
interface PageFile {
  name: string
  path: string
  /** In `pages/` of the folder of own models; it takes the place of a shipped one. */
  isOwn: boolean
}

function listPages(sqlDir: string | undefined): PageFile[] {
  const listIn = (folder: string, isOwn: boolean) =>
    listNamed(folder, '.md').map((name) => ({name, path: join(folder, `${name}.md`), isOwn}))
  const own = sqlDir === undefined ? [] : listIn(join(sqlDir, 'pages'), true)
  return [...own, ...listIn(SHIPPED, false).filter(({name}) => own.every((page) => page.name !== name))]
}

const wordsOf = (name: string) => name.replaceAll('_', ' ')

/** `/pages`: the pages people wrote, and those that came with loantape as they are written. */
export function viewPages(sqlDir: string | undefined, {filter}: View): Page {
  const pages = listPages(sqlDir)
  const own = pages.filter(({isOwn}) => isOwn)
  const leadTo = ({name}: PageFile) =>
    html`<a href="${addressOf(`/pages/${name}`, filter)}">${wordsOf(name)}</a>`
  const body = html`${
    own.length === 0
      ? html`<p class="empty">You wrote none: a file <code>pages/&lt;name&gt;.md</code> in LOANTAPE_SQL_DIR is one.</p>`
      : html`<ul>${own.map((page) => html`<li>${leadTo(page)}</li>`)}</ul>`
  }
<h2>Pages that come with loantape</h2>
<p class="muted small">A file of yours of the same name takes the place of one.</p>
${pages.filter(({isOwn}) => !isOwn).map((page) => html`<div class="ask">${leadTo(page)}<details><summary>pages/${page.name}.md</summary><pre tabindex="0">${readSqlFile(page.path)}</pre></details></div>`)}`
  return {title: 'Pages', body}
}

/** Rows of a table and of a chart that are shown. */
const MOST_ROWS = 1000
const MOST_PLACES = 50_000

/**
 * A page by its name; undefined of none. What people wrote is asked as their questions are, a shipped page as our own, unless it is
 * one among people's pages.
 */
export async function viewPage(
  sqlDir: string | undefined,
  name: string,
  view: View & Partial<Pick<AskingView, 'people'>>,
  {isAmongOwn = false} = {},
): Promise<Page | undefined> {
  const page = listPages(sqlDir).find((one) => one.name === name)
  if (!page) return undefined
  const {people, filter} = view
  if (!people || (!page.isOwn && !isAmongOwn)) return await renderPageFile(page, view)
  return await renderPageFile(page, {
    ...view,
    ask: ({isWhole, ...asked}) => people.ask({...asked, condition: isWhole ? undefined : filter.condition}),
  })
}

/** A page with the rows of its blocks. */
async function renderPageFile({name, path}: Pick<PageFile, 'name' | 'path'>, view: View): Promise<Page> {
  const marked = new Marked()
  const tokens = marked.lexer(readSqlFile(path))
  const heading = tokens.find(
    (token): token is Tokens.Heading => token.type === 'heading' && token.depth === 1,
  )
  const answers = new Map<Token, Html>()
  let line = 1
  for (const token of tokens) {
    const isBlock = token.type === 'code' && /^sql\b/.test(token.lang ?? '')
    if (isBlock) answers.set(token, await answerBlock(token as Tokens.Code, {name, line}, view))
    line += token.raw.split('\n').length - 1
  }
  const linkTo = linkOf(view.filter)
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
    title: heading?.text ?? wordsOf(name),
    body: html`<div class="written">${markup(marked.parser(tokens))}</div>`,
  }
}

/** Stands for this site where an address is read. */
const SITE = 'http://site.invalid'

/** The page at an address of this site, with the filter; of a part of the deals, as far as the filter has some of them. */
export const linkOf = (filter: Filter) => (address: string) => {
  const url = URL.parse(address, SITE)
  if (!address.startsWith('/') || url?.origin !== SITE || url.pathname.startsWith('//')) return undefined
  const {pathname, searchParams, hash} = url
  const changes = Object.fromEntries(
    [...new Set(searchParams.keys())].map((key) => [key, searchParams.getAll(key)]),
  )
  const {part, ...others} = changes
  return part?.[0] !== undefined && pathname === '/deals'
    ? addressOfPart(filter, part[0], others)
    : `${addressOf(pathname, filter, changes)}${hash}`
}

async function answerBlock(
  {text, lang = ''}: Tokens.Code,
  {name, line}: {name: string; line: number},
  {ask, filter, query}: View,
): Promise<Html> {
  const failed = (problem: string, at = 0) =>
    html`<pre class="failed" tabindex="0">pages/${name}.md, line ${line + at}: ${problem}</pre>`
  const asked = parseAsked(lang.replace(/^sql\s*/, ''))
  if (typeof asked === 'string') return failed(asked)
  const most = ['line', 'area'].includes(asked.shape) ? MOST_PLACES : MOST_ROWS
  const isWhole = asked.options.deals === 'all'
  try {
    const {columns, rows} = await ask({sql: text, params: Object.fromEntries(query), isWhole, most: most + 1})
    const shown = renderBlock(
      {columns, rows: rows.slice(0, most)},
      asked,
      linkOf(isWhole ? ofAllDeals(filter) : filter),
    )
    return html`${shown}${rows.length > most && html`<p class="muted small">The first ${count(most)} rows.</p>`}`
  } catch (error) {
    const {message} = explainError(error)
    return failed(message, Number(/^LINE (\d+): /m.exec(message)?.[1] ?? 0))
  }
}
