/**
 * A separate process that syncs and exports, and kills itself the `KILL_NTH` time it reaches `KILL_STEP`.
 * Its release holds `KILL_TABLES`. It prints `ready` when only the run is left to do.
 */
import {createCli} from '../../src/cli/context.ts'
import {readConfig} from '../../src/cli/read-config.ts'
import type {World} from '../../src/core/types.ts'
import {exportRelease} from '../../src/export.ts'
import {syncDeals} from '../../src/pipeline.ts'

const {KILL_STEP, KILL_NTH = '1', KILL_TABLES} = process.env
const cli = createCli({
  env: process.env,
  stdout: process.stdout,
  stderr: process.stderr,
  onStop: () => undefined,
})
const config = readConfig(cli, {})
let left = Number(KILL_NTH)

function reach(step: string): void {
  if (step !== KILL_STEP) return
  left -= 1
  if (left === 0) process.kill(process.pid, 'SIGKILL')
}

const world: World = {
  ...cli.createWorld(config),
  ...(KILL_TABLES !== undefined && {select: KILL_TABLES}),
  onStep: reach,
}
process.stdout.write('ready\n')
await syncDeals(config, {}, world)
for (const profile of ['csv', 'parquet']) {
  await exportRelease(config, {profiles: [profile]}, world)
  reach(`${profile} exported`)
}
