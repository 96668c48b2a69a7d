import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {defineConfig, type ViteUserConfig} from 'vitest/config'
import {COMPILE_CACHE, keepTemporaryFilesInMemory} from './test/support/temporary.ts'

keepTemporaryFilesInMemory()
process.env.NODE_COMPILE_CACHE = COMPILE_CACHE

/**
 * Tests against programs from outside: sshd, LibreOffice, Schemathesis, ClickHouse's engine, Moto, Azurite, which `.ci/run` installs; and a
 * cluster of ClickHouse that Docker runs, where a statement waits up to five minutes for a node that is gone.
 */
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/{system,cluster}/*.test.ts'],
    env: {XDG_CONFIG_HOME: join(tmpdir(), 'loantape-tests')},
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 1_800_000,
    hookTimeout: 1_800_000,
  },
})
export default config
