import {availableParallelism} from 'node:os'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import type {TableFile} from '../release/build-folder.ts'
import type {Check, Model, World} from '../types.ts'
import {type Database, quoteLiteral, threadsFor} from '../warehouse/database.ts'
import {mostMemoryMb} from '../warehouse/memory.ts'
import {type Cut, withinLimits} from '../warehouse/statement-limit.ts'

/** What a thread needs at least, by the engine's own documentation: with more threads than that it runs out of memory. */
const THREAD_MB = 125

/** Enough for a million deals; with more the engine takes more, and is no faster for it. */
const ENOUGH_MB = 3000

/** Each piece that is worked on at once should have this much; more than these add little. */
const LANE_MB = 1000
const MOST_LANES = 3

/** What a build works on: the file of a model, of a check, or of a table that is written. */
type Subject = Model | Check | TableFile

/** Runs the work of one model, check or file within the limits of a build. */
export type Limited = <T>(subject: Subject, work: () => Promise<T>, lane: Database) => Promise<T>

/**
 * Sets what the engine may hold in memory and where the rest goes, and keeps the time each model, check or file may take.
 *
 * @param build `spillDir` is a folder of this build alone, `historyBytes` the size of what it reads
 */
export async function limitBuild(
  db: Database,
  config: Pick<Config, 'memoryMb' | 'modelTimeoutSeconds'>,
  {spillDir, historyBytes}: {spillDir: string; historyBytes: number},
  world: World,
): Promise<Limited> {
  await db.run(`set temp_directory = ${quoteLiteral(spillDir)}`)
  const memoryMb = memoryFor(config)
  const threads = Math.min(threadsFor(historyBytes), Math.max(1, Math.floor(memoryMb / THREAD_MB)))
  await db.run(`set memory_limit = '${memoryMb}MB'; set threads = ${threads}`)
  const limits = {limitMs: config.modelTimeoutSeconds * 1000, signal: world.signal}
  return (subject, work, lane) =>
    withinLimits(lane, limits, work, (cut, cause) => describeCut(subject, config, cut, cause))
}

/** Says of a step how many of its models, checks or files are done. */
export function countEach(
  limited: Limited,
  {step, total}: {step: string; total: number},
  world: Pick<World, 'onProgress'>,
): Limited {
  let done = 0
  const report = () => world.onProgress({step, unit: step, done, total})
  report()
  return async (subject, work, lane) => {
    const result = await limited(subject, work, lane)
    done += 1
    report()
    return result
  }
}

/** How many models, checks or files are worked on at once. */
export function lanesOf(config: Pick<Config, 'memoryMb'>): number {
  return Math.max(1, Math.min(availableParallelism(), MOST_LANES, Math.floor(memoryFor(config) / LANE_MB)))
}

/** Megabytes a build may hold: as set, or enough, as far as there is as much. */
function memoryFor(config: Pick<Config, 'memoryMb'>): number {
  return config.memoryMb ?? Math.floor(Math.min(ENOUGH_MB, mostMemoryMb()))
}

function kindOf(subject: Subject): string {
  if ('grain' in subject) return 'Model'
  return 'severity' in subject ? 'Check' : 'Table'
}

function describeCut(
  subject: Subject,
  config: Pick<Config, 'memoryMb' | 'modelTimeoutSeconds'>,
  cut: Cut,
  cause: unknown,
): Error {
  const kind = kindOf(subject)
  const what = `${kind} '${subject.name}' in ${subject.file}`
  if (cut === 'stopped') {
    return newError(
      'BUILD_STOPPED',
      `The build was asked to stop: ${kind.toLowerCase()} '${subject.name}' was interrupted.`,
      {cause},
    )
  }
  if (cut === 'time') {
    return newError(
      'BUILD_TIMEOUT',
      `${what} took longer than ${config.modelTimeoutSeconds} s and was interrupted: expected it to end within that time.`,
      {cause},
    )
  }
  return newError(
    'BUILD_MEMORY',
    `${what} needs more memory than ${memoryFor(config)} MB allow, spilling included: expected it to fit into LOANTAPE_MEMORY_MB.`,
    {cause},
  )
}
