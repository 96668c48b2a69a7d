import {explainError} from '../errors.ts'
import {type Column, count, instant, span, table} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {type RowOf, rowOf} from '../release-row.ts'
import type {View} from './view.ts'

/** Walks that are shown; the table has all. */
const SHOWN = 20

const walkRow = rowOf(
  'mart.run',
  [
    'stream',
    'business_date',
    'started_at',
    'ended_at',
    'pages',
    'records',
    'quarantined',
    'waited_ms',
    'resumed',
    'is_shifted',
  ],
  {changed: 'number?'},
)
type Walk = RowOf<typeof walkRow>

/** The certificates of the last walks that count in a release. */
export async function renderWalks({whole}: View): Promise<Html> {
  const walks = await whole
    .all(
      walkRow,
      `select *, created + updated + missing + vanished + restored as changed
       from mart.run order by recorded_at desc limit ${SHOWN}`,
    )
    .catch((error: unknown) => explainError(error))
  return html`<h2>Last walks</h2>
<p class="muted small">Each saw its list to the end. <a href="/tables/mart.run">All certificates</a>, <a href="/quarantine">what could not be read</a>.</p>
${Array.isArray(walks) ? table(COLUMNS, walks) : html`<p class="notice">${walks.message}</p>`}`
}

const instantOf = (text: string) => `${text.replace(' ', 'T')}Z`

const COLUMNS: Column<Walk>[] = [
  {title: 'Of', cell: ({stream}) => html`<b>${stream}</b>`},
  {title: 'Day', cell: ({business_date}) => html`<span class="day">${business_date}</span>`},
  {title: 'Began', cell: ({started_at}) => instant(started_at)},
  {
    title: 'Took',
    cell: ({started_at, ended_at}) =>
      ended_at === null ? '' : span(Date.parse(instantOf(ended_at)) - Date.parse(instantOf(started_at))),
  },
  {title: 'Waited', cell: ({waited_ms}) => (waited_ms === null ? '–' : span(waited_ms))},
  {title: 'Pages', kind: 'number', cell: ({pages}) => count(pages)},
  {title: 'Records', kind: 'number', cell: ({records}) => count(records)},
  {title: 'Not read', kind: 'number', cell: ({quarantined}) => count(quarantined)},
  {title: 'Changed', kind: 'number', cell: ({changed}) => count(changed)},
  {
    title: 'How',
    cell: ({resumed, is_shifted}) =>
      [resumed !== null && resumed > 0 && `taken up again ${resumed}×`, is_shifted && 'the list moved']
        .filter(Boolean)
        .join(', '),
  },
]
