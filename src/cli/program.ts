import {type Command, CommanderError} from 'commander'
import {explainError, type LoantapeError, newError} from '../errors.ts'
import {scrubSecrets} from '../log.ts'
import {VERSION} from '../version.ts'
import {CliCommand} from './command.ts'
import {COMMANDS} from './commands.ts'
import type {Cli} from './context.ts'

/**
 * The command line.
 *
 * @param args loads the commands that are named in it; the others have their names alone. By default every one is loaded
 */
export async function createProgram(cli: Cli, args?: readonly string[]): Promise<Command> {
  const program = new CliCommand(cli, 'loantape')
    .description('Reporting and data-sync pipeline for real-estate loan deals.')
    .version(VERSION)
    .option('--data <dir>', 'folder that holds everything loantape writes (LOANTAPE_DATA_DIR, ./data)')
    .option('--json', 'print exactly one JSON object on stdout')
    .showSuggestionAfterError()
    .configureHelp({showGlobalOptions: true})
    .exitOverride()
    .configureOutput({outputError: () => undefined})
    .addHelpText('after', '\nExit codes and settings: docs/configuration.md. Start with `loantape demo`.')
  for (const [name, [summary, load]] of Object.entries(COMMANDS)) {
    const command = program.command(name).summary(summary).description(summary)
    if (args === undefined || args.includes(name)) (await load()).default(command)
  }
  return program
}

/**
 * Runs one command line and words what goes wrong.
 *
 * @returns the exit code: that of the error, or what the command set
 */
export async function runProgram(cli: Cli, args: readonly string[]): Promise<number> {
  try {
    const program = await createProgram(cli, args)
    await program.parseAsync(args, {from: 'user'})
    return cli.exitCode
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return 0
    const failure = error instanceof CommanderError ? explainUsage(error) : explainError(error)
    const message = scrubSecrets(failure.message)
    if (args.includes('--json')) {
      const {code, exitCode, details} = failure
      cli.printJson({error: {code, exit_code: exitCode, message, ...(details !== undefined && {details})}})
    }
    cli.complain(`loantape: ${message} [${failure.code}]`)
    return failure.exitCode
  }
}

/** Commander's `error: unknown command 'snyc'\n(Did you mean sync?)` as an error of ours. */
function explainUsage({code, message}: CommanderError): LoantapeError {
  const words = message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ')
  return newError('USAGE', `Command line: ${code === 'commander.help' ? 'expected a command' : words}.`, {
    kept: 'Nothing was started.',
    next: '`loantape --help` lists the commands, `loantape <command> --help` the options of one.',
  })
}
