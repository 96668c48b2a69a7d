import type {Command} from 'commander'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt, requireStores} from '../store/data-folder.ts'
import type {Release} from '../store/release.ts'
import type {Cli, CommonOptions} from './context.ts'
import type {Text} from './table.ts'

/** `config` and `world` are created on first use. */
export interface Invocation<Options = object> {
  cli: Cli
  command: Command
  options: CommonOptions & Options
  readonly config: Config
  /** From its creation on, signals abort the command instead of ending the process. */
  readonly world: World
}

export interface ReleaseOptions {
  release?: string
  asOf?: string
}

export function refuseValue(text: string, flags: string, expected: string) {
  return newError('USAGE', `Value '${text}' in ${flags.split(' ')[0]}: expected ${expected}.`)
}

/** One or more words, separated by commas. @throws ConfigError `USAGE` */
export function parseWords<Word extends string>(text: string, flags: string, known: readonly Word[]): Word[] {
  const words = text.split(',').map((word) => word.trim())
  const found = known.filter((word) => words.includes(word))
  if (words.every((word) => found.some((one) => one === word))) return found
  throw refuseValue(text, flags, `one or more of ${known.join(', ')}`)
}

/** Prints the result with `render`, or as JSON; without `render` nothing is printed. */
export function does<Options extends object, Args extends unknown[], T>(
  work: (call: Invocation<Options>, ...args: Args) => T | Promise<T>,
  render?: (value: T, options: Options) => Text,
  exitCodeOf: (value: T) => number = () => 0,
) {
  return async (
    cli: Cli,
    command: Command,
    {examines, needs = !examines}: {examines?: boolean; needs?: boolean},
  ) => {
    // Loaded late, since help needs no settings.
    const {readConfig} = await import('./read-config.ts')
    const options = command.optsWithGlobals<CommonOptions & Options>()
    let [config, world]: [Config?, World?] = []
    const call = {
      cli,
      command,
      options,
      get config() {
        config ??= readConfig(cli, options)
        return config
      },
      get world() {
        world ??= {...cli.createWorld(call.config), who: options.who}
        return world
      },
    }
    if (needs) requireStores(dataFolderAt(call.config.dataDir))
    if (!examines) {
      const {bringUpToDate} = await import('../record/bring-up-to-date.ts')
      await bringUpToDate(call.config, call.world)
    }
    const value: T = await Reflect.apply(work, undefined, [call, ...command.processedArgs])
    cli.exitCode = exitCodeOf(value)
    if (render) cli.printResult(options, value, (result) => render(result, options))
  }
}

/** Builds the release of a past date if it does not exist. */
export async function requireAskedRelease(
  call: Invocation<ReleaseOptions>,
  {asOf, release}: ReleaseOptions = call.options,
): Promise<Release> {
  const {config} = call
  // Loaded late: help needs neither, and most commands read an existing release.
  const {requireRelease} = await import('../store/release.ts')
  if (asOf === undefined) return requireRelease(dataFolderAt(config.dataDir), release)
  const {requireBuilt} = await import('../build/build.ts')
  return await requireBuilt(config, {asOf}, call.world)
}
