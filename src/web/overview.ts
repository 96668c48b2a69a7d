import {z} from 'zod'
import {listAlarms} from '../alarm/conditions.ts'
import type {Config} from '../config.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {listNextOfEach} from '../schedule/cron.ts'
import type {Job} from '../schedule/job.ts'
import {findRunOfSlot, listJobRuns, listLatestJobRuns} from '../state/job-runs.ts'
import {findLockHolder} from '../state/lock.ts'
import {listActions} from '../state/page-actions.ts'
import {findLastSuccess} from '../state/runs.ts'
import type {StateDb} from '../state/state-db.ts'
import {findLastCoverage} from '../state/webhook-coverage.ts'
import type {World} from '../types.ts'
import {type DataFolder, isDemoFolder} from '../warehouse/data-folder.ts'

const syncSummary = z.object({
  walk: z.object({
    business_date: z.string(),
    pages: z.number(),
    records: z.number(),
    quarantined: z.number(),
  }),
  changes: z.record(z.string(), z.number()),
  duration_ms: z.number(),
  waited_ms: z.number(),
})

/** The last sync that ended well; `endedAt` in ms since the epoch. */
export type LastSync = z.output<typeof syncSummary> & {endedAt: number}

/** What the web side works with. */
export interface WebTools {
  stateDb: StateDb
  folder: DataFolder
  jobs: readonly Job[]
  config: Config
  /** The environment of commands that operators ask for; by default this process's. */
  env?: Record<string, string>
  /** Whether webhooks are taken. */
  takesWebhooks: boolean
}

/** What the web side shows of a data folder. */
export type Overview = ReturnType<typeof readOverview>

/** Reads everything that is shown: the state database and the manifest of the current release, never the warehouse. */
export function readOverview({stateDb, folder, jobs, config, takesWebhooks}: WebTools, world: World) {
  const now = world.realClock.now()
  const lastSync = readLastSync(stateDb)
  const release = findCurrentRelease(folder)?.manifest
  return {
    now,
    // In a demo nothing is due.
    alarms: isDemoFolder(folder) ? [] : listAlarms(stateDb, config, now, release),
    /** Who holds the warehouse. */
    holder: findLockHolder(stateDb, world),
    /** What people did on the page, newest first. */
    actions: listActions(stateDb, 20).map((action) => {
      const [, job] = /^loantape run (\S+)$/.exec(action.command) ?? []
      return {...action, run: job === undefined ? undefined : findRunOfSlot(stateDb, job, action.began_at)}
    }),
    queued: listJobRuns(stateDb, 'queued'),
    jobRuns: listLatestJobRuns(stateDb, 20),
    lastSync,
    /** What webhooks had told of the last walk; undefined where none are taken, or nothing was compared yet. */
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
