import {once} from 'node:events'
import {readFileSync, realpathSync} from 'node:fs'
import {findPackageJSON} from 'node:module'
import {dirname, join} from 'node:path'
import {Readable} from 'node:stream'
import {fileURLToPath, pathToFileURL} from 'node:url'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {z} from 'zod'
import {sleepUntilStopped} from '../core/clock.ts'
import {explainError} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import type {World} from '../core/types.ts'
import {isDemoFolder} from '../store/data-folder.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {findLockHolder} from '../store/runs.ts'
import {listOpenActions, viewRun, viewRuns} from './actions.ts'
import {sendData} from './data-api.ts'
import {instant} from './figures.ts'
import {
  addressOf,
  type Filter,
  findFault,
  hiddenFields,
  isForViewers,
  OFFERED,
  parseFilter,
  renderFilter,
  titleOf,
  wordValue,
} from './filter.ts'
import {type Html, html} from './html.ts'
import {
  askerOf,
  createPlaces,
  createTurns,
  hangUpOf,
  isForOperators,
  isOfTables,
  isOperator,
  LIVE_PATH,
  markBusy,
  networkOf,
  PLACES,
  personOf,
  refuse,
  refuseBusy,
  sendPage,
  type TakeTurn,
} from './http-server.ts'
import {viewEditor} from './page-editor.ts'
import {renderWorkbench} from './page-frame.ts'
import {listPageDirs, listPlaces, viewPage} from './pages.ts'
import {createReaders, queriesOf, READING, type Reader, RUNNING, readHistory} from './reader.ts'
import {ROUTES, viewNone} from './routes.ts'
import {addSaved, listSavedFilters} from './sql.ts'
import {type AskingView, type Page, readOverview, type WebTools} from './view.ts'

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

const NOTHING_THERE: Page = {
  status: 404,
  title: 'Not found',
  body: html`<p>There is nothing of this name, or it is forgotten.</p>`,
}

function describeFailure(error: unknown): Page {
  const {problem, kept, next} = explainError(error)
  const body = html`<p class="notice"><b class="failed">${problem}</b> ${kept} ${next}</p>`
  return {status: 500, title: 'Not shown', body}
}

/** What people ask for themselves, or what they download: how much at once, how much waits, how much of it of one address. */
const QUESTIONS = {running: RUNNING, waiting: 20, each: 4}

/** What pages ask of the history: whoever hangs up in its turn still holds its place, and nobody waits behind those who left. */
const HISTORY = {running: READING, waiting: 56, each: 20}

/** Adds the pages and the data API; disposing what is returned ends the processes that read. */
export function addWorkbench(server: FastifyInstance, tools: WebTools, world: World): Disposable {
  const {config} = tools
  const releases = createReaders(tools.folder, config)
  const pageDirs = listPageDirs(config)
  const history = readHistory(config)
  const live = addLive(server, tools, world)
  const takeQuestion = createTurns(QUESTIONS)
  const takeDownload = createTurns(QUESTIONS)
  const takeHistory = createTurns(HISTORY)
  addAssets(server)

  const offered = new WeakMap<Reader, Promise<z.output<typeof bucketRow>[]>>()
  /** The form to choose deals by, for those who may see what it offers. */
  const renderChoice = async (path: string, view: AskingView, pages: Reader): Promise<Html | undefined> => {
    const {tables} = view.release.manifest
    const isThere = (name: string) => view.mayRead(name) && tables.some((table) => table.name === name)
    if (!['core.deal', 'mart.portfolio_breakdown'].every(isThere)) return undefined
    const asked = offered.get(pages) ?? queriesOf(pages.page).all(bucketRow, OFFERED)
    offered.set(pages, asked)
    asked.catch(() => offered.delete(pages))
    const saved = listSavedFilters(tools.folder).filter(({filter}) => filter.reads.every(view.mayRead))
    return renderFilter(path, view, {offered: await asked, saved, maySave: view.mayAct})
  }
  const frame = (
    path: string,
    page: Page,
    {filter, overview, mayAct, view}: Omit<ReturnType<typeof open>, 'caller' | 'readers'>,
    choice?: Html,
  ) => {
    const release = view?.release.manifest
    // Taking a filter away keeps what else is asked for.
    const asked = [...(view?.query.keys() ?? [])].filter((key) => key !== 'page' && !filter.values.has(key))
    const kept = Object.fromEntries(asked.map((key) => [key, view?.query.getAll(key) ?? []]))
    const chips = [...filter.values].flatMap(([name, values]) =>
      values.map((value) => {
        const text = `${titleOf(name)}: ${wordValue(name, value)}`
        const without = addressOf(path, filter, {
          ...kept,
          [name]: values.filter((other) => other !== value),
        })
        return html`<a href="${without}" aria-label="Remove filter ${text}">${text} ✕</a> `
      }),
    )
    const subject = html`<ul class="facts">${
      release &&
      html`<li>as of <b>${release.as_of}</b></li><li>known at <b>${instant(release.known_at)}</b></li><li><span class="mono">${release.release_id}</span></li><li>${renderClocks(path, filter, release, kept)}</li>`
    }</ul>
${chips.length > 0 && html`<p class="chips">${chips}</p>`}
${choice}`
    return renderWorkbench({
      ...page,
      path,
      places: [...PLACES, ...listPlaces({pageDirs, mayAct})].map(([title, href]) => [
        title,
        href === '/runs' ? href : addressOf(href, filter),
      ]),
      find: {filter, q: ['/find', '/deals'].includes(path) ? view?.query.get('q')?.trim() : undefined},
      subject,
      alarms: overview.alarms.length,
      live: describeUnderWay(tools, world),
      timeZone: config.timeZone,
    })
  }

  /** What an address asks for; without a release there is no view. */
  const open = (request: FastifyRequest, reply: FastifyReply) => {
    const query = new URL(request.url, 'http://localhost').searchParams
    const given = parseFilter(query)
    const gone = hangUpOf(reply)
    const isOfAll = isOperator(request, config)
    const only = isOfAll ? undefined : config.viewerTables
    const caller: Caller = {request, reply, gone, only}
    const mayRead = (name: string) => isForViewers(name, only)
    // A filter reveals facts about deals.
    const filter = given.reads.every(mayRead) ? given : {...given, condition: 'false'}
    const overview = readOverview(tools, world)
    const mayAct = isOfAll && !isDemoFolder(tools.folder)
    const readers = releases.find(given)
    const view: AskingView | undefined = readers && {
      release: readers.release,
      filter,
      async ask({isWhole, ...asked}) {
        // A question that is under way ends by itself: it is short, and its process is everybody's.
        gone.throwIfAborted()
        return await readers.pages.page({...asked, condition: isWhole ? undefined : filter.condition})
      },
      mayRead,
      mayOpen: (path) => (isOfAll || !isForOperators(path)) && (only === undefined || isOfTables(path)),
      query,
      pageDirs,
      people: letInTurn(readers.people, takeQuestion, caller),
      history: {ask: (...asked) => inTurn(takeHistory, caller, () => history.ask(...asked))},
      overview,
      person: personOf(request, config),
      mayAct,
      mayRun: ['ours', 'tool'].includes(askerOf(request)),
      ...tools,
    }
    return {caller, filter, overview, mayAct, view, readers}
  }
  /** A page in its frame; one that fails says why. */
  const addAnyPage = (
    path: string,
    make: (opened: ReturnType<typeof open>, id: string) => Promise<Page | undefined> | Page | undefined,
    method = ['GET'],
  ) => {
    const handler = async (request: FastifyRequest, reply: FastifyReply) => {
      const opened = open(request, reply)
      const {view, readers} = opened
      const here = request.url.split('?')[0] ?? '/'
      const fault = findFault(opened.filter)
      if (fault !== undefined) {
        const body = html`<p class="notice"><b class="failed">${fault}</b> <a href="${here}">The page without it</a></p>`
        return sendPage(
          reply.code(400),
          frame(here, {title: 'Not shown', body}, {...opened, filter: NO_FILTER}),
        )
      }
      const answer = async () => (await make(opened, idOf(request))) ?? NOTHING_THERE
      const page = await answer().catch(describeFailure)
      if (page.leadsTo !== undefined) return reply.redirect(page.leadsTo, 303)
      if (reply.statusCode !== 503) reply.code(page.status ?? 200)
      // A query that another site led to is run by its own button alone.
      const isRun = here !== '/sql' || view?.mayRun || !view?.query.has('q')
      const isShown = page.status === undefined && here !== '/runs' && isRun
      const choice =
        isShown && view && readers
          ? // A page without its form is better than none.
            await renderChoice(here, view, readers.pages).catch(
              (error: unknown) =>
                html`<p class="notice">The filter cannot be offered: ${explainError(error).problem}</p>`,
            )
          : undefined
      return sendPage(reply, frame(here, page, opened, choice))
    }
    server.route({method, url: path, handler})
  }
  for (const [path, make] of Object.entries(ROUTES))
    addAnyPage(path, async ({view, filter, overview, mayAct}, id) => {
      if (view) return await make(view, id)
      const none = await viewNone(tools, filter, mayAct)
      return none && overview.release ? {...none, status: 404} : none
    })
  addAnyPage('/runs', async ({view, overview, mayAct}) => {
    const page = await viewRuns(overview, tools, mayAct)
    const walks = view && (await viewPage('parts/walks', view))?.body
    return page && {...page, body: html`${page.body}${walks}`}
  })
  addAnyPage('/runs/:id', (_opened, id) => viewRun(tools.stateDb, id))
  const edit = ({view, caller}: ReturnType<typeof open>) =>
    view && viewEditor(view, caller.request, world.realClock.now())
  addAnyPage('/edit', edit, ['GET', 'POST'])
  addSaved(server, tools.folder)
  server.get('/data/:id', async (request, reply) => {
    const {view, caller, filter, readers} = open(request, reply)
    const fault = findFault(filter)
    if (fault !== undefined) return refuse(request, reply, 400, fault)
    if (!view || !readers) return refuse(request, reply, 503, 'There is no release yet.')
    const reader = letInTurn(readers.downloads, takeDownload, caller, once(reply.raw, 'close'))
    return await sendData(view, reader, idOf(request), request, reply)
  })
  return {
    [Symbol.dispose]() {
      live[Symbol.dispose]()
      history[Symbol.dispose]()
      releases[Symbol.dispose]()
    },
  }
}

const idOf = (request: FastifyRequest) => (request.params as {id?: string}).id ?? ''

const NO_FILTER = parseFilter(new URLSearchParams())

/** The controls for the business date and for what was known when. */
function renderClocks(
  path: string,
  filter: Filter,
  {as_of}: ReleaseManifest,
  kept: Readonly<Record<string, readonly string[]>>,
): Html {
  const [knownAt = ''] = filter.values.get('known_at') ?? []
  const others = new Map([...filter.values].filter(([name]) => name !== 'as_of' && name !== 'known_at'))
  return html`<details class="clocks"><summary>another day</summary><form action="${path}">
${hiddenFields({...filter, values: new Map([...others, ...Object.entries(kept)])})}
<label>As of <input type="date" name="as_of" value="${as_of}"></label>
<label>Known until <input type="date" name="known_at" value="${knownAt}"></label>
<button>Show</button></form>${others.size < filter.values.size && html`<p><a href="${addressOf('/compare', filter)}">What is known of this day now</a></p>`}</details>`
}

const bucketRow = z.object({dimension: z.string(), bucket: z.string()})

/** The viewer of a page. */
interface Caller {
  request: FastifyRequest
  reply: FastifyReply
  /** Aborts if the viewer hangs up. */
  gone: AbortSignal
  /** The readable tables; undefined for all. */
  only: string | undefined
}

/**
 * A reader that people ask in turn, and which nobody who has hung up keeps busy. A caller keeps its place until `closed`, so that the
 * files of those who read slowly do not pile up.
 */
function letInTurn(reader: Reader, takeTurn: TakeTurn, caller: Caller, closed?: Promise<unknown>): Reader {
  const {only, gone} = caller
  const ask: Reader['ask'] = (asked) =>
    new Promise((resolve, reject) => {
      const work = async () => {
        const answer = reader.ask({...asked, only}, gone)
        resolve(answer)
        await Promise.allSettled([answer, closed])
      }
      inTurn(takeTurn, caller, work).catch(reject)
    })
  return {...reader, ask}
}

/** Does something for a caller when it is its turn; where there is none, its answer says when to come back. */
const inTurn = <T>(takeTurn: TakeTurn, {request, reply, gone}: Caller, work: () => Promise<T>) =>
  takeTurn(networkOf(request), gone, work).catch((error: unknown) => {
    if (explainError(error).code === 'WEB_BUSY') markBusy(reply)
    throw error
  })

const EVERY_MS = 1000

/** Most open streams, in total and per address. */
const STREAMS = {all: 20, each: 4}

/** A stream ends after this time; an open page then begins another. */
const LONGEST_MS = 600_000

/** What is going on, in words: a run, or an action that has not begun one or is ending. */
function describeUnderWay({stateDb}: WebTools, world: World): {running: boolean; words: string} {
  const holder = findLockHolder(stateDb, world)
  if (holder) return {running: true, words: `${holder.command}: ${holder.progress}`}
  const [action] = listOpenActions(stateDb)
  return action ? {running: true, words: action.command} : {running: false, words: 'idle'}
}

/** Adds `/runs/live`: server-sent events of the run under way. */
function addLive(server: FastifyInstance, tools: WebTools, world: World): Disposable {
  const closing = new AbortController()
  const enter = createPlaces(STREAMS)
  async function* tell(gone: AbortSignal): AsyncGenerator<string> {
    const until = world.realClock.now() + LONGEST_MS
    const signal = AbortSignal.any([closing.signal, gone])
    let told = ''
    while (!signal.aborted && world.realClock.now() < until) {
      const news = JSON.stringify(describeUnderWay(tools, world))
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
  return {[Symbol.dispose]: () => closing.abort()}
}
