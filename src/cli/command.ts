import {Command} from 'commander'
import type {Config} from '../core/config.ts'
import type {World} from '../core/types.ts'
import type {Cli, CommonOptions} from './context.ts'

/** One call of a command. `config` and `world` are created on first use. */
export interface Invocation<Options = object> {
  cli: Cli
  options: CommonOptions & Options
  readonly config: Config
  /** Once it exists, signals abort the command instead of ending the process. */
  readonly world: World
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

  /** Skips the check of the data folder's stores: the command examines them itself, or reads none. */
  examines(): this {
    this.#isChecked = false
    return this
  }

  /** Sets the work of the command. Its result is printed by `render`, or as JSON; nothing is printed without `render`. */
  does<Options extends object, Args extends unknown[], T>(
    work: (call: Invocation<Options>, ...args: Args) => T | Promise<T>,
    render?: (value: T, options: Options) => string,
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
      if (render) cli.printResult(options, value, (result) => render(result, options))
    })
  }
}
