import {type Cli, createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import type {Fixed} from '../../src/core/settings.ts'
import type {Ended} from './lab.ts'

/** How a command run in this process differs from one run by `main.ts`. */
interface CommandOptions {
  /** Columns of the terminal on stdout. */
  width?: number | undefined
  /** The tables of releases; all by default. */
  select?: string
  /** The text of `.env` in the working folder; none by default. */
  envFile?: string
  /** Constants to override. */
  fixed?: Partial<Fixed>
  createWorld?: Cli['createWorld']
}

/** Runs one command line to its end as `main.ts` does, but in this process and with no settings besides `env`. */
export async function runCommand(
  args: readonly string[],
  env: Record<string, string>,
  {width, select, envFile, fixed = {}, createWorld}: CommandOptions = {},
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
  const createUsual = cli.createWorld
  cli.createWorld =
    createWorld ?? ((config) => ({...createUsual(config), ...(select !== undefined && {select})}))
  return {code: await runProgram(cli, args), signal: null, ...printed}
}
