import {existsSync} from 'node:fs'
import {statfs} from 'node:fs/promises'
import {join} from 'node:path'
import type {Command} from 'commander'
import {type Config, requireSource} from '../config.ts'
import {dealStream} from '../contract/deal.ts'
import {explainError, LoantapeError, UnexpectedError} from '../errors.ts'
import {compileModels} from '../model/compile-models.ts'
import {readSources} from '../pipeline/build.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {readJobs} from '../schedule/job.ts'
import {createClient} from '../source/client.ts'
import type {World} from '../types.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/warehouse.ts'
import type {Cli, CommonOptions} from './context.ts'

interface Finding {
  check: string
  ok: boolean
  words: string
}

/** One thing to look at: resolves with what was found, or throws. */
type Examination = (config: Config, folder: DataFolder, world: World) => Promise<string>

const EXAMINATIONS: Record<string, Examination> = {
  'data folder': async (_config, folder) => {
    requireWritable(folder)
    const {bavail, bsize} = await statfs(folder.root)
    return `${folder.root}, ${Math.round((bavail * bsize) / 1e9)} GB free`
  },
  models: async (config) => {
    const sources = readSources(config)
    await compileModels(sources)
    return `${sources.models.length} models, ${sources.checks.length} checks and ${sources.seeds.length} seeds compile`
  },
  jobs: async (config) => `${(await readJobs(config)).map(({name}) => name).join(', ')}`,
  source: async (config, _folder, world) => {
    const source = requireSource(config)
    await using client = createClient({...source, retries: 0}, world)
    const answer = await client.getJson(dealStream.listPath, {limit: 1})
    if (answer.status === 200) return `${source.baseUrl} answers and takes the key`
    throw new UnexpectedError({
      code: 'DOCTOR_SOURCE',
      problem: `Status ${answer.status} from GET ${dealStream.listPath}: expected 200.`,
      next: 'Check LOANTAPE_BASE_URL.',
    })
  },
  history: async (_config, folder) => {
    if (!existsSync(folder.history)) return 'none yet'
    await using _db = await openHistory(folder)
    return 'opens'
  },
  release: async (_config, folder) => {
    const release = findCurrentRelease(folder)
    if (!release) return 'none yet'
    for (const {file, sha256} of release.manifest.tables) {
      if ((await digestFile(join(release.dir, file))) === sha256) continue
      throw new UnexpectedError({
        code: 'DOCTOR_RELEASE',
        problem: `File '${file}' of release ${release.manifest.release_id}: its sha256 is not the manifest's.`,
        next: 'Remove the release folder and run `loantape build`.',
      })
    }
    return `${release.manifest.release_id}: ${release.manifest.tables.length} files match the manifest`
  },
}

/** `loantape doctor`. */
export function addDoctor(program: Command, cli: Cli): void {
  program
    .command('doctor')
    .description(
      'check configuration, source, data folder, models and release; exit 1 when something is wrong',
    )
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const config = cli.readConfig(options)
      const findings = await examine(config, cli.createWorld(config))
      cli.printResult(options, {healthy: findings.every(({ok}) => ok), findings}, (result) =>
        result.findings.map(({check, ok, words}) => `${ok ? '✓' : '✗'} ${check}: ${words}`).join('\n'),
      )
      if (findings.some(({ok}) => !ok)) cli.exitCode = 1
    })
}

async function examine(config: Config, world: World): Promise<Finding[]> {
  const folder = dataFolderAt(config.dataDir)
  const findings: Finding[] = []
  for (const [check, look] of Object.entries(EXAMINATIONS)) {
    try {
      findings.push({check, ok: true, words: await look(config, folder, world)})
    } catch (error) {
      const {problem, next} = error instanceof LoantapeError ? error : explainError(error)
      findings.push({check, ok: false, words: [problem, next].filter(Boolean).join(' ')})
    }
  }
  return findings
}
