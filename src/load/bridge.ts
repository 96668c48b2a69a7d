import type {Stream} from '../contract/stream.ts'
import {quoteLiteral} from '../warehouse/database.ts'
import {amountOf, buildReachSql, tablesOf} from './stream-tables.ts'

const TERMS = ['present', 'kept_quarantined', 'kept_missing', 'adjusted']

/**
 * SQL that completes the bridge of the certificate `$1`, in records and amount:
 * present = distinct + kept because quarantined + kept because missing + adjusted by observations outside the list.
 * Of a child stream only what belongs to the parents it listed.
 *
 * Every record falls under exactly one term, so the bridge is exact; a check on the release compares both sides.
 */
export function buildBridgeSql(stream: Stream): string {
  const {idColumn} = stream
  const sums = TERMS.flatMap((term) => [`${term}_deals`, `${term}_amount`]).map(
    (column) => `${column} = bridge.${column}`,
  )
  return `
    update warehouse.raw.walk set
      ${sums.join(',\n      ')}
    from (
      with present as (
        select ${idColumn} as id, kind, ${amountOf(stream)} as amount
        from ${tablesOf(stream).head}
        where kind in ('seen', 'missing') and ${buildReachSql(stream, '$1')}
      ),
      listed as (
        select ${idColumn} as id, listed_amount as amount
        from incoming
        where is_listed
      ),
      rejected as (
        select distinct record_id as id
        from warehouse.raw.quarantine
        where walk_id = $1 and stream = ${quoteLiteral(stream.name)} and source = 'list'
      ),
      walk as (
        from warehouse.raw.walk where walk_id = $1
      ),
      termed as (
        select
          present.id is not null as is_present,
          listed.id is not null as is_listed,
          coalesce(present.amount, 0) as present_amount,
          coalesce(listed.amount, 0) as listed_amount,
          case
            when listed.id is not null then 'adjusted'
            when rejected.id is not null then 'quarantined'
            when present.kind = 'missing' then 'missing'
            when walk.unreadable_ids > 0 then 'quarantined'
            else 'adjusted'
          end as term
        from present
        full join listed on listed.id = present.id
        left join rejected on rejected.id = present.id
        cross join walk
      )
      select
        count(*) filter (is_present) as present_deals,
        coalesce(sum(present_amount), 0) as present_amount,
        count(*) filter (term = 'quarantined') as kept_quarantined_deals,
        coalesce(sum(present_amount) filter (term = 'quarantined'), 0) as kept_quarantined_amount,
        count(*) filter (term = 'missing') as kept_missing_deals,
        coalesce(sum(present_amount) filter (term = 'missing'), 0) as kept_missing_amount,
        coalesce(sum(cast(is_present as bigint) - cast(is_listed as bigint)) filter (term = 'adjusted'), 0)
          as adjusted_deals,
        coalesce(sum(present_amount - listed_amount) filter (term = 'adjusted'), 0) as adjusted_amount
      from termed
    ) as bridge
    where walk.walk_id = $1`
}
