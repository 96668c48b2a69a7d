/** A process of its own that exports the journal of February to Xero, and kills itself at the point `KILL_STEP`. */
import {createCli} from '../../src/cli/context.ts'
import {exportRelease} from '../../src/pipeline.ts'

const cli = createCli({
  env: {...process.env, KILL_STEP: undefined},
  stdout: process.stdout,
  stderr: process.stderr,
  onStop: () => undefined,
})
const config = cli.readConfig({})
const world = {
  ...cli.createWorld(config),
  onStep: (step: string) => {
    if (step === process.env.KILL_STEP) process.kill(process.pid, 'SIGKILL')
  },
}
await exportRelease(config, {profiles: ['xero'], period: '2026-02'}, world)
