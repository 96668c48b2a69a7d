import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {formatCents} from '../core/money.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import type {ChangePlan} from './plan-changes.ts'
import {amountOf, buildHeadSql, comparedSql, isSettledSql, tablesOf} from './stream-tables.ts'

/** What an operator can accept. */
export const ACCEPTABLE = ['shrink', 'change', 'growth', 'envelope', 'source'] as const

/** One of {@link ACCEPTABLE}. */
export type Acceptance = (typeof ACCEPTABLE)[number]

type GuardLimits = Pick<Config, 'shrinkLimitPct' | 'changeLimitPct' | 'growthLimitPct'>

/** A plan and its movement since the last applied walk. */
export type MeasuredPlan = ChangePlan & {moved: Movement}

const CODES = {shrink: 'GUARD_SHRINK', growth: 'GUARD_GROWTH', change: 'GUARD_CHANGE'} as const

/** Fewer records than this never trip a guard: a small portfolio moves in large steps. */
const IGNORED_RECORDS = 3

/** No known portfolio is larger: a first walk that reads more is considered endless. */
const LARGEST_FIRST = 10_000_000

/** How far to read beyond the growth limit: unreadable and returning records do not count as growth. */
const ENDLESS_MARGIN = {factor: 1.1, records: 1000}

/** The same threshold for everyday changes, which are rarely wrong: new records and status steps. */
const IGNORED_STEPS = 10

/** A larger share of the pipeline never enters a settled status between two walks. */
const ENTERED_LIMIT_PCT = 50

/** Measures a plan from its temporary tables and judges it as {@link guardChanges} does. */
export async function judgePlan(
  db: Database,
  stream: Stream,
  plan: ChangePlan,
  limits: GuardLimits,
  accepted: ReadonlySet<Acceptance>,
): Promise<void> {
  guardChanges({...plan, moved: await measureMovement(db, stream)}, limits, accepted, stream)
}

/**
 * Refuses a plan that removes, changes or adds more of the portfolio than a day can explain; an empty list is never
 * explained. Changes from looks since the last walk count as part of this plan.
 *
 * @throws GuardError `GUARD_SHRINK`, `GUARD_GROWTH` or `GUARD_CHANGE`
 */
export function guardChanges(
  plan: MeasuredPlan,
  limits: GuardLimits,
  accepted: ReadonlySet<Acceptance>,
  stream: Stream,
): void {
  const isForeign = accepted.has('source') || countListed(plan) === plan.counts.created
  const guards = [
    {accept: 'shrink', findings: findShrink(plan, limits, stream), ask: 'whether they were deleted'},
    {accept: 'growth', findings: findGrowth(plan, limits, stream), ask: 'whether that is right'},
    {accept: 'change', findings: findChanges(plan, limits, stream), ask: 'whether that is right'},
  ] as const
  for (const {accept, findings, ask} of guards) {
    if (findings.length === 0 || accepted.has(accept)) continue
    const isElsewhere = accept === 'shrink' && isForeign
    throw newError(CODES[accept], `Refused: ${findings.join('; ')}.`, {
      next: isElsewhere
        ? 'If this is another service, give it a folder of its own with --data. Otherwise ask the service where they are.'
        : `Ask the service ${ask}. If so, run \`loantape sync --accept ${accept}\`.`,
    })
  }
}

/**
 * How many records a list may show before it is considered endless: more than {@link guardChanges} would let through.
 *
 * @param known records present before
 */
export function mostListed(
  known: number,
  {growthLimitPct}: Pick<GuardLimits, 'growthLimitPct'>,
  accepted: ReadonlySet<Acceptance>,
): number {
  if (accepted.has('growth')) return LARGEST_FIRST * 10
  if (known === 0) return LARGEST_FIRST
  const {factor, records} = ENDLESS_MARGIN
  return Math.floor((known * (1 + growthLimitPct / 100) + IGNORED_STEPS) * factor) + records
}

function countListed({counts}: ChangePlan): number {
  return counts.created + counts.updated + counts.restored + counts.unchanged
}

function findShrink(plan: ChangePlan, {shrinkLimitPct}: GuardLimits, {plural}: Stream): string[] {
  const {known, newlyAbsent, counts} = plan
  if (countListed(plan) === 0 && counts.missing + counts.vanished > IGNORED_RECORDS) {
    return [`the walk lists no ${plural}, although ${known} are known`]
  }
  if (newlyAbsent <= IGNORED_RECORDS || newlyAbsent * 100 <= known * shrinkLimitPct) return []
  return [`${newlyAbsent} of ${known} known ${plural} are absent, more than ${shrinkLimitPct} %`]
}

/** A child's lists are read where something happened, so many new children are normal. */
function findGrowth(
  {moved: {before, after}}: MeasuredPlan,
  {growthLimitPct}: GuardLimits,
  {plural, parent}: Stream,
): string[] {
  if (before.records === 0 || parent) return []
  const findings: string[] = []
  const grown = after.records - before.records
  const more = `more than ${growthLimitPct} % more`
  if (grown > IGNORED_STEPS && grown * 100 > before.records * growthLimitPct) {
    findings.push(`${after.records} ${plural} where there were ${before.records}, ${more}`)
  }
  const grownCents = after.amountCents - before.amountCents
  const limit = before.amountCents * BigInt(Math.round(growthLimitPct * 100))
  if (before.records > IGNORED_STEPS && grownCents * 10_000n > limit) {
    const [now, then] = [after, before].map(({amountCents}) => formatCents(amountCents))
    findings.push(`an amount of ${now} where there were ${then}, ${more}`)
  }
  return findings
}

function findChanges({moved}: MeasuredPlan, {changeLimitPct}: GuardLimits, stream: Stream): string[] {
  const {before, amounts, left, entered, columns} = moved
  const {plural, settled, amountColumn} = stream
  const findings: string[] = []
  const judge = (records: number, ignored: number, what: string) => {
    if (records <= ignored || records * 100 <= before.records * changeLimitPct) return
    findings.push(`${records} of ${before.records} known ${plural} ${what}, more than ${changeLimitPct} %`)
  }
  judge(amounts, IGNORED_RECORDS, `change their ${amountColumn}`)
  judge(left, IGNORED_RECORDS, `leave ${settled?.values[0]}`)
  if (entered > IGNORED_STEPS && entered * 100 > before.pipeline * ENTERED_LIMIT_PCT) {
    findings.push(
      `${entered} ${plural} become ${settled?.values[0]}, more than half of the ${before.pipeline} in the pipeline`,
    )
  }
  for (const [column, records] of Object.entries(columns)) {
    const isStep = column === settled?.column
    judge(records, isStep ? IGNORED_STEPS : IGNORED_RECORDS, `change their ${column}`)
  }
  return findings
}

/**
 * The difference from the last applied walk: what a plan changes, and what looks have changed since. Every number
 * but the sizes counts records that were present then and are listed, or looked at, now.
 */
export type Movement = Awaited<ReturnType<typeof measureMovement>>

/** The kinds of movement of a stream, each as an SQL condition on a record before, `b`, and after, `a`. */
function listMovements(stream: Stream): [name: string, condition: string][] {
  const {amountColumn, settled, parent} = stream
  const differs = (column: string) => {
    const [before, after] = ['b', 'a'].map((side) => comparedSql(stream, column, `${side}.${column}`))
    return `${before} is distinct from ${after}`
  }
  const found: [string, string][] = []
  if (amountColumn !== undefined) found.push(['amounts', differs(amountColumn)])
  if (settled) {
    const {column} = settled
    const is = (side: string) => `coalesce(${isSettledSql(stream, `${side}.${column}`)}, false)`
    found.push(
      ['left', `${is('b')} and not ${is('a')}`],
      ['entered', `not ${is('b')} and ${is('a')}`],
      [`column ${column}`, `${is('b')} = ${is('a')} and ${differs(column)}`],
    )
  }
  const counted = new Set([amountColumn, settled?.column, parent?.column])
  for (const {name, precisionColumn} of stream.columns) {
    const isDate = precisionColumn !== undefined || stream.columns.some((c) => c.precisionColumn === name)
    if (!isDate && !counted.has(name))
      found.push([`column ${name}`, `b.${name} is not null and ${differs(name)}`])
  }
  return found
}

/**
 * Makes the temporary table `looked`: the records that were looked at since the last applied walk, in their state then; all
 * columns are null for those unknown then.
 */
async function createLooked(db: Database, stream: Stream): Promise<void> {
  const {idColumn, name} = stream
  const {version} = tablesOf(stream)
  const lastAt = `(select max(recorded_at) from warehouse.raw.walk
    where stream = ${quoteLiteral(name)} and state = 'applied')`
  const ids = `select distinct ${idColumn} from ${version} where source = 'webhook' and recorded_at > ${lastAt}`
  await db.run(`create or replace temp table looked as
    select *
    from (${ids})
    left join (${buildHeadSql(stream, `${idColumn} in (${ids}) and recorded_at <= ${lastAt}`)}) using (${idColumn})`)
}

/** Measures a plan from its tables `change` and `absence`. */
export async function measureMovement(db: Database, stream: Stream) {
  await createLooked(db, stream)
  const row = await db.one(z.record(z.string(), z.string()), buildMovementSql(stream))
  const count = (name: string) => Number(row[name] ?? 0)
  const cents = (name: string) => BigInt((row[name] ?? '0').replace('.', ''))
  const columns = Object.keys(row).flatMap((name) => /^column (.*)/.exec(name)?.[1] ?? [])
  return {
    /** Records present after the last walk, with the sum of their amounts; `pipeline` counts those neither settled nor ended. */
    before: {
      records: count('known'),
      amountCents: cents('known_amount'),
      pipeline: count('known_pipeline'),
    },
    after: {records: count('next'), amountCents: cents('next_amount')},
    amounts: count('amounts'),
    /** Records that left, and that entered, a settled status. */
    left: count('left'),
    entered: count('entered'),
    /** By column, records whose known value changed; in the settled column, except those counted above. */
    columns: Object.fromEntries(columns.map((name) => [name, count(`column ${name}`)])),
  }
}

const IS_PRESENT = `kind in ('seen', 'missing')`

/** Only records that changed or were looked at are compared; the others add to the sums. */
function buildMovementSql(stream: Stream): string {
  const {idColumn, settled, columns} = stream
  const {head} = tablesOf(stream)
  const fields = [idColumn, ...columns.map(({name}) => name)].join(', ')
  const notIn = (table: string) => `${idColumn} not in (select ${idColumn} from ${table})`
  const ended = settled ? [...settled.values, ...settled.ended].map(quoteLiteral).join(', ') : ''
  const isPipeline = settled
    ? `coalesce(${comparedSql(stream, settled.column)} not in (${ended}), true)`
    : 'false'
  const sizes = (name: string) =>
    `count(*) as ${name}, cast(coalesce(sum(${amountOf(stream)}), 0) as decimal(38, 2)) as ${name}_amount`
  const moves = listMovements(stream).map(
    ([name, condition]) => `count(*) filter (${condition}) as "${name}"`,
  )
  return `
    with changed as (select ${fields} from change where not is_late and source <> 'gone'),
    known as (
      select ${fields} from ${head} where ${IS_PRESENT} and ${notIn('looked')}
      union all by name
      select ${fields} from looked where ${IS_PRESENT}
    ),
    next as (
      select ${fields} from ${head}
      where ${IS_PRESENT} and ${notIn('changed')} and ${notIn(`absence where kind = 'vanished'`)}
      union all by name
      from changed
    ),
    moved as (
      select ${moves.join(',\n        ')}
      from (from known where ${idColumn} in (select ${idColumn} from changed union all select ${idColumn} from looked)) b
      join (
        from changed
        union all by name
        select ${fields} from ${head} where ${idColumn} in (select ${idColumn} from looked) and ${notIn('changed')}
      ) a using (${idColumn})
    )
    select *
    from (select ${sizes('known')}, count(*) filter (${isPipeline}) as known_pipeline from known),
      (select ${sizes('next')} from next),
      moved`
}
