import {expect} from 'vitest'
import {addDays} from '../../src/clock.ts'
import {
  bucketOf,
  classOf,
  createdOn,
  FIRST_DAY,
  isEnded,
  isFunded,
  isOpen,
  latestPositions,
  ltvOf,
  money,
  orderOf,
  type Position,
  positionsOn,
  type Step,
  sumAmounts,
} from './portfolio-oracle.ts'

type Cell = unknown

/** What a release is made of beside the sightings. */
export interface Told {
  /** Deals that stood in quarantine at the first walk. */
  quarantined: ReadonlySet<number>
  /** The lender's own funding dates, as days. */
  given: ReadonlyMap<number, number>
}

/** A table as it must be, recomputed from the steps up to a day without SQL; rows in no order. */
export type TableOracle = (steps: readonly Step[], asOf: number, told: Told) => Cell[][]

const dateOf = (day: number) => addDays(FIRST_DAY, day)
const monthOf = (day: number) => dateOf(day).slice(0, 7)
const sum = (amounts: readonly bigint[]) => amounts.reduce((total, amount) => total + amount, 0n)
const SCALE = 10n ** 12n

/** A percentage as the engine rounds it; null of nothing. */
function percent(part: bigint | number, whole: bigint | number): Cell {
  if (BigInt(whole) === 0n) return null
  return expect.closeTo(Number((BigInt(part) * 100n * SCALE) / BigInt(whole)) / Number(SCALE), 4)
}

function groupBy<T>(items: readonly T[], key: (item: T) => string): [string, T[]][] {
  const groups = new Map<string, T[]>()
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item])
  return [...groups]
}

/** Every month from the first day to a day. */
function monthsUntil(day: number): string[] {
  return [...new Set(Array.from({length: day + 1}, (_, each) => monthOf(each)))]
}

const TERMS = [
  'opening',
  'found',
  'originated',
  'restored',
  'increased',
  'decreased',
  'reversed',
  'vanished',
  'ended',
]

interface Movement {
  month: string
  day: number
  deal: number
  term: string
  amount: bigint
  program: string | null
}

/** What a step moves in the funded book, told from the deal's two sides of it. */
function movementOf({day, before, after}: Step, {quarantined}: Told): Movement | undefined {
  const book = (term: string, amount: bigint) => ({
    month: monthOf(day),
    day,
    deal: after.deal,
    term,
    amount,
    program: after.program,
  })
  if (isFunded(after) && !isFunded(before)) {
    if (!before && day === 0) return book('opening', after.amount)
    if (!before && quarantined.has(after.deal)) return book('found', after.amount)
    return book(before && classOf(before.status) === 'funded' ? 'restored' : 'originated', after.amount)
  }
  if (before && isFunded(before) && !isFunded(after)) {
    if (!after.isPresent) return book('vanished', before.amount)
    return book(classOf(after.status) === 'ended_funded' ? 'ended' : 'reversed', before.amount)
  }
  if (!before || !isFunded(after) || before.amount === after.amount) return undefined
  return after.amount > before.amount
    ? book('increased', after.amount - before.amount)
    : book('decreased', before.amount - after.amount)
}

const movementsOf = (steps: readonly Step[], told: Told) =>
  steps.map((step) => movementOf(step, told)).filter((movement) => movement !== undefined)

function rollForward(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const movements = movementsOf(steps, told)
  return monthsUntil(asOf).map((month, index, months) => {
    const closingOf = (name: string | undefined) => {
      const days = Array.from({length: asOf + 1}, (_, day) => day).filter((day) => monthOf(day) === name)
      const last = days.at(-1)
      return last === undefined
        ? 0n
        : sum(
            positionsOn(steps, last)
              .filter(isFunded)
              .map(({amount}) => amount),
          )
    }
    const booked = TERMS.map((term) =>
      sum(
        movements
          .filter((movement) => movement.month === month && movement.term === term)
          .map(({amount}) => amount),
      ),
    )
    const opening = index === 0 ? (booked[0] ?? 0n) : closingOf(months[index - 1])
    return [month, money(opening), ...booked.slice(1).map(money), money(closingOf(month)), '0.00']
  })
}

/** The one row of the whole portfolio. */
function summary(steps: readonly Step[], asOf: number): Cell[][] {
  const present = positionsOn(steps, asOf)
  const inClass = (name: string) => present.filter(({status}) => classOf(status) === name)
  const [open, ended] = [present.filter(isOpen), present.filter(isEnded)]
  const [funded, pipeline] = [inClass('funded'), inClass('pipeline')]
  const amounts = present.map(({amount}) => amount).sort((a, b) => (a < b ? -1 : 1))
  const count = BigInt(amounts.length)
  const total = sum(amounts)
  const middle = [
    amounts.at(Math.floor((amounts.length - 1) / 2)),
    amounts.at(Math.floor(amounts.length / 2)),
  ]
  const orNull = (cents: bigint | undefined) => (count === 0n || cents === undefined ? null : money(cents))
  const sized = (positions: readonly Position[]) => [String(positions.length), money(sumAmounts(positions))]
  return [
    [
      dateOf(asOf),
      ...sized(present),
      ...sized(open),
      ...ratios(open),
      ...sized(ended),
      ...ratios(funded),
      ...sized(pipeline),
      ...sized(funded),
      ...ratios(present),
      percent(sumAmounts(present.filter((position) => ltvOf(position) !== null)), total),
      orNull(count === 0n ? undefined : (2n * total + count) / (2n * count)),
      orNull((sum(middle.map((amount) => amount ?? 0n)) + 1n) / 2n),
      orNull(amounts.at(-1)),
    ],
  ]
}

/** Loan-to-value weighted by amount and pooled, over the positions that have one. */
function ratios(positions: readonly Position[]): Cell[] {
  const valued = positions.filter((position) => ltvOf(position) !== null)
  const amount = sumAmounts(valued)
  const value = sum(valued.map((position) => position.value ?? 0n))
  const weighted = sum(valued.map((position) => position.amount * (ltvOf(position) ?? 0n)))
  const of = (part: bigint, whole: bigint) =>
    whole === 0n ? null : expect.closeTo(Number((part * SCALE) / whole) / Number(SCALE), 6)
  return [of(weighted, amount * 1_000_000_000n), of(amount, value)]
}

function concentration(steps: readonly Step[], asOf: number): Cell[][] {
  const present = positionsOn(steps, asOf)
  const keys: typeof bucketOf = {deal: ({deal}) => String(deal), ...bucketOf}
  return ['deal', 'loan_program', 'state'].map((dimension) => {
    const sharesOf = (positions: Position[]) => {
      const key = keys[dimension] ?? (() => '')
      const amounts = groupBy(positions, key).map(([, members]) => sum(members.map(({amount}) => amount)))
      amounts.sort((a, b) => (a < b ? 1 : -1))
      const total = sum(amounts)
      const top = (count: number) => percent(sum(amounts.slice(0, count)), total)
      return {top, hhi: percent(100n * sum(amounts.map((amount) => amount * amount)), total * total)}
    }
    const all = sharesOf(present)
    const funded = sharesOf(present.filter(isFunded))
    return [
      dimension,
      ...[all.top(1), all.top(5), all.top(10), all.hhi],
      ...[funded.top(1), funded.top(5), funded.top(10), funded.hhi],
    ]
  })
}

function originations(steps: readonly Step[], _asOf: number, told: Told): Cell[][] {
  const originated = movementsOf(steps, told).filter(({term}) => term === 'originated')
  return groupBy(originated, ({month, program}) => `${month}|${program ?? 'unknown'}`).map(([key, made]) => [
    ...key.split('|'),
    String(new Set(made.map(({deal}) => deal)).size),
    money(sum(made.map(({amount}) => amount))),
  ])
}

interface Life {
  cohort: string
  amount: bigint
  reached: number
  firstFunded: number | undefined
}

/** How far each deal ever seen got. */
function livesOf(steps: readonly Step[]): Life[] {
  return latestPositions(steps).map(({deal, amount}) => {
    const own = steps.filter(({after}) => after.deal === deal)
    const was = (status: string, ...classes: string[]) => classes.includes(classOf(status))
    return {
      cohort: createdOn(deal).slice(0, 7),
      amount,
      reached: Math.max(
        0,
        ...own
          .filter(({after}) => was(after.status, 'pipeline', 'funded', 'ended_funded'))
          .map(({after}) => orderOf(after.status)),
      ),
      firstFunded: own.find(({after}) => was(after.status, 'funded', 'ended_funded'))?.day,
    }
  })
}

function funnel(steps: readonly Step[]): Cell[][] {
  const seen = new Set(steps.map(({after}) => after.status))
  const stages = [...seen].filter((status) => ['pipeline', 'funded'].includes(classOf(status)))
  return groupBy(livesOf(steps), ({cohort}) => cohort).flatMap(([cohort, lives]) =>
    stages.map((status) => {
      const reached = lives.filter((life) => life.reached >= orderOf(status))
      const amount = money(sum(reached.map((life) => life.amount)))
      return [cohort, status, String(reached.length), amount, percent(reached.length, lives.length)]
    }),
  )
}

function pullThrough(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const lives = livesOf(steps)
  const last = monthOf(asOf)
  const later = lives.map(({cohort}) => cohort).filter((month) => month > last)
  return [...monthsUntil(asOf), ...new Set(later)].map((month) => {
    const entered = lives.filter(({cohort}) => cohort === month)
    const originated = movementsOf(steps, told).filter(
      (made) => made.term === 'originated' && made.month === month,
    )
    const funded = new Set(originated.map(({deal}) => deal)).size
    const cohortFunded = entered.filter(({firstFunded}) => firstFunded !== undefined).length
    return [
      month,
      String(entered.length),
      String(funded),
      percent(funded, entered.length),
      String(cohortFunded),
      percent(cohortFunded, entered.length),
    ]
  })
}

function vintages(steps: readonly Step[], asOf: number): Cell[][] {
  const ended = monthsUntil(asOf).filter((month) => month < monthOf(asOf + 1))
  const cohorts = groupBy(
    livesOf(steps).filter(({cohort}) => `${cohort}-01` >= FIRST_DAY),
    ({cohort}) => cohort,
  )
  return cohorts.flatMap(([cohort, lives]) =>
    ended
      .filter((month) => month >= cohort)
      .map((month, age) => {
        const funded = lives.filter(
          ({firstFunded}) => firstFunded !== undefined && monthOf(firstFunded) <= month,
        )
        return [cohort, String(age), String(lives.length), percent(funded.length, lives.length)]
      }),
  )
}

function stageDurations(steps: readonly Step[], asOf: number, {quarantined}: Told): Cell[][] {
  const completed: {status: string; days: number}[] = []
  for (const [, own] of groupBy(steps, ({after}) => String(after.deal))) {
    const starts = own.filter(({before, after}) => before?.status !== after.status)
    starts.slice(1).forEach((step, index) => {
      const began = starts[index]
      const beganUnseen = index === 0 && (began?.day === 0 || quarantined.has(step.after.deal))
      if (began && !beganUnseen) {
        completed.push({status: began.after.status, days: step.day - began.day})
      }
    })
  }
  const present = positionsOn(steps, asOf)
  return [...new Set(steps.map(({after}) => after.status))].map((status) => {
    const days = completed.filter((spell) => spell.status === status).map((spell) => spell.days)
    days.sort((a, b) => a - b)
    const at = (place: number) => days[place - 1] ?? 0
    const median = (at(Math.floor((days.length + 1) / 2)) + at(Math.floor((days.length + 2) / 2))) / 2
    return [
      status,
      String(days.length),
      days.length > 0 ? median : null,
      days.length > 0 ? String(at(Math.ceil((days.length * 9) / 10))) : null,
      String(present.filter((position) => position.status === status).length),
    ]
  })
}

/** How long each deal of the pipeline has been in its status. */
function aging(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const usual = new Map(stageDurations(steps, asOf, told).map(([status, ...cells]) => [status, cells]))
  const bands: [number, string][] = [
    [7, '≤7'],
    [14, '8–14'],
    [30, '15–30'],
    [60, '31–60'],
    [90, '61–90'],
  ]
  return positionsOn(steps, asOf)
    .filter(({status}) => classOf(status) === 'pipeline')
    .map(({deal, status, amount}) => {
      const starts = steps.filter(({before, after}) => after.deal === deal && before?.status !== after.status)
      const isUnchanged = status === 'draft' && starts.length === 1
      const since = isUnchanged ? createdOn(deal) : dateOf(starts.at(-1)?.day ?? 0)
      const days = (Date.parse(dateOf(asOf)) - Date.parse(since)) / 86_400_000
      const [completed, , p90] = usual.get(status) ?? []
      const usualDays = Number(completed) >= 20 ? p90 : null
      return [
        `deal_${deal}`,
        status,
        money(amount),
        since,
        String(days),
        bands.find(([most]) => days <= most)?.[1] ?? '>90',
        usualDays ?? null,
        usualDays === null ? null : days > Number(usualDays),
      ]
    })
}

/** Where each deal of a month stood before it and after it, told from the positions of every day. */
function transitions(steps: readonly Step[], asOf: number): Cell[][] {
  const positions = Array.from(
    {length: asOf + 1},
    (_, day) => new Map(positionsOn(steps, day).map((position) => [position.deal, position])),
  )
  return monthsUntil(asOf).flatMap((month) => {
    const days = [...positions.keys()].filter((day) => monthOf(day) === month)
    const start = Math.max((days[0] ?? 0) - 1, 0)
    const known = new Map([start, ...days].flatMap((day) => [...(positions[day] ?? [])]))
    const ways = [...known.values()].map(({deal, amount}) => ({
      from: positions[start]?.get(deal)?.status ?? '(new)',
      to: positions[days.at(-1) ?? 0]?.get(deal)?.status ?? '(gone)',
      amount,
    }))
    return groupBy(ways, ({from, to}) => JSON.stringify([from, to])).map(([, same]) => {
      const [{from = '', to = ''} = {}] = same
      return [
        month,
        from,
        to,
        String(same.length),
        money(sum(same.map(({amount}) => amount))),
        from === '(new)' ? null : percent(same.length, ways.filter((way) => way.from === from).length),
      ]
    })
  })
}

const DIMENSIONS: typeof bucketOf = {...bucketOf, status_class: ({status}: Position) => classOf(status)}

/** The open positions of each month's last day, by bucket, but for the place of the bucket. */
function months(steps: readonly Step[], asOf: number): Cell[][] {
  return monthsUntil(asOf).flatMap((month) => {
    const day =
      Array.from({length: asOf + 1}, (_, each) => each).findLast((each) => monthOf(each) === month) ?? 0
    const open = positionsOn(steps, day).filter(isOpen)
    return Object.entries(DIMENSIONS).flatMap(([dimension, bucket]) =>
      groupBy(open, bucket).map(([name, members]) => [
        dateOf(day),
        dimension,
        name,
        ...[members, members.filter(isFunded)].flatMap((part) => [
          String(part.length),
          money(sumAmounts(part)),
          ratios(part)[0],
        ]),
      ]),
    )
  })
}

/** Limits that random portfolios keep and break: amounts in cents, shares and warnings in hundredths of a percent. */
const LIMITS = [
  {
    dimension: 'state',
    bucket: 'TX',
    scope: 'open',
    kind: 'amount',
    limit: 1_000_000_000_000_000n,
    warn: 5_000n,
  },
  {dimension: 'state', bucket: 'unknown', scope: 'funded', kind: 'share', limit: 3_333n, warn: 9_000n},
  {dimension: 'status', bucket: 'approved', scope: 'open', kind: 'share', limit: 2_500n, warn: null},
  {dimension: 'status_class', bucket: 'funded', scope: 'open', kind: 'share', limit: 5_000n, warn: 8_000n},
  {dimension: 'status', bucket: 'funded', scope: 'funded', kind: 'amount', limit: 0n, warn: 10_000n},
  {dimension: 'ltv_band', bucket: '>90', scope: 'funded', kind: 'share', limit: 1_000n, warn: 10_000n},
  {dimension: 'size_band', bucket: '≥10m', scope: 'open', kind: 'share', limit: 10_000n, warn: 9_999n},
  {
    dimension: 'created_month',
    bucket: '2026-03',
    scope: 'open',
    kind: 'amount',
    limit: 5_000_000_000n,
    warn: 100n,
  },
  {dimension: 'loan_program', bucket: 'dscr', scope: 'funded', kind: 'share', limit: 0n, warn: null},
] as const

/** The limits as `seed.limit`. */
export const limitSeed = [
  'name,dimension,bucket,scope,kind,limit_value,warn_at_pct',
  ...LIMITS.map(({dimension, bucket, scope, kind, limit, warn}, index) =>
    [index, dimension, bucket, scope, kind, money(limit), warn === null ? '' : money(warn)].join(','),
  ),
].join('\n')

/** What is lent under each limit, day by day. */
function limitStatus(steps: readonly Step[], asOf: number): Cell[][] {
  return LIMITS.map(({dimension, bucket, scope, kind, limit, warn}, index) => {
    const expose = (positions: readonly Position[]) => {
      const counted = positions.filter(scope === 'open' ? isOpen : isFunded)
      const whole = sumAmounts(counted)
      const most = kind === 'amount' ? limit : (whole * limit) / 10_000n
      const exposure = sumAmounts(counted.filter((position) => DIMENSIONS[dimension]?.(position) === bucket))
      const isWarned = warn !== null && exposure * 10_000n > most * warn
      return {whole, most, exposure, state: exposure > most ? 'breach' : isWarned ? 'warn' : 'ok'}
    }
    const today = positionsOn(steps, asOf)
    const isApproved = ({status}: Position) =>
      classOf(status) === 'pipeline' && orderOf(status) >= orderOf('approved')
    const later = expose(
      today.map((position) => (isApproved(position) ? {...position, status: 'funded'} : position)),
    )
    const {whole, most, exposure, state} = expose(today)
    const states = Array.from({length: asOf + 1}, (_, day) => expose(positionsOn(steps, day)).state)
    const kept = states.findLastIndex((each) => each !== 'breach')
    return [
      ...[String(index), dimension, bucket, scope, kind, money(limit), warn === null ? null : money(warn)],
      ...[money(most), money(exposure), percent(exposure, whole), signedMoney(most - exposure), state],
      state === 'breach' ? dateOf(kept + 1) : null,
      ...[money(later.exposure), later.state],
    ]
  })
}

const signedMoney = (cents: bigint) => (cents < 0n ? `-${money(-cents)}` : money(cents))

/** The day each loan now on the book was funded: when it was seen to be, or the lender's own date of that very funding. */
function fundingDates(steps: readonly Step[], asOf: number, {given}: Told): Cell[][] {
  return positionsOn(steps, asOf)
    .filter(isFunded)
    .map(({deal}) => {
      const own = steps.filter(({after}) => after.deal === deal)
      let began = 0
      let endedBefore = -Infinity
      for (const {day, before, after} of own) {
        const was = before !== undefined && classOf(before.status) === 'funded'
        const is = classOf(after.status) === 'funded'
        if (is && !was) began = day
        if (was && !is) endedBefore = day
      }
      const date = given.get(deal)
      const isItsOwn = date !== undefined && date <= began && date > endedBefore && date <= asOf
      return [`deal_${deal}`, dateOf(isItsOwn ? date : began)]
    })
}

/** The tables that are recomputed whole, column by column. */
export const tableOracles: Record<string, TableOracle> = {
  'mart.portfolio_summary': summary,
  'mart.funded_rollforward': rollForward,
  'mart.funded_rollforward_deal': (steps, _asOf, told) =>
    movementsOf(steps, told).map(({month, day, deal, term, amount}) => [
      month,
      `deal_${deal}`,
      term,
      money(amount),
      dateOf(day),
    ]),
  'mart.origination_monthly': originations,
  'mart.concentration': concentration,
  'mart.pipeline_funnel': funnel,
  'mart.pull_through': pullThrough,
  'mart.vintage_curve': vintages,
  'mart.stage_duration': stageDurations,
  'mart.pipeline_aging': aging,
  'mart.status_transition': transitions,
  '(select * exclude sort_order from mart.portfolio_monthly)': months,
  'mart.limit_status': limitStatus,
  '(select deal_id, funded_on from accounting.loan_register)': fundingDates,
}
