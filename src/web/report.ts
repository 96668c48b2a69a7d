import {newError} from '../errors.ts'
import {count, dollars, dollarsAtAGlance, instant, ratio, signed} from '../page/figures.ts'
import {type Html, html, markup} from '../page/html.ts'
import {renderPage} from '../page/html-page.ts'
import {renderQuality} from '../page/portfolio-report.ts'
import {readPortfolio} from '../pipeline/report.ts'
import type {Release} from '../release/manifest.ts'
import {openRelease} from '../release/open-release.ts'
import {parseFilter} from './filter.ts'
import {describeMove, type PARTS, readMorning, TITLES, viewMorning} from './morning.ts'
import {renderNeeds} from './needs.ts'
import {viewPipeline} from './pipeline.ts'
import {viewPortfolio} from './portfolio.ts'
import {findLacking, type Page, type View} from './view.ts'

/** A release tells nothing of what goes on. */
const NOTHING = {alarms: [], lastSync: undefined, next: [], holder: undefined, notIssued: []}

/** @throws ConfigError `REPORT_TABLE` of a release that lacks what pages read */
async function withView<T>(release: Release, work: (view: View) => Promise<T>): Promise<T> {
  const lacking = findLacking(release)
  if (lacking !== undefined)
    throw newError(
      'REPORT_TABLE',
      `Release '${release.manifest.release_id}' has no table '${lacking}': expected a whole one that this version built.`,
      {next: 'Run `loantape build`, or name its date with --as-of.'},
    )
  await using db = await openRelease(release, {withWork: true})
  await db.run(`set search_path = 'release.main,kept.work'`)
  const query = new URLSearchParams()
  return await work({release, tables: db, whole: db, filter: parseFilter(query), query})
}

/**
 * The pages Morning, Portfolio and Pipeline of a release as one self-contained file.
 *
 * @throws ConfigError `REPORT_TABLE` of a release that lacks what they read
 */
export function renderReport(release: Release): Promise<string> {
  return withView(release, async (view) => {
    const {manifest} = release
    const {release_id, as_of, checks} = manifest
    const pages = [await viewMorning(view, NOTHING), await viewPortfolio(view), await viewPipeline(view)]
    const {quality} = await readPortfolio(view.tables, manifest)
    const body = html`<main class="sheet wide">
<h1>Portfolio report</h1>
<ul class="facts">
<li>as of <b>${as_of}</b></li>
<li>Release <b class="mono">${release_id}</b></li>
<li><b>${count(checks.passed)}</b> checks passed${checks.warned > 0 && html`, <b class="warned">${checks.warned} warned</b>`}</li>
<li>all amounts in USD</li>
</ul>
${pages.map(renderPart)}
${renderQuality({checks, quality})}
<footer>Written by <code>loantape report</code>, ${manifest.generator}, from release <span class="mono">${release_id}</span>, which holds everything known at ${instant(manifest.known_at)}.</footer>
</main>`
    return renderPage({title: `Portfolio report as of ${as_of}`, body, styles: 'workbench.css'})
  })
}

/**
 * The morning's figures of a release, what moved them and what needs a person, as text.
 *
 * @throws ConfigError `REPORT_TABLE`
 */
export function describeMorning(release: Release): Promise<{title: string; words: string}> {
  return withView(release, async (view) => {
    const {as_of} = release.manifest
    const {summary, against, totals, moved} = await readMorning(view)
    const line = (part: (typeof PARTS)[number], deals: number, amount: string) =>
      `${TITLES[part]}: ${dollars(amount)} in ${count(deals)} deals${totals ? `, ${signed(totals[part])}` : ''}`
    const needs = textOf(await renderNeeds(view, NOTHING))
    return {
      title: `Portfolio as of ${as_of}: ${dollarsAtAGlance(summary.open_amount)} open, ${dollarsAtAGlance(summary.funded_amount)} funded`,
      words: [
        line('open', summary.open_deals, summary.open_amount),
        line('funded', summary.funded_deals, summary.funded_amount),
        line('pipeline', summary.pipeline_deals, summary.pipeline_amount),
        `Weighted loan-to-value: ${ratio(summary.open_wa_ltv)} of what is open, ${ratio(summary.funded_wa_ltv)} of what is funded`,
        ...(totals ? ['', `What moved it since ${against}, ${count(totals.deals)} deals in all:`] : []),
        ...moved.map((deal) => `- ${deal.deal_id}: ${describeMove(deal)}`),
        '',
        'What needs a person:',
        needs,
      ].join('\n'),
    }
  })
}

/** What a piece of a page says. */
const textOf = ({html: text}: Html) =>
  text
    .replaceAll('<li>', '- ')
    .replaceAll('</li>', '\n')
    .replaceAll(/<[^>]*>/g, '')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&')
    .trim()

/** A page without its links: they lead to a server, which a file has not behind it. */
function renderPart({title, body}: Page): Html {
  const text = body.html
    .replaceAll(/<p class="choices">[\s\S]*?<\/p>|<form[\s\S]*?<\/form>/g, '')
    .replaceAll(/<a href="\/[^"]*"[^>]*>([\s\S]*?)<\/a>/g, '$1')
  return html`<h2 class="part">${title}</h2>${markup(text)}`
}
