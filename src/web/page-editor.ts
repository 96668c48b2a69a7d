import {existsSync, mkdirSync, statSync} from 'node:fs'
import {dirname, join} from 'node:path'
import type {FastifyRequest} from 'fastify'
import {stringify} from 'yaml'
import {z} from 'zod'
import {explainError} from '../core/errors.ts'
import {stampOf, writeFileAtomically} from '../store/files.ts'
import {readSqlFile} from '../store/sql.ts'
import type {StateDb} from '../store/state-db.ts'
import {noteDone} from './actions.ts'
import {shapeNamed} from './blocks.ts'
import {addressOf} from './filter.ts'
import {html} from './html.ts'
import {formOf} from './http-server.ts'
import {A_NAME, beginPage, listPages, NAME} from './page-files.ts'
import {viewPage, viewState} from './pages.ts'
import {paramsOf} from './sql.ts'
import type {AskingView, Page} from './view.ts'

/** A page of a query, or a page with the query at its end. */
function writePage(sql: string, form: URLSearchParams, page: string): string {
  const title = (form.get('title') ?? '').trim()
  const fence = '`'.repeat(Math.max(3, ...[...sql.matchAll(/`+/g)].map(([marks]) => marks.length + 1)))
  const head =
    page === '' ? title && `---\n${stringify({title})}---\n\n` : `${page}\n${title && `## ${title}\n\n`}`
  return `${head}${fence}sql ${shapeNamed(form.get('as'))}\n${sql}\n${fence}\n`
}

/** Finds a text by its number in `page_action`; the last by default. */
const findSaved = (stateDb: StateDb, name: string, id?: string | null) =>
  stateDb.first(
    z.object({words: z.string()}),
    'select words from page_action where command = ? and action_id = coalesce(?, action_id) order by action_id desc',
    [`page ${name}`, id ?? null],
  )?.words

/** A version that was written by hand is recorded first. */
function savePage(
  stateDb: StateDb,
  {name, path, text, who}: Record<'name' | 'path' | 'text' | 'who', string>,
  now: number,
): void {
  const note = (words: string, by: string, ms: number) =>
    noteDone(stateDb, {who: by, command: `page ${name}`, words}, ms)
  // The file is written only if the record can be.
  stateDb.transaction(() => {
    const before = existsSync(path) ? readSqlFile(path) : undefined
    if (before !== undefined && before !== findSaved(stateDb, name))
      note(before, 'by hand', statSync(path).mtimeMs)
    note(text, who, now)
    mkdirSync(dirname(path), {recursive: true})
    writeFileAtomically(path, text)
  })
}

/**
 * `/edit?name=<page>`: an editor for a page, one of its saved versions, or a new page. The form previews or saves the text, or
 * saves a query as a page. It refuses to overwrite a version that the form did not show. `now` is ms since the epoch.
 */
export async function viewEditor(
  view: AskingView,
  request: Pick<FastifyRequest, 'body'>,
  now: number,
): Promise<Page | undefined> {
  if (!view.mayAct) return undefined
  const {filter, query, pageDirs, stateDb, who} = view
  const form = formOf(request)
  const params = paramsOf(form)
  const name = form.get('name') ?? query.get('name') ?? ''
  const known = listPages(pageDirs).find((page) => page.name === name)
  const path = known?.isOwn ? known.path : join(pageDirs[0] ?? '', `${name}.md`)
  const sql = form.get('q')?.replaceAll('\r\n', '\n').trim()
  const isName = NAME.test(name)
  const isAdded = sql !== undefined && known?.isOwn === true
  if (!isName || (sql !== undefined && known && !isAdded)) {
    const why = isName ? 'loantape has a page of this name; take another' : `expected ${A_NAME}`
    const body = html`<p class="notice">Page '${name}': ${why}.</p>`
    return {status: isName ? 409 : 400, title: 'Not saved', body}
  }
  // Before the text: what is saved in between is not the version that the form shows.
  const stamp = stampOf(path)
  const page = known && isAdded ? readSqlFile(known.path) : ''
  const given = sql === undefined ? form.get('text')?.replaceAll('\r\n', '\n') : writePage(sql, form, page)
  let problem: string | undefined
  if (form.get('do') === 'save' && given !== undefined && !isAdded)
    if (sql === undefined && form.get('from') !== stamp)
      problem =
        stamp === 'none'
          ? 'The page has been removed since. Saved again, your text brings it back.'
          : 'Somebody else has saved the page since. Saved again, your text takes the place of theirs, which is kept below.'
    else
      try {
        savePage(stateDb, {name, path, text: `${given.trimEnd()}\n`, who}, now)
        return {title: name, body: html``, leadsTo: addressOf(`/pages/${name}`, filter, params)}
      } catch (error) {
        problem = `Page '${path}': ${explainError(error).problem}`
      }
  const earlier = given === undefined ? findSaved(stateDb, name, query.get('version') ?? '') : undefined
  const text = given ?? earlier ?? (known ? readSqlFile(known.path) : beginPage(name))
  const isPreviewed = form.get('do') === 'preview' || earlier !== undefined || isAdded
  const preview = isPreviewed ? await viewPage(name, view, {isAmongOwn: true, text, params}) : undefined
  const body = html`${isAdded && html`<p class="notice">There is such a page: the query stands at its end, and nothing is saved yet.</p>`}${problem !== undefined && html`<p class="notice"><b class="failed">Not saved.</b> ${problem}</p>`}
<form class="sql" method="post" action="${addressOf('/edit', filter)}">
<input type="hidden" name="name" value="${name}">
<input type="hidden" name="from" value="${(isPreviewed && form.get('from')) || stamp}">
<label for="text" class="muted small">Markdown in which blocks of SQL stand for their rows, as in <a href="/pages">our pages</a></label>
<textarea id="text" name="text" rows="24" spellcheck="false"${given !== undefined && html` data-unsaved`}>
${text}</textarea>
<p><button name="do" value="preview">Preview</button> <button name="do" value="save">Save</button></p>
</form>
${preview && html`<h2>Preview: ${preview.title}</h2>\n${preview.body}`}
${(await viewState('state/saved', {stateDb, params: {name}}))?.body}`
  return {title: `pages/${name}.md`, body, ...(problem !== undefined && {status: 409})}
}
