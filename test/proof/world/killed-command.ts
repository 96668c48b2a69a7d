/**
 * A separate process that runs a command line, prints each step it reaches and when, and kills itself the `KILL_NTH` time it
 * reaches `KILL_STEP`. Its releases hold `SELECT`; with `MENDED`, unreadable amounts can be read.
 */
import {writeSync} from 'node:fs'
import {createCli} from '../../../src/cli/context.ts'
import {runProgram} from '../../../src/cli/program.ts'
import {dealStream} from '../../../src/contract/deal.ts'
import {readFieldAs} from '../../support/schema.ts'
import {READABLE, UNREADABLE} from './source.ts'

const {KILL_STEP, KILL_NTH = '1', FIXED = '{}', SELECT, MENDED} = process.env
if (MENDED) readFieldAs(dealStream, 'loan_amount', UNREADABLE, READABLE)
const cli = createCli({
  env: process.env,
  fixed: JSON.parse(FIXED),
  stdout: {write: () => true},
  stderr: process.stderr,
  onStop: () => undefined,
})
const {createWorld} = cli
let left = Number(KILL_NTH)

Object.assign(cli, {
  createWorld: (config: Parameters<typeof createWorld>[0]) => ({
    ...createWorld(config),
    ...(SELECT !== undefined && {select: SELECT}),
    onStep(step: string) {
      writeSync(1, `reached ${performance.timeOrigin + performance.now()} ${step}\n`)
      if (step !== KILL_STEP) return
      left -= 1
      if (left === 0) process.kill(process.pid, 'SIGKILL')
    },
  }),
})
process.exitCode = await runProgram(cli, process.argv.slice(2))
