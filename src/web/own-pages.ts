import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {Marked, type Tokens} from 'marked'
import {explainError} from '../errors.ts'
import {figures, words} from '../page/figures.ts'
import {type Html, html, markup} from '../page/html.ts'
import {formatValue, renderMeant} from '../page/meaning.ts'
import {addressOf} from './filter.ts'
import {listNamed} from './named-files.ts'
import {addressOfDeal} from './portfolio.ts'
import {renderShape, SHAPES} from './shape.ts'
import type {AskingView, Page, View} from './view.ts'

/** Rows of a block that are shown. */
const MOST = 1000

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
  const tokens = marked.lexer(readFileSync(join(sqlDir ?? '', 'pages', `${name}.md`), 'utf8'))
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
    const rows = await reader.ask({sql, condition: filter.condition, most: MOST})
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
