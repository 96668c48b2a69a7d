import {z} from 'zod'
import type {Config} from '../core/config.ts'
import type {World} from '../core/types.ts'
import {listAlarms} from '../schedule/alarms.ts'
import type {Job} from '../schedule/job.ts'
import {listQueuedRuns} from '../schedule/job-runs.ts'
import {listNextOfEach} from '../schedule/slots.ts'
import {type DataFolder, isDemoFolder} from '../store/data-folder.ts'
import {findCurrentRelease, type Release} from '../store/release.ts'
import {findLastSuccess, findLockHolder} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {findLastCoverage} from '../sync/webhook-events.ts'
import type {Block} from './blocks.ts'
import type {Filter} from './filter.ts'
import type {Html} from './html.ts'
import type {History, Reader} from './reader.ts'
import type {OwnQuestion} from './release-questions.ts'

const syncSummary = z.object({
  walk: z.object({pages: z.number(), records: z.number(), quarantined: z.number()}),
  changes: z.record(z.string(), z.number()),
  duration_ms: z.number(),
  waited_ms: z.number(),
})

/** The last sync that ended well; `endedAt` in ms since the epoch. */
type LastSync = z.output<typeof syncSummary> & {endedAt: number}

/** The tools of the web side. */
export interface WebTools {
  stateDb: StateDb
  folder: DataFolder
  jobs: readonly Job[]
  config: Config
  /** The environment of operators' commands; by default that of this process. */
  env?: Record<string, string>
  /** Whether webhooks are received. */
  takesWebhooks: boolean
}

/** The state of a data folder, for pages. */
export type Overview = ReturnType<typeof readOverview>

/** Reads it from the state database and the manifest of the current release, never from the warehouse. */
export function readOverview({stateDb, folder, jobs, config, takesWebhooks}: WebTools, world: World) {
  const now = world.realClock.now()
  const lastSync = readLastSync(stateDb)
  const release = findCurrentRelease(folder)?.manifest
  return {
    now,
    // In a demo nothing is due.
    alarms: isDemoFolder(folder) ? [] : listAlarms(stateDb, {config, release, jobs}, now),
    /** Who holds the warehouse. */
    holder: findLockHolder(stateDb, world),
    queued: listQueuedRuns(stateDb),
    lastSync,
    /** The webhook coverage of the last walk; undefined without webhooks or comparison. */
    coverage: takesWebhooks ? findLastCoverage(stateDb) : undefined,
    release,
    next: listNextOfEach(jobs, now),
  }
}

function readLastSync(stateDb: StateDb): LastSync | undefined {
  const run = findLastSuccess(stateDb, 'sync')
  if (!run?.ended_at) return undefined
  const summary = syncSummary.safeParse(JSON.parse(run.summary ?? 'null'))
  return summary.success ? {...summary.data, endedAt: Date.parse(run.ended_at)} : undefined
}

/** The input of a page. */
export interface View {
  release: Release
  filter: Filter
  /** Asks what a block of a page asks, of the filtered deals or all. */
  ask(asked: OwnQuestion & {isWhole?: boolean}): Promise<Block>
  /** Whether the viewer can read a table. */
  mayRead(name: string): boolean
  /** The query parameters. */
  query: URLSearchParams
  /** The folder of own models, whose `pages/` take the place of ours. */
  sqlDir: string | undefined
}

/** The input of a page of the workbench. */
export interface AskingView extends View {
  /** Answers people's own questions in turn. */
  people: Reader
  history: History
  overview: Overview
  /** Whether the viewer may act. */
  mayAct: boolean
  /** Whether a query of the address is run: one that another site or a message led to is only shown. */
  mayRun: boolean
  config: Config
  folder: DataFolder
}

/** A page without its frame. */
export interface Page {
  title: string
  body: Html
  /** Of its answer; 200 by default. */
  status?: number
}
