import {ENDINGS, isInBook, type Life, listLives, type Movement, type Version} from './life.ts'
import {listMarts, stateOf} from './marts.ts'
import {listQualities} from './quality.ts'
import {listStays} from './stays.ts'
import {laterDate} from './story.ts'
import type {Facts, Walk} from './truth.ts'

/** An expected table row: the compared columns, exact values as text, shares as numbers. */
export type Row = Record<string, string | number | boolean | null>

/**
 * The expected content of every table of a release.
 *
 * @param booksEnded whether the mapping has an account for endings; else another system books them
 */
export function listTables(truth: Facts, asOf: string, booksEnded: boolean): Record<string, Row[]> {
  const lives = listLives(truth, asOf)
  const present = listPresent(lives)
  return {
    'core.deal': present.map((life) => dealRow(life, truth, asOf)),
    'core.deal_history': lives.flatMap(historyRows),
    'core.status_change': lives.flatMap(statusRows),
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
    'accounting.loan_register': present
      .filter(isFunded)
      .map(({id, last}) => ({deal_id: id, loan_amount: dollars(last.amount), loan_program: last.program})),
    ...listMarts(lives, truth, asOf),
    ...listQualities(lives, truth, asOf),
  }
}

/** The present deals. */
export function listPresent(lives: readonly Life[]): Life[] {
  return lives.filter(({last}) => last.change !== 'vanished')
}

/** Cents as plain decimal text. */
export function dollars(cents: bigint): string {
  const digits = String(cents < 0n ? -cents : cents).padStart(3, '0')
  return `${cents < 0n ? '-' : ''}${digits.slice(0, -2)}.${digits.slice(-2)}`
}

function instant(at: number): string {
  const text = new Date(at).toISOString().slice(0, -1).replace('T', ' ')
  return text.replace(/\.?0+$/, (zeros) => (zeros.startsWith('.') || text.includes('.') ? '' : zeros))
}

export const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((one, other) => one + other, 0n)

const isFunded = ({last}: Life) => last.statusClass === 'funded'

/** The loan-to-value of a deal in billionths, rounded half up; null if unknown or implausible. */
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
    property_address: last.address,
    state: stateOf(last),
    loan_amount: dollars(last.amount),
    property_value: last.value === null ? null : dollars(last.value),
    ltv: ltv === null ? null : `${ltv / 1_000_000_000n}.${String(ltv % 1_000_000_000n).padStart(9, '0')}`,
    loan_program: last.program,
    status: last.status,
    status_class: last.statusClass,
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
        (fundedFrom > 0 && funding.after !== null && laterDate(funding.after, 1) >= funding.on)
      : null,
    first_funded_on: life.movements.find(({term}) => term === 'originated')?.on ?? null,
    is_missing: life.isMissing,
  }
}

function historyRows({id, versions}: Life): Row[] {
  return versions.map((version) => ({
    deal_id: id,
    version: String(version.number),
    change: version.change,
    valid_from: instant(version.from),
    valid_to: version.to === null ? null : instant(version.to),
    business_date: version.on,
    property_address: version.address,
    loan_amount: dollars(version.amount),
    property_value: version.value === null ? null : dollars(version.value),
    loan_program: version.program,
    status: version.status,
    status_class: version.statusClass,
  }))
}

const days = (from: string, to: string) => Math.round((Date.parse(to) - Date.parse(from)) / 86_400_000)

function statusRows({id, spells}: Life): Row[] {
  return spells.slice(1).map((spell, index) => {
    const before = spells[index]!
    const isUnseen = index === 0 && before.after === null
    return {
      deal_id: id,
      from_status: before.status,
      to_status: spell.status,
      observed_at: instant(spell.at),
      observed_on: spell.on,
      days_in_previous: isUnseen ? null : String(days(before.on, spell.on)),
    }
  })
}

function fieldRows({id, versions}: Life): Row[] {
  const rows: Row[] = []
  versions.forEach((version, index) => {
    const before = versions[index - 1]
    if (!before || version.change === 'vanished') return
    const texts = (of: typeof version) => ({
      property_address: of.address,
      loan_amount: dollars(of.amount),
      property_value: of.value === null ? null : dollars(of.value),
      loan_program: of.program,
    })
    const [then, now] = [texts(before), texts(version)]
    for (const field of ['property_address', 'loan_amount', 'property_value', 'loan_program'] as const) {
      if (then[field] === now[field]) continue
      const observed = {observed_at: instant(version.from), observed_on: version.on}
      rows.push({deal_id: id, field, old_value: then[field], new_value: now[field], ...observed})
    }
  })
  return rows
}

/** A later walk of a day that brings nothing new makes no release: only the first of each day is certain. */
const FIRST_RUNS =
  '(from mart.run qualify row_number() over (partition by business_date order by recorded_at) = 1)'

/** Whether no earlier walk counted for its day. */
export function isFirstOfDay(walk: Walk, walks: readonly Walk[]): boolean {
  return walks.find(({on}) => on === walk.on) === walk
}

function runRow(walk: Walk): Row {
  const {on, startedAt, pages, records, distinct, quarantined, amount, counts, present, presentAmount} = walk
  const texts = Object.entries(counts).map(([name, count]) => [name, String(count)])
  return {
    business_date: on,
    started_at: instant(startedAt),
    is_complete: true,
    pages: String(pages),
    records: String(records),
    distinct_records: String(distinct),
    quarantined: String(quarantined),
    amount_total: dollars(amount),
    ...Object.fromEntries(texts),
    present_deals: String(present),
    present_amount: dollars(presentAmount),
  }
}

/** One integer divided by another, rounded half up. */
const half = (part: bigint, whole: bigint) => (2n * part + whole) / (2n * whole)

function summaryRow(present: readonly Life[], asOf: string): Row {
  const of = (chosen: readonly Life[]) => dollars(sum(chosen.map(({last}) => last.amount)))
  const funded = present.filter(isFunded)
  const pipeline = present.filter(({last}) => last.statusClass === 'pipeline')
  const open = present.filter(isOpen)
  return {
    as_of: asOf,
    deals: String(present.length),
    amount: of(present),
    open_deals: String(open.length),
    open_amount: of(open),
    ...averages('open', open),
    ended_deals: String(present.length - open.length),
    ended_amount: of(present.filter((life) => !isOpen(life))),
    pipeline_deals: String(pipeline.length),
    pipeline_amount: of(pipeline),
    funded_deals: String(funded.length),
    funded_amount: of(funded),
    ...averages('funded', funded),
  }
}

function averages(part: string, lives: readonly Life[]): Row {
  const amounts = lives.map(({last}) => last.amount).sort((a, b) => (a < b ? -1 : 1))
  const middle = (amounts[(amounts.length - 1) >> 1] ?? 0n) + (amounts[amounts.length >> 1] ?? 0n)
  const isEmpty = amounts.length === 0
  const covered = ratio(sum(listValued(lives).map(({last}) => last.amount)) * 100n, sum(amounts))
  return {
    [`${part}_wa_ltv`]: weighted(lives),
    [`${part}_pooled_ltv`]: pooled(lives),
    [`${part}_ltv_coverage_pct`]: covered,
    [`${part}_average_amount`]: isEmpty ? null : dollars(half(sum(amounts), BigInt(amounts.length))),
    [`${part}_median_amount`]: isEmpty ? null : dollars(half(middle, 2n)),
    [`${part}_largest_amount`]: isEmpty ? null : dollars(amounts.at(-1)!),
  }
}

/** A ratio of cents as a number; null for a whole of zero. */
export function ratio(part: bigint, whole: bigint): number | null {
  return whole === 0n ? null : Number((part * 1_000_000_000_000n) / whole) / 1e12
}

/** Whether a deal has not ended. */
export function isOpen({last}: Life): boolean {
  return !last.statusClass.startsWith('ended')
}

/** A loan-to-value above 1.5 is left out of averages. */
const listValued = (lives: readonly Life[]) =>
  lives.filter((life) => (billionths(life) ?? 2n ** 64n) <= 1_500_000_000n)

/** Loan-to-value weighted by amount, over the deals that have one. */
export function weighted(lives: readonly Life[]): number | null {
  const valued = listValued(lives)
  const weights = sum(valued.map((life) => life.last.amount * billionths(life)!))
  return ratio(weights, sum(valued.map(({last}) => last.amount)) * 1_000_000_000n)
}

/** Amounts divided by values, over the deals that have a loan-to-value. */
export function pooled(lives: readonly Life[]): number | null {
  const valued = listValued(lives)
  return ratio(sum(valued.map(({last}) => last.amount)), sum(valued.map(({last}) => last.value!)))
}

/** The version of a deal at the end of a day. */
export function versionOn({versions}: Life, day: string): Version | undefined {
  return versions.findLast(({on}) => on <= day)
}

function positionRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const statuses = new Set(lives.flatMap(({versions}) => versions.map(({status}) => status)))
  const rows: Row[] = []
  for (let day = truth.walks[0]!.on; day <= asOf; day = laterDate(day, 1)) {
    const observed = truth.walks.some(({on}) => on === day)
    const standing = lives.flatMap((life) => versionOn(life, day) ?? [])
    for (const status of statuses) {
      const amounts = standing
        .filter((version) => version.change !== 'vanished' && version.status === status)
        .map(({amount}) => amount)
      rows.push({day, status, deals: String(amounts.length), amount: dollars(sum(amounts)), observed})
    }
  }
  return rows
}

/** Each day at whose end a deal differs from the day before. */
function moveRows(life: Life, truth: Facts): Row[] {
  const firstOn = truth.walks[0]!.on
  const rows: Row[] = []
  let before: Version | undefined
  let wasEverThere = false
  const days = [firstOn, ...life.versions.map(({on}) => on).filter((on) => on > firstOn)]
  for (const day of [...new Set(days)].sort()) {
    const version = versionOn(life, day)
    const after = version?.change === 'vanished' ? undefined : version
    if (before?.status !== after?.status || before?.amount !== after?.amount) {
      const adds = (counts: (one: Version) => boolean) =>
        dollars(
          (after && counts(after) ? after.amount : 0n) - (before && counts(before) ? before.amount : 0n),
        )
      rows.push({
        day,
        deal_id: life.id,
        what:
          before || !after
            ? howItMoved(before!, after, truth)
            : wasEverThere
              ? 'returned'
              : day === firstOn
                ? 'opening'
                : 'came',
        status_before: before?.status ?? null,
        status_after: after?.status ?? null,
        class_before: before?.statusClass ?? null,
        class_after: after?.statusClass ?? null,
        amount_before: before ? dollars(before.amount) : null,
        amount_after: after ? dollars(after.amount) : null,
        open: adds(({statusClass}) => statusClass !== 'ended_funded' && statusClass !== 'ended_unfunded'),
        funded: adds(({statusClass}) => statusClass === 'funded'),
        pipeline: adds(({statusClass}) => statusClass === 'pipeline'),
      })
    }
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
  if (to === 'ended_funded') {
    const named = truth.reference.statuses[after.status]?.[2]
    return ENDINGS.find((one) => one === named) ?? 'ended_other'
  }
  if (from === 'funded') return 'reversed'
  if (to === 'ended_unfunded') return 'fell_out'
  return from === 'ended_funded' || from === 'ended_unfunded' ? 'reopened' : 'status'
}

/** Every month from the first walk to a day. */
export function listMonths(truth: Facts, asOf: string): string[] {
  const months: string[] = []
  for (
    let day = truth.walks[0]!.on;
    day.slice(0, 7) <= asOf.slice(0, 7);
    day = laterDate(`${day.slice(0, 7)}-28`, 4)
  )
    months.push(day.slice(0, 7))
  return months
}

const TERMS = [
  'found',
  'originated',
  'refunded',
  'restored',
  'increased',
  'decreased',
  'reversed',
  'vanished',
  ...ENDINGS,
] as const

function rollforwardRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const movements = lives.flatMap((life) => life.movements)
  let opening = sum(movements.filter(({term}) => term === 'opening').map(({amount}) => amount))
  return listMonths(truth, asOf).map((month) => {
    const moved = (wanted: Movement['term']) =>
      sum(movements.filter(({term, month: of}) => term === wanted && of === month).map(({amount}) => amount))
    const end = `${month}-31`
    const standing = lives.flatMap((life) => versionOn(life, end) ?? [])
    const closing = sum(standing.filter(isInBook).map(({amount}) => amount))
    const row: Row = {month, opening: dollars(opening), closing: dollars(closing), difference: '0.00'}
    for (const term of TERMS) row[term] = dollars(moved(term))
    opening = closing
    return row
  })
}

function movementRow({deal, month, on, term, amount}: Movement): Row {
  return {month, deal_id: deal, term, amount: dollars(amount), business_date: on}
}

/** How each term that moved anything is booked: openings are not, endings only if there is an account. */
function tiedRows(lives: readonly Life[], booksEnded: boolean): Row[] {
  const movements = lives.flatMap((life) => life.movements.filter(({amount}) => amount > 0n))
  return [...Map.groupBy(movements, ({month, term}) => `${month} ${term}`).values()].map((those) => {
    const {month, term} = those[0]!
    const amount = dollars(sum(those.map((one) => one.amount)))
    const isEnding = (ENDINGS as readonly string[]).includes(term)
    const place = ['opening', 'found'].includes(term)
      ? 'opening_balance'
      : isEnding && !booksEnded
        ? 'elsewhere'
        : 'booked'
    const zeros = {
      booked: '0.00',
      opening_balance: '0.00',
      elsewhere: '0.00',
      no_account: '0.00',
      difference: '0.00',
    }
    return {month, term, amount, ...zeros, [place]: amount}
  })
}

function originationRows(lives: readonly Life[]): Row[] {
  const groups = Map.groupBy(
    lives.flatMap(({movements}) => movements.filter(({term}) => term === 'originated')),
    ({month, program}) => JSON.stringify([month, program ?? 'unknown']),
  )
  return [...groups].map(([key, movements]) => {
    const [month, loan_program] = JSON.parse(key) as [string, string]
    return {
      month,
      loan_program,
      deals: String(movements.length),
      amount: dollars(sum(movements.map(({amount}) => amount))),
    }
  })
}
