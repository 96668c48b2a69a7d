import type {Command} from 'commander'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import type {Release} from '../store/release.ts'
import type {Cli, CommonOptions} from './context.ts'

/** One call of a command. `config` and `world` are created on first use. */
export interface Invocation<Options = object> {
  cli: Cli
  command: Command
  options: CommonOptions & Options
  readonly config: Config
  /** Once it exists, signals abort the command instead of ending the process. */
  readonly world: World
}

/** The options of a command that reads a release. */
export interface ReleaseOptions {
  release?: string
  asOf?: string
}

/** The error of an option's text that has another form. */
export function refuseValue(text: string, flags: string, expected: string) {
  return newError('USAGE', `Value '${text}' in ${flags.split(' ')[0]}: expected ${expected}.`)
}

/** The words of an option that takes one or more of these, with commas. @throws ConfigError `USAGE` */
export function parseWords<Word extends string>(text: string, flags: string, known: readonly Word[]): Word[] {
  const words = text.split(',').map((word) => word.trim())
  const found = known.filter((word) => words.includes(word))
  if (words.every((word) => found.some((one) => one === word))) return found
  throw refuseValue(text, flags, `one or more of ${known.join(', ')}`)
}

/**
 * The work of a command. Its result is printed by `render`, or as JSON; nothing is printed without `render`. What it returns carries
 * it out; `isChecked` says whether the stores of the data folder are checked first.
 */
export function does<Options extends object, Args extends unknown[], T>(
  work: (call: Invocation<Options>, ...args: Args) => T | Promise<T>,
  render?: (value: T, options: Options, width: number | undefined) => string,
  exitCodeOf: (value: T) => number = () => 0,
) {
  return async (cli: Cli, command: Command, isChecked: boolean) => {
    // Loaded late, because help needs no settings.
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
    if (isChecked) {
      const {bringUpToDate} = await import('../record/record.ts')
      await bringUpToDate(call.config, call.world)
    }
    const value: T = await Reflect.apply(work, undefined, [call, ...command.processedArgs])
    cli.exitCode = exitCodeOf(value)
    if (render) cli.printResult(options, value, (result) => render(result, options, cli.width))
  }
}

/** The release asked for, by default in the options; the release of a past date is built if necessary. */
export async function requireAskedRelease(
  call: Invocation<ReleaseOptions>,
  {asOf, release}: ReleaseOptions = call.options,
): Promise<Release> {
  const {config} = call
  // Loaded late: help needs neither, and most commands read a release that exists.
  const {requireRelease} = await import('../store/release.ts')
  if (asOf === undefined) return requireRelease(dataFolderAt(config.dataDir), release)
  const {requireBuilt} = await import('../build/build.ts')
  return await requireBuilt(config, {asOf}, call.world)
}
