import {type Cli, createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import type {Fixed} from '../../src/core/settings.ts'
import {COMPILED} from './data.ts'
import type {Ended} from './lab.ts'

/**
 * Runs one command line to its end as `main.ts` does, but in this process; with no settings besides `env`.
 *
 * @param width columns of the terminal on stdout
 * @param select the tables of releases: all by default
 * @param fixed constants other than the usual ones
 * @param envFile settings of the working folder; none by default
 */
export async function runCommand(
  args: readonly string[],
  env: Record<string, string>,
  {
    width,
    select,
    envFile,
    fixed = {},
  }: {width?: number | undefined; select?: string; envFile?: string; fixed?: Partial<Fixed>} = {},
): Promise<Ended> {
  const printed = {stdout: '', stderr: ''}
  const collect = (name: keyof typeof printed) => ({
    write(text: string) {
      printed[name] += text
    },
  })
  const cli: Cli = createCli({
    env: {XDG_CONFIG_HOME: process.env.XDG_CONFIG_HOME, ...env},
    fixed,
    ...(envFile !== undefined && {envFile}),
    stdout: {...collect('stdout'), ...(width !== undefined && {columns: width})},
    stderr: collect('stderr'),
    onStop: () => undefined,
  })
  const {createWorld} = cli
  cli.createWorld = (config) => ({
    ...createWorld(config),
    plans: COMPILED,
    ...(select !== undefined && {select}),
  })
  return {code: await runProgram(cli, args), signal: null, ...printed}
}
