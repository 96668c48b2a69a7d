import {expect, test} from 'vitest'
import {createCli} from '../../src/cli/context.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {createLab, failureOf, someDeals} from '../support/lab.ts'

const quiet = {write: () => true}

test.each(['details stored', 'checks passed'] as const)(
  'a run asked to stop ends after: %s, and the next one finishes it',
  async (step) => {
    await using lab = await createLab()
    lab.service.store.insert(someDeals(3))
    let stop: (signal: string) => void = () => undefined
    const cli = createCli({
      env: {LOANTAPE_LOG_LEVEL: 'silent'},
      stdout: quiet,
      stderr: quiet,
      onStop: (stopper) => {
        stop = stopper
      },
    })
    const world = cli.createWorld({...lab.config, logLevel: 'silent'})
    const stopping = {
      ...world,
      onStep: (reached: Parameters<typeof world.onStep>[0]) => {
        if (reached === step) stop('SIGTERM')
        world.onStep(reached)
      },
    }
    const failure = await failureOf(syncDeals(lab.config, {}, stopping))
    expect(failure).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
    expect(lab.currentReleaseId()).toBeUndefined()
    expect(await lab.sync(new Date().toISOString())).toMatchObject({outcome: 'released'})
  },
)
