import {realpathSync} from 'node:fs'
import {isDeepStrictEqual} from 'node:util'
import {sleepUntilStopped} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {codeOf, explainError, type LoantapeError, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {type Environment, runLoantape} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, requireWritable} from '../store/data-folder.ts'
import {examineCurrent} from '../store/release.ts'
import {findLockHolder} from '../store/runs.ts'
import {openStateDb, requireThere, type StateDb} from '../store/state-db.ts'
import {type Job, listFaults} from './job.ts'
import {adoptRun, isoOf, type JobRun, listRunning} from './job-runs.ts'
import {createScheduler} from './scheduler.ts'
import {tellPeople} from './tell.ts'

const TICK_MS = 1_000
const LOOK_MS = 15_000
const TELL_MS = 5_000
/** People are told of a source's problem, or its end, once it has lasted this long. */
const STEADY_MS = 60_000
/** After this long, a run that waits for its source no longer counts against the other sources. */
const WAITED_MS = 300_000
/** The progress of runs that may be waiting for their source. */
const CAN_WAIT = /^(opening|walking|details)/
/** At most this many times the allowed runs go on at once, including those that wait. */
const MOST_WITH_WAITING = 2

/** `serve` has one, a fleet many. */
export interface Source {
  config: Config
  folder: DataFolder
  jobs: readonly Job[]
  environment?: Environment
}

interface Sources {
  /** `['']` for a single source, which needs no name. */
  list: () => readonly string[]
  /** Throws if its setup is wrong. */
  read: (name: string) => Source
  /** Over all sources. */
  runs: number
  /** How long to wait for a source's state database, ms; all other sources wait too. */
  patienceMs?: number
  /** Carries out the command of a run; by default in a process of its own. */
  carryOut?: typeof runLoantape
}

/**
 * Runs the jobs of sources when due, each in its own process, and sends their alarms. A source that is broken or hangs does not
 * affect the others. @throws if the sources cannot be listed
 */
export function createSupervisor(sources: Sources, world: World) {
  const served = new Map<string, ServedSource>()
  let wasListed = true

  /** A removed source ends after its run, and may come back then. */
  function findSources(): void {
    const names = sources.list()
    for (const [name, one] of served) {
      if (names.includes(name) || one.isEnding()) continue
      world.log.info({source: name}, 'source is gone: it ends after its run')
      void one.end().finally(() => served.delete(name))
    }
    const isTaken = (root: string) => served.values().some((one) => one.root() === root)
    for (const name of names)
      if (!served.has(name)) served.set(name, serveSource(name, {...sources, isTaken}, world))
  }

  function lookAtEach(): void {
    for (const one of served.values()) one.look()
  }

  /** The source whose last start is longest ago goes first, so that a busy source does not starve the others. */
  function tick(): void {
    const inTurn = [...served.values()].sort((a, b) => a.startedAt() - b.startedAt())
    const counts = inTurn.map((one) => one.countRuns())
    const running = counts.reduce((sum, one) => sum + one.running, 0)
    const waiting = counts.reduce((sum, one) => sum + one.waiting, 0)
    const {runs: most} = sources
    let free = Math.min(most - (running - waiting), MOST_WITH_WAITING * most - running)
    for (const one of inTurn) {
      if (one.tick(free > 0)) free -= 1
      one.tell()
    }
  }

  findSources()
  lookAtEach()
  return {
    served: (): readonly ServedSource[] => [...served.values()].filter((one) => !one.isEnding()),
    /** Runs what is due until stopped; resolves once every run has ended. */
    async run(): Promise<void> {
      world.log.info({count: served.size}, 'scheduler begins')
      while (!world.signal.aborted) {
        try {
          findSources()
          wasListed = true
        } catch (error) {
          // The known sources keep running.
          if (wasListed) logProblem(error, world, 'the sources cannot be listed; listing is tried again')
          wasListed = false
        }
        lookAtEach()
        tick()
        await sleepUntilStopped(world.realClock, TICK_MS, world.signal)
      }
      await Promise.all(served.values().map((one) => one.end()))
      world.log.info('stopped')
    },
  }
}

function logProblem(error: unknown, {log}: Pick<World, 'log'>, words: string): void {
  const {code, message} = explainError(error)
  log.error({code, reason: scrubSecrets(message)}, words)
}

/** An end too far away was set before the clock was stepped back, and does not count. */
const isBefore = (now: number, end: number, pauseMs: number) => now < end && end - now <= pauseMs

type ServedSource = ReturnType<typeof serveSource>

/** `isTaken` says whether another source has this data folder. */
function serveSource(name: string, tools: Sources & {isTaken: (root: string) => boolean}, ours: World) {
  const world = name === '' ? ours : {...ours, log: ours.log.child({source: name})}
  let open: ReturnType<typeof openAs> | undefined
  let problem: LoantapeError | undefined
  let ending: Promise<void> | undefined
  let telling: Promise<void> | undefined
  let config: Config | undefined
  /** Holds what people were told of its problems, because its own state database may be what fails. */
  let memory: StateDb | undefined
  /** If the state database that was opened last disappears, it is not created again. */
  let served: string | undefined
  let fault: LoantapeError | undefined
  let [lookAt, tellAt, pausedUntil, startedAt, faultSince] = [0, 0, 0, 0, 0]
  /** What its run was last seen doing, and since when. */
  let seen = {doing: '', since: 0}

  const isRunning = () => open?.scheduler.current() !== undefined

  function fail(error: unknown): void {
    problem = explainError(error)
    if (problem.message !== fault?.message)
      logProblem(error, world, 'this source cannot be served; it is tried again')
  }

  /** A full disk, or a busy or damaged state database, must not end the server. */
  function pause(error: unknown): void {
    fail(error)
    pausedUntil = world.realClock.now() + LOOK_MS
    lookAt = pausedUntil
  }

  function openAs(source: Source) {
    const {folder, environment} = source
    if (folder.stateDb === served) requireThere(served)
    requireWritable(folder)
    const root = realpathSync(folder.root)
    if (tools.isTaken(root))
      throw newError('FLEET_DATA_SHARED', `Data folder '${root}' of source '${name}' is another source's.`)
    const stateDb = openStateDb(folder.stateDb, {...tools, isServed: true})
    served = folder.stateDb
    const startRun = (run: JobRun) => {
      const claim = `${run.job_run_id}.${run.attempt}`
      const args = ['run', run.job, '--data', folder.root, '--claim', claim, '--json']
      const onStarted = (pid: number) => void adoptRun(stateDb, run, world.realClock.now(), pid)
      return (tools.carryOut ?? runLoantape)(args, {signal: world.signal, onStarted, ...environment})
    }
    const scheduler = createScheduler({stateDb, jobs: source.jobs, startRun}, world)
    for (const fault of listFaults(source.jobs)) logProblem(fault, world, 'this job is never due')
    const due = source.jobs.filter(({enabled}) => enabled)
    world.log.info({count: due.length, job: due.map((job) => job.name).join(', ')}, 'source is served')
    return {source, root, stateDb, scheduler}
  }

  const findFault = () => fault && {problem: fault, since: isoOf(faultSince)}

  async function close(): Promise<void> {
    // If nothing uses it, the database is closed at once: another source may already have its folder.
    if (isRunning()) await open?.scheduler.idle()
    if (telling) await telling
    open?.stateDb[Symbol.dispose]()
    open = undefined
  }

  async function sendAlarms(now: number): Promise<void> {
    if (fault) memory ??= openStateDb(':memory:')
    if (memory && config && now - faultSince >= STEADY_MS)
      await tellPeople(memory, config, () => ({release: undefined, jobs: [], fault: findFault()}), world)
    if (!open || open.scheduler.isClockBehind() || isBefore(now, pausedUntil, LOOK_MS)) return
    const {source, stateDb} = open
    const look = () => ({...examineCurrent(source.folder), jobs: source.jobs})
    await tellPeople(stateDb, source.config, look, world)
  }

  return {
    name,
    root: () => open?.root,
    findFault,
    /** @throws why it cannot be served */
    requireOpen() {
      if (problem) throw problem
      if (open) return open
      throw new Error(`source '${name}' is not open`)
    },
    startedAt: () => startedAt,
    isEnding: () => ending !== undefined,
    /** At intervals and while nothing uses it, reopens the source if it has changed or was broken. */
    look(): void {
      const now = world.realClock.now()
      if (ending || isBefore(now, lookAt, LOOK_MS) || isRunning() || telling) return
      lookAt = now + LOOK_MS
      try {
        const source = tools.read(name)
        config = source.config
        if (open && !problem && isDeepStrictEqual(source, open.source)) return
        open?.stateDb[Symbol.dispose]()
        open = undefined
        open = openAs(source)
        problem = undefined
      } catch (error) {
        // A broken source starts nothing until it has been read again.
        fail(error)
      }
    },
    /** Sends alarms at intervals, also that the source is not served, or is served again. */
    tell(): void {
      const now = world.realClock.now()
      faultSince = problem?.code === fault?.code ? Math.min(faultSince, now) : now
      fault = problem
      if (telling || ending || isBefore(now, tellAt, TELL_MS)) return
      tellAt = now + TELL_MS
      telling = sendAlarms(now)
        .catch((error) => {
          if (codeOf(error) === 'STATE_UNREADABLE') return pause(error)
          logProblem(error, world, 'alarms could not be sent; they are sent later')
        })
        .finally(() => {
          telling = undefined
        })
    },
    tick(mayStart: boolean): boolean {
      const now = world.realClock.now()
      if (!open || isBefore(now, pausedUntil, LOOK_MS)) return false
      const wasRunning = isRunning()
      try {
        open.scheduler.tick({mayStart: mayStart && !problem && !ending})
      } catch (error) {
        pause(error)
      }
      if (wasRunning || !isRunning()) return false
      startedAt = now
      return true
    },
    /** Counts slots, including those of a previous server, and those that have waited long for their source. */
    countRuns(): {running: number; waiting: number} {
      if (!open) return {running: 0, waiting: 0}
      try {
        const now = world.realClock.now()
        const running = listRunning(open.stateDb, now).filter(({slot, isAlive}) => isAlive && slot !== null)
        const holder = findLockHolder(open.stateDb, world)
        const runs = running.map(({job_run_id, attempt}) => `${job_run_id}.${attempt}`)
        const doing = JSON.stringify([runs, holder?.run_id, holder?.progress])
        if (doing !== seen.doing) seen = {doing, since: now}
        const isWaiting = CAN_WAIT.test(holder?.progress ?? '') && now - seen.since >= WAITED_MS
        return {running: running.length, waiting: isWaiting ? running.length : 0}
      } catch {
        // The next tick fails too, and reports why.
        return {running: isRunning() ? 1 : 0, waiting: 0}
      }
    },
    /** Starts nothing more; resolves once its run has ended. */
    end(): Promise<void> {
      ending ??= close().catch(fail)
      return ending
    },
  }
}
