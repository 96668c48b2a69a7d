import {Command} from 'commander'
import type {Config} from '../core/config.ts'
import type {World} from '../core/types.ts'
import type {Cli, CommonOptions} from './context.ts'

/** What the work of a command is given; `config` and `world` are made when it first asks for them. */
export interface Call<Options = object> {
  cli: Cli
  options: CommonOptions & Options
  readonly config: Config
  /** From when it is made, the command hears of signals. */
  readonly world: World
}

/** A command of loantape, with what it works with. */
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

  /** Shows how it is called at the end of its help. */
  example(call: string): this {
    return this.addHelpText('after', `\nExample:\n  loantape ${call}`)
  }

  /** Says that the command itself examines the stores of the data folder, or reads none of them. */
  examines(): this {
    this.#isChecked = false
    return this
  }

  /** What the command does with its arguments; printed is what came of it as `render` words it, without it nothing. */
  does<Options extends object, Args extends unknown[], T>(
    work: (call: Call<Options>, ...args: Args) => T | Promise<T>,
    render?: (value: T, options: Options) => string,
  ): this {
    const cli = this.#cli
    return this.action(async (...args: Args) => {
      // Loaded here: help needs no settings.
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
