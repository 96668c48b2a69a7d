import {sleepUntilStopped} from '../clock.ts'
import type {Config} from '../config.ts'
import {explainError} from '../errors.ts'
import type {World} from '../types.ts'
import type {SourceRow} from '../web/fleet-page.ts'
import type {Cli} from './context.ts'
import {type KeptSource, keepSource} from './fleet-keep.ts'
import {readSource} from './fleet-source.ts'
import {listSources} from './source-folder.ts'

const TICK_MS = 1000
/** With those that have waited long for their source, at most so many times LOANTAPE_FLEET_RUNS are under way. */
const MOST_WAITING = 2
/** A source that takes longer to be read does not keep the others waiting. */
const FIRST_LOOK_MS = 5_000

/** Runs the jobs of every source of a fleet when they are due, until stopped. */
export async function serveFleet(
  cli: Pick<Cli, 'env'>,
  {fleetDir, config, web}: {fleetDir: string; config: Config; web: boolean},
  world: World,
): Promise<void> {
  const kept = new Map<string, KeptSource>()
  const ending = new Map<KeptSource, Promise<void>>()

  const create = (name: string): KeptSource =>
    keepSource(
      name,
      {
        read: () => readSource(cli, fleetDir, name),
        isTaken: (root) => [...kept.values()].some((one) => one.name !== name && one.root() === root),
      },
      world,
    )

  /** Keeps what is in the folder now; a source that is gone ends after its run, and may come back then. */
  function findSources(): void {
    const names = listSources(fleetDir)
    for (const [name, one] of kept) {
      if (names.includes(name) || ending.has(one)) continue
      world.log.info({source: name}, 'source is gone: it ends after its run')
      const ended = one
        .end()
        .catch((error: unknown) => logFailure(error, world))
        .finally(() => {
          kept.delete(name)
          ending.delete(one)
        })
      ending.set(one, ended)
    }
    for (const name of names) if (!kept.has(name)) kept.set(name, create(name))
  }

  /** Whoever was started longest ago goes first, so that one that is due all the time does not keep others from theirs. */
  function tick(most: number): void {
    const inTurn = [...kept.values()].sort((a, b) => a.startedAt() - b.startedAt())
    const counts = inTurn.map((one) => one.countUnderWay())
    const [running, waiting] = [
      sumOf(counts.map((one) => one.running)),
      sumOf(counts.map((one) => one.waiting)),
    ]
    let free = Math.min(most - (running - waiting), MOST_WAITING * most - running)
    for (const one of inTurn) if (one.tick(free > 0)) free -= 1
  }

  findSources()
  // Runs that a server before this one left under way are known by then: they count.
  tick(0)
  await Promise.race([
    Promise.all([...kept.values()].map((one) => one.looked())),
    sleepUntilStopped(world.realClock, FIRST_LOOK_MS, world.signal),
  ])
  const readRows = () =>
    [...kept.values()].map((one) => one.row()).filter((row): row is SourceRow => row !== undefined)
  // Loaded here: no other command needs a web server.
  const {startFleetWeb} = await import('../web/fleet-web.ts')
  await using side = web ? await startFleetWeb(config, readRows, world) : undefined
  if (side) world.log.info({url: side.url}, 'web side listens')
  world.log.info({count: kept.size}, 'fleet begins')
  let isListed = true
  while (!world.signal.aborted) {
    try {
      findSources()
      isListed = true
    } catch (error) {
      // The folder of sources cannot be read: those that are known go on.
      if (isListed) logFailure(error, world)
      isListed = false
    }
    tick(config.fleetRuns)
    await sleepUntilStopped(world.realClock, TICK_MS, world.signal)
  }
  await Promise.all(
    [...kept.values()].map((one) => one.end().catch((error: unknown) => logFailure(error, world))),
  )
  world.log.info('stopped')
}

const sumOf = (numbers: readonly number[]) => numbers.reduce((sum, one) => sum + one, 0)

function logFailure(error: unknown, {log}: World): void {
  const {code, message} = explainError(error)
  log.error({code, reason: message}, 'the fleet could not be looked at; it is looked at again')
}
