import {expect} from 'vitest'
import {addDays} from '../../src/core/clock.ts'
import {
  bucketOf,
  classOf,
  createdOn,
  endingOf,
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
  /** The days of complete walks; the first is one of them. */
  walks: readonly number[]
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
  const value = Number((BigInt(part) * 100n * SCALE) / BigInt(whole)) / Number(SCALE)
  // A double has about fifteen digits, however large the share.
  return expect.closeTo(value, Math.min(4, 13 - Math.ceil(Math.log10(Math.max(value, 1)))))
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
  'refunded',
  'restored',
  'increased',
  'decreased',
  'reversed',
  'vanished',
  'paid_off',
  'sold',
  'refinanced',
  'foreclosed',
  'charged_off',
  'ended_other',
]

interface Movement {
  month: string
  day: number
  deal: number
  term: string
  amount: bigint
  /** After the step, and before it. */
  program: string | null
  left: string | null
  step: Step
}

/** What a step moves in the funded book, told from the deal's two sides of it. */
function movementOf(step: Step, steps: readonly Step[], {quarantined}: Told): Movement | undefined {
  const {day, before, after} = step
  const book = (term: string, amount: bigint) => ({
    month: monthOf(day),
    day,
    deal: after.deal,
    term,
    amount,
    program: after.program,
    left: before?.program ?? null,
    step,
  })
  if (isFunded(after) && !isFunded(before)) {
    if (!before && day === 0) return book('opening', after.amount)
    if (!before && quarantined.has(after.deal)) return book('found', after.amount)
    if (before && classOf(before.status) === 'funded') return book('restored', after.amount)
    const earlier = steps.slice(0, steps.indexOf(step)).filter((one) => one.after.deal === after.deal)
    const isAgain = earlier.some((one) => ['funded', 'ended_funded'].includes(classOf(one.after.status)))
    return book(isAgain ? 'refunded' : 'originated', after.amount)
  }
  if (before && isFunded(before) && !isFunded(after)) {
    if (!after.isPresent) return book('vanished', before.amount)
    return book(classOf(after.status) === 'ended_funded' ? endingOf(after.status) : 'reversed', before.amount)
  }
  if (!before || !isFunded(after) || before.amount === after.amount) return undefined
  return after.amount > before.amount
    ? book('increased', after.amount - before.amount)
    : book('decreased', before.amount - after.amount)
}

const movementsOf = (steps: readonly Step[], told: Told) =>
  steps.map((step) => movementOf(step, steps, told)).filter((movement) => movement !== undefined)

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
  const sized = (positions: readonly Position[]) => [String(positions.length), money(sumAmounts(positions))]
  return [
    [
      dateOf(asOf),
      ...sized(present),
      ...sized(open),
      ...averages(open),
      ...sized(ended),
      ...sized(pipeline),
      ...sized(funded),
      ...averages(funded),
    ],
  ]
}

/** Loan-to-values, what they are taken of, and the average, the median and the largest amount. */
function averages(positions: readonly Position[]): Cell[] {
  const amounts = positions.map(({amount}) => amount).sort((a, b) => (a < b ? -1 : 1))
  const count = BigInt(amounts.length)
  const total = sum(amounts)
  const middle = [amounts.at((amounts.length - 1) >> 1), amounts.at(amounts.length >> 1)]
  const orNull = (cents: bigint | undefined) => (count === 0n || cents === undefined ? null : money(cents))
  return [
    ...ratios(positions),
    percent(sumAmounts(positions.filter(isAveraged)), total),
    orNull(count === 0n ? undefined : (2n * total + count) / (2n * count)),
    orNull((sum(middle.map((amount) => amount ?? 0n)) + 1n) / 2n),
    orNull(amounts.at(-1)),
  ]
}

/** Whether a position has a loan-to-value that averages believe. */
function isAveraged(position: Position): boolean {
  const ltv = ltvOf(position)
  return ltv !== null && ltv <= 1_500_000_000n
}

/** Loan-to-value weighted by amount and pooled, over the positions that have one. */
function ratios(positions: readonly Position[]): Cell[] {
  const valued = positions.filter(isAveraged)
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
    const open = sharesOf(present.filter(isOpen))
    const funded = sharesOf(present.filter(isFunded))
    return [
      dimension,
      ...[open.top(1), open.top(5), open.top(10), open.hhi],
      ...[funded.top(1), funded.top(5), funded.top(10), funded.hhi],
    ]
  })
}

/** Each bucket of each dimension, but for its place. */
function breakdown(steps: readonly Step[], asOf: number): Cell[][] {
  const present = positionsOn(steps, asOf)
  const [all, allFunded] = [sumAmounts(present), sumAmounts(present.filter(isFunded))]
  return Object.entries(bucketOf).flatMap(([dimension, bucket]) =>
    groupBy(present, bucket).map(([name, members]) => {
      const [open, funded, ended] = [isOpen, isFunded, isEnded].map((is) => members.filter(is))
      const sized = (part: Position[] = []) => [String(part.length), money(sumAmounts(part))]
      return [
        ...[dimension, name, ...sized(members), percent(sumAmounts(members), all)],
        ...[...sized(funded), percent(sumAmounts(funded ?? []), allFunded)],
        ...[...sized(open), ...sized(ended), ...ratios(open ?? []), ...ratios(funded ?? [])],
      ]
    }),
  )
}

function originations(steps: readonly Step[], _asOf: number, told: Told): Cell[][] {
  const originated = movementsOf(steps, told).filter(({term}) => term === 'originated')
  return groupBy(originated, ({month, program}) => `${month}|${program ?? 'unknown'}`).map(([key, made]) => [
    ...key.split('|'),
    String(made.length),
    money(sum(made.map(({amount}) => amount))),
  ])
}

interface Life {
  cohort: string
  program: string
  amount: bigint
  firstAmount: bigint
  reached: number
  firstFunded: number | undefined
  fallout: {month: string; amount: bigint} | undefined
}

/** How far each deal ever seen got. */
function livesOf(steps: readonly Step[], {quarantined}: Told): Life[] {
  return latestPositions(steps).map(({deal, amount, program}) => {
    const own = steps.filter(({after}) => after.deal === deal)
    const was = (status: string, ...classes: string[]) => classes.includes(classOf(status))
    const funded = own.find(({after}) => was(after.status, 'funded', 'ended_funded'))
    const isIn = ({after}: Step) => after.isPresent && was(after.status, 'pipeline', 'unclassified')
    const lastIn = own.findLastIndex(isIn)
    const fell = own[lastIn + 1]
    const isSeen = lastIn >= 0 || !(own[0]?.day === 0 || quarantined.has(deal))
    return {
      cohort: createdOn(deal).slice(0, 7),
      program: program ?? 'unknown',
      amount,
      firstAmount: own[0]?.after.amount ?? 0n,
      reached: Math.max(
        0,
        ...own
          .filter(({after}) => was(after.status, 'pipeline', 'funded', 'ended_funded'))
          .map(({after}) => orderOf(after.status)),
      ),
      firstFunded: funded?.day,
      fallout:
        fell && isSeen && !funded
          ? {month: monthOf(fell.day), amount: (own[lastIn] ?? fell).after.amount}
          : undefined,
    }
  })
}

function funnel(steps: readonly Step[], _asOf: number, told: Told): Cell[][] {
  const seen = new Set(steps.map(({after}) => after.status))
  const stages = [...seen].filter((status) => ['pipeline', 'funded'].includes(classOf(status)))
  return groupBy(livesOf(steps, told), ({cohort}) => cohort).flatMap(([cohort, lives]) =>
    stages.map((status) => {
      const reached = lives.filter((life) => life.reached >= orderOf(status))
      const amount = money(sum(reached.map((life) => life.amount)))
      return [cohort, status, String(reached.length), amount, percent(reached.length, lives.length)]
    }),
  )
}

function pullThrough(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const lives = livesOf(steps, told)
  const programs = new Map(latestPositions(steps).map(({deal, program}) => [deal, program ?? 'unknown']))
  const last = monthOf(asOf)
  const later = lives.map(({cohort}) => cohort).filter((month) => month > last)
  return [...monthsUntil(asOf), ...new Set(later)].flatMap((month) =>
    ['(all)', ...new Set(programs.values())].map((program) => {
      const isOf = (name: string | undefined) => program === '(all)' || name === program
      const own = lives.filter((life) => isOf(life.program))
      const entered = own.filter(({cohort}) => cohort === month)
      const originated = movementsOf(steps, told).filter(
        (made) => made.term === 'originated' && made.month === month && isOf(programs.get(made.deal)),
      )
      const fallen = own.flatMap(({fallout}) => (fallout?.month === month ? [fallout] : []))
      const cohortFunded = entered.filter(({firstFunded}) => firstFunded !== undefined).length
      const enteredAmount = sum(entered.map(({firstAmount}) => firstAmount))
      // The first walk is on the second of March: of that month nobody knows the whole.
      const isKnown = `${month}-01` > FIRST_DAY && month <= last
      const share = (part: bigint | number, whole: bigint | number) => (isKnown ? percent(part, whole) : null)
      return [
        ...[month, program],
        ...[String(entered.length), money(enteredAmount)],
        ...[String(originated.length), money(sumOf(originated))],
        ...[String(fallen.length), money(sumOf(fallen))],
        ...[share(originated.length, entered.length), share(sumOf(originated), enteredAmount)],
        ...[share(fallen.length, entered.length), share(sumOf(fallen), enteredAmount)],
        ...[String(cohortFunded), share(cohortFunded, entered.length)],
      ]
    }),
  )
}

const sumOf = (parts: readonly {amount: bigint}[]) => sum(parts.map(({amount}) => amount))

const OUTCOMES = ['funded', ...TERMS.slice(TERMS.indexOf('reversed'))]

/** Where the loans of each month's first fundings stand at the end of that month and of each later one that has ended. */
function vintages(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const movements = movementsOf(steps, told)
  const originated = movements.filter(({term, month}) => term === 'originated' && `${month}-01` >= FIRST_DAY)
  const ended = monthsUntil(asOf).filter((month) => month < monthOf(asOf + 1))
  return groupBy(originated, ({month}) => month).flatMap(([cohort, made]) =>
    ended
      .filter((month) => month >= cohort)
      .flatMap((month, age) => {
        const loans = made.map(({deal}) => {
          const own = steps.filter(({day, after}) => after.deal === deal && monthOf(day) <= month)
          const position = own.at(-1)?.after
          if (position && isFunded(position)) return {outcome: 'funded', amount: position.amount}
          const left = movements.findLast(
            (one) => one.deal === deal && one.month <= month && OUTCOMES.includes(one.term),
          )
          return {outcome: left?.term, amount: left?.amount ?? 0n}
        })
        return OUTCOMES.map((outcome) => {
          const same = loans.filter((loan) => loan.outcome === outcome)
          const share = percent(sumOf(same), sumOf(made))
          const whole = [String(made.length), money(sumOf(made))]
          return [cohort, String(age), outcome, String(same.length), money(sumOf(same)), share, ...whole]
        })
      }),
  )
}

function fundingCurve(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const ended = monthsUntil(asOf).filter((month) => month < monthOf(asOf + 1))
  const cohorts = groupBy(
    livesOf(steps, told).filter(({cohort}) => `${cohort}-01` >= FIRST_DAY),
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

/** A deal's unbroken time in one status. */
interface Spell {
  deal: number
  status: string
  /** The estimate, whether it is exact, and the days between which the spell began; null where nothing bounds it. */
  since: number
  isExact: boolean
  earliest: number | null
  latest: number
  /** Days of it at its end, or so far; null where nobody knows when it began. */
  length: number | null
  /** The age at which an end would first have been seen. */
  from: number
  exit: 'advance' | 'fallout' | 'vanish' | 'other' | null
}

const dayOf = (date: string) => Math.round((Date.parse(date) - Date.parse(FIRST_DAY)) / 86_400_000)

/** The last day on which a deal was known not to be in the status that a step shows. */
function knownBefore(own: readonly Step[], start: Step, {quarantined, walks}: Told): number | null {
  const seen = own.slice(0, own.indexOf(start)).findLastIndex(({kind}) => kind === 'seen')
  const missed = own.slice(seen + 1, own.indexOf(start))[0]
  const isUnread = seen === -1 && quarantined.has(start.after.deal)
  const bound = seen === -1 ? start : (missed ?? start)
  const days = [
    ...(isUnread ? [] : walks.filter((day) => day < bound.day)),
    ...(seen === -1 ? [] : [own[seen]!.day]),
  ]
  return days.length === 0 ? null : Math.min(Math.max(...days), start.day)
}

/** Every spell of every deal ever seen. */
function spellsOf(steps: readonly Step[], asOf: number, told: Told): Spell[] {
  return groupBy(steps, ({after}) => String(after.deal)).flatMap(([, own]) => {
    const starts = own.filter(({before, after}) => before?.status !== after.status)
    const gone = own.at(-1)?.after.isPresent
      ? undefined
      : own.findLast(({before, after}) => before?.isPresent && !after.isPresent)
    return starts.map((start, index) => {
      const {deal, status} = start.after
      const next = starts[index + 1]
      const known = knownBefore(own, start, told)
      const created = dayOf(createdOn(deal))
      const isFirst = index === 0
      const isFromCreation = isFirst && status === 'draft'
      const isYoung = created <= start.day && start.day - created <= 1
      const since = isFromCreation ? Math.min(created, start.day) : start.day
      const isExact = known !== null && start.day - known <= 1 && (!isFirst || (isFromCreation && isYoung))
      const lower = isFirst ? (created <= start.day ? created : null) : Math.min((known ?? 0) + 1, start.day)
      const isMeasured = !isFirst || isFromCreation || (known !== null && isYoung)
      const end = next?.day ?? gone?.day
      const isFarther = next && orderOf(status) > 0 && orderOf(next.after.status) > orderOf(status)
      const exit = next
        ? classOf(next.after.status) === 'ended_unfunded'
          ? 'fallout'
          : isFarther
            ? 'advance'
            : 'other'
        : gone
          ? 'vanish'
          : null
      return {
        deal,
        status,
        since,
        isExact,
        earliest: isExact ? since : lower,
        latest: isExact ? since : start.day,
        length: isMeasured ? (end ?? asOf) - since : null,
        from: start.day - since > 1 ? start.day - since + 1 : 0,
        exit,
      }
    })
  })
}

/** The smallest age at which no more than one of `parts` is left, by the product-limit curve in whole numbers. */
function quantile(
  spells: readonly (Spell & {length: number})[],
  exits: readonly Spell[],
  parts: bigint,
): Cell {
  const ages = [...new Set(spells.filter((spell) => exits.includes(spell)).map(({length}) => length))]
  let [left, whole] = [1n, 1n]
  for (const age of ages.sort((a, b) => a - b)) {
    const atRisk = spells.filter(
      ({from, length, exit}) => length >= age && (from <= age || (exit !== null && length === age)),
    )
    const ended = atRisk.filter((spell) => spell.length === age && exits.includes(spell))
    left *= BigInt(atRisk.length - ended.length)
    whole *= BigInt(atRisk.length)
    if (left * parts <= whole) return String(age)
  }
  return null
}

function stageDurations(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const all = spellsOf(steps, asOf, told)
  return [...new Set(all.map(({status}) => status))].flatMap((status) => {
    const spells = all.flatMap((spell) =>
      spell.status === status && spell.length !== null ? [{...spell, length: spell.length}] : [],
    )
    const open = spells.filter(({exit}) => exit === null)
    return ['advance', 'fallout', 'vanish', 'any'].map((kind) => {
      const exits = spells.filter(({exit}) => exit !== null && (kind === 'any' || exit === kind))
      return [
        ...[status, kind, String(spells.length), String(exits.length), String(open.length)],
        quantile(spells, exits, 2n),
        quantile(spells, exits, 10n),
      ]
    })
  })
}

/** Since when each present deal has been in its status, and between which days that began. */
export function standingSince(steps: readonly Step[], asOf: number, told: Told): Map<number, Cell[]> {
  const dateOrNull = (day: number | null) => (day === null ? null : dateOf(day))
  return new Map(
    spellsOf(steps, asOf, told).map(({deal, since, isExact, earliest, latest}) => [
      deal,
      [dateOf(since), isExact, dateOrNull(earliest), dateOf(latest)],
    ]),
  )
}

const BANDS: [from: number, to: number, band: string][] = [
  [-Infinity, 7, '≤7'],
  [8, 14, '8–14'],
  [15, 30, '15–30'],
  [31, 60, '31–60'],
  [61, 90, '61–90'],
  [91, Infinity, '>90'],
]

/** How long each deal of the pipeline has been in its status. */
function aging(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const usual = new Map(
    stageDurations(steps, asOf, told)
      .filter(([, exit]) => exit === 'any')
      .map(([status, , , completed, , , p90]) => [status, Number(completed) >= 20 ? p90 : null]),
  )
  const current = new Map(spellsOf(steps, asOf, told).map((spell) => [spell.deal, spell]))
  return positionsOn(steps, asOf)
    .filter(({status}) => classOf(status) === 'pipeline')
    .map(({deal, status, amount}) => {
      const {since, isExact, earliest, latest} = current.get(deal)!
      const [least, most] = [asOf - latest, earliest === null ? Infinity : asOf - earliest]
      const [from, to, band] = BANDS.find(([, to]) => least <= to)!
      const usualDays = usual.get(status) ?? null
      return [
        ...[`deal_${deal}`, status, money(amount), dateOf(since), isExact],
        ...[String(least), most === Infinity ? null : String(most)],
        most <= to ? band : `unknown (≥ ${Math.max(from, 0)})`,
        ...[usualDays, usualDays === null ? null : least > Number(usualDays)],
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
      before: positions[start]?.get(deal)?.amount ?? 0n,
    }))
    const isPartial = month === monthOf(0) || (month === monthOf(asOf) && monthOf(asOf + 1) === month)
    const before = (some: typeof ways) => sum(some.map((way) => way.before))
    return groupBy(ways, ({from, to}) => JSON.stringify([from, to])).map(([, same]) => {
      const [{from = '', to = ''} = {}] = same
      return [
        month,
        from,
        to,
        String(same.length),
        money(sum(same.map(({amount}) => amount))),
        from === '(new)' ? null : percent(same.length, ways.filter((way) => way.from === from).length),
        from === '(new)' ? null : percent(before(same), before(ways.filter((way) => way.from === from))),
        isPartial,
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

/** Limits that take the place of those of the same number on a day; those without one have never another. */
const LATER = [
  {index: 0, day: 29, limit: 20_000_000n, warn: null},
  {index: 2, day: 2, limit: 9_900n, warn: 5_000n},
  {index: 2, day: 45, limit: 100n, warn: null},
]

/** The limits as `seed.limit`. */
export const limitSeed = [
  'name,dimension,bucket,scope,kind,limit_value,warn_at_pct,valid_from',
  ...[
    ...LIMITS.map(({limit, warn}, index) => ({index, limit, warn, day: null})),
    ...LATER,
    {index: 9, limit: 0n, warn: null, day: 61},
  ].map(({index, limit, warn, day}) => {
    const {dimension, bucket, scope, kind} = LIMITS[index % LIMITS.length]!
    const given = [money(limit), warn === null ? '' : money(warn), day === null ? '' : dateOf(day)]
    return [index, dimension, bucket, scope, kind, ...given].join(',')
  }),
].join('\n')

/** What is lent under each limit, day by day. */
function limitStatus(steps: readonly Step[], asOf: number): Cell[][] {
  const all = [...LIMITS, ...(asOf >= 61 ? [{...LIMITS[0], limit: 0n, warn: null}] : [])]
  return all.map(({dimension, bucket, scope, kind, ...first}, index) => {
    const inForce = (day: number) =>
      LATER.findLast((later) => later.index === index && later.day <= day) ?? {
        ...first,
        day: index === LIMITS.length ? 61 : null,
      }
    const expose = (positions: readonly Position[], day: number) => {
      const {limit, warn} = inForce(day)
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
      asOf,
    )
    const {whole, most, exposure, state} = expose(today, asOf)
    const {limit, warn, day} = inForce(asOf)
    const began = index === LIMITS.length ? 61 : 0
    const states = Array.from({length: asOf + 1 - began}, (_, each) => {
      const day = began + each
      return expose(positionsOn(steps, day), day).state
    })
    const kept = states.findLastIndex((each) => each !== 'breach')
    // The most that can be added so that what is lent keeps within its share of all that is.
    const room =
      kind === 'amount'
        ? limit - exposure
        : limit < 10_000n
          ? (limit * whole - 10_000n * exposure) / (10_000n - limit)
          : null
    return [
      ...[String(index), dimension, bucket, scope, kind, money(limit), warn === null ? null : money(warn)],
      ...[day === null ? null : dateOf(day), money(most), money(exposure), percent(exposure, whole)],
      state === 'breach' ? '0.00' : room === null ? null : money(room),
      ...[money(exposure > most ? exposure - most : 0n), state],
      state === 'breach' ? dateOf(began + kept + 1) : null,
      ...[money(later.exposure), later.state],
    ]
  })
}

const isFundedClass = (position: Position | undefined) =>
  position !== undefined && classOf(position.status) === 'funded'

/** The lender's own date of the funding that a step shows. */
function givenOf(step: Step, steps: readonly Step[], {given}: Told): number | undefined {
  const {day, after} = step
  const left = steps
    .slice(0, steps.indexOf(step))
    .findLast(
      (one) => one.after.deal === after.deal && isFundedClass(one.before) && !isFundedClass(one.after),
    )
  const date = given.get(after.deal)
  return date !== undefined && date <= day && date > (left?.day ?? -Infinity) ? date : undefined
}

/**
 * The day each loan now on the book was funded: when it was seen to be, or the lender's own date of that very funding; null when it was
 * funded before anybody saw it. With it the days between which it was, and whether that is exact.
 */
function fundingDates(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  return positionsOn(steps, asOf)
    .filter(isFunded)
    .map(({deal}) => {
      const own = steps.filter(({after}) => after.deal === deal)
      const began = own.findLast(({before, after}) => isFundedClass(after) && !isFundedClass(before))!
      const given = givenOf(began, own, told)
      const known = knownBefore(own, began, told)
      const isClose = known !== null && began.before !== undefined && began.day - known <= 1
      return [
        `deal_${deal}`,
        given !== undefined || began.before ? dateOf(given ?? began.day) : null,
        known === null ? null : dateOf(known),
        dateOf(given ?? began.day),
        given !== undefined || isClose,
        dateOrNull(originationOf(deal, steps, told)),
      ]
    })
}

const addressOf = ({state}: Position) => `1 Main St, Town, ${state} 12345`

/** What each present deal is, and when it was funded. */
function deals(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const funded = new Map(fundingDates(steps, asOf, told).map(([deal, ...dates]) => [deal, dates]))
  return positionsOn(steps, asOf).map((position) => {
    const {deal, state, amount, value, program, status} = position
    const own = steps.filter(({after}) => after.deal === deal)
    return [
      ...[`deal_${deal}`, addressOf(position), state === 'ZZ' ? 'unknown' : state, '12345'],
      ...[money(amount), value === null ? null : money(value), program, status, classOf(status)],
      own.at(-1)?.kind === 'missing',
      ...(funded.get(`deal_${deal}`) ?? [
        ...[null, null, null, null, dateOrNull(originationOf(deal, steps, told))],
      ]),
    ]
  })
}

const dateOrNull = (day: number | undefined) => (day === undefined ? null : dateOf(day))

/** The day a deal was funded for the first time, where that was seen. */
function originationOf(deal: number, steps: readonly Step[], told: Told): number | undefined {
  return movementsOf(steps, told).find((made) => made.deal === deal && made.term === 'originated')?.day
}

/** Accounts from the first day on and from April on; null: another system books it; undefined: nobody has said. */
const ACCOUNTS: Record<string, Record<string, string | null>> = {
  '0000-00': {bridge: '1201', '*': '1200', paid_off: '1000', sold: null, ended_other: '1099'},
  '2026-04': {bridge: '1201', '*': '1210', paid_off: null, sold: '1000', charged_off: '1290'},
}

/** The accounts as `seed.account`. */
export const accountSeed = [
  'account,since,role,loan_program,term,account_code,account_name,moves_balances',
  ...Object.entries(ACCOUNTS).flatMap(([since, accounts]) =>
    Object.entries({clearing: '1090', opening: '3000', ...accounts}).map(([of, code]) => {
      const isEnding = TERMS.includes(of) && of !== 'opening'
      const isProgram = of === 'bridge' || of === '*'
      const role = isProgram ? 'receivable' : isEnding ? (code === null ? 'elsewhere' : 'ended') : of
      const named = [
        isProgram ? of : '',
        isEnding ? of : '',
        code ?? '',
        code === null ? '' : `Account ${code}`,
      ]
      return [`${since} ${of}`, since, role, ...named, 'false'].join(',')
    }),
  ),
].join('\n')

const EVENTS: Record<string, string> = {
  opening: 'opening',
  found: 'opening',
  originated: 'funding',
  refunded: 'funding',
  restored: 'funding',
  increased: 'increase',
  decreased: 'decrease',
  reversed: 'reversal',
  vanished: 'reversal',
}

const LABELS: Record<string, string> = {
  opening: 'Opening balance',
  found: 'Opening balance, not readable before',
  originated: 'Funding',
  refunded: 'Funding, again',
  restored: 'Funding, back in the source',
  increased: 'Increase',
  decreased: 'Decrease',
  reversed: 'Reversal',
  vanished: 'Reversal, gone from the source',
  paid_off: 'Payoff',
  sold: 'Sale',
  charged_off: 'Charge-off',
  ended_other: 'End of loan',
}

interface Entry {
  month: string
  deal: number
  date: string
  event: string
  term: string | null
  amount: bigint
  label: string
  /** The program under which the receivable is booked. */
  program: string | null
  /** Null where another system books it. */
  accounts: {debit: string | undefined; credit: string | undefined} | null
}

/** What every movement books, and what another system does. */
function entriesOf(steps: readonly Step[], told: Told): Entry[] {
  const accountsOf = (month: string) => ACCOUNTS[month < '2026-04' ? '0000-00' : '2026-04']!
  const receivableOf = (month: string, program: string | null) =>
    accountsOf(month)[program === 'bridge' ? 'bridge' : '*']!
  const moved = movementsOf(steps, told).map(({month, day, deal, term, amount, program, left, step}) => {
    const event = EVENTS[term] ?? 'ended'
    const isFunding = term === 'originated' || term === 'refunded'
    const on = dateOf((isFunding ? givenOf(step, steps, told) : undefined) ?? day)
    const isLeaving = event === 'ended' || event === 'reversal'
    const receivable = receivableOf(month, isLeaving ? left : program)
    const other = event === 'ended' ? accountsOf(month)[term] : event === 'opening' ? '3000' : '1090'
    const isDebited = ['opening', 'funding', 'increase'].includes(event)
    const [debit, credit] = isDebited ? [receivable, other] : [other, receivable]
    return {
      ...{month, deal, event, term, amount, label: LABELS[term], program: isLeaving ? left : program},
      date: on < `${month}-01` ? `${month}-01` : on,
      accounts: other === null ? null : {debit: debit ?? undefined, credit: credit ?? undefined},
    }
  })
  const reclassed = steps.flatMap(({day, before, after}) => {
    const month = monthOf(day)
    const [credit, debit] = [before, after].map((one) => receivableOf(month, one?.program ?? null))
    if (!before || !isFunded(before) || !isFunded(after) || debit === credit) return []
    const {deal, amount} = before
    const label = `Reclass from ${before.program ?? 'no program'}`
    const entry = {month, deal, date: dateOf(day), event: 'reclass', term: null, amount}
    return {...entry, label, program: after.program, accounts: {debit, credit}}
  })
  return [...moved, ...reclassed].filter(({amount}) => amount > 0n) as Entry[]
}

function journal(steps: readonly Step[], _asOf: number, told: Told): Cell[][] {
  return entriesOf(steps, told).flatMap(
    ({month, date, event, accounts, amount, deal, term, label, program}) => {
      if (!accounts) return []
      const memo = `${label} deal_${deal}, 1 Main St, Town${program === null ? '' : ` (${program})`}`
      const line = (number: string, account: string | undefined, ...sides: Cell[]) => [
        ...[month, number, date, event, account ?? null, account === undefined ? null : `Account ${account}`],
        ...[...sides, memo, `deal_${deal}`, program, term],
      ]
      return [line('1', accounts.debit, money(amount), null), line('2', accounts.credit, null, money(amount))]
    },
  )
}

/** What of each term is booked and what is not, and why. */
function tieOut(steps: readonly Step[], _asOf: number, told: Told): Cell[][] {
  const entries = entriesOf(steps, told).filter(({term}) => term !== null)
  return groupBy(entries, ({month, term}) => `${month} ${term}`).map(([key, own]) => {
    const by = (why: string) => money(sumOf(own.filter((entry) => reasonOf(entry) === why)))
    const parts = ['booked', 'opening', 'elsewhere', 'no account'].map(by)
    return [...key.split(' '), money(sumOf(own)), ...parts, '0.00']
  })
}

function reasonOf({accounts, event}: Entry): string {
  if (!accounts) return 'elsewhere'
  if (accounts.debit === undefined || accounts.credit === undefined) return 'no account'
  return event === 'opening' ? 'opening' : 'booked'
}

/** How far the numbers can be trusted, in every metric of deals that is not of a walk. */
function dataQuality(steps: readonly Step[], asOf: number, told: Told): Cell[][] {
  const present = positionsOn(steps, asOf)
  const lives = livesOf(steps, told)
  const [funded, spells] = [present.filter(isFunded), spellsOf(steps, asOf, told)]
  const ownOf = ({deal}: Position) => steps.filter(({after}) => after.deal === deal)
  const isValued = ({value}: Position) => value !== null && value > 0n
  const everFunded = latestPositions(steps).filter((one) =>
    ownOf(one).some(({after}) => ['funded', 'ended_funded'].includes(classOf(after.status))),
  )
  const dates = fundingDates(steps, asOf, told)
  const count = (
    metric: string,
    field: string | null,
    part: readonly unknown[],
    whole: readonly unknown[],
  ) => [...[metric, field, percent(part.length, whole.length), String(part.length)]]
  const covered = (field: string, without: readonly Position[]) => [
    ...['coverage', field, percent(present.length - without.length, present.length), String(without.length)],
  ]
  const valued = present.filter(isValued)
  const unvalued = String(present.length - valued.length)
  return [
    ['coverage', 'property_value', percent(sumAmounts(valued), sumAmounts(present)), unvalued],
    covered(
      'value_confirmed_on',
      present.filter(({confirmed}) => confirmed === null),
    ),
    covered(
      'loan_program',
      present.filter(({program}) => program === null),
    ),
    count(
      'ltv_above_10',
      'property_value',
      valued.filter((one) => ltvOf(one) === null),
      present,
    ),
    count(
      'ltv_above_1_5',
      'property_value',
      present.filter((one) => ltvOf(one) !== null && !isAveraged(one)),
      present,
    ),
    count(
      'unparsed',
      'property_address',
      present.filter(({state}) => state === 'ZZ'),
      present,
    ),
    count(
      'unclassified',
      'status',
      present.filter(({status}) => classOf(status) === 'unclassified'),
      present,
    ),
    count(
      'missing',
      null,
      present.filter((one) => ownOf(one).at(-1)?.kind === 'missing'),
      present,
    ),
    count(
      'censored_funded_at_first_sight',
      null,
      funded.filter((one) => isFundedClass(ownOf(one)[0]?.after)),
      funded,
    ),
    count(
      'censored_inexact_funding_date',
      null,
      dates.filter(([, , , , isExact]) => !isExact),
      funded,
    ),
    count(
      'censored_created_before_first_walk',
      null,
      latestPositions(steps).filter(({deal}) => createdOn(deal) < FIRST_DAY),
      lives,
    ),
    count(
      'censored_funding_curve',
      null,
      lives.filter(({cohort}) => `${cohort}-01` < FIRST_DAY),
      lives,
    ),
    count(
      'censored_vintage',
      null,
      everFunded.filter(({deal}) => {
        const day = originationOf(deal, steps, told)
        return day === undefined || `${monthOf(day)}-01` < FIRST_DAY
      }),
      everFunded,
    ),
    count(
      'no_funnel_stage',
      null,
      lives.filter(({reached}) => reached === 0),
      lives,
    ),
    count(
      'censored_stage_began_unseen',
      null,
      spells.filter(({length}) => length === null),
      spells,
    ),
  ]
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
  'mart.funding_curve': fundingCurve,
  'mart.vintage': vintages,
  'mart.stage_duration': stageDurations,
  'mart.pipeline_aging': aging,
  'mart.status_transition': transitions,
  '(select * exclude sort_order from mart.portfolio_monthly)': months,
  'mart.limit_status': limitStatus,
  '(select * exclude sort_order from mart.portfolio_breakdown)': breakdown,
  [`(select deal_id, property_address, state, zip, loan_amount, property_value, loan_program, status, status_class, is_missing,
       funded_on, funded_after, funded_before, funded_on_is_exact, first_funded_on
     from core.deal)`]: deals,
  'accounting.loan_register': (steps, asOf, told) => {
    const positions = new Map(positionsOn(steps, asOf).map((position) => [`deal_${position.deal}`, position]))
    return fundingDates(steps, asOf, told).map(([deal, on, , by, isExact]) => {
      const position = positions.get(String(deal))!
      return [deal, addressOf(position), position.program, money(position.amount), on, by, isExact]
    })
  },
  [`(select * exclude (entry_id)
     from (from accounting.journal_line union all by name from accounting.opening_line))`]: journal,
  'accounting.tie_out': tieOut,
  [`(select metric, field, value, deals from mart.data_quality
     where scope = 'deals' and metric <> 'quarantined' and metric not like 'drift%')`]: dataQuality,
}
