import {availableParallelism, tmpdir} from 'node:os'
import {join} from 'node:path'
import {defineConfig, type ViteUserConfig} from 'vitest/config'
import {BaseSequencer, type TestSpecification} from 'vitest/node'
import {COMPILE_CACHE, keepTemporaryFilesInMemory} from './test/support/temporary.ts'

/** Short files that take long, some before their first test: at the end, the other workers would wait for them. */
const LONG = /\/test\/(proof\/|build\/model-cases)/

class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({moduleId}: TestSpecification) => LONG.test(moduleId)
    const sorted = await super.sort(files)
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))]
  }
}

keepTemporaryFilesInMemory()
process.env.NODE_COMPILE_CACHE = COMPILE_CACHE
// Four threads for the engine’s queries, as by default, cost 6 % more on two cores.
process.env.UV_THREADPOOL_SIZE = '2'

const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/system/**', 'test/cluster/**'],
    // Where the key of tapes is made that no test names.
    env: {XDG_CONFIG_HOME: join(tmpdir(), 'loantape-tests')},
    pool: 'forks',
    // A seventh of the time went into loading the same modules and compiling the same models for each file; what the
    // modules keep between files are caches, by content.
    isolate: false,
    // One waits while the others compute; two more than cores get into each other’s way.
    maxWorkers: availableParallelism() + 1,
    sequence: {sequencer: LongFirst},
    // The only limit there is: what a test waits for happens, or this ends it, on the slowest machine too.
    testTimeout: 1_800_000,
    hookTimeout: 1_800_000,
  },
})
export default config
