import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {inTimeZone} from './figures.ts'
import {type Html, html, markup} from './html.ts'

const readAsset = (name: string) => markup(readFileSync(join(import.meta.dirname, name), 'utf8'))

/**
 * One self-contained page: styles and script stand in it, nothing is loaded from anywhere.
 *
 * @param styles file beside this one with further styles
 * @param script file beside this one whose text runs at the end of the page
 * @param timeZone of its instants; UTC by default
 */
export function renderPage(page: {
  title: string
  body: Html
  styles?: string
  script?: string
  timeZone?: string | undefined
}): string {
  const {title, body, styles, script, timeZone} = page
  const document = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<link rel="icon" href="data:,">
<style>
${readAsset('page.css')}${styles !== undefined && readAsset(styles)}</style>
</head>
<body>
${body}
${script !== undefined && html`<script>\n${readAsset(script)}</script>\n`}</body>
</html>
`
  return timeZone === undefined ? document.html : inTimeZone(document.html, timeZone)
}
