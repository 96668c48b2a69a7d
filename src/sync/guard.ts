import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {formatCents, quantity} from '../core/money.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import type {ChangePlan, OpenWalk} from './plan-changes.ts'
import {amountOf, buildHeadSql, comparedSql, hasEndedSql, isSettledSql, tablesOf} from './stream-tables.ts'

export const ACCEPTABLE = ['shrink', 'change', 'growth', 'envelope', 'source'] as const

export type Acceptance = (typeof ACCEPTABLE)[number]

type GuardLimits = Pick<Config, 'shrinkLimitPct' | 'changeLimitPct' | 'growthLimitPct'>

export type MeasuredPlan = ChangePlan & {moved: Movement}

/** Up to this many records never trip a guard: a small portfolio moves in large steps. */
const IGNORED_RECORDS = 3

/** No known portfolio is larger. A first walk that reads more counts as endless. */
const LARGEST_FIRST = 10_000_000

/** How far to read beyond the growth limit, because unreadable and returning records do not count as growth. */
const ENDLESS_MARGIN = {factor: 1.1, records: 1000}

/** The same threshold for everyday changes, which are rarely wrong: new records and status steps. */
const IGNORED_STEPS = 10

/** A larger share of the pipeline never enters a settled status between two walks. */
const ENTERED_LIMIT_PCT = 50

/** Reads the temporary tables of the plan. @throws GuardError; ContractError `SOURCE_QUARANTINE` */
export async function judgePlan(
  db: Database,
  {stream, walk}: {stream: Stream; walk?: OpenWalk},
  plan: ChangePlan,
  limits: GuardLimits,
  accepted: ReadonlySet<Acceptance> = new Set(),
): Promise<void> {
  if (walk) await requireBoundedQuarantine(db, walk)
  guardChanges({...plan, moved: await measureMovement(db, stream)}, limits, accepted, stream)
}

const TOLERATED_RECORDS = 3
const TOLERATED_PCT = 5

/** @throws ContractError `SOURCE_QUARANTINE` */
export async function requireBoundedQuarantine(db: Database, walk: OpenWalk): Promise<void> {
  const {quarantined, records} = walk
  if (quarantined <= TOLERATED_RECORDS || quarantined * 100 <= records * TOLERATED_PCT) return
  const places = await db.all(
    z.object({path: z.string(), reason: z.string(), records: z.string()}),
    `select path, reason, count(*) as records from temp.staged_quarantine
     where walk_id = $1 group by path, reason order by count(*) desc, path, reason limit 3`,
    [walk.walkId],
  )
  const worst = places.map((place) => `${place.path} (${place.records}: ${place.reason})`).join('; ')
  throw newError(
    'SOURCE_QUARANTINE',
    `${quarantined} of ${quantity(records, 'record')} could not be read, more than ${TOLERATED_PCT} %: ${worst}.`,
  )
}

/**
 * Refuses a plan that removes, changes or adds more than a day can explain. Nothing explains an empty list. Changes from looks
 * since the last walk count as part of the plan.
 * @throws GuardError `GUARD_SHRINK`, `GUARD_GROWTH` or `GUARD_CHANGE`
 */
export function guardChanges(
  plan: MeasuredPlan,
  limits: GuardLimits,
  accepted: ReadonlySet<Acceptance>,
  stream: Stream,
): void {
  const isForeign = accepted.has('source') || countListed(plan) === plan.counts.created
  const findings = listFindings(plan, limits, stream)
  for (const accept of ['shrink', 'growth', 'change'] as const) {
    if (findings[accept].length === 0 || accepted.has(accept)) continue
    const isElsewhere = accept === 'shrink' && isForeign
    const ask = accept === 'shrink' ? 'whether they were deleted' : 'whether that is right'
    throw newError(CODES[accept], `Refused: ${findings[accept].join('; ')}.`, {
      next: isElsewhere
        ? 'If this is another service, give it a folder of its own with --data. Otherwise ask the service where they are.'
        : `Ask the service ${ask}. If so, run \`loantape sync --accept ${accept}\`.`,
    })
  }
}

const CODES = {shrink: 'GUARD_SHRINK', growth: 'GUARD_GROWTH', change: 'GUARD_CHANGE'} as const

/** How many records a list may show if `known` were present before: more than {@link guardChanges} lets through. */
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

function listFindings(
  plan: MeasuredPlan,
  {shrinkLimitPct, growthLimitPct, changeLimitPct}: GuardLimits,
  {plural, parent, settled}: Stream,
) {
  const {known, absent, newlyAbsent} = plan
  const {before, after, left, entered, columns} = plan.moved
  const findings: Record<keyof typeof CODES, string[]> = {shrink: [], growth: [], change: []}
  const exceeds = (part: number | bigint, whole: number | bigint, limitPct: number) =>
    BigInt(part) * 10_000n > BigInt(whole) * BigInt(Math.round(limitPct * 100))

  if (countListed(plan) === 0 && absent > IGNORED_RECORDS)
    findings.shrink.push(`the walk lists no ${plural}, although ${known} are known`)
  else if (newlyAbsent > IGNORED_RECORDS && exceeds(newlyAbsent, known, shrinkLimitPct))
    findings.shrink.push(
      `${newlyAbsent} of ${known} known ${plural} are absent, more than ${shrinkLimitPct} %`,
    )

  // Lists of children are read where something happened, so many new children are normal.
  if (before.records > 0 && !parent) {
    const more = `more than ${growthLimitPct} % more`
    const grown = after.records - before.records
    if (grown > IGNORED_STEPS && exceeds(grown, before.records, growthLimitPct))
      findings.growth.push(`${after.records} ${plural} where there were ${before.records}, ${more}`)
    const grownCents = after.amountCents - before.amountCents
    if (before.records > IGNORED_STEPS && exceeds(grownCents, before.amountCents, growthLimitPct)) {
      const [now, then] = [after, before].map(({amountCents}) => formatCents(amountCents))
      findings.growth.push(`an amount of ${now} where there were ${then}, ${more}`)
    }
  }

  const changed = (records: number, what: string, ignored = IGNORED_RECORDS) => {
    if (records > ignored && exceeds(records, before.records, changeLimitPct))
      findings.change.push(
        `${records} of ${before.records} known ${plural} ${what}, more than ${changeLimitPct} %`,
      )
  }
  changed(left, `leave ${settled?.word}`)
  for (const [column, records] of Object.entries(columns))
    changed(records, `change their ${column}`, column === settled?.column ? IGNORED_STEPS : IGNORED_RECORDS)
  if (entered > IGNORED_STEPS && exceeds(entered, before.pipeline, ENTERED_LIMIT_PCT))
    findings.change.push(
      `${entered} ${plural} become ${settled?.word}, more than half of the ${before.pipeline} in the pipeline`,
    )
  return findings
}

/**
 * What moved since the last applied walk, with what looks have changed. Except for the sizes, every number counts records that
 * were present then and are listed, or looked at, now.
 */
export type Movement = Awaited<ReturnType<typeof measureMovement>>

/** SQL conditions on a record before (`b`) and after (`a`). */
function listMovements(stream: Stream): [name: string, condition: string][] {
  const {settled, parent} = stream
  const differs = (column: string) => {
    const [before, after] = ['b', 'a'].map((side) => comparedSql(stream, column, `${side}.${column}`))
    return `${before} is not null and ${before} is distinct from ${after}`
  }
  const found: [string, string][] = []
  if (settled) {
    const {column} = settled
    const is = (side: string) => isSettledSql(stream, `${side}.${column}`)
    found.push(
      ['left', `${is('b')} and not ${is('a')}`],
      ['entered', `not ${is('b')} and ${is('a')}`],
      [`column ${column}`, `${is('b')} = ${is('a')} and ${differs(column)}`],
    )
  }
  const counted = new Set([settled?.column, parent?.column])
  const precisions = stream.columns.map(({precisionColumn}) => precisionColumn)
  for (const {name, precisionColumn} of stream.columns) {
    if (counted.has(name) || precisions.includes(name)) continue
    // An instant where only its date was known is more, not other.
    const isOther = precisionColumn
      ? `(b.${precisionColumn} <> 'date' or a.${precisionColumn} = 'date') and `
      : ''
    found.push([`column ${name}`, `${isOther}${differs(name)}`])
  }
  return found
}

/** Reads the plan's temporary table `change`. */
export async function measureMovement(db: Database, stream: Stream) {
  const row = await db.one(z.record(z.string(), z.string()), buildMovementSql(stream))
  const count = (name: string) => Number(row[name] ?? 0)
  const cents = (name: string) => BigInt((row[name] ?? '0').replace('.', ''))
  const columns = Object.keys(row).flatMap((name) => /^column (.*)/.exec(name)?.[1] ?? [])
  return {
    /** Present after the last walk; `pipeline` counts those neither settled nor ended. */
    before: {
      records: count('known'),
      amountCents: cents('known_amount'),
      pipeline: count('known_pipeline'),
    },
    after: {records: count('next'), amountCents: cents('next_amount')},
    /** Records that left, and that entered, a settled status. */
    left: count('left'),
    entered: count('entered'),
    /** By column, records whose known value changed; for the settled column, without those counted above. */
    columns: Object.fromEntries(columns.map((name) => [name, count(`column ${name}`)])),
  }
}

const IS_PRESENT = `kind in ('seen', 'missing')`

/** SQL that compares only records that changed or were looked at; the others add to the sums. */
function buildMovementSql(stream: Stream): string {
  const {idColumn, columns, name} = stream
  const {head, version} = tablesOf(stream)
  const lastAt = `(
    select max(recorded_at) from history.raw.walk where stream = ${quoteLiteral(name)} and state = 'applied'
  )`
  const lookedAt = `select distinct ${idColumn} from ${version} where source = 'webhook' and recorded_at > ${lastAt}`
  const fields = [idColumn, ...columns.map(({name}) => name)].join(', ')
  const notIn = (table: string) => `${idColumn} not in (select ${idColumn} from ${table})`
  const sizes = (name: string) =>
    `count(*) as ${name}, cast(coalesce(sum(${amountOf(stream)}), 0) as decimal(38, 2)) as ${name}_amount`
  const moves = listMovements(stream).map(
    ([name, condition]) => `count(*) filter (${condition}) as "${name}"`,
  )
  return `
    with changed as (select ${fields} from change where kind = 'seen' and not is_late),
    -- Records looked at since the last applied walk, as they were then; all columns are null for those unknown then.
    looked as materialized (
      select *
      from (${lookedAt})
      left join (${buildHeadSql(stream, `${idColumn} in (${lookedAt}) and recorded_at <= ${lastAt}`)}) using (${idColumn})
    ),
    known as (
      select ${fields} from ${head} where ${IS_PRESENT} and ${notIn('looked')}
      union all by name
      select ${fields} from looked where ${IS_PRESENT}
    ),
    next as (
      select ${fields} from ${head}
      where ${IS_PRESENT} and ${notIn('changed')} and ${notIn(`change where kind = 'vanished'`)}
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
    from (select ${sizes('known')}, count(*) filter (not ${isSettledSql(stream)} and not ${hasEndedSql(stream)}) as known_pipeline from known),
      (select ${sizes('next')} from next),
      moved`
}
