/** Text that is markup already. */
export interface Html {
  readonly html: string
}

/** What may stand in a template: text is escaped, markup is not, nothing and false are left out. */
export type Insert = Html | string | number | null | undefined | false | readonly Insert[]

/** Markup from a template; what is put in is escaped unless it is markup itself. */
export function html(strings: TemplateStringsArray, ...inserts: readonly Insert[]): Html {
  const parts = strings.map((text, index) => text + (index < inserts.length ? render(inserts[index]) : ''))
  return {html: parts.join('')}
}

/** Takes text for markup as it is. */
export function markup(text: string): Html {
  return {html: text}
}

/** Text in which `code` stands between backticks. */
export function prose(text: string): Html {
  return html`${text.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part))}`
}

function render(insert: Insert): string {
  if (insert === null || insert === undefined || insert === false) return ''
  if (typeof insert === 'string' || typeof insert === 'number') return escapeText(String(insert))
  if ('html' in insert) return insert.html
  return insert.map(render).join('')
}

const ENTITIES: Record<string, string> = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;'}

function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character)
}
