/**
 * Runs the tests of changed files: `npm run test:related -- src/sync/guard.ts sql/core/deal.sql`. Without arguments it takes the
 * files changed since the last commit. A module's tests are those that import it, directly or through other modules of `src/`,
 * those named after it, and those that run a command of it. A model's or seed's tests are those that name a table built from it,
 * and the model cases; a check's are the tests of checks; a query's are those of the modules that name it.
 */
import {execFileSync, spawnSync} from 'node:child_process'
import {globSync, readFileSync} from 'node:fs'
import {basename, dirname, join, normalize, parse} from 'node:path'
import {z} from 'zod'

const root = join(import.meta.dirname, '..')
const git = (...args: string[]) => execFileSync('git', args, {cwd: root, encoding: 'utf8'}).split('\n')
const read = (path: string) => readFileSync(join(root, path), 'utf8')
const tests = globSync('test/**/*.test.ts', {cwd: root}).filter(
  (path) => !/^test\/(system|cluster)\//.test(path),
)

const lists = z.array(z.tuple([z.string(), z.array(z.string())]))
const {reads} = z.object({reads: lists}).parse(JSON.parse(read('sql/plan.json')))

/** Returns the tables built from this one, directly or indirectly, and itself. */
function listBuiltFrom(table: string, found: Set<string> = new Set([table])): Set<string> {
  for (const [reader, from] of reads) {
    if (!from.includes(table) || found.has(reader)) continue
    found.add(reader)
    listBuiltFrom(reader, found)
  }
  return found
}

/** The module whose tests try the migrations of a folder. */
const MIGRATED: Record<string, string> = {
  migrations: 'src/record/verify.ts',
  state: 'src/store/state-db.ts',
  service: 'src/service/service-database.ts',
}

function listTestsOfSql(path: string): string[] {
  const [folder = '', name = ''] = [basename(dirname(path)), basename(path).replace(/\.\w+$/, '')]
  if (folder === 'checks') return tests.filter((test) => test.startsWith('test/build/checks'))
  const migrated = MIGRATED[folder]
  if (migrated) return [...listTestsOfModule(migrated), 'test/package/earlier-folder.test.ts']
  if (folder === 'queries') {
    const asking = [...imports.keys()].filter((module) => read(module).includes(`'${name}'`))
    return asking.flatMap(listTestsOfModule)
  }
  const tables = [...listBuiltFrom(`${folder === 'seeds' ? 'seed' : folder}.${name}`)]
  const named = new RegExp(`\\b(${tables.join('|').replaceAll('.', '\\.')})\\b`)
  return tests.filter((test) => test === 'test/build/model-cases.test.ts' || named.test(read(test)))
}

/** The relative imports of each module of `src/` and of each test; dynamic imports are left out. */
const imports = new Map(
  [...globSync('src/**/*.ts', {cwd: root}), ...tests].map((path) => [
    path,
    [...read(path).matchAll(/^(?:import|export) [^'"]*?from '(\.[^']+)'/gms)].map(([, to = '']) =>
      normalize(join(dirname(path), to)),
    ),
  ]),
)

function listTestsOfModule(path: string): string[] {
  const reached = new Set([path])
  for (let size = 0; size < reached.size; ) {
    size = reached.size
    for (const [from, to] of imports) if (to.some((module) => reached.has(module))) reached.add(from)
  }
  const name = basename(path, '.ts')
  const commands = /^src\/cli\/\w+\.ts$/.test(path) ? listCommands(path) : []
  return tests.filter(
    (test) =>
      reached.has(test) ||
      basename(test).startsWith(`${name}.`) ||
      commands.some((command) => read(test).includes(`['${command}'`)),
  )
}

/** The first words of a file's commands, which tests run as `lab.run(['period', 'close', …])`. */
const listCommands = (path: string) =>
  [...read(path).matchAll(/^ {2}'?([a-z][\w-]*)[^:\n]*: does\(/gm)].map(([, command = '']) => command)

/** Tests of what is no module. */
const OF_FOLDER: [folder: string, tests: string[]][] = [
  ['pages/', ['test/web/odd-data.test.ts', 'test/web/own-pages.test.ts', 'test/web/workbench.test.ts']],
  ['test/models/', ['test/build/model-cases.test.ts']],
  ['templates/', ['test/cli/init.test.ts']],
  ['jobs/', ['test/schedule/job.test.ts', 'test/schedule/run-job.test.ts']],
  ['deploy/', ['test/deploy/files.test.ts']],
  ['docs/', tests.filter((test) => /^test\/(docs|structure)\//.test(test))],
]

const given = process.argv.slice(2)
const changed =
  given.length > 0
    ? given
    : [...git('diff', '--name-only', 'HEAD'), ...git('ls-files', '-o', '--exclude-standard')]
const related = changed.flatMap((path) => {
  if (path.startsWith('sql/')) return listTestsOfSql(path)
  const [, ofFolder] = OF_FOLDER.find(([folder]) => path.startsWith(folder)) ?? []
  if (ofFolder)
    return [...ofFolder, ...tests.filter((test) => test === `test/web/${parse(path).name}.test.ts`)]
  return /\.(ts|json)$/.test(path) ? listTestsOfModule(path) : []
})
const files = [...new Set(related)].sort()
process.stdout.write(
  `${files.length} of ${tests.length} test files belong to ${changed.filter(Boolean).join(', ')}${files.length === 0 ? ': `npm test` runs all' : ''}.\n`,
)
if (files.length > 0) {
  const {status} = spawnSync('vitest', ['run', ...files], {cwd: root, stdio: 'inherit'})
  process.exitCode = status ?? 1
}
