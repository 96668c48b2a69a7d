import {enableCompileCache} from 'node:module'
import {type Cost, measureCost, reportCost} from './cost.ts'

// As `bin/loantape.js` starts: what follows is loaded from the cache.
enableCompileCache()
const [{parseConfig}, {syncDeals}, {createWorld}] = await Promise.all([
  import('../../src/core/config.ts'),
  import('../../src/pipeline.ts'),
  import('../../test/support/data.ts'),
])

/** `loantape sync`, noting what it has used when the walk is loaded and before the release is built. */
let loaded: Cost | undefined
const config = parseConfig(process.env, {readFile: () => ''})
const onStep = (step: string) => {
  if (step === 'changes applied') loaded = measureCost()
}
const result = await syncDeals(config, {}, {...createWorld(), onStep})
reportCost({loaded, outcome: result.outcome, distinct: result.walk.distinct, changes: result.changes})
