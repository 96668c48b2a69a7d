import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {inTimeZone} from './figures.ts'
import {type Filter, hidden} from './filter.ts'
import {Html, html} from './html.ts'

const readAsset = (name: string) => new Html(readFileSync(join(import.meta.dirname, 'assets', name), 'utf8'))

/** Inlines the styles, and `script`, of `assets`. Instants are shown in `timeZone`, UTC by default. */
export function renderPage(page: {
  title: string
  body: Html
  script?: string
  timeZone?: string | undefined
}): string {
  const {title, body, script, timeZone} = page
  const document = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<link rel="icon" href="data:,">
<style>
${readAsset('page.css')}</style>
</head>
<body>
${body}
${script !== undefined && html`<script>\n${readAsset(script)}</script>\n`}</body>
</html>
`
  return timeZone === undefined ? document.html : inTimeZone(document.html, timeZone)
}

interface Frame {
  title: string
  path: string
  places: readonly (readonly [title: string, href: string])[]
  /** The filter that the search field keeps, and its text. */
  find?: {filter?: Filter; q?: string | undefined}
  subject?: Html
  alarms?: number
  /** What goes on, and the release shown; undefined for pages without scripts. A dated page is replaced by no release. */
  live?: {running: boolean; words: string; begun: string; release: string; isDated: boolean}
  timeZone?: string
  body: Html
}

export function renderWorkbench(page: Frame): string {
  const {title, path, places, find, subject, alarms = 0, live, body, timeZone} = page
  const ways = places.map(([, href]) => href.split('?')[0] ?? '').sort((a, b) => b.length - a.length)
  const here = ways.find((way) => path === way || (way !== '/' && path.startsWith(`${way}/`)))
  const frame = html`<a class="skip" href="#main">To the page</a>
<header class="top"><nav aria-label="Pages">
<span class="brand">loantape</span>
${places.map(([name, href]) => html`<a href="${href}"${href.split('?')[0] === here && html` aria-current="page"`}>${name}</a>\n`)}${
  find &&
  html`<form class="search" action="/find" role="search">${find.filter && hidden(find.filter.values)}<input type="search" name="q" value="${find.q}" placeholder="Find (/)" aria-label="Find" aria-keyshortcuts="/"></form>\n`
}${live && html`<span class="live muted small" id="live" role="status" data-running="${String(live.running)}" data-begun="${live.begun}"${!live.isDated && html` data-release="${live.release}"`}>${live.words}</span>`}</nav></header>
<main class="sheet wide" id="main">
<h1>${title}</h1>
${subject}
${body}
</main>
${live && html`<script src="/assets/workbench.js" type="module"></script>`}`
  return renderPage({
    title: `${title} · loantape${alarms > 0 ? ` (${alarms})` : ''}`,
    body: frame,
    timeZone,
  })
}
