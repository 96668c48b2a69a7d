import {realpathSync} from 'node:fs'
import {basename} from 'node:path'
import {z} from 'zod'
import type {Config} from '../core/config.ts'
import type {World} from '../core/types.ts'
import type {Watched} from '../schedule/alarms.ts'
import type {Job} from '../schedule/job.ts'
import {readStanding} from '../schedule/standing.ts'
import {type DataFolder, isDemoFolder} from '../store/data-folder.ts'
import {type Release, unlessDamaged} from '../store/release.ts'
import {findLockHolder} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import type {Block} from './cells.ts'
import type {Filter} from './filter.ts'
import type {Html} from './html.ts'
import type {Caller} from './http-server.ts'
import type {History} from './reader.ts'
import type {Asked} from './release-questions.ts'

export interface WebTools {
  stateDb: StateDb
  folder: DataFolder
  /** Enabled jobs, and wrong ones, as their files are now. */
  listJobs: () => readonly Job[]
  config: Config
  findFault?: () => Watched['fault']
  /** The environment of commands that operators start; that of this process by default. */
  env?: Record<string, string>
}

export type Overview = ReturnType<typeof readOverview>

/** Reads the state database and the current release's manifest, never from the warehouse. */
export function readOverview(tools: WebTools, world: World) {
  // First: whatever ends from here on, the page shows as going on, and reloads.
  const underWay = readUnderWay(tools, world)
  const {stateDb, listJobs, findFault} = tools
  const standing = readStanding({...tools, jobs: listJobs(), fault: findFault?.()}, stateDb, world)
  // In a demo nothing is due.
  return {...standing, underWay, ...(isDemoFolder(tools.folder) && {alarms: []})}
}

/** The last of everything that has begun, or, of attempts of jobs, ended. */
const BEGUN = `select concat_ws(' ', (select max(rowid) from run), (select max(rowid) from job_attempt),
  (select max(action_id) from page_action where command <> 'sql'))`

/**
 * What goes on, in words: a run; or else an action or a job, before, between or after its runs. `begun` differs once anything has
 * begun since; `release` is the name of the current one.
 */
export function readUnderWay({stateDb, folder}: Pick<WebTools, 'stateDb' | 'folder'>, world: World) {
  // Before what goes on: what begins and ends between the two differs from the next answer.
  const [begun = ''] = stateDb.column(z.string(), BEGUN)
  const since = {release: basename(unlessDamaged(() => realpathSync(folder.current)) ?? ''), begun}
  const holder = findLockHolder(stateDb, world)
  if (holder) return {...since, running: true, words: `${holder.command}: ${holder.progress}`}
  const [open] = stateDb.all(
    z.object({command: z.string()}),
    // Without what an operator said: viewers of some tables read it, too.
    `select substr(command, 1, instr(command || ' --', ' --') - 1) as command from page_action where ended_at is null
     union all
     select iif(state = 'running', 'loantape run ' || job, job || ' waits for its turn') from job_run
     where state = 'running' or state = 'queued' and not_before <= ?
     limit 1`,
    [world.realClock.now()],
  )
  return {...since, running: open !== undefined, words: open?.command ?? 'idle'}
}

/** Over the filtered deals, or over all (`isWhole`). */
export type Ask = (asked: Omit<Asked, 'condition' | 'only'> & {isWhole?: boolean}) => Promise<Block>

export const withFilter = ({isWhole, ...asked}: Parameters<Ask>[0], {condition}: Filter): Asked => ({
  ...asked,
  condition: isWhole ? undefined : condition,
})

export interface View {
  release: Release
  filter: Filter
  ask: Ask
  mayRead(name: string): boolean
  mayOpen?(path: string): boolean
  query: URLSearchParams
  pageDirs: readonly string[]
  /** For a file: lists are not paged. */
  isFile?: boolean
  /** For a mail: fewer rows, and charts as tables. */
  isMail?: boolean
}

export interface AskingView extends View, WebTools, Pick<Caller, 'mayAct' | 'person' | 'who'> {
  mayOpen(path: string): boolean
  /** Asks as people's own questions are asked. */
  askAsPerson: Ask
  /** Asks likewise, into a file of `filesDir`. */
  download: Ask
  filesDir: string
  history: History
  overview: Overview
  /** A query that came from outside is only shown. */
  mayRun: boolean
}

export interface Page {
  title: string
  body: Html
  status?: number
  /** What could not be shown, with places. */
  problems?: readonly string[]
  /** Row counts of named blocks. */
  rows?: Readonly<Record<string, number>>
  /** Parameters of its SQL that no `choices` offer. */
  fields?: readonly string[]
  leadsTo?: string
}
