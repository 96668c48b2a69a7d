import {isInBook, type Life, listLives} from './life.ts'
import {BUCKETS, percent} from './marts.ts'
import {amountOf, dollars, fundedOf, isOpen, listDays, listPresent, type Row} from './tables.ts'
import type {Facts} from './truth.ts'

/** One line of `seed.limit`: an amount in cents or a share in hundredths of a percent, like the warning. */
export interface Limit {
  name: string
  dimension: string
  bucket: string
  scope: 'open' | 'funded'
  kind: 'amount' | 'share'
  limit: bigint
  warn: bigint | null
  /** The first day it holds; null: always. */
  from: string | null
}

/** The limits as `seed.limit`. */
export function formatLimits(limits: readonly Limit[]): string {
  const lines = limits.map(({name, dimension, bucket, scope, kind, limit, warn, from}) => {
    const warned = warn === null ? '' : dollars(warn)
    return [name, dimension, bucket, scope, kind, dollars(limit), warned, from ?? ''].join(',')
  })
  return ['name,dimension,bucket,scope,kind,limit_value,warn_at_pct,valid_from', ...lines].join('\n')
}

/** The exposure under each limit on a day, and since when it is exceeded, judged each day by that day's limit. */
export function limitRows(limits: readonly Limit[], truth: Facts, asOf: string): Row[] {
  const days = listDays(truth.walks[0]!.on, asOf).map((day) => ({
    day,
    present: listPresent(listLives(truth, day)),
  }))
  return [...Map.groupBy(limits, ({name}) => name).values()].flatMap((dated) => {
    const inForce = (day: string) => dated.findLast(({from}) => from === null || from <= day)
    const limit = inForce(asOf)
    if (!limit) return []
    const today = days.at(-1)!.present
    const now = expose(limit, today)
    const later = expose(limit, today.map(asFunded(truth)))
    const states = days.map(({day, present}) => {
      const its = inForce(day)
      return its ? expose(its, present).state : 'ok'
    })
    const {exposure, whole, most, state} = now
    const roomOfShare = (share: bigint) =>
      share < 10_000n ? (share * whole - 10_000n * exposure) / (10_000n - share) : null
    const room = limit.kind === 'amount' ? limit.limit - exposure : roomOfShare(limit.limit)
    const isBreach = state === 'breach'
    const sinceIndex = states.findLastIndex((each) => each !== 'breach') + 1
    return [
      {
        name: limit.name,
        dimension: limit.dimension,
        bucket: limit.bucket,
        scope: limit.scope,
        kind: limit.kind,
        limit_value: limit.limit,
        warn_at_pct: limit.warn,
        valid_from: limit.from,
        limit_amount: most,
        exposure,
        share_pct: percent(exposure, whole),
        additional_room: isBreach ? 0n : room,
        excess: exposure > most ? exposure - most : 0n,
        state,
        breached_since: isBreach ? days[sinceIndex]!.day : null,
        exposure_if_approved_fund: later.exposure,
        state_if_approved_fund: later.state,
      },
    ]
  })
}

function expose({dimension, bucket, scope, kind, limit, warn}: Limit, present: readonly Life[]) {
  const counted = scope === 'open' ? present.filter(isOpen) : fundedOf(present)
  const bucketOf = dimension === 'status_class' ? ({last}: Life) => last.statusClass : BUCKETS[dimension]!
  const whole = amountOf(counted)
  const most = kind === 'amount' ? limit : (whole * limit) / 10_000n
  const exposure = amountOf(counted.filter((life) => bucketOf(life) === bucket))
  const isWarned = warn !== null && exposure * 10_000n > most * warn
  return {whole, most, exposure, state: exposure > most ? 'breach' : isWarned ? 'warn' : 'ok'}
}

/** A deal as it would be if every approved or later deal were funded. */
function asFunded({reference: {statuses}}: Facts): (life: Life) => Life {
  return (life) => {
    const order = statuses[life.last.status]?.[1] ?? -1
    const isNear = life.last.statusClass === 'pipeline' && order >= statuses.approved![1]
    return isNear && !isInBook(life.last)
      ? {...life, last: {...life.last, status: 'funded', statusClass: 'funded'}}
      : life
  }
}
