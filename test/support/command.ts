import {type Cli, createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import {realClock} from '../../src/core/clock.ts'
import type {Fixed} from '../../src/core/settings.ts'
import {createWorld} from './data.ts'
import type {Ended} from './lab.ts'
import {findFreePort} from './port.ts'
import {COMPILE_CACHE} from './temporary.ts'
import {until} from './until.ts'

/** How a command run in this process differs from one run by `main.ts`. */
interface CommandOptions {
  width?: number | undefined
  /** The tables of releases; all by default. */
  select?: string
  /** The text of `.env` in the working folder; none by default. */
  envFile?: string
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

/** Runs a server in this process until it is told to stop. `pass` puts its clock ahead, so that it does at once what it does at times. */
export async function serveHere(args: readonly string[], env: Record<string, string>, envFile?: string) {
  const stopping = new AbortController()
  let aheadMs = 0
  const clock = {
    now: () => realClock.now() + aheadMs,
    sleep: (ms: number, signal: AbortSignal) => realClock.sleep(Math.min(ms, 100), signal),
  }
  const world = {...createWorld(), realClock: clock, signal: stopping.signal}
  const port = String(await findFreePort())
  const given = {...env, LOANTAPE_WEB_PORT: port, NODE_COMPILE_CACHE: COMPILE_CACHE}
  const ended = runCommand(args, given, {createWorld: () => world, ...(envFile && {envFile})})
  const url = `http://127.0.0.1:${port}`
  const early = ended.then(({stderr}) => Promise.reject(new Error(stderr)))
  await Promise.race([early, until(() => fetch(`${url}/healthz`).catch(() => undefined))])
  return {
    url,
    pass(ms: number) {
      aheadMs += ms
    },
    async [Symbol.asyncDispose]() {
      stopping.abort()
      await early.catch(() => undefined)
    },
  }
}
