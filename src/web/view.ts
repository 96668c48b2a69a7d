import type {Config} from '../core/config.ts'
import type {World} from '../core/types.ts'
import {listAlarms, syncSummary} from '../schedule/alarms.ts'
import type {Job} from '../schedule/job.ts'
import {listNextOfEach} from '../schedule/slots.ts'
import {type DataFolder, isDemoFolder} from '../store/data-folder.ts'
import {examineCurrent, type Release} from '../store/release.ts'
import {findLastSuccess, findLockHolder, summaryOf} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import type {Block} from './cells.ts'
import type {Filter} from './filter.ts'
import type {Html} from './html.ts'
import type {Caller} from './http-server.ts'
import type {History, Reader} from './reader.ts'
import type {Asked} from './release-questions.ts'

/** The tools of the web side. */
export interface WebTools {
  stateDb: StateDb
  folder: DataFolder
  jobs: readonly Job[]
  config: Config
  /** Throws why no job can run. */
  requireServed?: () => void
  /** The environment of operators' commands; by default that of this process. */
  env?: Record<string, string>
}

/** The state of a data folder, for pages. */
export type Overview = ReturnType<typeof readOverview>

/** Reads it from the state database and the manifest of the current release, never from the warehouse. */
export function readOverview({stateDb, folder, jobs, config}: WebTools, world: World) {
  const now = world.realClock.now()
  const current = examineCurrent(folder)
  return {
    now,
    // In a demo nothing is due.
    alarms: isDemoFolder(folder) ? [] : listAlarms(stateDb, {config, ...current, jobs}, now),
    /** Who holds the warehouse. */
    holder: findLockHolder(stateDb, world),
    /** The records of the last walk that could not be read. */
    notRead: summaryOf(findLastSuccess(stateDb, 'sync'), syncSummary)?.walk.quarantined ?? 0,
    ...current,
    next: listNextOfEach(jobs, now),
  }
}

/** The input of a page. */
export interface View {
  release: Release
  filter: Filter
  /** Asks what a block of a page asks, of the filtered deals or all. */
  ask(asked: Asked & {isWhole?: boolean}): Promise<Block>
  /** Whether the viewer can read a table. */
  mayRead(name: string): boolean
  /** Whether the viewer can open the page at a path; every one by default. */
  mayOpen?(path: string): boolean
  /** The query parameters. */
  query: URLSearchParams
  /** The folders of people's own pages, which take the place of ours. */
  pageDirs: readonly string[]
  /** For a file: lists in one piece. */
  isFile?: boolean
  /** For a mail: few rows, and charts as tables. */
  isMail?: boolean
}

type Tools = Pick<WebTools, 'config' | 'folder' | 'stateDb'>

/** The input of a page of the workbench. */
export interface AskingView extends View, Tools, Pick<Caller, 'mayAct' | 'person' | 'who'> {
  mayOpen(path: string): boolean
  /** Answers people's own questions in turn. */
  people: Reader
  history: History
  overview: Overview
  /** Whether a query of the address is run: one that another site or a message led to is only shown. */
  mayRun: boolean
}

/** A page without its frame. */
export interface Page {
  title: string
  body: Html
  /** Of its answer; 200 by default. */
  status?: number
  /** What of it could not be shown, each with its place. */
  problems?: readonly string[]
  /** Of its blocks that have a name, the number of their rows. */
  rows?: Readonly<Record<string, number>>
  /** Leads to this address instead. */
  leadsTo?: string
}
