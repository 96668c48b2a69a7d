import {newError} from '../errors.ts'
import {count, instant} from '../page/figures.ts'
import {type Html, html, markup} from '../page/html.ts'
import {renderPage} from '../page/html-page.ts'
import {renderQuality} from '../page/portfolio-report.ts'
import {readPortfolio} from '../pipeline/report.ts'
import type {Release} from '../release/manifest.ts'
import {openRelease} from '../release/open-release.ts'
import {parseFilter} from './filter.ts'
import {viewMorning} from './morning.ts'
import {viewPipeline} from './pipeline.ts'
import {viewPortfolio} from './portfolio.ts'
import {findLacking, type Page, type View} from './view.ts'

/** A release tells nothing of what goes on. */
const NOTHING = {alarms: [], lastSync: undefined, next: [], holder: undefined}

/**
 * The pages Morning, Portfolio and Pipeline of a release as one self-contained file.
 *
 * @throws ConfigError `REPORT_TABLE` of a release that lacks what they read
 */
export async function renderReport(release: Release): Promise<string> {
  const {manifest} = release
  const {release_id, as_of, checks} = manifest
  const lacking = findLacking(release)
  if (lacking !== undefined)
    throw newError(
      'REPORT_TABLE',
      `Release '${release_id}' has no table '${lacking}': expected a whole one that this version built.`,
      {next: 'Run `loantape build`, or name its date with --as-of.'},
    )
  await using db = await openRelease(release, {withWork: true})
  await db.run(`set search_path = 'release.main,kept.work'`)
  const query = new URLSearchParams()
  const view: View = {release, tables: db, whole: db, filter: parseFilter(query), query}
  const pages = [await viewMorning(view, NOTHING), await viewPortfolio(view), await viewPipeline(view)]
  const {quality} = await readPortfolio(db, manifest)
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
}

/** A page without its links: they lead to a server, which a file has not behind it. */
function renderPart({title, body}: Page): Html {
  const text = body.html
    .replaceAll(/<p class="choices">[\s\S]*?<\/p>/g, '')
    .replaceAll(/<a href="\/[^"]*"[^>]*>([\s\S]*?)<\/a>/g, '$1')
  return html`<h2 class="part">${title}</h2>${markup(text)}`
}
