import {realpathSync} from 'node:fs'
import {dirname} from 'node:path'
import {isCalendarDate, parseInstant} from '../core/clock.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Release} from '../store/release.ts'
import {askFirst} from './actions.ts'
import {instant} from './figures.ts'
import type {Filter} from './filter.ts'
import {type Html, html} from './html.ts'
import {viewPage} from './pages.ts'
import {listReleases} from './reader.ts'
import type {AskingView, Page} from './view.ts'

/** Why there is nothing to show, and what to do about it. */
export function describeNone(folder: DataFolder, {values}: Filter, mayAct: boolean): Page {
  const kept = [...new Set(listReleases(folder).map(({manifest}) => manifest.as_of))].sort().toReversed()
  if (kept.length === 0)
    return {
      title: 'No release yet',
      body: html`<p>The first <code>loantape sync</code> makes one; until then there is nothing to show. <a href="/runs">Runs</a> shows what is under way.</p>`,
    }
  const [asOf = kept[0] ?? ''] = values.get('as_of') ?? []
  const [knownAt = ''] = values.get('known_at') ?? []
  return {
    title: 'No such release',
    body: html`<p>None of this day and moment is kept. Any past one can be built again: <code>loantape build --as-of</code>.</p>
${mayAct && offerBuild(asOf, knownAt)}
<p>There are, by day:</p>
<ul>${kept.map((day) => html`<li><a href="/?as_of=${day}">${day}</a></li>`)}</ul>`,
  }
}

/** A form that builds the release of a day, as it was known at the end of a day, or at an instant in UTC. */
function offerBuild(asOf: string, knownAt: string): Html | false {
  const instant = isCalendarDate(knownAt)
    ? `${knownAt}T23:59:59.999999Z`
    : knownAt === ''
      ? ''
      : `${knownAt}Z`
  if (!isCalendarDate(asOf) || (instant !== '' && parseInstant(instant) === null)) return false
  const known = instant === '' ? 'all that is known today' : html`what was known by ${instant}`
  return askFirst(`Build the release of ${asOf}`, {
    asked: {do: 'build', as_of: asOf, known_at: instant},
    says: html`It holds ${known}, and lies beside the current one, which stays (<code>loantape build --as-of ${asOf}${instant !== '' && ` --known-at ${instant}`}</code>).`,
    button: 'Build it',
  })
}

/** The newest release of the same business date. */
const findNewest = ({dir, manifest: {as_of}}: Release) =>
  listReleases({releases: dirname(realpathSync(dir))})
    .filter(({manifest}) => manifest.as_of === as_of)
    .sort((a, b) => (a.manifest.known_at < b.manifest.known_at ? 1 : -1))[0]

/** How many deals are named under a total; the others are counted. */
const NAMED = 100

/**
 * `/compare`: what was believed of a day when the release was built, against what the newest release of that day says.
 */
export async function viewCompare(view: AskingView): Promise<Page> {
  const newest = findNewest(view.release) ?? view.release
  const [then, now] = [view.release.manifest, newest.manifest]
  const title = `What was believed of ${then.as_of}`
  if (then.release_id === now.release_id)
    return {
      title,
      body: html`<p class="empty">No release of ${then.as_of} is kept that knows more. <code>loantape build --as-of ${then.as_of}</code> builds one with all that is known today.</p>${view.mayAct && offerBuild(then.as_of, '')}`,
    }
  const moved = await view.history.ask('diff', then.release_id, now.release_id)
  const whole = moved.filter(({status}) => status === null)
  const totals = whole.map(({parts, ...total}) => ({...total, deals: parts.length}))
  const parts = whole.flatMap((each) =>
    each.parts.slice(0, NAMED).map((part) => ({...part, total: each.total})),
  )
  const page = await viewPage('parts/compare', view, {
    params: {totals: JSON.stringify(totals), parts: JSON.stringify(parts)},
  })
  return {
    title,
    body: html`<p>Then: known at <b>${instant(then.known_at)}</b>. Now: known at <b>${instant(now.known_at)}</b>, release <a href="/?as_of=${now.as_of}"><code>${now.release_id}</code></a>.</p>
${page?.body}`,
  }
}
