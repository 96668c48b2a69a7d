import {addDays} from '../../../src/core/clock.ts'
import type {Life} from './life.ts'
import type {Row} from './tables.ts'
import type {Facts} from './truth.ts'

export const daysFrom = (from: string, to: string): number =>
  Math.round((Date.parse(to) - Date.parse(from)) / 86_400_000)
const earlier = (one: string, other: string) => (one < other ? one : other)

/** Lists a deal's stays in statuses, as durations count them; days are dates. */
export function listStays({spells, createdOn, last}: Life, {reference}: Facts, asOf: string) {
  const orderOf = (status: string) => reference.statuses[status]?.[1]
  const goneOn = last.change === 'vanished' ? last.on : undefined
  return spells.map(({status, on, after}, index) => {
    const next = spells[index + 1]
    const isFromCreation = index === 0 && status === 'draft'
    const wasYoung = createdOn <= on && daysFrom(createdOn, on) <= 1
    const since = isFromCreation ? earlier(createdOn, on) : on
    const wasWatched = after !== null && daysFrom(after, on) <= 1
    const isExact = wasWatched && (index > 0 || (isFromCreation && wasYoung))
    const bound = index > 0 ? earlier(addDays(after!, 1), on) : createdOn <= on ? createdOn : null
    const isKnown = index > 0 ? wasWatched : isFromCreation || (after !== null && wasYoung)
    const end = next?.on ?? goneOn
    const late = daysFrom(since, on)
    const exitTo = (to: string, toClass: string) => {
      if (toClass === 'ended_unfunded') return 'fallout'
      return (orderOf(to) ?? -1) > (orderOf(status) ?? Infinity) ? 'advance' : 'other'
    }
    return {
      status,
      since,
      isExact,
      earliest: isExact ? since : bound,
      latest: isExact ? since : on,
      /** Null if it is unknown when the stay began. */
      days: isKnown ? Math.max(0, daysFrom(since, end ?? asOf)) : null,
      /** The age at which its end could first have been seen. */
      watchedFrom: late > (after === null ? 0 : 1) ? late + 1 : 0,
      exit: next ? exitTo(next.status, next.statusClass) : goneOn === undefined ? null : 'vanish',
    }
  })
}

type Stay = ReturnType<typeof listStays>[number]

export function stageRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const all = lives.flatMap((life) => listStays(life, truth, asOf))
  return [...Map.groupBy(all, ({status}) => status)].flatMap(([status, stays]) => {
    const known = stays.filter(({days}) => days !== null)
    return ['advance', 'fallout', 'vanish', 'any'].map((exit) => {
      const isExit = (stay: Stay) => stay.exit !== null && (exit === 'any' || stay.exit === exit)
      const within = (part: bigint) => {
        let [left, whole] = [1n, 1n]
        for (let age = 0; age <= Math.max(-1, ...known.map(({days}) => days!)); age += 1) {
          const isWatched = ({days, watchedFrom, exit}: Stay) =>
            days! >= age && (watchedFrom <= age || (exit !== null && days === age))
          const watched = known.filter(isWatched)
          const ended = watched.filter((stay) => stay.days === age && isExit(stay)).length
          if (ended === 0) continue
          left *= BigInt(watched.length - ended)
          whole *= BigInt(watched.length)
          if (left * part <= whole) return age
        }
        return null
      }
      return {
        status,
        exit,
        spells: known.length,
        completed: known.filter(isExit).length,
        at_risk: known.filter((stay) => stay.exit === null).length,
        median_days: within(2n),
        p90_days: within(10n),
      }
    })
  })
}

const BANDS = [
  ['≤7', 0, 7],
  ['8–14', 8, 14],
  ['15–30', 15, 30],
  ['31–60', 31, 60],
  ['61–90', 61, 90],
  ['>90', 91, Infinity],
] as const

export function agingRows(
  present: readonly Life[],
  lives: readonly Life[],
  truth: Facts,
  asOf: string,
): Row[] {
  const usual = stageRows(lives, truth, asOf).filter(
    ({exit, completed}) => exit === 'any' && Number(completed) >= 20,
  )
  return present
    .filter(({last}) => last.statusClass === 'pipeline')
    .map((life) => {
      const {since, isExact, earliest, latest, status} = listStays(life, truth, asOf).at(-1)!
      const least = daysFrom(latest, asOf)
      const most = earliest === null ? null : daysFrom(earliest, asOf)
      const [band, from, to] = BANDS.find(([, , upTo]) => least <= upTo)!
      const days = usual.find((row) => row.status === status)?.p90_days ?? null
      return {
        deal_id: life.id,
        status,
        status_since: since,
        status_since_is_exact: isExact,
        days_in_status: least,
        days_in_status_at_most: most,
        age_band: (most ?? Infinity) <= to ? band : `unknown (≥ ${from})`,
        usual_days: days,
        is_stuck: days === null ? null : least > Number(days),
      }
    })
}
