import {Command, Option} from 'commander'
import {isCalendarDate} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {Claim} from '../schedule/run-job.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import type {Release} from '../store/release.ts'
import type {Cli, CommonOptions} from './context.ts'

/** One call of a command. `config` and `world` are created on first use. */
export interface Invocation<Options = object> {
  cli: Cli
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

/** A command of loantape. */
export class CliCommand extends Command {
  readonly #cli: Cli
  #isChecked = true

  constructor(cli: Cli, name?: string) {
    super(name)
    this.#cli = cli
  }

  override createCommand(name?: string): CliCommand {
    return new CliCommand(this.#cli, name)
  }

  /** Adds an example to the help. */
  example(call: string): this {
    return this.addHelpText('after', `\nExample:\n  loantape ${call}`)
  }

  /** Adds an option that takes a date. */
  dateOption(flags: string, description: string): this {
    const parse = (text: string) => (isCalendarDate(text) ? text : undefined)
    return this.addOption(parsedOption(flags, description, {parse, expected: 'a calendar date YYYY-MM-DD'}))
  }

  /** Adds an option that takes a whole number from 0 to `most`. */
  countOption(flags: string, description: string, most: number, fallback: number): this {
    const parse = (text: string) => (/^\d+$/.test(text) && Number(text) <= most ? Number(text) : undefined)
    const option = parsedOption(flags, description, {parse, expected: `a whole number from 0 to ${most}`})
    return this.addOption(option.default(fallback))
  }

  /** Adds an option that takes a number of hours, such as `26h`. */
  hoursOption(flags: string, description: string, fallback?: number): this {
    const parse = (text: string) => (/^\d+(\.\d+)?h?$/.test(text) ? Number.parseFloat(text) : undefined)
    const option = parsedOption(flags, description, {parse, expected: 'hours, such as 26h'})
    return this.addOption(fallback === undefined ? option : option.default(fallback, `${fallback}h`))
  }

  /** Adds {@link ReleaseOptions}. */
  releaseOptions(): this {
    const release = new Option('--release <id>', 'of this release; the current one by default')
    return this.addOption(release.conflicts('asOf')).dateOption(
      '--as-of <date>',
      'of the portfolio as of this business date, YYYY-MM-DD',
    )
  }

  /** Adds the option that names the scheduled run of this process. */
  claimOption(): this {
    const parse = (text: string): Claim | undefined => {
      const [, jobRunId, attempt] = /^(\d+)\.(\d+)$/.exec(text) ?? []
      return jobRunId === undefined ? undefined : {jobRunId: Number(jobRunId), attempt: Number(attempt)}
    }
    const form = {parse, expected: '<run>.<attempt>, as the scheduler passes it'}
    return this.addOption(parsedOption('--claim <run.attempt>', 'given by the scheduler', form).hideHelp())
  }

  /** Skips the check of the data folder's stores: the command examines them itself, or reads none. */
  examines(): this {
    this.#isChecked = false
    return this
  }

  /**
   * Sets the work of the command. Its result is printed by `render`, or as JSON; nothing is printed without `render`.
   *
   * @param exitCodeOf the exit code of a result; 0 by default
   */
  does<Options extends object, Args extends unknown[], T>(
    work: (call: Invocation<Options>, ...args: Args) => T | Promise<T>,
    render?: (value: T, options: Options, width: number | undefined) => string,
    exitCodeOf: (value: T) => number = () => 0,
  ): this {
    const cli = this.#cli
    return this.action(async (...args: Args) => {
      // Loaded late, because help needs no settings.
      const {readConfig} = await import('./read-config.ts')
      const options = this.optsWithGlobals<CommonOptions & Options>()
      let [config, world]: [Config?, World?] = []
      const call = {
        cli,
        options,
        get config() {
          config ??= readConfig(cli, options)
          return config
        },
        get world() {
          world ??= cli.createWorld(call.config)
          return world
        },
      }
      if (this.#isChecked) {
        const {bringUpToDate} = await import('../record/record.ts')
        await bringUpToDate(call.config, call.world)
      }
      const value = await work(call, ...args)
      cli.exitCode = exitCodeOf(value)
      if (render) cli.printResult(options, value, (result) => render(result, options, cli.width))
    })
  }
}

/** An option with a form of its own; `parse` returns undefined for a text of another form. */
export function parsedOption<T>(
  flags: string,
  description: string,
  {parse, expected}: {parse: (text: string, before?: T) => T | undefined; expected: string},
): Option {
  const [name] = flags.split(' ')
  return new Option(flags, description).argParser((text: string, before?: T) => {
    const parsed = parse(text, before)
    if (parsed !== undefined) return parsed
    throw newError('USAGE', `Value '${text}' in ${name}: expected ${expected}.`)
  })
}

/** The release of {@link ReleaseOptions}; the release of a past date is built if necessary. */
export async function requireAskedRelease(call: Invocation<ReleaseOptions>): Promise<Release> {
  const {config, options} = call
  const {asOf, release} = options
  // Loaded late: help needs neither, and most commands read a release that exists.
  const {requireRelease} = await import('../store/release.ts')
  if (asOf === undefined) return requireRelease(dataFolderAt(config.dataDir), release)
  const {requireBuilt} = await import('../build/build.ts')
  return await requireBuilt(config, {asOf}, call.world)
}
