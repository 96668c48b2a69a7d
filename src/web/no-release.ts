import {isCalendarDate, parseInstant} from '../clock.ts'
import {type Html, html} from '../page/html.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {askFirst} from './actions.ts'
import type {Filter} from './filter.ts'
import {listReleases} from './find-release.ts'
import type {Page} from './view.ts'

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
export function offerBuild(asOf: string, knownAt: string): Html | false {
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
