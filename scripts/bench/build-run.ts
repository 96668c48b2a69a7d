import {readdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {buildRelease} from '../../src/build/build.ts'
import {readSources} from '../../src/build/sources.ts'
import {realClock} from '../../src/core/clock.ts'
import {parseConfig} from '../../src/core/config.ts'
import {createSilentLog} from '../../src/core/log.ts'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {openRelease, requireRelease} from '../../src/store/release.ts'
import {measureCost, reportCost} from './cost.ts'

/** `loantape build`, noting when each part of it was done; then the query of the summary. */
const config = parseConfig(process.env, {readFile: () => ''})
const folder = dataFolderAt(config.dataDir)
const steps: Record<string, number> = {begun: performance.now()}
const result = await buildRelease(
  config,
  {},
  {
    clock: realClock,
    realClock,
    random: Math.random,
    log: createSilentLog(),
    signal: new AbortController().signal,
    plans: new Map(),
    onProgress: () => undefined,
    onStep: (step) => {
      steps[step] = performance.now()
    },
  },
)
steps.ended = performance.now()
const built = measureCost()

const files = readdirSync(result.dir).map((name) => ({name, bytes: statSync(join(result.dir, name)).size}))
const bytesOf = (suffix: string) =>
  files.filter(({name}) => name.endsWith(suffix)).reduce((sum, {bytes}) => sum + bytes, 0)

/** The middle of several runs, the first of which warms up. */
async function timeQuery(sql: string): Promise<number> {
  await using db = await openRelease(requireRelease(folder))
  const times: number[] = []
  for (let run = 0; run < 8; run += 1) {
    const startedAt = performance.now()
    await db.all(z.unknown(), sql)
    if (run > 0) times.push(performance.now() - startedAt)
  }
  return times.sort((a, b) => a - b)[3] ?? 0
}

const summary = readSources(config, []).models.find(({name}) => name === 'mart.portfolio_summary')
reportCost({
  built,
  steps,
  slowest: result.models.toSorted((a, b) => b.duration_ms - a.duration_ms).slice(0, 4),
  database_bytes: bytesOf('portfolio.duckdb'),
  parquet_bytes: bytesOf('.parquet'),
  summary_ms: await timeQuery(summary?.sql ?? ''),
})
