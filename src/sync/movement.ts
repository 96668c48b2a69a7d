import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import {amountOf, buildHeadSql, comparedSql, isSettledSql, tablesOf} from './stream-tables.ts'

/** Records with the sum of their amounts, in cents. */
interface Size {
  records: number
  amountCents: bigint
}

/**
 * The difference from the last applied walk: what a plan changes, and what looks have changed since. Every number
 * but the sizes counts records that were present then and are listed, or looked at, now.
 */
export interface Movement {
  /** Records present after the last walk; `pipeline` counts those neither settled nor ended. */
  before: Size & {pipeline: number}
  after: Size
  /** Records whose amount changed. */
  amounts: number
  /** Records that left, and that entered, a settled status. */
  left: number
  entered: number
  /** By column, records whose known value changed; in the settled column, except those counted above. */
  columns: Record<string, number>
}

/** SQL of a column in the state before, or after. */
type Side = (column: string) => string

/** The kinds of movement of a stream, each with its SQL condition on the two sides of a record. */
function listMovements(stream: Stream): {name: string; condition: (before: Side, after: Side) => string}[] {
  const {amountColumn, settled, parent} = stream
  const differs = (column: string) => (before: Side, after: Side) =>
    `${comparedSql(stream, column, before(column))} is distinct from ${comparedSql(stream, column, after(column))}`
  const found: ReturnType<typeof listMovements> = []
  if (amountColumn !== undefined) found.push({name: 'amounts', condition: differs(amountColumn)})
  if (settled) {
    const {column} = settled
    const is = (side: Side) => `coalesce(${isSettledSql(stream, side(column))}, false)`
    found.push(
      {name: 'left', condition: (before, after) => `${is(before)} and not ${is(after)}`},
      {name: 'entered', condition: (before, after) => `not ${is(before)} and ${is(after)}`},
      {
        name: `column ${column}`,
        condition: (before, after) => `${is(before)} = ${is(after)} and ${differs(column)(before, after)}`,
      },
    )
  }
  const counted = new Set([amountColumn, settled?.column, parent?.column])
  for (const {name, precisionColumn} of stream.columns) {
    const isDate = precisionColumn !== undefined || stream.columns.some((c) => c.precisionColumn === name)
    if (isDate || counted.has(name)) continue
    const condition = (before: Side, after: Side) =>
      `${before(name)} is not null and ${differs(name)(before, after)}`
    found.push({name: `column ${name}`, condition})
  }
  return found
}

/** SQL of two columns of `change`: how a record moves, `moves[name]`, and the amount it had before. */
export function buildMovesSql(stream: Stream, before: Side, after: Side): string {
  const moves = listMovements(stream).map(({name, condition}) => `"${name}": ${condition(before, after)}`)
  const amount = stream.amountColumn === undefined ? amountOf(stream) : before(stream.amountColumn)
  return `{"any": true${moves.map((move) => `, ${move}`).join('')}} as moves, ${amount} as head_amount`
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

const cents = z.string().transform((text) => BigInt(text.replace('.', '')))

const sizesRow = z.object({
  known: z.coerce.number(),
  pipeline: z.coerce.number(),
  known_cents: cents,
  next: z.coerce.number(),
  next_cents: cents,
})

const movedRow = z.record(z.string(), z.coerce.number())

/** Measures a plan from its tables `change` and `absence`. */
export async function measureMovement(db: Database, stream: Stream): Promise<Movement> {
  await createLooked(db, stream)
  const sizes = await db.one(sizesRow, buildSizesSql(stream))
  const moved = await db.one(movedRow, buildMovedSql(stream))
  const columns = Object.entries(moved).flatMap(([name, count]): [string, number][] =>
    name.startsWith('column ') ? [[name.slice('column '.length), count]] : [],
  )
  return {
    before: {records: sizes.known, amountCents: sizes.known_cents, pipeline: sizes.pipeline},
    after: {records: sizes.next, amountCents: sizes.next_cents},
    amounts: moved.amounts ?? 0,
    left: moved.left ?? 0,
    entered: moved.entered ?? 0,
    columns: Object.fromEntries(columns),
  }
}

const IS_PRESENT = `kind in ('seen', 'missing')`

/** Its cost grows with the changes only, except for sums over the latest states. */
function buildSizesSql(stream: Stream): string {
  const {idColumn, settled} = stream
  const {head} = tablesOf(stream)
  const amount = amountOf(stream)
  const notPipeline = settled ? [...settled.values, ...settled.ended].map(quoteLiteral).join(', ') : ''
  const isPipeline = settled
    ? `coalesce(${comparedSql(stream, settled.column)} not in (${notPipeline}), true)`
    : 'false'
  const sizes = (alias: string) => `
    count(*) as ${alias},
    count(*) filter (${isPipeline}) as ${alias}_pipeline,
    coalesce(sum(${amount}), 0) as ${alias}_amount`
  return `
    with head as (select ${sizes('head')} from ${head} where ${IS_PRESENT}),
    looked_now as (
      select ${sizes('now')} from ${head} where ${IS_PRESENT} and ${idColumn} in (select ${idColumn} from looked)
    ),
    looked_then as (select ${sizes('past')} from looked where ${IS_PRESENT}),
    changed as (
      select
        count(*) filter (content in ('created', 'restored')) as come,
        coalesce(sum(${amount}) filter (content in ('created', 'restored', 'updated')), 0)
          - coalesce(sum(head_amount) filter (content = 'updated'), 0) as come_amount
      from change
    ),
    gone as (
      select count(*) as gone, coalesce(sum(${amount}), 0) as gone_amount from absence where kind = 'vanished'
    )
    select
      head - now + past as known,
      head_pipeline - now_pipeline + past_pipeline as pipeline,
      cast(cast(head_amount - now_amount + past_amount as decimal(38, 2)) as varchar) as known_cents,
      head + come - gone as next,
      cast(cast(head_amount + come_amount - gone_amount as decimal(38, 2)) as varchar) as next_cents
    from head, looked_now, looked_then, changed, gone`
}

function buildMovedSql(stream: Stream): string {
  const {idColumn, columns} = stream
  const movements = listMovements(stream)
  const before: Side = (column) => `b.${column}`
  const after: Side = (column) => `a.${column}`
  const sums = movements.map(({name}) => `coalesce(sum(cast(moves['${name}'] as integer)), 0) as "${name}"`)
  const names = columns.map(({name}) => name).join(', ')
  return `
    with now as (
      select ${idColumn}, ${names} from change where not is_late and source <> 'gone'
      union all by name
      select ${idColumn}, ${names} from ${tablesOf(stream).head}
      where ${idColumn} in (select ${idColumn} from looked)
        and ${idColumn} not in (select ${idColumn} from change where not is_late and source <> 'gone')
    ),
    moved as (
      select moves from change
      where content = 'updated' and ${idColumn} not in (select ${idColumn} from looked)
      union all
      select moves from (
        select ${buildMovesSql(stream, before, after)}
        from (from looked where ${IS_PRESENT}) b
        join now a using (${idColumn})
      )
    )
    select ${sums.join(', ') || '0 as none'} from moved`
}
