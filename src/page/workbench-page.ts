import {type Html, html} from './html.ts'
import {renderPage} from './html-page.ts'

/** What stands around every page of the workbench. */
export interface Frame {
  title: string
  /** The address of the page. */
  path: string
  places: readonly {title: string; href: string}[]
  /** What the page is about, such as a date. */
  facts: readonly (Html | false)[]
  /** The filters that are set, each with the address of the page without it. */
  chips: readonly {text: string; without: string}[]
  alarms: number
  body: Html
}

/** A page of the workbench: the way to the others, what it is about, and its own part. */
export function renderWorkbench({title, path, places, facts, chips, alarms, body}: Frame): string {
  const isHere = (href: string) =>
    href.split('?')[0] === '/' ? path === '/' : path.startsWith(href.split('?')[0] ?? '')
  const frame = html`<a class="skip" href="#main">To the page</a>
<header class="top"><nav aria-label="Pages of the workbench">
<span class="brand">loantape</span>
${places.map((place) => html`<a href="${place.href}"${isHere(place.href) && html` aria-current="page"`}>${place.title}</a>\n`)}</nav></header>
<main class="sheet wide" id="main">
<h1>${title}</h1>
<ul class="facts">${facts.map((fact) => fact && html`<li>${fact}</li>`)}</ul>
${chips.length > 0 && html`<p class="chips">${chips.map(({text, without}) => html`<a href="${without}" aria-label="Remove filter ${text}">${text} ✕</a> `)}</p>`}
${body}
</main>`
  return renderPage({
    title: `${title} · loantape${alarms > 0 ? ` (${alarms})` : ''}`,
    body: frame,
    styles: 'workbench.css',
  })
}
