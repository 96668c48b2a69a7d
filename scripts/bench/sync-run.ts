import {realClock} from '../../src/clock.ts'
import {parseConfig} from '../../src/config.ts'
import {createSilentLog} from '../../src/log.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {type Cost, measureCost, reportCost} from './cost.ts'

/** `loantape sync`, noting what it has used when the walk is loaded and before the release is built. */
let loaded: Cost | undefined
const config = parseConfig(process.env, {readFile: () => ''})
const result = await syncDeals(
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
      if (step === 'changes applied') loaded = measureCost()
    },
  },
)
reportCost({loaded, outcome: result.outcome, distinct: result.walk.distinct, changes: result.changes})
