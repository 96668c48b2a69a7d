import {addDays} from '../clock.ts'

/**
 * The day of a month, `YYYY-MM-DD`, that is its `nth` business day: Monday to Friday, holidays left out.
 *
 * @param month `YYYY-MM`
 */
export function findBusinessDay(month: string, nth: number, holidays: 'us-federal' | undefined): string {
  const isHoliday = holidays === undefined ? () => false : isFederalHoliday
  let left = nth
  let day = `${month}-01`
  for (;;) {
    if (!isWeekend(day) && !isHoliday(day)) left -= 1
    if (left === 0) return day
    day = addDays(day, 1)
  }
}

/** 0 is Sunday. */
const weekdayOf = (day: string) => new Date(`${day}T00:00:00Z`).getUTCDay()

const isWeekend = (day: string) => [0, 6].includes(weekdayOf(day))

/** Month, day and, for those that came later, the first year. */
const FIXED: [monthDay: string, since: number][] = [
  ['01-01', 0],
  ['06-19', 2021],
  ['07-04', 0],
  ['11-11', 0],
  ['12-25', 0],
]

/** Month, weekday, and which of the month; -1 is the last. */
const FLOATING: [month: string, weekday: number, nth: number][] = [
  ['01', 1, 3],
  ['02', 1, 3],
  ['05', 1, -1],
  ['09', 1, 1],
  ['10', 1, 2],
  ['11', 4, 4],
]

/**
 * Whether banks of the Federal Reserve are closed on a weekday: the holidays of 5 U.S.C. § 6103. One on a Sunday is kept on
 * the Monday after; one on a Saturday is not moved, as at the Federal Reserve.
 */
export function isFederalHoliday(day: string): boolean {
  const [year = '', month = ''] = day.split('-')
  const isFixed = [day, addDays(day, -1)].some(
    (kept) =>
      FIXED.some(([monthDay, since]) => kept.slice(5) === monthDay && Number(year) >= since) &&
      (kept === day || weekdayOf(kept) === 0),
  )
  return isFixed || FLOATING.some(([of, weekday, nth]) => of === month && isNthWeekday(day, weekday, nth))
}

function isNthWeekday(day: string, weekday: number, nth: number): boolean {
  if (weekdayOf(day) !== weekday) return false
  if (nth === -1) return addDays(day, 7).slice(5, 7) !== day.slice(5, 7)
  return Math.ceil(Number(day.slice(8)) / 7) === nth
}
