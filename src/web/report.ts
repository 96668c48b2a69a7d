import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {type Release, readReleaseModels} from '../store/release.ts'
import {count, dollarsAtAGlance, instant, inTimeZone} from './figures.ts'
import {parseFilter} from './filter.ts'
import {type Html, html, markup} from './html.ts'
import {viewMorning} from './morning.ts'
import {renderPage} from './page-frame.ts'
import {viewPage} from './pages.ts'
import {createReader, queriesOf, type Reader} from './reader.ts'
import type {Page, View} from './view.ts'

/** The input of a report. */
const NEEDED = [
  'mart.portfolio_summary',
  'mart.portfolio_breakdown',
  'mart.position_daily',
  'mart.portfolio_monthly',
  'mart.pipeline_aging',
  'mart.data_quality',
  'work.deal_standing',
  'mart.movement',
]

const MEMORY_MB = 1024
const LONGEST_MS = 3_600_000

/** @throws ConfigError `RELEASE_PARTIAL` of a release of some tables only */
async function withView<T>(
  release: Release,
  sqlDir: string | undefined,
  work: (view: View & {people: Reader}) => Promise<T>,
): Promise<T> {
  const names = new Set(readReleaseModels(release.dir).map(({name}) => name))
  const lacking = NEEDED.find((name) => !names.has(name))
  if (lacking !== undefined)
    throw newError(
      'RELEASE_PARTIAL',
      `Release '${release.manifest.release_id}' has no table '${lacking}': expected a whole one.`,
    )
  // No page is waited for while it is written.
  using reader = createReader(release.dir, {memoryMb: MEMORY_MB, timeoutMs: LONGEST_MS, idleMs: LONGEST_MS})
  const query = new URLSearchParams()
  const filter = parseFilter(query)
  return await work({release, ask: reader.page, people: reader, filter, mayRead: () => true, query, sqlDir})
}

/**
 * The pages Morning, Portfolio, Pipeline and Data quality of a release as one self-contained file.
 *
 * @param sqlDir the folder of own models: its pages take the place of those of their names
 * @param isFlawless whether a block that fails ends it; else what is wrong stands in the place of the block
 * @throws ConfigError `RELEASE_PARTIAL` of a release of some tables only, `QUERY_FAILED`
 */
export function renderReport(release: Release, sqlDir?: string, {isFlawless = false} = {}): Promise<string> {
  return withView(release, sqlDir, async (view) => {
    const {manifest} = release
    const {release_id, as_of, checks} = manifest
    const pages = [await viewMorning(view)]
    for (const name of ['portfolio', 'pipeline', 'data_quality']) {
      const page = await viewPage(name, view)
      const [, problem] = /<pre class="failed"[^>]*>(.*?)<\/pre>/s.exec(page?.body.html ?? '') ?? []
      if (isFlawless && problem !== undefined) throw newError('QUERY_FAILED', textOf(problem))
      if (page) pages.push(page)
    }
    const body = html`<main class="sheet wide">
<h1>Portfolio report</h1>
<ul class="facts">
<li>as of <b>${as_of}</b></li>
<li>Release <b class="mono">${release_id}</b></li>
<li><b>${count(checks.passed)}</b> checks passed${checks.warned > 0 && html`, <b class="warned">${checks.warned} warned</b>`}</li>
<li>all amounts in USD</li>
</ul>
${pages.map(renderPart)}
<footer>Written by <code>loantape report</code>, ${manifest.generator}, from release <span class="mono">${release_id}</span>, which holds everything known at ${instant(manifest.known_at)}.</footer>
</main>`
    return renderPage({
      title: `Portfolio report as of ${as_of}`,
      body,
      styles: 'workbench.css',
      timeZone: manifest.time_zone,
    })
  })
}

const summaryRow = z.object({open_amount: z.string(), funded_amount: z.string()})

/**
 * Morning of a release as text: figures, what moved them and what needs a person.
 *
 * @throws ConfigError `RELEASE_PARTIAL`
 */
export function describeMorning(release: Release, sqlDir?: string): Promise<{title: string; words: string}> {
  return withView(release, sqlDir, async (view) => {
    const {as_of, time_zone} = release.manifest
    const sums = await queriesOf(view.ask).one(summaryRow, 'from mart.portfolio_summary')
    const {body} = await viewMorning(view)
    return {
      title: `Portfolio as of ${as_of}: ${dollarsAtAGlance(sums.open_amount)} open, ${dollarsAtAGlance(sums.funded_amount)} funded`,
      words: textOf(inTimeZone(linkless(body).html, time_zone)),
    }
  })
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

const renderPart = ({title, body}: Page): Html => html`<h2 class="part">${title}</h2>${linkless(body)}`

/** Markup without links: a file has no server behind it. */
const linkless = ({html: text}: Html): Html =>
  markup(
    text
      .replaceAll(/<p class="choices">[\s\S]*?<\/p>|<form[\s\S]*?<\/form>/g, '')
      .replaceAll(/<a href="\/[^"]*"[^>]*>([\s\S]*?)<\/a>/g, '$1'),
  )
