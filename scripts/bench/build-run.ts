import {readdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {buildRelease} from '../../src/build/build.ts'
import {parseConfig} from '../../src/core/config.ts'
import {createWorld} from '../../test/support/data.ts'
import {measureCost, reportCost} from './cost.ts'

/** Runs `loantape build` and reports when it reached each step. */
const config = parseConfig(process.env, {readFile: () => ''})
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

reportCost({
  built,
  steps,
  database_bytes: bytesOf('portfolio.duckdb'),
  parquet_bytes: bytesOf('.parquet'),
})
