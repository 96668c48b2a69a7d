import {listPeriods} from '../books/close-period.ts'
import {listNotIssued} from '../books/standing.ts'
import {diffReleases, readMovedBetween} from '../build/movement.ts'
import {businessDateOf, createBusinessClock, realClock} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {createLog} from '../core/log.ts'
import type {World} from '../core/types.ts'
import {previewExport} from '../outputs.ts'
import {traceDeal} from '../record/trace.ts'
import {listExportedProfiles, readJobs} from '../schedule/job.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {requireRelease} from '../store/release.ts'
import {type ReasonsRequest, readReasons, showQuarantined} from '../sync/quarantine.ts'
import {answerParent} from './helper-process.ts'

/** Answered by the functions that commands call. */
export const questions = {
  periods: async (config: Config) =>
    listPeriods(config, createWorld(config), listExportedProfiles(readJobs(config))),
  /** Only months that are over, or whose entries are not known. */
  async notIssued(config: Config) {
    const month = businessDateOf(createWorld(config).clock.now(), config).slice(0, 7)
    const found = await listNotIssued(config, listExportedProfiles(readJobs(config)))
    return found.filter(({period, entries}) => period < month || entries === null)
  },
  preview: (config: Config, profile: string, period: string) =>
    previewExport(config, {profiles: [profile], period}, createWorld(config)),
  trace: (config: Config, dealId: string) => traceDeal(config, dealId, {}, createWorld(config)),
  reasons: (config: Config, asked: ReasonsRequest) => readReasons(config, asked, createWorld(config)),
  quarantined: (config: Config, id: string) => showQuarantined(config, id, createWorld(config)),
  diff({dataDir}: Config, before: string, after: string) {
    const folder = dataFolderAt(dataDir)
    return diffReleases(requireRelease(folder, before), requireRelease(folder, after))
  },
  moved({dataDir}: Config, before: string, after: string, asked: Parameters<typeof readMovedBetween>[2]) {
    const folder = dataFolderAt(dataDir)
    return readMovedBetween(requireRelease(folder, before), requireRelease(folder, after), asked)
  },
}

const createWorld = (config: Config): World => ({
  clock: createBusinessClock(config.now),
  realClock,
  random: Math.random,
  log: createLog({level: config.logLevel ?? 'info', source: config.source}, process.stderr),
  signal: new AbortController().signal,
  onProgress: () => undefined,
  onStep: () => undefined,
})

answerParent(questions)
