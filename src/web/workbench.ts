import {once} from 'node:events'
import {readFileSync, realpathSync} from 'node:fs'
import {findPackageJSON} from 'node:module'
import {dirname, join} from 'node:path'
import {Readable} from 'node:stream'
import {fileURLToPath, pathToFileURL} from 'node:url'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {z} from 'zod'
import type {readMovedBetween} from '../build/movement.ts'
import {sleepUntilStopped} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {explainError} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import type {World} from '../core/types.ts'
import {isDemoFolder} from '../store/data-folder.ts'
import type {Queries} from '../store/database.ts'
import {findLockHolder, type LockHolder} from '../store/lock.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {findHeldBack} from './actions.ts'
import {readNotIssued, viewBooks, viewPreview} from './books.ts'
import {describeNone, viewCompare} from './compare.ts'
import {sendData} from './data-api.ts'
import {viewChecks, viewQuarantine, viewQuarantined} from './data-quality.ts'
import {viewDeals, viewReceived} from './deals.ts'
import {instant, words} from './figures.ts'
import {addressOf, type Filter, findFault, hiddenFields, parseFilter, titleOf} from './filter.ts'
import {type History, readHistory} from './history.ts'
import {type Html, html} from './html.ts'
import {
  askerOf,
  createPlaces,
  createTurns,
  hangUpOf,
  isOperator,
  LIVE_PATH,
  markBusy,
  networkOf,
  PLACES,
  refuse,
  refuseBusy,
  type TakeTurn,
} from './http-server.ts'
import {viewMorning, viewMoved} from './morning.ts'
import {listOpenActions, type PageAction} from './page-actions.ts'
import {renderWorkbench} from './page-frame.ts'
import {viewPage, viewPages} from './pages.ts'
import {isForViewers} from './question.ts'
import {createReaders, findNewest, findRelease, type Reader, type Readers, RUNNING} from './reader.ts'
import {renderRuns, viewRun} from './runs.ts'
import {addSavedQueries, viewSql} from './sql.ts'
import {viewTable, viewTables} from './tables.ts'
import {type AskingView, type Overview, type Page, readOverview, type View, type WebTools} from './view.ts'

const OWN = join(import.meta.dirname, 'assets')

/** Scripts that pages load, by name; the packages they import come with them. */
const SCRIPTS = {
  'workbench.js': join(OWN, 'workbench.js'),
  'sql-editor.js': join(OWN, 'sql-editor.js'),
  'echarts.js': fileURLToPath(import.meta.resolve('echarts/dist/echarts.esm.min.js')),
}

/** `import {a, b} from 'package'`, from its line's start. */
const IMPORT = /^((?:import|export)[\w\s{},*$]* from )'([^'./][^']*)'/gm

/**
 * Adds `/assets/`: the scripts of the workbench, and the packages that they import. A browser is told the address of each
 * instead of its name, so that packages run in it as they were published.
 */
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

/** The module of a package as a script finds it that imports it: `import.meta.resolve` tells only what this file would find. */
function findModule(name: string, importer: string): string {
  const path = findPackageJSON(name, pathToFileURL(importer))
  if (path === undefined) throw new Error(`no package '${name}' for '${importer}'`)
  const {exports} = packageSchema.parse(parseJson(readFileSync(path, 'utf8')))
  // Links followed, as Node does: what a package imports lies beside where it really is.
  return realpathSync(join(dirname(path), exports.import))
}

const SEEN_BY_VIEWERS = html`<p class="muted">Viewers can read all of these tables, here, on <a href="/sql">SQL</a> and as downloads: the lines of the journal and the hashes of borrowers’ e-mail addresses among them.</p>`

/** What people ask for themselves, and what they download: how much at once, how much waits, how much of it of one address. */
const QUESTIONS = {running: RUNNING, waiting: 20, each: 4}
const DOWNLOADS = {running: RUNNING, waiting: 20, each: 4}

/** What pages ask of the history: whoever hangs up in its turn still holds its place, and nobody waits behind those who left. */
const HISTORY = {running: 4, waiting: 56, each: 20}

/** Adds the pages and the data API; disposing what is returned ends the processes that read. */
export function addWorkbench(
  server: FastifyInstance,
  config: Config,
  tools: WebTools,
  world: World,
): Disposable {
  const {sqlDir} = config
  const readers = createReaders(tools.folder, config)
  const history = readHistory(config)
  const live = addLive(server, tools, world)
  const takeQuestion = createTurns(QUESTIONS)
  const takeDownload = createTurns(DOWNLOADS)
  const takeHistory = createTurns(HISTORY)
  addAssets(server)

  const frame = (path: string, page: Page, filter: Filter, overview: Overview) => {
    const {alarms} = overview
    const release = findRelease(tools.folder, filter)?.manifest
    const chips = [...filter.values].flatMap(([name, values]) =>
      values.map((value) => ({
        text: `${titleOf(name)}: ${words(value)}`,
        without: addressOf(path, filter, {[name]: values.filter((other) => other !== value)}),
      })),
    )
    return renderWorkbench({
      ...page,
      path,
      timeZone: config.timeZone,
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

  const callerOf = (request: FastifyRequest, reply: FastifyReply): Caller => ({
    request,
    reply,
    gone: hangUpOf(reply),
    only: isOperator(request, config) ? undefined : config.viewerTables,
  })
  const historyOf = (caller: Caller): History => ({
    ask: (...asked) => inTurn(takeHistory, caller, () => history.ask(...asked)),
  })
  const mayAct = (request: FastifyRequest) => !isDemoFolder(tools.folder) && isOperator(request, config)
  /** A page of the release; one without a release says how to get one. */
  const addPage = (
    path: string,
    make: (
      view: AskingView & {history: History},
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
      const fault = findFault(filter)
      if (fault !== undefined) {
        reply.code(400)
        const body = html`<p class="notice"><b class="failed">${fault}</b> <a href="${here}">The page without it</a></p>`
        return frame(here, {title: 'Not shown', body}, NO_FILTER, overview)
      }
      const caller = callerOf(request, reply)
      const view = viewOf(readers.find(filter), {filter, query, caller, takeTurn: takeQuestion, sqlDir})
      if (!view) {
        if (overview.release) reply.code(404)
        return frame(here, describeNone(tools.folder, filter, mayAct(request)), filter, overview)
      }
      const page = await Promise.resolve(
        make({...view, history: historyOf(caller)}, request, overview),
      ).catch((error: unknown): Page => {
        const {message, next} = explainError(error)
        if (reply.statusCode !== 503) reply.code(500)
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

  const idOf = (request: FastifyRequest) => (request.params as {id: string}).id
  const betweenOf =
    (asked: History): typeof readMovedBetween =>
    ({manifest: before}, {manifest: after}, which = {}) =>
      asked.ask('moved', before.release_id, after.release_id, which)
  addPage('/', async (view, _request, overview) =>
    viewMorning(
      view,
      {...overview, notIssued: await readNotIssued(view, view.history)},
      betweenOf(view.history),
    ),
  )
  for (const name of ['portfolio', 'pipeline']) addPage(`/${name}`, (view) => viewPage(name, view))
  addPage('/deals', viewDeals)
  addPage('/behind/moved', (view) => viewMoved(view, betweenOf(view.history)))
  addPage('/behind/:id', (view, request) => viewPage(`behind/${idOf(request)}`, view))
  addPage('/checks', viewChecks)
  const dealOf = (request: FastifyRequest) => idOf(request).replace(/^~/, '')
  addPage('/deals/:id', (view, request) => viewPage('parts/deal', view, {params: {deal_id: dealOf(request)}}))
  addPage('/deals/:id/received', (view, request) => viewReceived(view, dealOf(request), view.history))
  addPage('/books/:id', (view, request) =>
    /^\d{4}-(0[1-9]|1[0-2])$/.test(idOf(request))
      ? viewPreview(view, idOf(request), view.history)
      : undefined,
  )
  addPage('/compare', (view, request) =>
    viewCompare(view, findNewest(tools.folder, view.release), view.history, mayAct(request)),
  )
  addPage('/books', async (view, request) =>
    viewBooks(view, await view.history.ask('periods'), mayAct(request)),
  )
  addPage('/quarantine', (view, request) => viewQuarantine(view, view.history, mayAct(request)))
  addPage('/quarantine/:id', ({history}, request) => viewQuarantined(idOf(request), history))
  addPage('/pages', viewPages)
  addPage('/pages/:id', (view, request) => viewPage(idOf(request), view, {isAmongOwn: true}))
  addPage('/tables', (view) => {
    const {title, body} = viewTables(view)
    const isAll = config.webViewerToken !== undefined && config.viewerTables === undefined
    return {title, body: html`${isAll && SEEN_BY_VIEWERS}${body}`}
  })
  addPage('/tables/:id', (view, request) => viewTable(view, idOf(request)))
  addPage('/sql', (view, request) =>
    viewSql(
      {...view, reader: view.people},
      {folder: tools.folder, mayRun: ['ours', 'tool'].includes(askerOf(request))},
    ),
  )
  addSavedQueries(server, tools.folder)
  server.get('/runs', async (request, reply) => {
    const overview = readOverview(tools, world)
    const query = queryOf(request)
    const filter = parseFilter(query)
    const caller = callerOf(request, reply)
    const view = viewOf(readers.find(filter), {filter, query, caller, takeTurn: takeQuestion, sqlDir})
    const body = renderRuns(overview, {
      mayAct: mayAct(request),
      heldBack: findHeldBack(tools.stateDb),
      walks: view && (await viewPage('parts/walks', view))?.body,
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
    const caller = callerOf(request, reply)
    const fault = findFault(filter)
    if (fault !== undefined) return refuse(request, reply, 400, {title: 'No data', problem: fault})
    const open = readers.find(filter)
    const view = viewOf(open, {filter, query, caller, takeTurn: takeQuestion, sqlDir})
    if (!open || !view)
      return refuse(request, reply, 503, {title: 'No release yet', problem: 'There is no release yet.'})
    const reader = letDownload(open.downloads, takeDownload, caller)
    return await sendData({...view, reader}, idOf(request), request, reply)
  })
  return {
    [Symbol.dispose]() {
      live[Symbol.dispose]()
      history[Symbol.dispose]()
      readers[Symbol.dispose]()
    },
  }
}

const NO_FILTER = parseFilter(new URLSearchParams())

/** The controls for the business date and for what was known when. */
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

/** The viewer of a page. */
interface Caller {
  request: FastifyRequest
  reply: FastifyReply
  /** Aborts if the viewer hangs up. */
  gone: AbortSignal
  /** The readable tables; undefined for all. */
  only: string | undefined
}

function viewOf(
  readers: Readers | undefined,
  {
    filter: given,
    query,
    caller,
    takeTurn,
    sqlDir,
  }: Pick<View, 'query' | 'sqlDir'> & {filter: Filter; caller: Caller; takeTurn: TakeTurn},
): AskingView | undefined {
  if (!readers) return undefined
  const {release, pages, people} = readers
  const {gone} = caller
  const mayRead = (name: string) => isForViewers(name, caller.only)
  // A filter reveals facts about deals.
  const isShown = given.condition === undefined || mayRead('core.deal')
  const filter = isShown ? given : {...given, condition: 'false'}
  return {
    release,
    mayRead,
    reader: pages,
    people: letInTurn(people, takeTurn, caller),
    tables: askWhileThere(pages.tablesOf(filter.condition), gone),
    whole: askWhileThere(pages.tablesOf(), gone),
    async ask({isWhole, ...asked}) {
      gone.throwIfAborted()
      return await pages.page({...asked, condition: isWhole ? undefined : filter.condition})
    },
    filter,
    query,
    sqlDir,
  }
}

/** A reader that people ask in turn, and which nobody who has hung up keeps busy. */
function letInTurn(reader: Reader, takeTurn: TakeTurn, caller: Caller): Reader {
  const {only, gone} = caller
  return {
    ...reader,
    ask: (asked) => inTurn(takeTurn, caller, () => reader.ask({...asked, only, signal: gone})),
  }
}

/** The same for files: a caller keeps its place until its file is sent, so that the files of those who read slowly do not pile up. */
function letDownload(reader: Reader, takeTurn: TakeTurn, caller: Caller): Reader {
  const {only, gone, reply} = caller
  const closed = once(reply.raw, 'close')
  return {
    ...reader,
    ask: (asked) =>
      new Promise((resolve, reject) => {
        const download = async () => {
          const written = reader.ask({...asked, only, signal: gone})
          resolve(written)
          await Promise.allSettled([written, closed])
        }
        inTurn(takeTurn, caller, download).catch(reject)
      }),
  }
}

/** Does something for a caller when it is its turn; where there is none, its answer says when to come back. */
const inTurn = <T>(takeTurn: TakeTurn, {request, reply, gone}: Caller, work: () => Promise<T>) =>
  takeTurn(networkOf(request), gone, work).catch((error: unknown) => {
    if (explainError(error).code === 'WEB_BUSY') markBusy(reply)
    throw error
  })

/** Asks no more once nobody waits for the page. A question that is under way ends by itself: it is short, and its process is everybody's. */
function askWhileThere({all, first, one}: Queries, gone: AbortSignal): Queries {
  return {
    async all(...asked) {
      gone.throwIfAborted()
      return await all(...asked)
    },
    async first(...asked) {
      gone.throwIfAborted()
      return await first(...asked)
    },
    async one(...asked) {
      gone.throwIfAborted()
      return await one(...asked)
    },
  }
}

const EVERY_MS = 1000

/** Most open streams, in total and per address. */
const STREAMS = {all: 20, each: 4}

/** A stream ends after this time; an open page then begins another. */
const LONGEST_MS = 600_000

/** What is going on, in words: a run, or an action that has not begun one or is ending. */
function describeUnderWay(
  holder: LockHolder | undefined,
  action: PageAction | undefined,
): {running: boolean; words: string} {
  if (holder) return {running: true, words: `${holder.command}: ${holder.progress}`}
  return action ? {running: true, words: action.command} : {running: false, words: 'idle'}
}

/** Adds `/runs/live`: server-sent events of the run under way. */
function addLive(server: FastifyInstance, {stateDb}: WebTools, world: World): Disposable {
  const closing = new AbortController()
  const enter = createPlaces(STREAMS)
  async function* tell(gone: AbortSignal): AsyncGenerator<string> {
    const until = world.realClock.now() + LONGEST_MS
    const signal = AbortSignal.any([closing.signal, gone])
    let told = ''
    while (!signal.aborted && world.realClock.now() < until) {
      const news = JSON.stringify(
        describeUnderWay(findLockHolder(stateDb, world), listOpenActions(stateDb)[0]),
      )
      // A comment keeps the connection alive.
      yield news === told ? ':\n\n' : `data: ${news}\n\n`
      told = news
      await sleepUntilStopped(world.realClock, EVERY_MS, signal)
    }
  }
  server.get(LIVE_PATH, async (request, reply) => {
    const leave = enter(networkOf(request))
    if (!leave) return refuseBusy(request, reply, 'Too many pages watch the run under way.')
    reply.raw.once('close', leave)
    return reply.type('text/event-stream').send(Readable.from(tell(hangUpOf(reply))))
  })
  return {
    [Symbol.dispose]() {
      closing.abort()
    },
  }
}
