/**
 * A separate process that runs the given command lines, separated by `then`. It prints each step it reaches and when, and kills
 * itself the `KILL_NTH` time it reaches `KILL_STEP`. `SELECT` names the tables of its releases; with `MENDED`, it can read
 * unreadable amounts; `FIXED` overrides constants.
 */
import {writeSync} from 'node:fs'
import {createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import {dealStream} from '../../src/contract/deal.ts'
import {readFieldAs} from '../support/schema.ts'
import {READABLE, UNREADABLE} from './world/source.ts'

const {KILL_STEP, KILL_NTH = '1', FIXED = '{}', SELECT, MENDED} = process.env
if (MENDED) readFieldAs(dealStream, 'loan_amount', UNREADABLE, READABLE)
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
for (const line of process.argv.slice(2).join('\n').split('\nthen\n')) {
  process.exitCode = await runProgram(cli, line.split('\n'))
  if (process.exitCode !== 0) break
  onStep(`${line.replaceAll('\n', ' ')} done`)
}
