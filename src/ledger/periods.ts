import {gunzipSync, gzipSync} from 'node:zlib'
import {z} from 'zod'
import {type AccountMapping, FIRST_PERIOD, type MappingVersion, parseMapping} from '../contract/mapping.ts'
import {type JournalLine, journalLineSchema} from '../journal-line.ts'
import {type ReleaseManifest, releaseManifestSchema} from '../release-manifest.ts'
import type {Ledger} from './ledger.ts'

/** A funded loan as the register of a closed period has it; amounts are decimal text. */
export type RegisteredLoan = z.output<typeof registeredLoanSchema>
export const registeredLoanSchema = z.object({
  deal_id: z.string(),
  property_address: z.string().nullable(),
  loan_program: z.string().nullable(),
  loan_amount: z.string(),
  funded_on: z.string(),
  funded_on_is_exact: z.boolean(),
})

/** What is kept of a period when it is closed: enough to export it without a release. */
export interface ClosedPeriod {
  /** `YYYY-MM` */
  period: string
  /** The manifest of the release it was closed with. */
  release: ReleaseManifest
  mapping: AccountMapping
  lines: JournalLine[]
  register: RegisteredLoan[]
  /** The history it stands on; null in months that an earlier version closed. */
  historyId: string | null
}

const periodRow = z.object({period: z.string()})

/** The closed periods in order. They follow each other without a gap: periods are closed and reopened in order. */
export function listClosedPeriods(ledger: Ledger): string[] {
  return ledger.all(periodRow, 'select period from closed_period order by period').map(({period}) => period)
}

const closedRow = z.object({
  period: z.string(),
  release: z.string(),
  mapping: z.string(),
  lines: z.instanceof(Uint8Array),
  register: z.instanceof(Uint8Array),
  history_id: z.string().nullable(),
})

/** What was kept of a closed period; undefined when it is open. */
export function findClosedPeriod(ledger: Ledger, period: string): ClosedPeriod | undefined {
  const row = ledger.first(closedRow, 'select * from closed_period where period = ?', [period])
  return (
    row && {
      period,
      release: releaseManifestSchema.parse(JSON.parse(row.release)),
      mapping: readMapping(period, row.mapping),
      lines: z.array(journalLineSchema).parse(unpack(row.lines)),
      register: z.array(registeredLoanSchema).parse(unpack(row.register)),
      historyId: row.history_id,
    }
  )
}

/** Keeps a period as it is now. */
export function storeClosedPeriod(ledger: Ledger, closed: ClosedPeriod): void {
  ledger.insert('closed_period', {
    period: closed.period,
    release: JSON.stringify(closed.release),
    mapping: JSON.stringify(closed.mapping),
    lines: pack(closed.lines),
    register: pack(closed.register),
    history_id: closed.historyId,
  })
}

/** The history each closed period stands on. */
export function listClosedStands(ledger: Ledger): {period: string; history_id: string | null}[] {
  const row = closedRow.pick({period: true, history_id: true})
  return ledger.all(row, 'select period, history_id from closed_period order by period')
}

/** Lets everything issued and closed stand on this history. To be called within a transaction. */
export function moveStands(ledger: Ledger, historyId: string): void {
  for (const table of ['journal_batch', 'closed_period']) {
    ledger.run(`update ${table} set history_id = ?`, [historyId])
  }
}

/** Forgets what was kept of a period: it is open again. */
export function dropClosedPeriod(ledger: Ledger, period: string): void {
  ledger.run('delete from closed_period where period = ?', [period])
}

/** Notes that balances are moved to the mapping that holds from this period on. */
export function storeRemap(ledger: Ledger, period: string): void {
  ledger.insert('remapped_period', {period}, 'or ignore')
}

/** Lets a move of balances begin a period earlier: where the mapping does, when that period is reopened. */
export function advanceRemap(ledger: Ledger, period: string): void {
  const {changes} = ledger.run('delete from remapped_period where period = ?', [nextPeriod(period)])
  if (changes > 0) storeRemap(ledger, period)
}

/** Notes what was done to a period; notes are never changed. */
export function recordPeriodEvent(ledger: Ledger, event: PeriodEvent): void {
  ledger.insert('period_event', event)
}

/** What was done to a period, by whom, when (ISO 8601, real clock) and why. */
export type PeriodEvent = z.output<typeof eventRow>
const eventRow = z.object({
  period: z.string(),
  action: z.enum(['close', 'reopen', 'remap', 'true-up']),
  at: z.string(),
  who: z.string(),
  why: z.string().nullable(),
})

/** Everything that was done to periods, oldest first. */
export function listPeriodEvents(ledger: Ledger): PeriodEvent[] {
  return ledger.all(eventRow, 'select * from period_event order by event_id')
}

/**
 * Which mapping holds when: closed periods keep theirs, `current` holds from the first open period on.
 *
 * @param until only what holds in periods up to this one: later mappings move nothing in it
 */
export function listMappingVersions(
  ledger: Ledger,
  current: AccountMapping,
  until: string,
): MappingVersion[] {
  const closed = ledger.all(
    closedRow.pick({period: true, mapping: true}),
    'select period, mapping from closed_period order by period',
  )
  const moves = ledger.all(periodRow, 'select period from remapped_period')
  const remapped = new Set(moves.map(({period}) => period))
  const all = [
    ...closed.map(({period, mapping}) => ({since: period, mapping: readMapping(period, mapping)})),
    {since: findFirstOpen(ledger) ?? FIRST_PERIOD, mapping: current},
  ]
  const versions: MappingVersion[] = []
  for (const {since, mapping} of all) {
    const before = versions.at(-1)
    const isSame = before !== undefined && JSON.stringify(before.mapping) === JSON.stringify(mapping)
    if (isSame && !remapped.has(since)) continue
    if (before && since > until) break
    versions.push({
      since: before ? since : FIRST_PERIOD,
      mapping,
      movesBalances: before !== undefined && remapped.has(since),
    })
  }
  return versions
}

/** The first period that is open; undefined when none is closed: then all are. */
export function findFirstOpen(ledger: Ledger): string | undefined {
  const last = listClosedPeriods(ledger).at(-1)
  return last === undefined ? undefined : nextPeriod(last)
}

/**
 * The date an entry, or the reversal of one, gets: its own where its month is open, else the first day of the first that is.
 *
 * @param closed the closed periods in order
 */
export function createDating(closed: readonly string[]): (date: string) => string {
  const last = closed.at(-1)
  if (last === undefined) return (date) => date
  return (date) => (closed.includes(date.slice(0, 7)) ? `${nextPeriod(last)}-01` : date)
}

/** The period after `YYYY-MM`. */
export function nextPeriod(period: string): string {
  const [year = 0, month = 0] = period.split('-').map(Number)
  return month === 12 ? `${year + 1}-01` : `${year}-${String(month + 1).padStart(2, '0')}`
}

function readMapping(period: string, json: string): AccountMapping {
  return parseMapping(json, `kept in the ledger for ${period}`)
}

function pack(value: unknown): Uint8Array {
  return gzipSync(JSON.stringify(value))
}

function unpack(content: Uint8Array): unknown {
  return JSON.parse(gunzipSync(content).toString())
}
