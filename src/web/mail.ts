import {Html} from './html.ts'

/** By tag and class: mail readers ignore style sheets. */
const STYLES: Readonly<Record<string, string>> = {
  main: 'max-width:900px;font:14px/1.45 Arial,sans-serif;color:#1a1a1a;background:#ffffff',
  h1: 'margin:0 0 8px;font-size:22px',
  h2: 'margin:24px 0 8px;font-size:17px',
  h3: 'margin:16px 0 8px;font-size:15px',
  ul: 'margin:8px 0;padding-left:20px',
  table: 'margin:8px 0;border-collapse:collapse;font-size:13px',
  th: 'padding:4px 10px;border-bottom:2px solid #888888;text-align:left',
  td: 'padding:4px 10px;border-bottom:1px solid #dddddd;vertical-align:top',
  pre: 'white-space:pre-wrap;font-size:12px',
  '.number': 'text-align:right;white-space:nowrap',
  '.figure': 'display:inline-block;margin:0 28px 12px 0;vertical-align:top',
  '.value': 'font-size:22px',
  '.note': 'color:#5a5a5a;font-size:12px;white-space:pre-line',
  '.muted': 'color:#5a5a5a',
  '.small': 'font-size:12px',
  '.warned': 'color:#7a4b00',
  '.failed': 'color:#a4001d',
  footer: 'margin-top:24px;color:#5a5a5a;font-size:12px',
}

/** Charts and controls. */
const ONLY_ON_A_PAGE = /<(svg|nav|form)\b[\s\S]*?<\/\1>/g

/** Removes charts and controls, and the empty cells, titles and notes that they leave. */
const keepForMail = (markup: string) =>
  markup
    .replaceAll(ONLY_ON_A_PAGE, '')
    .replaceAll(/<(td|div) class="(bar|note)"><\/\1>/g, '')
    .replaceAll(/<th scope="row"([^>]*>[\s\S]*?)<\/th>/g, '<td$1</td>')
    .replaceAll(/<thead>[\s\S]*?<\/thead>/g, (head) => head.replaceAll('<td></td>', ''))

/** Inline styles, links to other sites only, no charts. */
export const styleForMail = ({html: markup}: Html): Html =>
  new Html(
    keepForMail(markup).replaceAll(/<(\w+)([^>]*)>/g, (_, tag: string, attributes: string) => {
      const [, classes = ''] = / class="([^"]*)"/.exec(attributes) ?? []
      const keys = [tag, ...classes.split(' ').map((name) => `.${name}`)]
      const style = keys.flatMap((key) => (Object.hasOwn(STYLES, key) ? [STYLES[key]] : [])).join(';')
      const [href = ''] = / href="(?:https?|mailto):[^"]*"/.exec(attributes) ?? []
      return `<${tag}${href}${style && ` style="${style}"`}>`
    }),
  )

export const inOneLine = (text: string) => text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ')

const MARKS: Record<string, string> = {lt: '<', gt: '>', quot: '"', '#39': "'", amp: '&'}

/** Tags that start or end a line: all but inline elements, table cells and headings. */
const BLOCKS = /(?:<\/?(?!(?:a|b|bdi|code|del|em|h\d|i|s|small|span|strong|t[dh]|time|wbr)\b)\w+[^>]*>\s*)+/g

/** Has a line for each figure, fact, row, sentence, heading and list item. */
export const textOf = (text: string) =>
  keepForMail(inOneLine(text))
    .replaceAll(/<\/h\d>/g, ':<p>')
    .replaceAll('</dt><dd>', ': ')
    .replaceAll('</div><div class="value">', ': ')
    .replaceAll('</div><div class="note">', ', ')
    .replaceAll('<li>', '<li>- ')
    .replaceAll(BLOCKS, '\n')
    .replaceAll(/(?=<h\d)/g, '\n\n')
    .replaceAll(/(?<=<\/t[dh]>)(?=<t[dh])/g, ' · ')
    .replaceAll(/<[^>]*>/g, '')
    .replaceAll(/&(lt|gt|quot|#39|amp);/g, (_, name: string) => MARKS[name] ?? '')
    .replaceAll(/ *\n */g, '\n')
    .replaceAll(/\n{3,}/g, '\n\n')
    .trim()
