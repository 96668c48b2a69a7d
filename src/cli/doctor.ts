import type {Command} from 'commander'
import type {Config} from '../config.ts'
import {explainError} from '../errors.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import type {Cli, CommonOptions} from './context.ts'
import {EXAMINATIONS} from './examinations.ts'

interface Finding {
  check: string
  ok: boolean
  words: string
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
    const found = await look(config, folder, world).catch((error: unknown) => [explainError(error)])
    if (typeof found === 'string') findings.push({check, ok: true, words: found})
    else findings.push(...found.map((fault) => ({check, ok: false, words: wordsOf(fault)})))
  }
  return findings
}

function wordsOf({problem, next}: {problem: string; next?: string | undefined}): string {
  return next === undefined ? problem : `${problem} ${next}`
}
