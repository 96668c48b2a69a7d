import {hash} from 'node:crypto'
import {join} from 'node:path'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {expectOneOf} from '../core/text.ts'
import type {Message} from '../schedule/alarms.ts'
import type {DigestStep} from '../schedule/job.ts'
import {writeFileAtomically} from '../store/files.ts'
import type {Release} from '../store/release.ts'
import {count, instant, inTimeZone} from './figures.ts'
import {CLOCKS, findFault, isForViewers, parseFilter, titleOf, wordValue} from './filter.ts'
import {Html, html} from './html.ts'
import {inOneLine, styleForMail, textOf} from './mail.ts'
import {viewMorning, viewPortfolio} from './morning.ts'
import {renderPage} from './page-frame.ts'
import {findLacking, listOwn, listPageDirs, listPages, needsOf, viewPage} from './pages.ts'
import {createReader, type Reader} from './reader.ts'
import type {Page, View} from './view.ts'

const MEMORY_MB = 1024
const LONGEST_MS = 3_600_000

/** The pages of a report, below Morning. */
const REPORTED = ['portfolio', 'pipeline', 'data_quality']

/** Pages to which the program gives what they are compared with. */
const COMPARED: Readonly<Record<string, (view: View) => Promise<Page | undefined>>> = {
  morning: viewMorning,
  portfolio: viewPortfolio,
}

/** @throws ConfigError `RELEASE_PARTIAL` of a release of some tables only */
function requireWhole(release: Release): void {
  const lacking = findLacking(['parts/morning', ...REPORTED].flatMap(needsOf), {release})
  if (lacking !== undefined) throw newError('RELEASE_PARTIAL', lacking)
}

/** What a page is shown for: by default whole, to operators. */
interface Use {
  isForViewers?: boolean
  isMail?: boolean
}

/**
 * The view of a release that nobody serves; disposing it ends its reader.
 *
 * @param asked what its pages are asked for, as the end of an address
 * @throws ConfigError `USAGE` of an invalid filter, or of one that tells viewers what they cannot read
 */
function openView(
  release: Release,
  config: Config,
  asked = '',
  use: Use = {},
): View & {people: Reader; mayAct?: boolean} & Disposable {
  const query = new URLSearchParams(asked)
  const filter = parseFilter(query)
  const only = use.isForViewers ? config.viewerTables : undefined
  const mayRead = (name: string) => isForViewers(name, only)
  const hidden = filter.reads.find((name) => !mayRead(name))
  const fault =
    findFault(filter) ?? (hidden && `Its filter reads table '${hidden}', which is not for viewers.`)
  if (fault !== undefined) throw newError('USAGE', fault)
  const clock = CLOCKS.find((key) => filter.values.has(key))
  if (clock !== undefined)
    throw newError('USAGE', `Parameter '${clock}': expected none; --as-of names the release of the page.`)
  // No page is waited for while it is written.
  const reader = createReader(release.dir, {memoryMb: MEMORY_MB, timeoutMs: LONGEST_MS, idleMs: LONGEST_MS})
  return {
    release,
    ask: ({isWhole, ...question}) =>
      reader.page({...question, condition: isWhole ? undefined : filter.condition}),
    people: {...reader, ask: (question) => reader.ask({...question, only})},
    filter,
    mayRead,
    ...(use.isForViewers && {mayAct: false}),
    query,
    pageDirs: listPageDirs(config),
    isMail: use.isMail === true,
    [Symbol.dispose]: () => reader[Symbol.dispose](),
  }
}

/** What a report or a page shows of a release, without links, and what stands around it. */
async function showPages(release: Release, config: Config, page?: string, use: Use = {}) {
  const [name, asked] = page?.split(/\?(.*)/s) ?? []
  const {release_id, as_of, known_at, generator, time_zone, checks} = release.manifest
  using view = openView(release, config, asked, use)
  const seen = listOwn(view).map((one) => one.name)
  const pagesOf = listPages(view.pageDirs).filter(({name: one, isOwn}) => !isOwn || seen.includes(one))
  const files = pagesOf.map((one) => one.name)
  const known = [...new Set(['morning', ...files])]
  if (name !== undefined && !known.includes(name))
    throw newError(
      'UNKNOWN_NAME',
      `Page '${name}'${use.isForViewers ? ', for viewers' : ''}: ${expectOneOf(name, known)}.`,
    )
  // What a page is compared with comes from all tables.
  const isLimited = use.isForViewers === true && config.viewerTables !== undefined
  const isOurs = (one: string) => !isLimited && !(name === 'morning' && files.includes(one))
  const pages: Page[] = []
  for (const one of name === undefined ? ['morning', ...REPORTED] : [name]) {
    // Whoever gets the report may be no operator.
    const readers = name === undefined ? {...view, mayAct: false} : view
    const compared = isOurs(one) ? COMPARED[one]?.(readers) : undefined
    const shown = await (compared ?? viewPage(one, readers, {isAmongOwn: name !== undefined}))
    if (shown) pages.push(shown)
  }
  const title = name === undefined ? 'Portfolio report' : (pages[0]?.title ?? name)
  const chosen = [...view.filter.values].flatMap(([key, values]) =>
    values.map((value) => html`<li>${titleOf(key)} <b>${wordValue(key, value)}</b></li>\n`),
  )
  const content = html`${pages.map((one) => html`${name === undefined && html`<h2 class="part">${one.title}</h2>`}${linkless(one.body)}`)}`
  return {
    title: `${title} as of ${as_of}`,
    content,
    sheet: (shown: Html) => html`<main class="sheet wide">
<h1>${title}</h1>
<ul class="facts">
<li>as of <b>${as_of}</b></li>
${chosen}<li>Release <b class="mono">${release_id}</b></li>
<li><b>${count(checks.passed)}</b> checks passed${checks.warned > 0 && html`, <b class="warned">${checks.warned} warned</b>`}</li>
<li>all amounts in USD</li>
</ul>
${shown}
<footer>Written by <code>loantape report</code>, ${generator}, from release <span class="mono">${release_id}</span>, which holds everything known at ${instant(known_at)}.</footer>
</main>`,
    timeZone: time_zone,
    isThere: pages.length > 0,
    problems: pages.flatMap(({problems = []}) => problems),
    rows: Object.assign({}, ...pages.map(({rows}) => rows)) as Readonly<Record<string, number>>,
  }
}

/**
 * One page of a release, or Morning, Portfolio, Pipeline and Data quality, as one self-contained file.
 *
 * @param config its own pages take the place of those of their names
 * @param page its name, and what it is asked for: `margins?state=TX`
 * @returns its text, and what of it could not be shown, which stands in its place
 * @throws ConfigError `RELEASE_PARTIAL` of a release of some tables only, `UNKNOWN_NAME`, `USAGE`
 */
export async function renderReport(release: Release, config: Config, page?: string, use?: Use) {
  if (page === undefined) requireWhole(release)
  const {title, content, sheet, timeZone, problems} = await showPages(release, config, page, use)
  const text = renderPage({title, body: sheet(content), styles: 'workbench.css', timeZone})
  return {text, problems}
}

/** Mail clients cut off what is longer, and mail servers refuse larger files; chat takes less. */
const LONGEST_HTML = 100_000
const LARGEST_FILE = 10_000_000
const LONGEST_WORDS = 10_000

/**
 * A page as a message; what it would print stands beside it as a file in the folder of the release.
 *
 * @returns undefined where there is nothing to send
 * @throws ConfigError `UNKNOWN_NAME`, `QUERY_FAILED` with the places of what fails, `USAGE`
 */
export async function renderDigest(
  release: Release,
  config: Config,
  step: DigestStep,
): Promise<Message | undefined> {
  const {page, when, to} = step
  const use = {isForViewers: to !== undefined}
  const mail = await showPages(release, config, page, {...use, isMail: true})
  if (mail.problems.length > 0) throw newError('QUERY_FAILED', mail.problems.join('\n'))
  if (!mail.isThere) return undefined
  if (when !== undefined && !Object.hasOwn(mail.rows, when)) {
    const names = Object.keys(mail.rows)
    const expected = names.length > 0 ? expectOneOf(when, names) : 'none of its blocks has a `name`'
    throw newError('UNKNOWN_NAME', `Block '${when}' of page '${page}': ${expected}.`)
  }
  if (when !== undefined && mail.rows[when] === 0) return undefined
  const {text} = await renderReport(release, config, page, use)
  const isSmall = Buffer.byteLength(text) <= LARGEST_FILE
  const place = isSmall ? 'it is attached' : 'look at it in the workbench'
  const tooLong = html`<p>This page is longer than a mail: ${place}.</p>`
  const mailOf = (content: Html) =>
    html`<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${mail.title}</title></head><body>${styleForMail(new Html(inTimeZone(mail.sheet(content).html, mail.timeZone)))}</body></html>`
      .html
  const whole = mailOf(mail.content)
  const isLong = whole.length > LONGEST_HTML
  const words = textOf(inTimeZone(mail.content.html, mail.timeZone))
  const name = `${page.replaceAll(/[^\w-]+/g, '-').slice(0, 60)}-${release.manifest.as_of}`
  const file = join(release.dir, `${name}-${hash('sha256', JSON.stringify(step)).slice(0, 8)}.html`)
  if (isSmall) writeFileAtomically(file, text)
  return {
    title: inOneLine(mail.title),
    words: words.length > LONGEST_WORDS ? `${words.slice(0, LONGEST_WORDS)}…\n(cut off: ${place})` : words,
    html: isLong ? mailOf(tooLong) : whole,
    ...(isSmall && {file}),
  }
}

/** Markup without links: a file has no server behind it. */
const linkless = ({html: text}: Html): Html =>
  new Html(
    text
      .replaceAll(/<p class="choices">[\s\S]*?<\/p>|<form[\s\S]*?<\/form>/g, '')
      .replaceAll(/<a href="\/[^"]*"[^>]*>([\s\S]*?)<\/a>/g, '$1'),
  )
