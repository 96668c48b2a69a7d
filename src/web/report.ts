import {z} from 'zod'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {expectOneOf} from '../core/text.ts'
import type {Release} from '../store/release.ts'
import {count, dollarsAtAGlance, instant, inTimeZone} from './figures.ts'
import {CLOCKS, findFault, parseFilter, titleOf, wordValue} from './filter.ts'
import {Html, html} from './html.ts'
import {viewMorning} from './morning.ts'
import {renderPage} from './page-frame.ts'
import {findLacking, listPageDirs, listPages, needsOf, viewPage} from './pages.ts'
import {createReader, queriesOf, type Reader} from './reader.ts'
import type {View} from './view.ts'

const MEMORY_MB = 1024
const LONGEST_MS = 3_600_000

/** The pages of a report, below Morning. */
const REPORTED = ['portfolio', 'pipeline', 'data_quality']

/** @throws ConfigError `RELEASE_PARTIAL` of a release of some tables only */
function requireWhole(release: Release): void {
  const lacking = findLacking(['parts/morning', ...REPORTED].flatMap(needsOf), {release})
  if (lacking !== undefined) throw newError('RELEASE_PARTIAL', lacking)
}

/**
 * The view of a release that nobody serves; disposing it ends its reader.
 *
 * @param asked what its pages are asked for, as the end of an address
 * @throws ConfigError `USAGE` of an invalid filter
 */
function openView(release: Release, config: Config, asked = ''): View & {people: Reader} & Disposable {
  const query = new URLSearchParams(asked)
  const filter = parseFilter(query)
  const fault = findFault(filter)
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
    people: reader,
    filter,
    mayRead: () => true,
    query,
    pageDirs: listPageDirs(config),
    [Symbol.dispose]: () => reader[Symbol.dispose](),
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
export async function renderReport(release: Release, config: Config, page?: string) {
  if (page === undefined) requireWhole(release)
  const [name, asked] = page?.split(/\?(.*)/s) ?? []
  const {manifest} = release
  const {release_id, as_of, checks} = manifest
  using view = openView(release, config, asked)
  const known = listPages(view.pageDirs).map((one) => one.name)
  if (name !== undefined && !known.includes(name))
    throw newError('UNKNOWN_NAME', `Page '${name}': ${expectOneOf(name, known)}.`)
  // Whoever gets the report may be no operator.
  const readers = name === undefined ? {...view, mayAct: false} : view
  const pages = name === undefined ? [await viewMorning(readers)] : []
  for (const one of name === undefined ? REPORTED : [name]) {
    const shown = await viewPage(one, readers, {isAmongOwn: name !== undefined})
    if (shown) pages.push(shown)
  }
  const title = name === undefined ? 'Portfolio report' : (pages[0]?.title ?? name)
  const chosen = [...view.filter.values].flatMap(([key, values]) =>
    values.map((value) => html`<li>${titleOf(key)} <b>${wordValue(key, value)}</b></li>\n`),
  )
  const body = html`<main class="sheet wide">
<h1>${title}</h1>
<ul class="facts">
<li>as of <b>${as_of}</b></li>
${chosen}<li>Release <b class="mono">${release_id}</b></li>
<li><b>${count(checks.passed)}</b> checks passed${checks.warned > 0 && html`, <b class="warned">${checks.warned} warned</b>`}</li>
<li>all amounts in USD</li>
</ul>
${pages.map((one) => html`${name === undefined && html`<h2 class="part">${one.title}</h2>`}${linkless(one.body)}`)}
<footer>Written by <code>loantape report</code>, ${manifest.generator}, from release <span class="mono">${release_id}</span>, which holds everything known at ${instant(manifest.known_at)}.</footer>
</main>`
  const text = renderPage({
    title: `${title} as of ${as_of}`,
    body,
    styles: 'workbench.css',
    timeZone: manifest.time_zone,
  })
  return {text, problems: pages.flatMap(({problems = []}) => problems)}
}

const summaryRow = z.object({open_amount: z.string(), funded_amount: z.string()})

/**
 * Morning of a release as text: figures, what moved them and what needs a person.
 *
 * @throws ConfigError `RELEASE_PARTIAL`
 */
export async function describeMorning(release: Release, config: Config) {
  requireWhole(release)
  const {as_of, time_zone} = release.manifest
  using view = openView(release, config)
  const sums = await queriesOf(view.ask).one(summaryRow, 'from mart.portfolio_summary')
  const {body} = await viewMorning({...view, mayAct: false})
  return {
    title: `Portfolio as of ${as_of}: ${dollarsAtAGlance(sums.open_amount)} open, ${dollarsAtAGlance(sums.funded_amount)} funded`,
    words: textOf(inTimeZone(linkless(body).html, time_zone)),
  }
}

/** Makes a text of the source safe for a line of text: no line breaks, no control characters. */
const inOneLine = (text: string) => text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ')

/** The text of a piece of a page: a line for each figure, row, sentence and entry of a list. */
const textOf = (text: string) =>
  inOneLine(text)
    .replaceAll('<h2', '\n\n<h2')
    .replaceAll('</h2>', ':\n')
    .replaceAll('<div class="name">', '\n')
    .replaceAll('</div><div class="value">', ': ')
    .replaceAll('</div><div class="note">', ', ')
    .replaceAll('<li>', '- ')
    .replaceAll(/<\/(?:p|li|tr|ul)>/g, '\n')
    .replaceAll(/(?<=<\/t[dh]>)(?=<t[dh])/g, ' · ')
    .replaceAll(/<[^>]*>/g, '')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&')
    .replaceAll(/ *\n */g, '\n')
    .replaceAll(/\n{3,}/g, '\n\n')
    .trim()

/** Markup without links: a file has no server behind it. */
const linkless = ({html: text}: Html): Html =>
  new Html(
    text
      .replaceAll(/<p class="choices">[\s\S]*?<\/p>|<form[\s\S]*?<\/form>/g, '')
      .replaceAll(/<a href="\/[^"]*"[^>]*>([\s\S]*?)<\/a>/g, '$1'),
  )
