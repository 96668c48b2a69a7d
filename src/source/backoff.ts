const FIRST_MS = 500
const LONGEST_MS = 30_000

/**
 * Exponential backoff with full jitter: uniform between 0 and 0.5 s, doubled by each earlier attempt, at most 30 s.
 * See https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
 *
 * @param attempt 0 for the first wait
 * @returns whole milliseconds
 */
export function backoffMs(attempt: number, random: () => number): number {
  return Math.floor(random() * Math.min(LONGEST_MS, FIRST_MS * 2 ** attempt))
}
