import {createBusinessClock, realClock} from '../clock.ts'
import type {Config} from '../config.ts'
import {explainError, type Failure} from '../errors.ts'
import {createLog} from '../log.ts'
import {previewExport} from '../pipeline/export.ts'
import {listNotIssued} from '../pipeline/not-issued.ts'
import {listPeriods} from '../pipeline/period-list.ts'
import {type ReasonsRequest, readReasons, showQuarantined} from '../pipeline/quarantined-records.ts'
import {traceDeal} from '../pipeline/trace.ts'
import {diffReleases} from '../release/compare-releases.ts'
import {requireRelease} from '../release/manifest.ts'
import {listExportedProfiles, readJobs} from '../schedule/job.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {readMovedBetween} from './moved.ts'

// A process of its own, which opens the warehouse and reads tapes while pages are answered.

/** What pages ask, answered by the functions that commands call. */
const QUESTIONS = {
  periods: async (config: Config, world: World) =>
    listPeriods(config, world, listExportedProfiles(await readJobs(config))),
  notIssued: async (config: Config) =>
    listNotIssued(dataFolderAt(config.dataDir), listExportedProfiles(await readJobs(config))),
  preview: (config: Config, world: World, profile: string, period: string) =>
    previewExport(config, {profiles: [profile], period}, world),
  trace: (config: Config, _world: World, dealId: string) => traceDeal(config, dealId, {}),
  reasons: (config: Config, _world: World, asked: ReasonsRequest) => readReasons(config, asked),
  quarantined: (config: Config, _world: World, id: string) => showQuarantined(config, id),
  diff({dataDir}: Config, _world: World, before: string, after: string) {
    const folder = dataFolderAt(dataDir)
    return diffReleases(requireRelease(folder, before), requireRelease(folder, after))
  },
  moved({dataDir}: Config, _world: World, before: string, after: string, condition?: string) {
    const folder = dataFolderAt(dataDir)
    return readMovedBetween(requireRelease(folder, before), requireRelease(folder, after), condition)
  },
}

export type Questions = typeof QUESTIONS

/** The answers to them. */
export type Answers = {[Name in keyof Questions]: Awaited<ReturnType<Questions[Name]>>}

/** A question on its way to this process. */
export interface Asked {
  id: number
  name: keyof Questions
  about: unknown[]
  config: Config
}

/** What comes back; the type of an answer is known where it was asked for. */
export type Told = {id: number; answer: never} | {id: number; failure: Failure}

const createWorld = (config: Config): World => ({
  clock: createBusinessClock(config.now),
  realClock,
  random: Math.random,
  log: createLog({level: config.logLevel ?? 'info', source: config.source}, process.stderr),
  signal: new AbortController().signal,
  plans: new Map(),
  onProgress: () => undefined,
  onStep: () => undefined,
})

async function answer({name, about, config}: Asked) {
  const question: (config: Config, world: World, ...about: never[]) => unknown = QUESTIONS[name]
  return await question(config, createWorld(config), ...(about as never[]))
}

// Whoever asked is gone.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'))
process.on('message', async (asked: Asked) => {
  const {id} = asked
  try {
    process.send?.({id, answer: await answer(asked)})
  } catch (error) {
    const {code, problem, kept, next} = explainError(error)
    process.send?.({id, failure: {code, problem, kept, next}})
  }
})
