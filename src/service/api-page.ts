import {type Endpoint, noBodySchema, problemsOf} from '../contract/endpoint.ts'
import {ENDPOINTS} from '../contract/endpoints.ts'
import {PROBLEMS} from '../contract/problem.ts'
import {escapeHtml, renderFieldTable} from './field-table.ts'

function titled(title: string, table: string): string {
  return table === '' ? '' : `<h4>${title}</h4>${table}`
}

function renderEndpoint(id: string, endpoint: Endpoint): string {
  const {method, path, summary, body, record, status, isList, isMultipart, query} = endpoint
  const codes = problemsOf(endpoint).map(
    (code) =>
      `<tr><td>${PROBLEMS[code].status}<td><code>${code}</code><td>${escapeHtml(PROBLEMS[code].meaning).replace(/`(\w+)`/g, '<code>$1</code>')}`,
  )
  return [
    `<details id="${id}"><summary><b class="${method}">${method}</b> <code>${path}</code> ${escapeHtml(summary)}</summary>`,
    titled('Query', renderFieldTable(query, 'query')),
    body === noBodySchema
      ? ''
      : titled(`Body, ${isMultipart ? 'multipart/form-data' : 'JSON'}`, renderFieldTable(body, 'body')),
    record
      ? titled(
          `Answer ${status}: ${isList ? 'each of ' : ''}<code>data</code>`,
          renderFieldTable(record, 'answer'),
        )
      : `<h4>Answer ${status}</h4>`,
    `<h4>Problems</h4><table>${codes.join('')}</table></details>`,
  ].join('')
}

const STYLE = `
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2330 }
h2 { margin-top: 2rem; border-bottom: 1px solid #d6dbe4 }
details { margin: .4rem 0; padding: .3rem .6rem; border: 1px solid #d6dbe4; border-radius: 4px }
summary { cursor: pointer }
summary code { overflow-wrap: anywhere }
summary b { display: inline-block; min-width: 4.5em }
.GET { color: #10658a } .POST { color: #1c7a3e } .PATCH { color: #8a5a10 } .DELETE { color: #a02b2b }
h4 { margin: .8rem 0 .2rem }
td { padding: .1rem .8rem .1rem 0; vertical-align: top }
td:last-child { overflow-wrap: anywhere }`

/** The API as one page for a browser: no script, nothing from elsewhere. */
export function renderApiPage(serverUrl: string): string {
  const groups = Map.groupBy(Object.entries(ENDPOINTS), ([, {tag}]) => tag)
  const sections = [...groups].map(
    ([tag, endpoints]) =>
      `<h2>${tag}</h2>${endpoints.map(([id, endpoint]) => renderEndpoint(id, endpoint)).join('\n')}`,
  )
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Deal Financing Service</title><style>${STYLE}</style></head><body>
<h1>Deal Financing Service</h1>
<p>Base URL <code>${escapeHtml(serverUrl)}</code>, with <code>Authorization: Bearer &lt;API key&gt;</code>.
For machines: <a href="/openapi.json">openapi.json</a>.</p>
${sections.join('\n')}
</body></html>
`
}
