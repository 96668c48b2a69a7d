import {addDays} from '../../../src/core/clock.ts'
import {endingOf, isInBook, type Life, listLives, type Movement, TERMS, type Version} from './life.ts'
import {listMarts, listQualities, stateOf} from './marts.ts'
import {daysFrom, listStays} from './stays.ts'
import type {Facts, Walk} from './truth.ts'

/** An expected table row: the compared columns, amounts in cents, counts and shares as numbers. */
export type Row = Record<string, string | number | bigint | boolean | null>

/**
 * Returns the expected content of every compared table of a release.
 * @param booksEnded whether the mapping has an account for endings; otherwise another system books them
 */
export function listTables(truth: Facts, asOf: string, booksEnded: boolean): Record<string, Row[]> {
  const lives = listLives(truth, asOf)
  const present = listPresent(lives)
  return {
    'core.deal': present.map((life) => dealRow(life, truth, asOf)),
    'core.deal_history': lives.flatMap(historyRows),
    'core.status_change': lives.flatMap((life) => statusRows(life, truth, asOf)),
    'core.field_change': lives.flatMap(fieldRows),
    'mart.portfolio_summary': [summaryRow(present, asOf)],
    'mart.position_daily': positionRows(lives, truth, asOf),
    [FIRST_RUNS]: truth.walks
      .filter((walk) => walk.on <= asOf && isFirstOfDay(walk, truth.walks))
      .map(runRow),
    'mart.movement': lives.flatMap((life) => moveRows(life, truth)),
    'mart.funded_rollforward': rollforwardRows(lives, truth, asOf),
    'mart.funded_rollforward_deal': lives.flatMap(({movements}) => movements.map(movementRow)),
    'mart.origination_monthly': originationRows(lives),
    'accounting.tie_out': tiedRows(lives, booksEnded),
    'accounting.loan_register': fundedOf(present).map(({id, last}) => ({
      deal_id: id,
      loan_amount: last.amount,
      loan_program: last.program,
    })),
    ...listMarts(lives, truth, asOf),
    ...listQualities(lives, truth, asOf),
  }
}

export function listPresent(lives: readonly Life[]): Life[] {
  return lives.filter(({last}) => last.change !== 'vanished')
}

function instant(at: number): string {
  const text = new Date(at).toISOString().slice(0, -1).replace('T', ' ')
  return text.replace(/\.?0+$/, (zeros) => (zeros.startsWith('.') || text.includes('.') ? '' : zeros))
}

export const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((one, other) => one + other, 0n)
export const amountsOf = (of: readonly {amount: bigint}[]): bigint => sum(of.map(({amount}) => amount))
export const amountOf = (lives: readonly Life[]): bigint => sum(lives.map(({last}) => last.amount))
export const fundedOf = (lives: readonly Life[]): Life[] => lives.filter(({last}) => isInBook(last))
export const isOpen = ({last}: Life): boolean => !last.statusClass.startsWith('ended')
export const totalsOf = (prefix: string, lives: readonly Life[]): Row => ({
  [`${prefix}deals`]: lives.length,
  [`${prefix}amount`]: amountOf(lives),
})
export const ratiosOf = (prefix: string, lives: readonly Life[]): Row => ({
  [`${prefix}wa_ltv`]: weighted(lives),
  [`${prefix}pooled_ltv`]: pooled(lives),
})

/** Returns a deal's loan-to-value in billionths, rounded half up; null if unknown or implausible. */
export function billionths({last: {amount, value}}: Pick<Life, 'last'>): bigint | null {
  if (value === null || value <= 0n || amount > value * 10n) return null
  return (2n * amount * 1_000_000_000n + value) / (2n * value)
}

function dealRow(life: Life, truth: Facts, asOf: string): Row {
  const {id, last, spells, createdOn} = life
  const stay = listStays(life, truth, asOf).at(-1)!
  const ltv = billionths(life)
  const fundedFrom = spells.findLastIndex(({statusClass}) => statusClass !== 'funded') + 1
  const funding = last.statusClass === 'funded' ? spells[fundedFrom] : undefined
  const fundedBefore = spells.slice(0, fundedFrom).findLastIndex(({statusClass}) => statusClass === 'funded')
  const endedBefore = fundedBefore === -1 ? '' : spells[fundedBefore + 1]!.on
  const date = truth.reference.fundedOn[id]
  const isOfThisSpell =
    date !== undefined && funding && date <= funding.on && date > endedBefore && date <= asOf
  const given = isOfThisSpell ? date : undefined
  return {
    deal_id: id,
    state: stateOf(last),
    ...contentOf(last),
    ltv: ltv === null ? null : `${ltv / 1_000_000_000n}.${String(ltv % 1_000_000_000n).padStart(9, '0')}`,
    created_on: createdOn,
    first_seen_at: instant(spells[0]!.at),
    last_changed_at: instant(last.from),
    status_since: stay.since,
    status_since_is_exact: stay.isExact,
    status_since_at_earliest: stay.earliest,
    status_since_at_latest: stay.latest,
    funded_on: given ?? (fundedFrom > 0 ? funding?.on : null) ?? null,
    funded_after: funding?.after ?? null,
    funded_before: given ?? funding?.on ?? null,
    funded_on_is_exact: funding
      ? given !== undefined ||
        (fundedFrom > 0 && funding.after !== null && addDays(funding.after, 1) >= funding.on)
      : null,
    first_funded_on: life.movements.find(({term}) => term === 'originated')?.on ?? null,
    is_missing: life.isMissing,
  }
}

const contentOf = ({address, amount, value, program, status, statusClass}: Version) => ({
  property_address: address,
  loan_amount: amount,
  property_value: value,
  loan_program: program,
  status,
  status_class: statusClass,
})

function historyRows({id, versions}: Life): Row[] {
  return versions.map((version) => ({
    deal_id: id,
    version: version.number,
    change: version.change,
    valid_from: instant(version.from),
    valid_to: version.to === null ? null : instant(version.to),
    business_date: version.on,
    ...contentOf(version),
  }))
}

function statusRows(life: Life, truth: Facts, asOf: string): Row[] {
  const {id, spells} = life
  const stays = listStays(life, truth, asOf)
  return spells.slice(1).map((spell, index) => {
    const before = stays[index]!
    const isKnown = index === 0 ? before.days !== null : before.isExact
    return {
      deal_id: id,
      from_status: before.status,
      to_status: spell.status,
      observed_at: instant(spell.at),
      observed_on: spell.on,
      days_in_previous: isKnown ? Math.max(0, daysFrom(before.since, spell.on)) : null,
    }
  })
}

function fieldRows({id, versions}: Life): Row[] {
  const fields = ['property_address', 'loan_amount', 'property_value', 'loan_program'] as const
  return versions.slice(1).flatMap((version, index) => {
    if (version.change === 'vanished') return []
    const [then, now] = [contentOf(versions[index]!), contentOf(version)]
    const observed = {deal_id: id, observed_at: instant(version.from), observed_on: version.on}
    return fields
      .filter((field) => then[field] !== now[field])
      .map((field) => ({...observed, field, old_value: then[field], new_value: now[field]}))
  })
}

/** The first walk of each day: a later one that brings nothing new makes no release, so its row is uncertain. */
const FIRST_RUNS =
  '(from mart.run qualify row_number() over (partition by business_date order by recorded_at) = 1)'

export function isFirstOfDay(walk: Walk, walks: readonly Walk[]): boolean {
  return walks.find(({on}) => on === walk.on) === walk
}

function runRow(walk: Walk): Row {
  return {
    business_date: walk.on,
    started_at: instant(walk.startedAt),
    is_complete: true,
    pages: walk.pages,
    records: walk.records,
    distinct_records: walk.distinct,
    quarantined: walk.quarantined,
    amount_total: walk.amount,
    ...walk.counts,
    present_deals: walk.present,
    present_amount: walk.presentAmount,
  }
}

const half = (part: bigint, whole: bigint) => (2n * part + whole) / (2n * whole)

function summaryRow(present: readonly Life[], asOf: string): Row {
  const [open, funded] = [present.filter(isOpen), fundedOf(present)]
  return {
    as_of: asOf,
    ...totalsOf('', present),
    ...totalsOf('open_', open),
    ...averagesOf('open_', open),
    ...totalsOf(
      'ended_',
      present.filter((life) => !isOpen(life)),
    ),
    ...totalsOf(
      'pipeline_',
      present.filter(({last}) => last.statusClass === 'pipeline'),
    ),
    ...totalsOf('funded_', funded),
    ...averagesOf('funded_', funded),
  }
}

function averagesOf(prefix: string, lives: readonly Life[]): Row {
  const amounts = lives.map(({last}) => last.amount).sort((a, b) => (a < b ? -1 : 1))
  const middle = (amounts[(amounts.length - 1) >> 1] ?? 0n) + (amounts[amounts.length >> 1] ?? 0n)
  const isEmpty = amounts.length === 0
  return {
    ...ratiosOf(prefix, lives),
    [`${prefix}ltv_coverage_pct`]: ratio(amountOf(listValued(lives)) * 100n, sum(amounts)),
    [`${prefix}average_amount`]: isEmpty ? null : half(sum(amounts), BigInt(amounts.length)),
    [`${prefix}median_amount`]: isEmpty ? null : half(middle, 2n),
    [`${prefix}largest_amount`]: amounts.at(-1) ?? null,
  }
}

export function ratio(part: bigint, whole: bigint): number | null {
  return whole === 0n ? null : Number((part * 1_000_000_000_000n) / whole) / 1e12
}

/** Lists the deals whose loan-to-value counts in averages: it is known and at most 1.5. */
const listValued = (lives: readonly Life[]) =>
  lives.filter((life) => (billionths(life) ?? 2n ** 64n) <= 1_500_000_000n)

export function weighted(lives: readonly Life[]): number | null {
  const valued = listValued(lives)
  const weights = sum(valued.map((life) => life.last.amount * billionths(life)!))
  return ratio(weights, amountOf(valued) * 1_000_000_000n)
}

function pooled(lives: readonly Life[]): number | null {
  const valued = listValued(lives)
  return ratio(amountOf(valued), sum(valued.map(({last}) => last.value!)))
}

const versionOn = ({versions}: Life, day: string) => versions.findLast(({on}) => on <= day)

/** Returns the version of a deal at the end of a day; undefined if the deal is gone. */
export function standingOn(life: Life, day: string): Version | undefined {
  const version = versionOn(life, day)
  return version?.change === 'vanished' ? undefined : version
}

function positionRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const statuses = new Set(lives.flatMap(({versions}) => versions.map(({status}) => status)))
  return listDays(truth.walks[0]!.on, asOf).flatMap((day) => {
    const observed = truth.walks.some(({on}) => on === day)
    const standing = lives.flatMap((life) => standingOn(life, day) ?? [])
    return [...statuses].map((status) => {
      const those = standing.filter((version) => version.status === status)
      return {day, status, deals: those.length, amount: amountsOf(those), observed}
    })
  })
}

export function listDays(from: string, to: string): string[] {
  const days: string[] = []
  for (let day = from; day <= to; day = addDays(day, 1)) days.push(day)
  return days
}

function moveRows(life: Life, truth: Facts): Row[] {
  const firstOn = truth.walks[0]!.on
  const rows: Row[] = []
  let before: Version | undefined
  let wasEverThere = false
  const days = new Set([firstOn, ...life.versions.map(({on}) => on).filter((on) => on > firstOn)])
  for (const day of [...days].sort()) {
    const after = standingOn(life, day)
    const amountIf = (counts: (one: Version) => boolean, one?: Version) =>
      one && counts(one) ? one.amount : 0n
    const adds = (counts: (one: Version) => boolean) => amountIf(counts, after) - amountIf(counts, before)
    const arrived = wasEverThere ? 'returned' : day === firstOn ? 'opening' : 'came'
    if (before?.status !== after?.status || before?.amount !== after?.amount)
      rows.push({
        day,
        deal_id: life.id,
        what: before ? howItMoved(before, after, truth) : arrived,
        status_before: before?.status ?? null,
        status_after: after?.status ?? null,
        class_before: before?.statusClass ?? null,
        class_after: after?.statusClass ?? null,
        amount_before: before?.amount ?? null,
        amount_after: after?.amount ?? null,
        open: adds(({statusClass}) => !statusClass.startsWith('ended')),
        funded: adds(({statusClass}) => statusClass === 'funded'),
        pipeline: adds(({statusClass}) => statusClass === 'pipeline'),
      })
    before = after
    wasEverThere ||= after !== undefined
  }
  return rows
}

function howItMoved(before: Version, after: Version | undefined, truth: Facts): string {
  if (!after) return 'gone'
  const [from, to] = [before.statusClass, after.statusClass]
  if (from === to) {
    if (before.status !== after.status) return 'status'
    return after.amount > before.amount ? 'increased' : 'decreased'
  }
  if (to === 'funded') return 'funded'
  if (to === 'ended_funded') return endingOf(after, truth)
  if (from === 'funded') return 'reversed'
  if (to === 'ended_unfunded') return 'fell_out'
  return from === 'ended_funded' || from === 'ended_unfunded' ? 'reopened' : 'status'
}

export function listMonths(truth: Facts, asOf: string): string[] {
  const days = listDays(truth.walks[0]!.on, `${asOf.slice(0, 7)}-31`)
  return [...new Set(days.map((day) => day.slice(0, 7)))]
}

function rollforwardRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const movements = lives.flatMap((life) => life.movements)
  let opening = amountsOf(movements.filter(({term}) => term === 'opening'))
  return listMonths(truth, asOf).map((month) => {
    const moved = TERMS.map((term) => [
      term,
      amountsOf(movements.filter((one) => one.term === term && one.month === month)),
    ])
    const standing = lives.flatMap((life) => versionOn(life, `${month}-31`) ?? [])
    const closing = amountsOf(standing.filter(isInBook))
    const row: Row = {month, opening, ...Object.fromEntries(moved), closing, difference: 0n}
    opening = closing
    return row
  })
}

function movementRow({deal, month, on, term, amount, version}: Movement): Row {
  return {month, deal_id: deal, term, amount, business_date: on, version: version.number}
}

/** Returns how each term that moved anything is booked: openings are not, endings only if there is an account. */
function tiedRows(lives: readonly Life[], booksEnded: boolean): Row[] {
  const movements = lives.flatMap((life) => life.movements.filter(({amount}) => amount > 0n))
  return [...Map.groupBy(movements, ({month, term}) => `${month} ${term}`).values()].map((those) => {
    const {month, term} = those[0]!
    const amount = amountsOf(those)
    const elsewhere = booksEnded ? 0n : amountsOf(those.filter(({ending}) => ending))
    const isOpening = term === 'opening' || term === 'found'
    const place = isOpening ? 'opening_balance' : 'booked'
    const nothing = {booked: 0n, opening_balance: 0n, no_account: 0n, difference: 0n}
    return {month, term, amount, ...nothing, elsewhere, [place]: amount - elsewhere}
  })
}

function originationRows(lives: readonly Life[]): Row[] {
  const originated = lives.flatMap(({movements}) => movements.filter(({term}) => term === 'originated'))
  const keyOf = ({month, program}: Movement) => JSON.stringify([month, program ?? 'unknown'])
  return [...Map.groupBy(originated, keyOf)].map(([key, those]) => {
    const [month = '', loan_program = ''] = JSON.parse(key) as string[]
    return {month, loan_program, deals: those.length, amount: amountsOf(those)}
  })
}
