import type {MovementPart, TotalMovement} from '../build/movement.ts'
import {isCalendarDate, parseInstant} from '../core/clock.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Release} from '../store/release.ts'
import {askFirst} from './actions.ts'
import {type Column, count, dollars, instant, linked, signed, table} from './figures.ts'
import type {Filter} from './filter.ts'
import {addressOfDeal} from './filter.ts'
import type {History} from './history.ts'
import {type Html, html} from './html.ts'
import {describeMove} from './morning.ts'
import {listReleases} from './reader.ts'
import type {Page, View} from './view.ts'

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

/** How many deals are named under a total; the others are counted. */
const NAMED = 100

const TITLES = {
  deals: 'Deals',
  amount: 'Amount',
  funded_deals: 'Funded deals',
  funded_amount: 'Funded amount',
}

/**
 * `/compare`: what was believed of a day when the release was built, against what the newest release of that day says.
 */
export async function viewCompare(
  {release}: View,
  newest: Release,
  history: History,
  mayAct: boolean,
): Promise<Page> {
  const [then, now] = [release.manifest, newest.manifest]
  const title = `What was believed of ${then.as_of}`
  if (then.release_id === now.release_id)
    return {
      title,
      body: html`<p class="empty">No release of ${then.as_of} is kept that knows more. <code>loantape build --as-of ${then.as_of}</code> builds one with all that is known today.</p>${mayAct && offerBuild(then.as_of, '')}`,
    }
  const totals = await history.ask('diff', then.release_id, now.release_id)
  const whole = totals.filter(({status}) => status === null)
  const columns: Column<TotalMovement>[] = [
    {title: 'Total', cell: ({total}) => TITLES[total]},
    {title: 'Then', kind: 'number', cell: ({total, before}) => show(total, before)},
    {title: 'Now', kind: 'number', cell: ({total, after}) => show(total, after)},
    {title: 'Difference', kind: 'number', cell: ({total, movement}) => show(total, movement)},
    {
      title: 'Deals behind it',
      kind: 'number',
      cell: ({total, parts}) => linked(count(parts.length), `#${total}`),
    },
  ]
  return {
    title,
    body: html`<p>Then: known at <b>${instant(then.known_at)}</b>. Now: known at <b>${instant(now.known_at)}</b>, release <a href="/?as_of=${now.as_of}"><code>${now.release_id}</code></a>.</p>
${whole.length === 0 ? html`<p class="empty">Every total is the same.</p>` : table(columns, whole)}
${whole.map(renderParts)}`,
  }
}

const signedCount = (movement: string) =>
  movement.startsWith('-') ? `−${movement.slice(1)}` : `+${movement}`

const show = (total: TotalMovement['total'], value: string) =>
  total.endsWith('amount') ? dollars(value) : count(Number(value))

function renderParts({total, parts, movement}: TotalMovement): Html {
  const all: MovementPart = {
    deal_id: '',
    change: 'loan_amount',
    movement,
    is_corrected: false,
    before: null,
    after: null,
  }
  const columns: Column<MovementPart>[] = [
    {
      title: 'Deal',
      cell: (each) =>
        each === all ? 'All' : linked(html`<code>${each.deal_id}</code>`, addressOfDeal(each.deal_id)),
    },
    {
      title: TITLES[total],
      kind: 'number',
      cell: (each) => (total.endsWith('amount') ? signed(each.movement) : signedCount(each.movement)),
    },
    {
      title: 'What is known now',
      cell: ({before, after, is_corrected}) =>
        describeMove({
          status_before: before?.status ?? null,
          status_after: after?.status ?? null,
          amount_before: before?.loan_amount ?? null,
          amount_after: after?.loan_amount ?? null,
          is_corrected,
        }),
    },
  ]
  return html`<h2 id="${total}">${TITLES[total]}</h2>
${parts.length > NAMED && html`<p class="muted small">The ${count(NAMED)} largest of ${count(parts.length)}; <code>loantape diff</code> names all.</p>`}
${table(columns, parts.slice(0, NAMED), all)}`
}
