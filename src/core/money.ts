/** The largest amount a JSON number can carry with exact cents: above it, neighbouring cents share one double. */
export const LARGEST_EXACT_NUMBER = 7e13

/** DECIMAL(18,2) holds 16 digits before the point. */
const decimalText = /^(\d{1,16})(?:\.(\d{1,2})0*)?$/

/**
 * Takes a JSON number up to 7e13, or text such as `"350000.10"`, not negative. Returns cents, or a sentence that says what is
 * wrong.
 */
export function parseCents(value: unknown): bigint | string {
  if (typeof value === 'number') return centsOfNumber(value)
  if (typeof value === 'string') return centsOfText(value)
  return 'expected a number or a decimal string'
}

function centsOfNumber(value: number): bigint | string {
  if (!Number.isFinite(value)) return 'expected a finite number'
  if (value < 0) return 'expected an amount that is not negative'
  if (value > LARGEST_EXACT_NUMBER)
    return 'expected a decimal string: cents are not exact in a JSON number above 7e13'
  // Above 3.5e13, `value * 100` can round to the cent beside it.
  const near = Math.round(value * 100)
  const cents = [near, near - 1, near + 1].find((cents) => cents / 100 === value)
  return cents === undefined ? 'expected at most 2 decimals' : BigInt(cents)
}

function centsOfText(value: string): bigint | string {
  const text = value.trim()
  if (text.startsWith('-')) return 'expected an amount that is not negative'
  const match = decimalText.exec(text)
  if (!match) return 'expected a decimal number with at most 16 digits before the point and 2 after it'
  return BigInt(match[1] ?? '0') * 100n + BigInt((match[2] ?? '').padEnd(2, '0'))
}

/** Parses decimal text with two decimals, possibly negative, into cents. Text without a point is taken as cents. */
export function centsOf(amount: string): bigint {
  return BigInt(amount.replace('.', ''))
}

/** Without separators: `1234.56`. */
export function formatCents(cents: bigint): string {
  const sign = cents < 0n ? '-' : ''
  const digits = String(cents < 0n ? -cents : cents).padStart(3, '0')
  return `${sign}${digits.slice(0, -2)}.${digits.slice(-2)}`
}

/** Adds decimal texts with two decimals, exactly. Null counts as 0. */
export function addAmounts(amounts: readonly (string | null)[]): string {
  return formatCents(amounts.reduce((sum, amount) => sum + centsOf(amount ?? '0.00'), 0n))
}

/** For a count or decimal text: `1,234.56`. */
export function groupThousands(amount: string | number): string {
  return String(amount).replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ',')
}

/** Matches names of columns with interest percentages, which are shown with three decimals. A roll rate is a share, not interest. */
export const INTEREST = /(?<!roll)(^|[_ ])(coupon|rate|yield|spread)_pct(?= |$)/

/** `1 entry`, `1,234 entries`. */
export function quantity(count: number, noun: string): string {
  const plural = /[^aeiou]y$/.test(noun)
    ? noun.replace(/y$/, 'ies')
    : /(s|x|ch|sh)$/.test(noun)
      ? `${noun}es`
      : `${noun}s`
  return `${groupThousands(count)} ${count === 1 ? noun : plural}`
}
