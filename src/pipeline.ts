import {buildRelease} from './build/build.ts'
import {readStatuses} from './build/sources.ts'
import {needHashKey, parseChildStreams} from './contract/streams.ts'
import {type Config, requireSource, type SourceConfig} from './core/config.ts'
import {messageOf} from './core/errors.ts'
import type {World} from './core/types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from './store/data-folder.ts'
import {writeFact} from './store/recorded.ts'
import {findCurrentRelease, unlessDamaged} from './store/release.ts'
import {type CurrentRun, withRun} from './store/runs.ts'
import {openStateDb} from './store/state-db.ts'
import {requireHashKey} from './store/warehouse.ts'
import {atSource, readDescription} from './sync/at-source.ts'
import {type ChildResult, syncChildren} from './sync/children.ts'
import {fetchMissingDetails, listChanged, lookAt} from './sync/details.ts'
import type {Acceptance} from './sync/guard.ts'
import {replayRecords} from './sync/quarantine.ts'
import {certificateOf, previewWalk, settleWalk} from './sync/settle.ts'
import {readToEnd} from './sync/walk.ts'
import {listWaitingEvents, settleEvents} from './sync/webhook-events.ts'

export interface SyncRequest {
  accept?: readonly Acceptance[]
  /** Kept with the walk. */
  why?: string | undefined
  /** Walks and compares, but stores only the walk. */
  isDryRun?: boolean
}

/** What `sync --json` prints. */
export type SyncResult = Awaited<ReturnType<typeof syncDeals>>

/**
 * Runs a sync, from the source to a release: walks every page, proves the walk complete, guards it, appends what changed, and
 * builds the portfolio tables. If anything stops it, what it stored is kept and the next run continues from there.
 */
export async function syncDeals(config: Config, request: SyncRequest, world: World) {
  const source = requireSource(config)
  const folder = requireWritable(dataFolderAt(config.dataDir))
  const startedAt = world.realClock.now()
  // Another name, because a preview ends no alarm and is no success.
  const command = request.isDryRun ? 'sync --dry-run' : 'sync'
  return withRun(folder.stateDb, command, world, async (run) => {
    const walked = await walkAndApply(folder, source, request, run)
    const build = request.isDryRun ? undefined : await buildRelease(config, {}, run.world)
    return {
      run_id: run.runId,
      outcome: build?.outcome ?? ('dry_run' as const),
      walk: walked.certificate,
      changes: walked.changes,
      streams: walked.streams,
      release_id: build?.release_id ?? null,
      checks: build?.checks ?? {passed: 0, warned: 0, results: []},
      duration_ms: world.realClock.now() - startedAt,
      waited_ms: walked.waitedMs,
    }
  })
}

/** The warehouse is closed again before the release is built. */
export function walkAndApply(
  folder: DataFolder,
  config: SourceConfig,
  {accept, why, isDryRun = false}: SyncRequest,
  run: CurrentRun,
) {
  const children = parseChildStreams(config.streams)
  const accepted = new Set(accept)
  return atSource(
    config,
    {folder, run, statuses: readStatuses(config), accepted, why},
    async (tools, world) => {
      const {db, client} = tools
      const hashKey = needHashKey(children) ? await requireHashKey(db, folder) : undefined
      const described = tools.config.description === undefined ? 'no' : 'yes'
      if (!isDryRun) writeFact(run.stateDb, 'source_described', described)
      const unit = await readToEnd(tools, isDryRun, world)
      const streams: ChildResult[] = []
      if (isDryRun) return {...(await previewWalk(tools, unit)), streams, waitedMs: client.waitedMs}
      world.onProgress({step: 'certifying'})
      world.onStep('walk read')
      const budgetEndsAt = world.realClock.now() + config.detailBudgetMinutes * 60_000
      await fetchMissingDetails(tools, unit, world)
      const changes = await settleWalk(tools, unit, world)
      for (const stream of children) {
        // Otherwise the first could leave the others nothing, night after night.
        const budgetMs = (budgetEndsAt - world.realClock.now()) / (children.length - streams.length)
        const asked = {businessDate: unit.walk.businessDate, budgetMs, hashKey}
        streams.push(await syncChildren({...tools, stream}, asked, world))
      }
      return {certificate: certificateOf(unit.walk), changes, streams, waitedMs: client.waitedMs}
    },
  )
}

export type EventsResult = Awaited<ReturnType<typeof applyEvents>>

/**
 * Looks again at the deals that webhooks named or that a described source lists as changed, and appends what is new. Only a walk
 * proves an absence, so a walk runs instead if a deal's own page cannot be read or says that the deal is gone, or if it is the
 * first.
 */
export async function applyEvents(config: Config, world: World) {
  const source = requireSource(config)
  const folder = requireWritable(dataFolderAt(config.dataDir))
  using stateDb = openStateDb(folder.stateDb)
  const waiting = listWaitingEvents(stateDb)
  const ids = new Set(waiting.map(({deal_id}) => deal_id))
  const hasHints = readDescription(folder)?.deals.changedSince !== undefined
  if (ids.size === 0 && !hasHints) return {outcome: 'unchanged', events: 0, deals: 0, appended: 0}
  const look = (run: CurrentRun) =>
    atSource(
      source,
      {folder, run, statuses: readStatuses(source), accepted: new Set()},
      async (tools, steady) => {
        const hinted = await listChanged(tools).catch((error: unknown) => {
          // The list is only a hint: the deals that webhooks named are looked at without it.
          if (ids.size === 0 || world.signal.aborted) throw error
          world.log.warn({reason: messageOf(error)}, 'the source does not list what changed')
          return []
        })
        for (const id of hinted) ids.add(id)
        return {outcome: 'applied', deals: ids.size, ...(await lookAt(tools, [...ids], steady))}
      },
    )
  const {isComplete, appended} = await withRun(folder.stateDb, 'events', world, look)
  const walked = isComplete ? undefined : await syncDeals(config, {}, world)
  const outcome = isComplete ? 'applied' : 'walked'
  const eventIds = waiting.map(({event_id}) => event_id)
  settleEvents(stateDb, {eventIds, outcome, walkId: walked?.walk.walk_id}, world.realClock.now())
  const isIdle = isComplete && ids.size === 0
  // `appended` counts versions; an unchanged deal appends none.
  return {outcome: isIdle ? 'unchanged' : outcome, events: waiting.length, deals: ids.size, appended}
}

/** If quarantine yields anything new, builds a release as a sync does. */
export function replayQuarantine(config: Config, world: World) {
  const folder = requireWritable(dataFolderAt(config.dataDir))
  return withRun(folder.stateDb, 'quarantine replay', world, async (run) => {
    const counts = await replayRecords(folder, config, run)
    // A killed replay may have stored records that no release shows yet.
    if (counts.replayed === 0 && !unlessDamaged(() => findCurrentRelease(folder)))
      return {run_id: run.runId, outcome: 'unchanged', ...counts, release_id: null}
    const {outcome, release_id} = await buildRelease(config, {}, run.world)
    return {run_id: run.runId, outcome, ...counts, release_id: outcome === 'unchanged' ? null : release_id}
  })
}
