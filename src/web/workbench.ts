import {once} from 'node:events'
import {readFileSync, realpathSync} from 'node:fs'
import {findPackageJSON} from 'node:module'
import {basename, dirname, join} from 'node:path'
import {fileURLToPath, pathToFileURL} from 'node:url'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {z} from 'zod'
import {codeOf, explainError} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import type {World} from '../core/types.ts'
import {type ReleaseManifest, unlessDamaged} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {viewRuns} from './actions.ts'
import type {LinkTo} from './cells.ts'
import {sendData} from './data-api.ts'
import {count, instant} from './figures.ts'
import {
  addressOf,
  findFault,
  ofAllDeals,
  parseFilter,
  renderChosen,
  renderFields,
  renderFilter,
  titleOf,
  without,
  wordValue,
} from './filter.ts'
import {type Html, html} from './html.ts'
import {askerOf, markBusy, PLACES, refuse, sendPage, statusOf} from './http-server.ts'
import {viewEditor} from './page-editor.ts'
import {listPageDirs, listPlaces} from './page-files.ts'
import {renderWorkbench} from './page-frame.ts'
import {linkOf, viewPage, viewState} from './pages.ts'
import {createReaders, queriesOf, type Reader, readHistory, type Turn} from './reader.ts'
import {ROUTES, viewNone} from './routes.ts'
import {addSaved, listSavedFilters} from './sql.ts'
import {
  type Ask,
  type AskingView,
  type Page,
  readOverview,
  readUnderWay,
  type WebTools,
  withFilter,
} from './view.ts'

const OWN = join(import.meta.dirname, 'assets')

const SCRIPTS = {
  'workbench.js': join(OWN, 'workbench.js'),
  'sql-editor.js': join(OWN, 'sql-editor.js'),
  'echarts.js': fileURLToPath(import.meta.resolve('echarts/dist/echarts.esm.min.js')),
}

const IMPORT = /^((?:import|export)[\w\s{},*$]* from )'([^'./][^']*)'/gm

/** Our scripts and the packages they import, as published. Package names in imports are replaced by addresses. */
function addAssets(server: FastifyInstance): void {
  const added = new Set<string>()
  const add = (name: string, file: string) => {
    if (added.has(name)) return
    added.add(name)
    const script = readFileSync(file, 'utf8').replace(IMPORT, (_whole, names: string, imported: string) => {
      add(`${imported}.js`, findModule(imported, file))
      return `${names}'/assets/${imported}.js'`
    })
    server.get(`/assets/${name}`, async (_request, reply) =>
      reply
        .type('text/javascript; charset=utf-8')
        .header('cache-control', 'private, max-age=3600')
        .send(script),
    )
  }
  for (const [name, file] of Object.entries(SCRIPTS)) add(name, file)
}

const packageSchema = z.object({exports: z.object({import: z.string()})})

/** Resolved as `importer` would: `import.meta.resolve` resolves for this file only. */
function findModule(name: string, importer: string): string {
  const path = findPackageJSON(name, pathToFileURL(importer))
  if (path === undefined) throw new Error(`no package '${name}' for '${importer}'`)
  const {exports} = packageSchema.parse(parseJson(readFileSync(path, 'utf8')))
  // Links are resolved, as Node does: dependencies lie beside the real file.
  return realpathSync(join(dirname(path), exports.import))
}

/** More values of a parameter share one chip: the link of each would hold all others. */
const MOST_CHIPS = 50

const NOTHING_THERE: Page = {
  status: 404,
  title: 'Not found',
  body: html`<p>There is nothing of this name, or it is forgotten.</p>`,
}

function describeFailure(error: unknown): Page {
  const {problem, kept, next} = explainError(error)
  const body = html`<p class="notice"><b class="failed">${problem}</b> ${kept} ${next}</p>`
  return {status: statusOf(error), title: 'Not shown', body}
}

/** Disposing the result ends the reading processes. */
export function addWorkbench(server: FastifyInstance, tools: WebTools, world: World): Disposable {
  const {config, folder} = tools
  const opened = new DisposableStack()
  const releases = opened.use(createReaders(folder, config))
  const history = opened.use(readHistory(config))
  server.get('/runs/live', async () => readUnderWay(tools, world))
  const pageDirs = listPageDirs(config)
  addAssets(server)

  /** Shows the filter form to those who may see what it offers. If it fails, the page is shown without it. */
  const renderChoice = async (path: string, view: AskingView): Promise<Html | undefined> => {
    const {tables} = view.release.manifest
    const isThere = (name: string) => view.mayRead(name) && tables.some((table) => table.name === name)
    if (!['core.deal', 'mart.portfolio_breakdown'].every(isThere)) return undefined
    try {
      const {all} = queriesOf((asked) => view.ask({...asked, isWhole: true}))
      const bucket = z.object({dimension: z.string(), bucket: z.string()})
      const offered = await all(bucket, readQuery('offered'))
      const saved = listSavedFilters(folder).filter(({filter}) => filter.reads.every(view.mayRead))
      return renderFilter(path, view, {offered, saved, maySave: view.mayAct})
    } catch (error) {
      return html`<p class="notice">The filter cannot be offered: ${explainError(error).problem}</p>`
    }
  }
  const frame = (
    path: string,
    page: Page,
    {given, filter, query, overview, caller, view}: Opened,
    choice?: Html,
  ) => {
    const release = view?.release.manifest
    const linkTo = linkOf({...caller, filter: given})
    const isDated = given.values.has('as_of') || given.values.has('known_at')
    const chips = [...new Set(filter.values.keys())].flatMap((name) => {
      const values = filter.values.getAll(name)
      const removals = values.length > MOST_CHIPS ? [values] : values.map((value) => [value])
      return removals.map((removed) => {
        const [value = ''] = removed
        const what = removed.length > 1 ? `${count(removed.length)} values` : wordValue(name, value)
        const text = `${titleOf(name)}: ${what}`
        const others = without(query, [name])
        for (const other of values) if (!removed.includes(other)) others.append(name, other)
        return html`<a href="${addressOf(path, NO_FILTER, others)}" aria-label="Remove filter ${text}">${text}</a> `
      })
    })
    const subject = html`<ul class="facts">${
      release &&
      html`<li>as of <b>${release.as_of}</b></li><li>known at <b>${instant(release.known_at)}</b></li><li><span class="mono">${release.release_id}</span></li><li>${renderClocks({filter, query, linkTo}, release)}</li>`
    }</ul>
${chips.length > 0 && html`<p class="chips">${chips}</p>`}${
  filter.condition !== given.condition && html`<p class="muted">Of all deals: no filter applies here.</p>`
}${release && renderChosen(filter, release.as_of)}
${choice}`
    return renderWorkbench({
      ...page,
      path,
      places: [...PLACES, ...listPlaces({...caller, pageDirs})].flatMap(([title, way]) => {
        const href = linkTo(way)
        return href === undefined ? [] : [[title, href] as const]
      }),
      find: {filter: given, q: ['/find', '/deals'].includes(path) ? query.get('q')?.trim() : undefined},
      subject,
      alarms: overview.alarms.length,
      live: {...overview.underWay, ...(view && {release: basename(view.release.dir)}), isDated},
      timeZone: config.timeZone,
    })
  }

  /** Without a release there is no view. */
  const open = (reply: FastifyReply) => {
    const {request} = reply
    const query = new URL(request.url, 'http://localhost').searchParams
    const asked = parseFilter(query)
    const {caller, gone} = request
    const {only, network, mayRead} = caller
    const fault = findFault(asked, mayRead)
    const refusal = fault && {status: asked.reads.every(mayRead) ? 400 : 403, ...fault}
    const given = refusal ? NO_FILTER : asked
    const filter = isOfAllDeals(request) ? ofAllDeals(given) : given
    const overview = readOverview(tools, world)
    const turn = {caller: network, signal: gone}
    const tellBusy = (error: unknown): never => {
      if (codeOf(error) === 'WEB_BUSY') markBusy(reply)
      throw error
    }
    const askInTurn = (reader: Reader, asked: Parameters<Ask>[0], more: Turn = {}) =>
      reader.ask({...withFilter(asked, filter), only}, {...turn, ...more}).catch(tellBusy)
    const ofCaller = history.of(turn)
    const readers = unlessDamaged(() => releases.find(filter))
    const view: AskingView | undefined = readers && {
      ...caller,
      release: readers.release,
      filter,
      async ask(asked) {
        // A running question is not aborted: it is short, and its process is shared.
        gone.throwIfAborted()
        return await readers.pages.page(withFilter(asked, filter))
      },
      query,
      pageDirs,
      askAsPerson: (asked) => askInTurn(readers.people, asked),
      // A slow reader keeps its place, so that files do not pile up, but no process that others wait for.
      download: (asked) => askInTurn(readers.downloads, asked, {until: once(reply.raw, 'close')}),
      filesDir: readers.downloads.filesDir,
      history: {ask: (...asked) => ofCaller.ask(...asked).catch(tellBusy)},
      overview,
      mayRun: ['ours', 'tool'].includes(askerOf(request)),
      ...tools,
    }
    return {request, given, filter, refusal, query, overview, caller, view}
  }
  type Opened = ReturnType<typeof open>
  /** If a page fails, it says why. */
  const addAnyPage = (
    path: string,
    make: (opened: Opened, id: string) => Promise<Page | undefined> | Page | undefined,
    method = ['GET'],
  ) => {
    const handler = async (request: FastifyRequest, reply: FastifyReply) => {
      const opened = open(reply)
      const {view, refusal} = opened
      const here = request.url.split('?')[0] ?? '/'
      const answer = async (): Promise<Page> => {
        if (!refusal) return (await make(opened, idOf(request))) ?? NOTHING_THERE
        const others = addressOf(here, NO_FILTER, without(opened.query, refusal.names))
        const body = html`<p class="notice"><b class="failed">${refusal.problem}</b> <a href="${others}">The page without it</a></p>`
        return {status: refusal.status, title: 'Not shown', body}
      }
      const page = await answer().catch(describeFailure)
      if (page.leadsTo !== undefined) return reply.redirect(page.leadsTo, 303)
      if (reply.statusCode !== 503) reply.code(page.status ?? 200)
      // A query that another site led to is run only by its own button.
      const isRun = here !== '/sql' || view?.mayRun || !view?.query.has('q')
      const hasChoice = page.status === undefined && !isOfAllDeals(request) && isRun
      const choice = hasChoice && view ? await renderChoice(here, view) : undefined
      return sendPage(reply, frame(here, page, opened, choice))
    }
    server.route({method, url: path, handler})
  }
  for (const [path, make] of Object.entries(ROUTES))
    addAnyPage(path, async ({view, filter, overview, caller}, id) => {
      if (view) return await make(view, id)
      if (overview.damage) throw overview.damage
      const none = await viewNone(tools, filter, caller.mayAct)
      return none && overview.release ? {...none, status: 404} : none
    })
  addAnyPage('/runs', async ({view, overview, caller}) => {
    const page = await viewRuns(overview, tools, caller.mayAct)
    const walks = view && (await viewPage('parts/walks', view))?.body
    return page && {...page, body: html`${page.body}${walks}`}
  })
  addAnyPage('/runs/:id', (_opened, id) => viewState('state/run', {stateDb: tools.stateDb, params: {id}}))
  const edit = ({view, request}: Opened) => view && viewEditor(view, request, world.realClock.now())
  addAnyPage('/edit', edit, ['GET', 'POST'])
  addSaved(server, tools, world)
  server.get('/data/:id', async (request, reply) => {
    const {view, refusal, overview} = open(reply)
    if (refusal) return refuse(reply, refusal.status, refusal.problem)
    if (view) return await sendData(view, idOf(request), reply)
    if (overview.damage) return refuse(reply, 503, overview.damage.message)
    if (!overview.release) return refuse(reply, 503, 'There is no release yet.')
    return refuse(reply, 404, 'No such release: None of this day and moment is kept.')
  })
  return opened
}

const idOf = (request: FastifyRequest) => (request.params as {id?: string}).id ?? ''

/** Pages about all deals; the filter stays in their links for other pages. */
const isOfAllDeals = ({routeOptions}: FastifyRequest) =>
  /^\/(books|checks|compare|quarantine|runs)\b/.test(routeOptions.url ?? '')

const NO_FILTER = parseFilter(new URLSearchParams())

function renderClocks(
  {filter, query, linkTo}: Pick<AskingView, 'filter' | 'query'> & {linkTo: LinkTo},
  {as_of}: ReleaseManifest,
): Html {
  const {values} = filter
  const compare = values.has('as_of') || values.has('known_at') ? linkTo('/compare') : undefined
  const type = (values.get('known_at') ?? '').length > 10 ? 'text' : 'date'
  const fields = [
    ['as_of', 'As of', 'date', as_of],
    ['known_at', 'Known until', type],
  ] as const
  return html`<details class="clocks"><summary>another day</summary>${renderFields(query, fields)}${compare !== undefined && html`<p><a href="${compare}">What is known of this day now</a></p>`}</details>`
}
