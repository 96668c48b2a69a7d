import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {defineConfig, type ViteUserConfig} from 'vitest/config'

/** A test against a cluster of ClickHouse that Docker runs: neither `npm test` nor `.ci/run` has it. */
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/cluster/*.test.ts'],
    env: {XDG_CONFIG_HOME: join(tmpdir(), 'loantape-tests')},
    pool: 'forks',
    maxWorkers: 1,
    // A statement waits up to five minutes for a node that is gone.
    testTimeout: 1_800_000,
    hookTimeout: 900_000,
  },
})
export default config
