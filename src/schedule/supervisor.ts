import {realpathSync} from 'node:fs'
import {sleepUntilStopped} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {explainError, type LoantapeError, newError} from '../core/errors.ts'
import {type Log, logFor, scrubSecrets} from '../core/log.ts'
import {type Place, runLoantape} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, requireWritable} from '../store/data-folder.ts'
import {findLockHolder} from '../store/lock.ts'
import {findCurrentRelease} from '../store/release.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {isEnabled, type Job, WEBHOOK_JOB} from './job.ts'
import {adoptRun, listUnderWay} from './job-runs.ts'
import {createScheduler, type Scheduler} from './scheduler.ts'
import {tellPeople} from './tell.ts'

const TICK_MS = 1_000
/** How often settings and jobs of a source are read again, and one that is broken is tried again. */
const LOOK_MS = 15_000
/** A source that takes longer to be read does not keep the others waiting. */
const FIRST_LOOK_MS = 5_000
/** How often people are told what there is to tell. */
const TELL_MS = 5_000
/** A run that has waited for its source for so long keeps no other source from its run. */
const WAITED_MS = 300_000
/** What a run does while it may wait for its source, and for nothing of this machine. */
const WAITS = /^(opening|walking|details)/
/** With those that have waited long for their source, at most so many times the allowed runs are under way. */
const MOST_WAITING = 2

/** One lender as it is set up: `serve` has one, a fleet many. */
export interface Source {
  config: Config
  folder: DataFolder
  jobs: readonly Job[]
  /** Where its processes live; by default where this one does. */
  place?: Place
}

/** What is supervised. */
export interface Sources {
  /** The names of the sources there are now. */
  list: () => readonly string[]
  /** Reads one as it is now; throws what is wrong with it. */
  read: (name: string) => Promise<Source>
  /** Runs under way at once, over all of them. */
  runs: number
  /** How long the state database of one is waited for, ms: meanwhile no other is looked at. */
  patienceMs?: number
  /** How a command of a run is carried out: in a process of its own by default. */
  carryOut?: typeof runLoantape
}

/**
 * Creates the supervisor of these sources: it runs their jobs when they are due, each in a process of its own, and tells their people.
 * A source that is broken or hangs harms no other.
 */
export function createSupervisor(sources: Sources, world: World) {
  const kept = new Map<string, KeptSource>()
  const ending = new Set<KeptSource>()
  let isListed = true

  /** Keeps the sources there are now; one that is gone ends after its run, and may come back then. */
  function findSources(): void {
    const names = sources.list()
    for (const [name, one] of kept) {
      if (names.includes(name) || ending.has(one)) continue
      world.log.info({source: name}, 'source is gone: it ends after its run')
      ending.add(one)
      void one.end().finally(() => {
        kept.delete(name)
        ending.delete(one)
      })
    }
    const isTaken = (root: string, name: string) =>
      [...kept.values()].some((one) => one.name !== name && one.open()?.root === root)
    for (const name of names)
      if (!kept.has(name)) kept.set(name, keepSource(name, {...sources, isTaken}, world))
  }

  /** Whoever was started longest ago goes first, so that one that is due all the time does not keep others from theirs. */
  function tick(most: number): void {
    const inTurn = [...kept.values()].sort((a, b) => a.startedAt() - b.startedAt())
    const counts = inTurn.map((one) => one.countUnderWay())
    const running = sumOf(counts.map((one) => one.running))
    const waiting = sumOf(counts.map((one) => one.waiting))
    let free = Math.min(most - (running - waiting), MOST_WAITING * most - running)
    for (const one of inTurn) if (one.tick(free > 0)) free -= 1
  }

  return {
    /** The sources that are kept, and how each was found. */
    kept: (): readonly KeptSource[] => [...kept.values()],
    /** Reads every source for the first time. @throws where there is no list of them */
    async begin(): Promise<void> {
      findSources()
      // Runs that a server before this one left under way are known by then: they count.
      tick(0)
      await Promise.race([
        Promise.all([...kept.values()].map((one) => one.looked())),
        sleepUntilStopped(world.realClock, FIRST_LOOK_MS, world.signal),
      ])
    },
    /** Runs what is due until stopped; resolves when every run under way has ended. */
    async run(): Promise<void> {
      world.log.info({count: kept.size}, 'scheduler begins')
      while (!world.signal.aborted) {
        try {
          findSources()
          isListed = true
        } catch (error) {
          // The list cannot be read: the sources that are known go on.
          if (isListed) logProblem(error, world.log, 'the sources cannot be listed; they are listed again')
          isListed = false
        }
        tick(sources.runs)
        await sleepUntilStopped(world.realClock, TICK_MS, world.signal)
      }
      await Promise.all([...kept.values()].map((one) => one.end()))
      world.log.info('stopped')
    },
  }
}

const sumOf = (numbers: readonly number[]) => numbers.reduce((sum, one) => sum + one, 0)

function logProblem(error: unknown, log: Log, words: string): void {
  const {code, message} = explainError(error)
  log.error({code, reason: scrubSecrets(message)}, words)
}

/** A source that is served; whatever goes wrong with it stays with it, and is shown. */
export type KeptSource = ReturnType<typeof keepSource>

interface Open {
  source: Source
  /** What its settings and jobs were. */
  text: string
  /** Its data folder, links followed. */
  root: string
  stateDb: StateDb
  scheduler: Scheduler
}

/**
 * Keeps one source.
 *
 * @param name empty where it is the only one
 * @param tools `isTaken` says whether another source has this data folder
 */
export function keepSource(
  name: string,
  tools: Pick<Sources, 'read' | 'patienceMs' | 'carryOut'> & {
    isTaken: (root: string, name: string) => boolean
  },
  world: World,
) {
  const {carryOut = runLoantape} = tools
  const log = name === '' ? world.log : logFor(name, world.log)
  let open: Open | undefined
  let problem: LoantapeError | undefined
  /** It is to be opened anew as soon as nothing runs. */
  let isStale = false
  let isEnding = false
  let looking: Promise<void> | undefined
  let telling: Promise<void> | undefined
  let [lookAt, tellAt, pausedUntil, startedAt] = [0, 0, 0, 0]
  /** What the run under way was last seen doing, and since when. */
  let seen = {doing: '', since: 0}

  const isBusy = () => open?.scheduler.current() !== undefined

  function fail(error: unknown): void {
    if (problem?.message !== explainError(error).message)
      logProblem(error, log, 'this source cannot be served; it is looked at again')
    problem = explainError(error)
  }

  async function close(): Promise<void> {
    const closing = open
    open = undefined
    await telling
    await closing?.scheduler.idle()
    closing?.stateDb[Symbol.dispose]()
  }

  function openAs(source: Source, text: string): Open {
    const {folder, jobs, place} = source
    requireWritable(folder)
    const root = realpathSync(folder.root)
    if (tools.isTaken(root, name)) {
      throw newError('FLEET_DATA_SHARED', `Data folder '${root}' of source '${name}' is another source's.`)
    }
    const stateDb = openStateDb(folder.stateDb, tools.patienceMs)
    const scheduler = createScheduler(
      {
        stateDb,
        jobs: jobs.filter(isEnabled),
        startRun: ({job, job_run_id: jobRunId, attempt}) => {
          const words = job === WEBHOOK_JOB ? ['events', 'apply'] : ['run', job]
          const args = [...words, '--data', folder.root, '--claim', `${jobRunId}.${attempt}`, '--json']
          const onStarted = (pid: number) => {
            adoptRun(stateDb, {jobRunId, attempt, pid}, world.realClock.now())
          }
          return carryOut(args, {signal: world.signal, onStarted, ...place})
        },
      },
      {...world, log},
    )
    return {source, text, root, stateDb, scheduler}
  }

  /** Opens the source, and opens it anew where it has changed or was broken. */
  async function lookAnew(): Promise<void> {
    try {
      const source = await tools.read(name)
      const text = JSON.stringify([source.config, source.jobs])
      if (open?.text === text && problem === undefined) return
      isStale = isBusy()
      if (isStale || isEnding) return
      await close()
      open = openAs(source, text)
      problem = undefined
      const jobs = source.jobs.filter(isEnabled).map((job) => job.name)
      log.info({count: jobs.length, job: jobs.join(', ')}, 'source is served')
    } catch (error) {
      // What is broken starts nothing and waits for its time.
      isStale = false
      fail(error)
    }
  }

  async function tell({source: {config, folder}, stateDb}: Open): Promise<void> {
    try {
      await tellPeople(stateDb, config, {...world, log}, findCurrentRelease(folder)?.manifest)
    } catch (error) {
      logProblem(error, log, 'people could not be told; they are told later')
    }
  }

  return {
    name,
    /** What is open of it, and what keeps it from being served. */
    open: () => open,
    problem: () => problem,
    /** When this process last started a run of it, ms since the epoch. */
    startedAt: () => startedAt,
    /** Resolves when it has been read for the first time, or could not be. */
    looked: () => looking,
    /**
     * Looks once what is due and whom to tell.
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
        open.scheduler.tick({mayStart: mayStart && !problem && !isStale && !isEnding})
        if (!telling && now >= tellAt) {
          tellAt = now + TELL_MS
          telling = tell(open).finally(() => {
            telling = undefined
          })
        }
      } catch (error) {
        // A full disk, or a state database that is busy for long, must not end the server.
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
    /** Starts nothing more; resolves when the run under way has ended. */
    async end(): Promise<void> {
      isEnding = true
      await looking
      await close().catch((error: unknown) => fail(error))
    },
  }
}
