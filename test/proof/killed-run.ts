/**
 * A separate process that runs the command line it is given, or else syncs and exports. It prints each step it reaches and when,
 * and kills itself the `KILL_NTH` time it reaches `KILL_STEP`. Its releases hold `SELECT`; with `MENDED`, unreadable amounts can
 * be read; `FIXED` are constants other than the usual ones.
 */
import {writeSync} from 'node:fs'
import {createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import {readConfig} from '../../src/cli/read-config.ts'
import {dealStream} from '../../src/contract/deal.ts'
import {exportRelease} from '../../src/outputs.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {readFieldAs} from '../support/schema.ts'
import {READABLE, UNREADABLE} from './world/source.ts'

const {KILL_STEP, KILL_NTH = '1', FIXED = '{}', SELECT, MENDED} = process.env
if (MENDED) readFieldAs(dealStream, 'loan_amount', UNREADABLE, READABLE)
const args = process.argv.slice(2)
let left = Number(KILL_NTH)

function onStep(step: string): void {
  writeSync(1, `reached ${performance.timeOrigin + performance.now()} ${step}\n`)
  if (step !== KILL_STEP) return
  left -= 1
  if (left === 0) process.kill(process.pid, 'SIGKILL')
}

const cli = createCli({
  env: process.env,
  fixed: JSON.parse(FIXED),
  stdout: {write: () => true},
  stderr: process.stderr,
  onStop: () => undefined,
})
const {createWorld} = cli
cli.createWorld = (config) => ({
  ...createWorld(config),
  ...(SELECT !== undefined && {select: SELECT}),
  onStep,
})
if (args.length > 0) process.exitCode = await runProgram(cli, args)
else {
  const config = readConfig(cli, {})
  const world = cli.createWorld(config)
  await syncDeals(config, {}, world)
  for (const profile of ['csv', 'parquet']) {
    await exportRelease(config, {profiles: [profile]}, world)
    onStep(`${profile} exported`)
  }
}
