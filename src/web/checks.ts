import {quantity} from '../core/money.ts'
import {type ReleaseCheck, readReleaseChecks} from '../store/release.ts'
import {formatValue, renderMeant} from './blocks.ts'
import {count, linked, wordChecks, words} from './figures.ts'
import {addressOfDeal} from './filter.ts'
import {type Html, html, prose} from './html.ts'
import {linkOf} from './pages.ts'
import type {Page, View} from './view.ts'

/** How many rows of a check are shown. */
const SAMPLES = 2

/** The anchor of a check on the page of checks. */
const placeOf = (name: string) => name.replaceAll(/[^\w.]+/g, '-')

/** `/checks`: every check of the release, those that found rows first, with the rows. */
export function viewChecks(view: View): Page {
  const {release} = view
  const checks = readReleaseChecks(release.dir)
  return {
    title: 'Checks',
    body: html`<p class="lead">${wordChecks(release.manifest.checks)}. A check that fails lets nothing be released.</p>
${checks.filter(({failures}) => failures > 0).map((check) => renderFound(check, view))}
<h2>Passed</h2>
<ul class="needs">${checks
      .filter(({failures}) => failures === 0)
      .map(
        ({name, description}) =>
          html`<li id="${placeOf(name)}"><b class="passed">passed</b> ${!name.includes('(') && html`${words(name)}: `}${prose(description)}</li>`,
      )}</ul>`,
  }
}

/** A check of a header is called by what it demands; one of a file has a name. */
const nameOf = (name: string): Html =>
  name.includes('(') ? html`<code>${name}</code>` : html`${words(name)}`

function renderFound({name, description, failures, rows}: ReleaseCheck, view: View): Html {
  const [subject, ...others] = Object.keys(rows[0] ?? {})
  const isAmount = (name: string) =>
    rows.every((row) => row[name] === null || /^-?\d+\.\d\d$/.test(String(row[name])))
  const columns = [
    ...(subject === undefined ? [] : [{name: subject, type: ''}]),
    ...others.filter(isAmount).map((name) => ({name, type: 'DECIMAL(38,2)'})),
    ...others.filter((name) => !isAmount(name)).map((name) => ({name, type: ''})),
  ]
  const shown = {columns, rows: rows.map((row) => columns.map(({name}) => row[name]))}
  return html`<h2 id="${placeOf(name)}">${nameOf(name)}</h2>
<p><b class="warned">warned</b> ${prose(description)}</p>
<p class="muted">Not so for ${quantity(failures, 'row')}${rows.length < failures && `; the first ${count(rows.length)}`}:</p>
${renderMeant(shown, linkOf(view))}`
}

/** The warnings, each a sentence that links to its rows. @param but names of checks shown elsewhere */
export function describeFindings({release}: Pick<View, 'release'>, but: readonly string[] = []): Html[] {
  return readReleaseChecks(release.dir)
    .filter(({name, failures}) => failures > 0 && !but.includes(name))
    .map(({name, description, failures, rows}) => {
      const samples = rows.slice(0, SAMPLES).map(describeRow)
      return html`<b class="warned">${prose(description.split(/[;.](?: |$)/)[0] ?? '')}</b>: not so for <a href="/checks#${placeOf(name)}">${quantity(failures, 'row')}</a>, such as ${samples.map((sample, index) => html`${index > 0 && '; '}${sample}`)}`
    })
}

/** A row that a check found: its id and the other columns. */
function describeRow(row: ReleaseCheck['rows'][number]): Html {
  const [[id, subject] = ['', ''], ...others] = Object.entries(row)
  const said = others.map(([name, value]) => `${words(name)} ${formatValue({name, type: ''}, value)}`)
  const named =
    id === 'deal_id' ? linked(String(subject), addressOfDeal(String(subject))) : words(String(subject))
  return html`${named}${said.length > 0 && ` (${said.join(', ')})`}`
}
