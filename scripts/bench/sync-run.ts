import {enableCompileCache} from 'node:module'
import {type Cost, measureCost, reportCost} from './cost.ts'

// As in `bin/loantape.js`: modules imported after this line come from the compile cache.
enableCompileCache()
const [{parseConfig}, {syncDeals}, {createWorld}] = await Promise.all([
  import('../../src/core/config.ts'),
  import('../../src/pipeline.ts'),
  import('../../test/support/data.ts'),
])

/** Runs `loantape sync` and reports its cost when the walk was applied and at the end. */
let loaded: Cost | undefined
const config = parseConfig(process.env, {readFile: () => ''})
const onStep = (step: string) => {
  if (step === 'changes applied') loaded = measureCost()
}
const result = await syncDeals(config, {}, {...createWorld(), onStep})
reportCost({loaded, outcome: result.outcome, distinct: result.walk.distinct, changes: result.changes})
