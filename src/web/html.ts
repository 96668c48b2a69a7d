import {INVISIBLE} from '../core/text.ts'

/** A class, so that no value of a row can pass for markup. */
export class Html {
  readonly html: string

  constructor(html: string) {
    this.html = html
  }
}

type Insert = Html | string | number | null | undefined | false | readonly Insert[]

/** Values are escaped unless they are markup, and pass {@link showControls} where people read them. */
export function html(strings: TemplateStringsArray, ...inserts: readonly Insert[]): Html {
  let before = ''
  const parts = strings.map((text, index) => {
    before += text
    if (index === inserts.length) return text
    return text + render(inserts[index], EXACT_PLACE.test(before) ? escapeText : showText)
  })
  return new Html(parts.join(''))
}

/** Values in attributes and text areas are sent back or looked up, so they stay exact. */
const EXACT_PLACE = /="[^"]*$|<textarea[^<]*$/

/** Names characters that are invisible or change text direction: `⟨U+202E⟩`. */
export function showControls(text: string): string {
  return text.replace(INVISIBLE, (character) => {
    if (character === '\r') return character
    const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
    return `⟨U+${code}⟩`
  })
}

const showText = (text: string) => escapeText(showControls(text))

/** Code stands between backticks; instants are shown in the zone of the page. */
export function prose(text: string): Html {
  return html`${text.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : withInstants(part)))}`
}

const withInstants = (text: string) =>
  text
    .split(/(\d{4}-\d\d-\d\dT[\d:.]+Z)/)
    .map((part, index) => (index % 2 === 1 ? html`<time datetime="${part}">${part}</time>` : part))

function render(insert: Insert, write: (text: string) => string): string {
  if (insert === null || insert === undefined || insert === false) return ''
  if (typeof insert === 'string' || typeof insert === 'number') return write(String(insert))
  if (insert instanceof Html) return insert.html
  return insert.map((one) => render(one, write)).join('')
}

const ENTITIES: Record<string, string> = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;'}

function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character)
}
