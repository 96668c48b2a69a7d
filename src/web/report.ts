import {hash} from 'node:crypto'
import {join} from 'node:path'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {expectOneOf, shorten} from '../core/text.ts'
import type {DigestStep} from '../schedule/job.ts'
import type {Message} from '../schedule/tell.ts'
import {writeFileAtomically} from '../store/files.ts'
import type {Release} from '../store/release.ts'
import {count, instant, inTimeZone, words} from './figures.ts'
import {CLOCKS, findFault, isForViewers, parseFilter, renderChosen, titleOf, wordValue} from './filter.ts'
import {Html, html} from './html.ts'
import {inOneLine, styleForMail, textOf} from './mail.ts'
import {viewMorning, viewPortfolio} from './morning.ts'
import {listOwn, listPageDirs, listPages, needsOf, OF_STATE} from './page-files.ts'
import {renderPage} from './page-frame.ts'
import {findLacking, viewPage} from './pages.ts'
import {createReaderPool} from './reader.ts'
import {type Ask, type Page, type View, withFilter} from './view.ts'

const MEMORY_MB = 1024
const LONGEST_MS = 3_600_000

/** Pages of a report, after Morning. */
const REPORTED = ['portfolio', 'pipeline', 'data_quality']

const COMPARED: Readonly<Record<string, (view: View) => Promise<Page | undefined>>> = {
  morning: viewMorning,
  portfolio: viewPortfolio,
}

/**
 * Needs no server; disposing it ends its reader.
 * @param page a name with parameters (`margins?state=TX`); all pages of the report by default
 * @throws ConfigError `USAGE` for an invalid filter, or one that viewers may not use; `UNKNOWN_NAME`
 */
function openReport(release: Release, config: Config, page?: string, forViewers = false) {
  const [name, asked = ''] = page?.split(/\?(.*)/s) ?? []
  const query = new URLSearchParams(asked)
  const filter = parseFilter(query)
  const only = forViewers ? config.viewerTables : undefined
  const mayRead = (table: string) => isForViewers(table, only)
  const fault = findFault(filter, mayRead)
  if (fault !== undefined) throw newError('USAGE', fault.problem)
  const clock = CLOCKS.find((key) => filter.values.has(key))
  if (clock !== undefined)
    throw newError('USAGE', `Parameter '${clock}': expected none; --as-of names the release of the page.`)
  const readers = {pageDirs: listPageDirs(config), ...(forViewers && {mayAct: false})}
  const own = listOwn(readers).map((one) => one.name)
  const files = listPages(readers.pageDirs).flatMap(({name, isOwn}) =>
    (isOwn ? own.includes(name) : !name.startsWith(OF_STATE)) ? [name] : [],
  )
  // Morning compares with another day, which needs all tables.
  const known = [...new Set([...(only ? [] : ['morning']), ...files])]
  if (name !== undefined && !known.includes(name))
    throw newError(
      'UNKNOWN_NAME',
      `Page '${name}'${forViewers ? ', for viewers' : ''}: ${expectOneOf(name, known)}.`,
    )
  // Nobody waits for the page while it is written.
  const pool = createReaderPool({memoryMb: MEMORY_MB, timeoutMs: LONGEST_MS, idleMs: LONGEST_MS})
  const reader = pool.of(release.dir)
  return {
    ...readers,
    release,
    ask: (asked: Parameters<Ask>[0]) => reader.page(withFilter(asked, filter)),
    askAsPerson: (asked: Parameters<Ask>[0]) => reader.ask({...withFilter(asked, filter), only}),
    filter,
    mayRead,
    query,
    name,
    isFile: true,
    isCompared: (one: string) => only === undefined && !(name === 'morning' && files.includes(one)),
    [Symbol.dispose]: () => pool[Symbol.dispose](),
  }
}

/** Shows pages without links. */
async function showPages(view: ReturnType<typeof openReport>, isMail = false) {
  const {name, isCompared} = view
  const isAll = name === undefined
  // Readers of a report may not be operators.
  const readers = {...view, isMail, ...(isAll && {mayAct: false})}
  const pages: Page[] = []
  for (const one of isAll ? ['morning', ...REPORTED] : [name]) {
    const compared = isCompared(one) ? COMPARED[one]?.(readers) : undefined
    const shown = await (compared ?? viewPage(one, readers, {isAmongOwn: !isAll}))
    if (shown) pages.push(shown)
  }
  const isEmpty = pages.length === 0
  return {
    isEmpty,
    title: isAll ? 'Portfolio report' : (pages[0]?.title ?? name),
    content: html`${isEmpty && html`<p class="empty">There is nothing to show.</p>`}${pages.map(({title, body}) => html`${isAll && html`<h2 class="part">${title}</h2>`}${linkless(body)}`)}`,
    problems: pages.flatMap(({problems = []}) => problems),
    rows: Object.assign({}, ...pages.map(({rows}) => rows)) as Readonly<Record<string, number>>,
  }
}

const chosenOf = ({filter, query}: Pick<View, 'filter' | 'query'>) => [
  ...[...filter.values].map(([key, value]): [string, string] => [titleOf(key), wordValue(key, value)]),
  ...Object.entries(Object.fromEntries(query))
    .filter(([key, value]) => value !== '' && !filter.values.has(key))
    .map(([key, value]): [string, string] => [words(key), shorten(value)]),
]

const subjectOf = (view: Pick<View, 'release' | 'filter' | 'query'>, title: string) =>
  `${[title, ...chosenOf(view).map((chosen) => chosen.join(' '))].join(', ')} as of ${view.release.manifest.as_of}`

function renderSheet(view: Pick<View, 'release' | 'filter' | 'query'>, title: string, content: Html): Html {
  const {release_id, as_of, known_at, generator, checks} = view.release.manifest
  const chosen = chosenOf(view).map(([name, value]) => html`<li>${name} <b>${value}</b></li>\n`)
  return html`<main class="sheet wide">
<h1>${title}</h1>
<ul class="facts">
<li>as of <b>${as_of}</b></li>
${chosen}<li>Release <b class="mono">${release_id}</b></li>
<li><b>${count(checks.passed)}</b> checks passed${checks.warned > 0 && html`, <b class="warned">${checks.warned} warned</b>`}</li>
<li>all amounts in USD</li>
</ul>
${renderChosen(view.filter, as_of)}
${content}
<footer>Written by <code>loantape report</code>, ${generator}, from release <span class="mono">${release_id}</span>, which holds everything known at ${instant(known_at)}.</footer>
</main>`
}

async function renderFile(view: ReturnType<typeof openReport>) {
  const {title, content, problems} = await showPages(view)
  const {time_zone: timeZone} = view.release.manifest
  const body = renderSheet(view, title, content)
  return {
    text: renderPage({title: subjectOf(view, title), body, timeZone}),
    problems,
  }
}

/**
 * Renders one page (`margins?state=TX`) of a release, or Morning, Portfolio, Pipeline and Data quality, as one self-contained
 * file. Own pages replace shipped ones. `problems` are shown in place of blocks.
 * @throws ConfigError `RELEASE_PARTIAL` if tables are missing, `UNKNOWN_NAME`, `USAGE`
 */
export async function renderReport(release: Release, config: Config, page?: string) {
  if (page === undefined) {
    const lacking = findLacking(['parts/morning', ...REPORTED].flatMap(needsOf), {release})
    if (lacking !== undefined) throw newError('RELEASE_PARTIAL', lacking)
  }
  using view = openReport(release, config, page)
  return await renderFile(view)
}

/** Mail clients cut off longer text, mail servers refuse larger files, and chats take less. */
const LONGEST_HTML = 100_000
const LARGEST_FILE = 10_000_000
const LONGEST_WORDS = 10_000

/**
 * The printable page becomes a file in the release's folder. Returns undefined if there is nothing to send.
 * @throws ConfigError `UNKNOWN_NAME`, `QUERY_FAILED` with the place of each problem, `USAGE`
 */
export async function renderDigest(
  release: Release,
  config: Config,
  step: DigestStep,
): Promise<Message | undefined> {
  const {page, when, to} = step
  using view = openReport(release, config, page, to !== undefined)
  const {isEmpty, title, content, problems, rows} = await showPages(view, true)
  if (isEmpty) return undefined
  if (problems.length > 0) throw newError('QUERY_FAILED', problems.join('\n'))
  if (when !== undefined && !Object.hasOwn(rows, when)) {
    const expected = expectOneOf(when, Object.keys(rows), 'none of its blocks has a `name`')
    throw newError('UNKNOWN_NAME', `Block '${when}' of page '${page}': ${expected}.`)
  }
  if (when !== undefined && rows[when] === 0) return undefined
  const {as_of, time_zone} = release.manifest
  const subject = subjectOf(view, title)
  const {text} = await renderFile(view)
  const isSmall = Buffer.byteLength(text) <= LARGEST_FILE
  const place = isSmall ? 'it is attached' : 'look at it in the workbench'
  const mailOf = (shown: Html) => {
    const sheet = inTimeZone(renderSheet(view, title, shown).html, time_zone)
    return html`<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${subject}</title></head><body>${styleForMail(new Html(sheet))}</body></html>`
      .html
  }
  const whole = mailOf(content)
  const isLong = whole.length > LONGEST_HTML
  const lines = textOf(inTimeZone(content.html, time_zone))
  const name = `${page.replaceAll(/[^\w-]+/g, '-').slice(0, 60)}-${as_of}`
  const file = join(release.dir, `${name}-${hash('sha256', JSON.stringify(step)).slice(0, 8)}.html`)
  if (isSmall) writeFileAtomically(file, text)
  return {
    title: inOneLine(subject),
    words: lines.length > LONGEST_WORDS ? `${lines.slice(0, LONGEST_WORDS)}…\n(cut off: ${place})` : lines,
    html: isLong ? mailOf(html`<p>This page is longer than a mail: ${place}.</p>`) : whole,
    ...(isSmall && {file}),
  }
}

/** Keeps links within the page and to other sites, and what is chosen of choices: a file has no server. */
const linkless = ({html: text}: Html): Html =>
  new Html(
    text
      .replaceAll(/<(form|nav)\b[\s\S]*?<\/\1>/g, '')
      .replaceAll(/<p class="choices">.*?<\/p>/gs, (choices) =>
        choices.includes('aria-current')
          ? choices.replaceAll(/<a\b(?![^>]*aria-current)[^>]*>.*?<\/a> /gs, '')
          : '',
      )
      .replaceAll(/<a (?!href="(?:https?:|mailto:|#))[^>]*>([\s\S]*?)<\/a>/g, '$1'),
  )
