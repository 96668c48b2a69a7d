import {realpathSync} from 'node:fs'
import {explainError, type LoantapeError, newError} from '../errors.ts'
import {logFor, scrubSecrets} from '../log.ts'
import {isEnabled} from '../schedule/job.ts'
import {listUnderWay} from '../state/job-runs.ts'
import {findLockHolder} from '../state/lock.ts'
import {openStateDb, type StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {requireWritable} from '../warehouse/data-folder.ts'
import type {SourceRow} from '../web/fleet-page.ts'
import {brokenRow, readRow} from './fleet-row.ts'
import {PATIENCE_MS, type Source} from './fleet-source.ts'
import {type FolderWatch, watchFolder} from './watch-folder.ts'

/** How often settings and jobs of a source are read again, and one that is broken is tried again. */
const LOOK_MS = 15_000

/** A run that has waited for its source for so long keeps no other source from its run. */
const WAITED_MS = 300_000
/** What a run does while it may wait for its source, and for nothing of this machine. */
const WAITS = /^(opening|walking|details)/

/** A source that a fleet serves; whatever goes wrong with it is kept here, and shown. */
export type KeptSource = ReturnType<typeof keepSource>

interface Open {
  source: Source
  /** What its settings and jobs were. */
  text: string
  root: string
  stateDb: StateDb
  watch: FolderWatch
}

/**
 * Keeps one source of a fleet.
 *
 * @param tools `read` reads it as it is now; `isTaken` says whether another source has this data folder
 */
export function keepSource(
  name: string,
  tools: {read: () => Promise<Source>; isTaken: (root: string) => boolean},
  fleetWorld: World,
) {
  const world = {...fleetWorld, log: logFor(name, fleetWorld.log)}
  let open: Open | undefined
  let problem: LoantapeError | undefined
  /** It is to be opened anew as soon as nothing runs. */
  let isStale = false
  let isEnding = false
  let looking: Promise<void> | undefined
  let lookAt = 0
  let pausedUntil = 0
  let startedAt = 0
  /** What the run under way was last seen doing, and since when. */
  let seen = {doing: '', since: 0}

  const isBusy = () => open?.watch.isBusy() === true

  function fail(error: unknown): void {
    const {code, message} = explainError(error)
    if (problem?.message !== message) {
      world.log.error(
        {code, reason: scrubSecrets(message)},
        'this source cannot be served; it is looked at again',
      )
    }
    problem = explainError(error)
  }

  async function close(): Promise<void> {
    const closing = open
    open = undefined
    await closing?.watch.settled()
    closing?.stateDb[Symbol.dispose]()
  }

  function openAs(source: Source, text: string): Open {
    const {config, folder, jobs, place} = source
    requireWritable(folder)
    const root = realpathSync(folder.root)
    if (tools.isTaken(root)) {
      throw newError('FLEET_DATA_SHARED', `Data folder '${root}' of source '${name}' is another source's.`)
    }
    const stateDb = openStateDb(folder.stateDb, PATIENCE_MS)
    const watch = watchFolder({config, folder, stateDb, jobs: jobs.filter(isEnabled), place}, world)
    return {source, text, root, stateDb, watch}
  }

  /** Opens the source, and opens it anew where it has changed or was broken. */
  async function lookAnew(): Promise<void> {
    try {
      const source = await tools.read()
      const text = JSON.stringify([source.config, source.jobs])
      if (open?.text === text && problem === undefined) return
      isStale = isBusy()
      if (isStale || isEnding) return
      await close()
      open = openAs(source, text)
      problem = undefined
      world.log.info({count: source.jobs.filter(isEnabled).length}, 'source is served')
    } catch (error) {
      // What is broken starts nothing and waits for its time.
      isStale = false
      fail(error)
    }
  }

  return {
    name,
    /** The data folder it has open, links followed. */
    root: () => open?.root,
    /** When this fleet last started a run of it, ms since the epoch. */
    startedAt: () => startedAt,
    /** Resolves when it has been read for the first time, or could not be. */
    looked: () => looking,
    /**
     * Looks once what is due.
     *
     * @returns whether it started a run
     */
    tick(mayStart: boolean): boolean {
      const now = world.realClock.now()
      if (!looking && !isEnding && (now >= lookAt || (isStale && !isBusy()))) {
        lookAt = now + LOOK_MS
        looking = lookAnew().finally(() => {
          looking = undefined
        })
      }
      if (!open || now < pausedUntil) return false
      const wasBusy = isBusy()
      try {
        open.watch.look(mayStart && !problem && !isStale && !isEnding)
      } catch (error) {
        fail(error)
        pausedUntil = now + LOOK_MS
        lookAt = pausedUntil
      }
      if (wasBusy || !isBusy()) return false
      startedAt = now
      return true
    },
    /** Slots of it that are carried out now, those of a server before this one among them, and how many of them have waited long. */
    countUnderWay(): {running: number; waiting: number} {
      try {
        const now = world.realClock.now()
        const running = open ? listUnderWay(open.stateDb, now).filter(({slot}) => slot !== null) : []
        const holder = open && findLockHolder(open.stateDb, world)
        const doing = JSON.stringify([running, holder?.run_id, holder?.progress])
        if (doing !== seen.doing) seen = {doing, since: now}
        const isWaiting = WAITS.test(holder?.progress ?? '') && now - seen.since >= WAITED_MS
        return {running: running.length, waiting: isWaiting ? running.length : 0}
      } catch {
        // The next tick fails as well, and says what is wrong with it.
        return {running: isBusy() ? 1 : 0, waiting: 0}
      }
    },
    /** How it is doing; undefined before it was read for the first time. */
    row(): SourceRow | undefined {
      try {
        if (problem) return brokenRow(name, problem)
        return open && readRow(name, open.source, {stateDb: open.stateDb}, world)
      } catch (error) {
        return brokenRow(name, error)
      }
    },
    /** Starts nothing more; resolves when the run under way has ended. */
    async end(): Promise<void> {
      isEnding = true
      await looking
      await open?.watch.settled()
      await close()
    },
  }
}
