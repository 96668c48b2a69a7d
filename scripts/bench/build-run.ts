import {readdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {buildRelease} from '../../src/build/build.ts'
import {readSources} from '../../src/build/sources.ts'
import {parseConfig} from '../../src/core/config.ts'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {openRelease, requireRelease} from '../../src/store/release.ts'
import {createWorld} from '../../test/support/data.ts'
import {measureCost, reportCost} from './cost.ts'
import {middleOf} from './set-up.ts'

/** `loantape build`, noting when each part of it was done; then the query of the summary. */
const config = parseConfig(process.env, {readFile: () => ''})
const folder = dataFolderAt(config.dataDir)
const steps: Record<string, number> = {begun: performance.now()}
const onStep = (step: string) => {
  steps[step] = performance.now()
}
const result = await buildRelease(config, {}, {...createWorld(), onStep})
steps.ended = performance.now()
const built = measureCost()

const files = readdirSync(result.dir).map((name) => ({name, bytes: statSync(join(result.dir, name)).size}))
const bytesOf = (suffix: string) =>
  files.filter(({name}) => name.endsWith(suffix)).reduce((sum, {bytes}) => sum + bytes, 0)

const summary = readSources(config, []).models.find(({name}) => name === 'mart.portfolio_summary')
await using db = await openRelease(requireRelease(folder))
const summary_ms = await middleOf(7, () => db.all(z.unknown(), summary?.sql ?? ''), 1)
reportCost({
  built,
  steps,
  slowest: result.models.toSorted((a, b) => b.duration_ms - a.duration_ms).slice(0, 4),
  database_bytes: bytesOf('portfolio.duckdb'),
  parquet_bytes: bytesOf('.parquet'),
  summary_ms,
})
