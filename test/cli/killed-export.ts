/** A process that exports February to Xero and kills itself at `KILL_STEP`; it builds `SELECT`. */

import {createCli} from '../../src/cli/context.ts'
import {readConfig} from '../../src/cli/read-config.ts'
import {exportRelease} from '../../src/outputs.ts'

const cli = createCli({
  env: process.env,
  stdout: process.stdout,
  stderr: process.stderr,
  onStop: () => undefined,
})
const {KILL_STEP, SELECT} = process.env
const config = readConfig(cli, {})
const world = {
  ...cli.createWorld(config),
  ...(SELECT !== undefined && {select: SELECT}),
  onStep: (step: string) => {
    if (step === KILL_STEP) process.kill(process.pid, 'SIGKILL')
  },
}
await exportRelease(config, {profiles: ['xero'], period: '2026-02'}, world)
