import type {FastifyInstance, FastifyRequest} from 'fastify'
import type {z} from 'zod'
import type {Config} from '../config.ts'
import {explainError} from '../errors.ts'
import {instant} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {renderWorkbench} from '../page/workbench-page.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {World} from '../types.ts'
import {isDemoFolder} from '../warehouse/data-folder.ts'
import {isOperator} from './access.ts'
import {findHeldBack} from './actions.ts'
import {addAssets} from './assets.ts'
import {previewList, viewPreview} from './book-preview.ts'
import {createNotIssued, periodList, viewBooks} from './books.ts'
import {askCommand, carryOutCommand} from './command.ts'
import {diffAnswer, viewCompare} from './compare.ts'
import {sendData} from './data-api.ts'
import {renderReceived, traceList, viewDeal} from './deal.ts'
import {viewDeals} from './deals.ts'
import {addressOf, type Filter, hiddenFields, parseFilter, titleOf} from './filter.ts'
import {findNewest, findRelease} from './find-release.ts'
import {addLive, describeUnderWay} from './live.ts'
import {viewMorning} from './morning.ts'
import {describeEarlier, describeNone} from './no-release.ts'
import {type Overview, readOverview, type WebTools} from './overview.ts'
import {viewOwnPage, viewOwnPages} from './own-pages.ts'
import {viewPipeline} from './pipeline.ts'
import {viewPortfolio} from './portfolio.ts'
import {readAsked, reasonList, renderQuarantined, viewQuarantine} from './quarantine.ts'
import {createReaders, type Readers} from './readers.ts'
import {viewRun} from './run.ts'
import {renderRuns} from './runs.ts'
import {addSavedQueries} from './saved-queries.ts'
import {viewSql} from './sql.ts'
import {viewTable, viewTables} from './tables.ts'
import {type AskingView, findLacking, type Page} from './view.ts'
import {renderWalks} from './walks.ts'

/** A record in quarantine is looked for on its tape this long. */
const READ_MS = 60_000

const PLACES = [
  ['Morning', '/'],
  ['Portfolio', '/portfolio'],
  ['Pipeline', '/pipeline'],
  ['Deals', '/deals'],
  ['Books', '/books'],
  ['Pages', '/pages'],
  ['Tables', '/tables'],
  ['SQL', '/sql'],
  ['Runs', '/runs'],
] as const

/** Adds the pages and the data API; disposing what is returned ends the processes that read. */
export function addWorkbench(
  server: FastifyInstance,
  config: Config,
  tools: WebTools,
  world: World,
): Disposable {
  const readers = createReaders(tools.folder, config)
  const live = addLive(server, tools, world)
  addAssets(server)

  const frame = (path: string, page: Page, filter: Filter, overview: Overview) => {
    const {alarms} = overview
    const release = findRelease(tools.folder, filter)?.manifest
    const chips = [...filter.values].flatMap(([name, values]) =>
      values.map((value) => ({
        text: `${titleOf(name)}: ${value}`,
        without: addressOf(path, filter, {[name]: values.filter((other) => other !== value)}),
      })),
    )
    return renderWorkbench({
      ...page,
      path,
      places: PLACES.map(([title, href]) => ({
        title,
        href: href === '/runs' ? href : addressOf(href, filter),
      })),
      facts: release
        ? [
            html`as of <b>${release.as_of}</b>`,
            html`known at <b>${instant(release.known_at)}</b>`,
            html`<span class="mono">${release.release_id}</span>`,
            renderClocks(path, filter, release),
          ]
        : [],
      chips,
      alarms: alarms.length,
      live: describeUnderWay(
        overview.holder,
        overview.actions.find(({ended_at}) => ended_at === null),
      ),
    })
  }

  const mayAct = (request: FastifyRequest) => !isDemoFolder(tools.folder) && isOperator(request, config)
  /** A page of the release; one without a release says how to get one. */
  const addPage = (
    path: string,
    make: (
      view: AskingView,
      request: FastifyRequest,
      overview: Overview,
    ) => Promise<Page | undefined> | Page | undefined,
  ) => {
    server.get(path, async (request, reply) => {
      const query = queryOf(request)
      const filter = parseFilter(query)
      const overview = readOverview(tools, world)
      const here = request.url.split('?')[0] ?? '/'
      reply.type('text/html; charset=utf-8')
      const view = viewOf(readers.find(filter), filter, query)
      if (!view) {
        if (overview.release) reply.code(404)
        return frame(here, describeNone(tools.folder, filter, mayAct(request)), filter, overview)
      }
      const lacking = findLacking(view.release)
      if (lacking !== undefined) return frame(here, describeEarlier(view.release, lacking), filter, overview)
      const page = await Promise.resolve(make(view, request, overview)).catch((error: unknown): Page => {
        const {message, next} = explainError(error)
        reply.code(500)
        return {
          title: 'Not shown',
          body: html`<p class="notice"><b class="failed">${message}</b> ${next}</p>`,
        }
      })
      if (page) return frame(here, page, filter, overview)
      return await reply.code(404).send(
        frame(
          here,
          {
            title: 'Not found',
            body: html`<p>The release of ${view.release.manifest.as_of} has nothing of this name.</p>`,
          },
          filter,
          overview,
        ),
      )
    })
  }

  const ask = <T>(schema: z.ZodType<T>, [command = '', ...words]: string[]) =>
    askCommand(schema, command, ['--data', config.dataDir, ...words], tools.env)
  const idOf = (request: FastifyRequest) => (request.params as {id: string}).id
  const findNotIssued = createNotIssued(tools, () => ask(periodList, ['period', 'list']))
  addPage('/', async (view, _request, overview) =>
    viewMorning(view, {...overview, notIssued: await findNotIssued(view)}),
  )
  addPage('/portfolio', viewPortfolio)
  addPage('/pipeline', viewPipeline)
  addPage('/deals', viewDeals)
  addPage('/deals/:id', (view, request) => viewDeal(view, idOf(request)))
  addPage('/deals/:id/received', async (_view, request) => {
    const {versions} = await ask(traceList, ['trace', '--', idOf(request)])
    return renderReceived(idOf(request), versions)
  })
  addPage('/books/:id', async (view, request) => {
    const period = idOf(request)
    if (!/^\d{4}-\d\d$/.test(period)) return undefined
    return await viewPreview(view, period, (profile) =>
      ask(previewList, ['export', profile, '--period', period, '--preview']),
    )
  })
  addPage('/compare', (view, request) =>
    viewCompare(
      view,
      findNewest(tools.folder, view.release),
      (before, after) => ask(diffAnswer, ['diff', before, after]),
      mayAct(request),
    ),
  )
  addPage('/books', async (view, request) =>
    viewBooks(view, await ask(periodList, ['period', 'list']), mayAct(request)),
  )
  addPage('/quarantine', async (view, request) => {
    const {path, reason, page} = readAsked(view.query)
    const words = [
      path !== null && `--path=${path}`,
      reason !== null && `--reason=${reason}`,
      `--page=${page}`,
    ]
    const asked = words.filter((word) => word !== false)
    return await viewQuarantine(
      view,
      await ask(reasonList, ['quarantine', 'reasons', ...asked]),
      mayAct(request),
    )
  })
  addPage('/quarantine/:id', async (_view, request) => {
    const words = ['quarantine', 'show', '--data', config.dataDir, '--', idOf(request)]
    const signal = AbortSignal.timeout(READ_MS)
    return renderQuarantined(idOf(request), await carryOutCommand(words, {env: tools.env, signal}))
  })
  addPage('/pages', (view) => viewOwnPages(config.sqlDir, view))
  addPage('/pages/:id', (view, request) =>
    viewOwnPage(config.sqlDir, idOf(request), {
      ...view,
      reader: readers.find(view.filter)?.people ?? view.reader,
    }),
  )
  addPage('/tables', viewTables)
  addPage('/tables/:id', (view, request) => viewTable(view, idOf(request)))
  addPage('/sql', (view) =>
    viewSql({...view, reader: readers.find(view.filter)?.people ?? view.reader}, tools.folder),
  )
  addSavedQueries(server, tools.folder)
  server.get('/runs', async (request, reply) => {
    const overview = readOverview(tools, world)
    const filter = parseFilter(queryOf(request))
    const view = viewOf(readers.find(filter), filter, queryOf(request))
    const body = renderRuns(overview, {
      mayAct: mayAct(request),
      heldBack: findHeldBack(tools.stateDb),
      walks: view && findLacking(view.release) === undefined ? await renderWalks(view) : undefined,
    })
    reply.type('text/html; charset=utf-8')
    return frame('/runs', {title: 'Runs', body}, filter, overview)
  })
  server.get('/runs/:id', async (request, reply) => {
    const page = viewRun(tools.stateDb, idOf(request))
    if (!page) reply.code(404)
    reply.type('text/html; charset=utf-8')
    const none = {title: 'Not found', body: html`<p>No run of a job has this number, or it is forgotten.</p>`}
    return frame('/runs', page ?? none, parseFilter(queryOf(request)), readOverview(tools, world))
  })
  server.get('/data/:id', async (request, reply) => {
    const query = queryOf(request)
    const filter = parseFilter(query)
    const open = readers.find(filter)
    const view = viewOf(open, filter, query)
    if (!open || !view) return await reply.code(503).type('text/plain').send('There is no release yet.\n')
    return await sendData({...view, reader: open.people}, idOf(request), request, reply)
  })
  return {
    [Symbol.dispose]() {
      live[Symbol.dispose]()
      readers[Symbol.dispose]()
    },
  }
}

/** The two clocks as handles: which day, and what was known when. */
function renderClocks(path: string, filter: Filter, {as_of}: ReleaseManifest): Html {
  const [knownAt = ''] = filter.values.get('known_at') ?? []
  const others = new Map([...filter.values].filter(([name]) => name !== 'as_of' && name !== 'known_at'))
  return html`<details class="clocks"><summary>another day</summary><form action="${path}">
${hiddenFields({...filter, values: others})}
<label>As of <input type="date" name="as_of" value="${as_of}"></label>
<label>Known until <input type="date" name="known_at" value="${knownAt}"></label>
<button>Show</button></form>${others.size < filter.values.size && html`<p><a href="${addressOf('/compare', filter)}">What is known of this day now</a></p>`}</details>`
}

const queryOf = ({url}: FastifyRequest) => new URL(url, 'http://localhost').searchParams

function viewOf(
  readers: Readers | undefined,
  filter: Filter,
  query: URLSearchParams,
): AskingView | undefined {
  if (!readers) return undefined
  const {release, pages} = readers
  return {
    release,
    reader: pages,
    tables: pages.tablesOf(filter.condition),
    whole: pages.tablesOf(),
    filter,
    query,
  }
}
