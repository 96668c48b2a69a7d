import type {Config} from '../config.ts'
import {explainError} from '../errors.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import type {CliCommand} from './command.ts'
import {EXAMINATIONS} from './examinations.ts'

interface Finding {
  check: string
  ok: boolean
  words: string
}

/** `loantape doctor`. */
export function addDoctor(program: CliCommand): void {
  program
    .command('doctor')
    .description(
      'check configuration, source, data folder, models and release; exit 1 when something is wrong',
    )
    .does(
      async ({cli, config, world}) => {
        const findings = await examine(config, world)
        const healthy = findings.every(({ok}) => ok)
        if (!healthy) cli.exitCode = 1
        return {healthy, findings}
      },
      ({findings}) => findings.map(({check, ok, words}) => `${ok ? '✓' : '✗'} ${check}: ${words}`).join('\n'),
    )
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
