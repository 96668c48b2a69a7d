import {businessDateOf} from '../clock.ts'
import type {Counted} from './build-models.ts'
import {
  aBorrower,
  aDocument,
  aDrift,
  aListing,
  aQuarantine,
  aRate,
  aVersion,
  aWalk,
  type History,
  type Row,
} from './raw-rows.ts'

/** What became of a record, or its columns. */
export type Shown = 'missing' | 'vanished' | 'quarantined' | 'confirmed' | Row

/** By deal, by the child's own id; or that the list could not be read. */
export type Lists = Record<string, 'failed' | Record<string, Shown>>

/** What one walk of a case showed. */
export interface CaseWalk {
  /** Columns of `raw.walk`; `none` for what was observed between two walks. */
  certificate: 'none' | Row
  drift: Row[]
  /** Rows of `raw.rate` appended that day. */
  rates: Row[]
  /** What lists of borrowers and documents read in it showed that was new. */
  borrowers: Lists
  documents: Lists
  /** What it showed that was new, by deal. */
  deals: Record<string, Shown>
}

type Zone = Pick<Counted, 'timeZone' | 'dayCutoff'>

/** When a walk began: at an instant, which gives its business date; on a day alone it is 02:00 UTC. */
function startOf(key: string, zone: Zone): {day: string; startedAt: number} {
  const startedAt = Date.parse(key.includes('T') ? key : `${key}T02:00:00Z`)
  return {day: key.includes('T') ? businessDateOf(startedAt, zone) : key, startedAt}
}

const timestamp = (instant: number) => new Date(instant).toISOString().replace('T', ' ').replace('Z', '')
const MINUTE = 60_000

/**
 * The raw rows of a case's walks, by the days or instants they began at. A deal seen again keeps what is not said anew, except what its list row leaves out.
 */
export function buildCaseHistory(walks: Readonly<Record<string, CaseWalk>>, zone: Zone): Required<History> {
  const history: Required<History> = {
    versions: [],
    confirmations: [],
    walks: [],
    quarantine: [],
    drift: [],
    borrowers: [],
    documents: [],
    listings: [],
    rates: [],
  }
  const lastSeen = new Map<string, Row>()
  for (const [key, {certificate, drift, rates, borrowers, documents, deals}] of Object.entries(walks)) {
    const {day, startedAt} = startOf(key, zone)
    const walkId = `walk ${key}`
    const times = {started_at: timestamp(startedAt), ended_at: timestamp(startedAt + 10 * MINUTE)}
    const recorded_at = timestamp(startedAt + 30 * MINUTE)
    const settled_at = certificate === 'none' ? null : {recorded_at, ...certificate}.recorded_at
    if (certificate !== 'none') {
      history.walks.push(aWalk({day, walk_id: walkId, ...times, recorded_at, ...certificate}))
    }
    history.drift.push(
      ...drift.map(({stream = 'deal', ...found}) =>
        aDrift({stream, walk_id: stream === 'deal' ? walkId : childWalkId(day, stream), ...found}),
      ),
    )
    history.rates.push(...rates.map((row) => aRate({day, ...row})))
    const observed_at = timestamp(startedAt + 5 * MINUTE)
    for (const [dealId, shown] of Object.entries(deals)) {
      if (shown === 'quarantined') {
        history.quarantine.push(aQuarantine({day, record_id: dealId, observed_at, recorded_at: settled_at}))
        continue
      }
      if (shown === 'confirmed') {
        history.confirmations.push({deal_id: dealId, observed_at, business_date: day, recorded_at})
        continue
      }
      const row = {...lastSeen.get(dealId), ...(typeof shown === 'string' ? {kind: shown} : shown)}
      history.versions.push(aVersion({day, deal_id: dealId, observed_at, recorded_at, ...row}))
      if (typeof shown !== 'string') lastSeen.set(dealId, pickListed(row))
    }
    addLists(history, {stream: 'borrower', lists: borrowers, day, startedAt})
    addLists(history, {stream: 'document', lists: documents, day, startedAt})
  }
  return history
}

/** The raw rows of the lists that one walk of a child stream read. */
function addLists(
  history: Required<History>,
  read: {stream: 'borrower' | 'document'; lists: Lists; day: string; startedAt: number},
): void {
  const {stream, day, startedAt} = read
  if (Object.keys(read.lists).length === 0) return
  const walk_id = childWalkId(day, stream)
  const [observed_at, recorded_at] = [15, 40].map((minutes) => timestamp(startedAt + minutes * MINUTE))
  const times = {observed_at: observed_at ?? '', recorded_at: recorded_at ?? ''}
  history.walks.push(
    aWalk({
      day,
      walk_id,
      stream,
      records: Object.values(read.lists).reduce((sum, list) => sum + countRecords(list), 0),
      started_at: times.observed_at,
      recorded_at: times.recorded_at,
    }),
  )
  for (const [parent_id, list] of Object.entries(read.lists)) {
    const listing = {day, walk_id, stream, parent_id, observed_at: times.observed_at}
    if (list === 'failed') {
      history.listings.push(aListing({...listing, outcome: 'failed'}))
      continue
    }
    const quarantined = Object.values(list).filter((shown) => shown === 'quarantined').length
    history.listings.push(aListing({...listing, records: countRecords(list), quarantined}))
    for (const [id, shown] of Object.entries(list)) {
      if (shown === 'quarantined') continue
      const fields = typeof shown === 'string' ? {kind: shown} : shown
      const row = {day, walk_id, deal_id: parent_id, ...times, ...fields}
      if (stream === 'borrower') history.borrowers.push(aBorrower({borrower_id: id, ...row}))
      else history.documents.push(aDocument({document_id: id, ...row}))
    }
  }
}

const childWalkId = (day: string, stream: Row[string]) => `walk ${day} ${stream}`

/** The records a list held. */
function countRecords(list: Lists[string]): number {
  const absent: unknown[] = ['missing', 'vanished']
  return list === 'failed' ? 0 : Object.values(list).filter((shown) => !absent.includes(shown)).length
}

const LISTED = ['property_address', 'loan_amount', 'status', 'created_at', 'created_at_precision']

/** What a list row says again when nothing changed. */
function pickListed(row: Row): Row {
  return Object.fromEntries(Object.entries(row).filter(([column]) => LISTED.includes(column)))
}
