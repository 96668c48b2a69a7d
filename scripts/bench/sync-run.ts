import {enableCompileCache} from 'node:module'
import {type Cost, measureCost, reportCost} from './cost.ts'

// As `bin/loantape.js` starts: what follows is loaded from the cache.
enableCompileCache()
const [{realClock}, {parseConfig}, {createSilentLog}, {syncDeals}] = await Promise.all([
  import('../../src/core/clock.ts'),
  import('../../src/core/config.ts'),
  import('../../src/core/log.ts'),
  import('../../src/pipeline.ts'),
])

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
