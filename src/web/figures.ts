import {wallTimeOf} from '../core/clock.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {shorten} from '../core/text.ts'
import {type Html, html} from './html.ts'

/** `$1,234.56`, from exact decimal text. */
export function dollars(amount: string): string {
  return amount.startsWith('-') ? `−$${groupThousands(amount.slice(1))}` : `$${groupThousands(amount)}`
}

const AT_A_GLANCE = new Intl.NumberFormat('en-US', {
  style: 'currency',
  currency: 'USD',
  notation: 'compact',
  maximumSignificantDigits: 3,
})

/** `$1.62B`, as on chart axes. */
export function dollarsAtAGlance(amount: string): string {
  return Math.abs(Number(amount)) < 1000
    ? dollars(amount)
    : AT_A_GLANCE.format(Number(amount)).replace('-', '−')
}

export const count = groupThousands

/** `44 checks passed, 1 warned` */
export const wordChecks = ({passed, warned}: {passed: number; warned: number}) =>
  `${quantity(passed, 'check')} passed${warned > 0 ? `, ${count(warned)} warned` : ''}`

export const words = (text: string) => (text === '' ? '(blank)' : shorten(text.replaceAll('_', ' ')))

export const capitalised = (name: string) => name.replace(/^./u, (letter) => letter.toUpperCase())

export const pageOf = (query: URLSearchParams) =>
  Math.max(1, Math.min(1_000_000, Number.parseInt(query.get('page') ?? '', 10) || 1))

/** 61.4 is `61.4 %`: at most so many decimals, at least one; what is rounded to zero has no sign. */
export const percent = (value: number | null, decimals = 1): string =>
  value === null
    ? '–'
    : `${value
        .toFixed(decimals)
        .replace(/^-(?=[0.]+$)/, '')
        .replace(/(\.\d)(\d*?)0+$/, '$1$2')} %`

/** 0.614 is `61.4 %`. */
export const ratio = (value: number | string | null): string =>
  percent(value === null ? null : Number(value) * 100)

/** Shown to the second, in UTC, from ISO 8601 or a TIMESTAMP as text. {@link inTimeZone} converts it. */
export function instant(at: string): Html {
  const date = new Date(/^[\d-]+ [\d:.]+$/.test(at) ? `${at.replace(' ', 'T')}Z` : at)
  if (Number.isNaN(date.getTime())) return html`${at}`
  return html`<time datetime="${date.toISOString()}">${secondOf(date)} UTC</time>`
}

const secondOf = (date: Date) => date.toISOString().slice(0, 19).replace('T', ' ')

/** Instants in the markup become wall time: `2026-03-03 23:30:00 EST`. */
export function inTimeZone(markup: string, timeZone: string): string {
  const zoneName = new Intl.DateTimeFormat('en-US', {timeZone, timeZoneName: 'short'})
  return markup.replaceAll(/<time datetime="([^"]+)">[^<]+/g, (told, iso: string) => {
    const at = Date.parse(iso)
    // Any text can look like an instant.
    if (Number.isNaN(at)) return told
    const zone = zoneName.formatToParts(at).find(({type}) => type === 'timeZoneName')?.value
    return `<time datetime="${iso}" title="${timeZone}">${secondOf(new Date(wallTimeOf(at, timeZone)))} ${zone}`
  })
}

export function span(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ] as const
  const first = parts.findIndex(([value]) => value > 0)
  const shown = parts.slice(first, first + 2).filter(([value]) => value > 0)
  return first === -1 ? '0 s' : shown.map((part) => part.join(' ')).join(' ')
}

/** Other programs and proxies refuse longer links; a status can have any length. */
export const LONGEST_ADDRESS = 8_000

/** `label` is what a screen reader says of it, if the value alone does not tell where it leads. */
export function linked(value: Html | string, href: string | undefined, label?: string): Html {
  return href === undefined || href.length > LONGEST_ADDRESS
    ? html`${value}`
    : html`<a href="${href}"${label !== undefined && html` aria-label="${label}"`}>${value}</a>`
}
