import {type Command, CommanderError} from 'commander'
import {explainError, type LoantapeError, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {VERSION} from '../core/process.ts'
import {CliCommand} from './command.ts'
import type {Cli} from './context.ts'

/** Every command in the order of the help: its summary, and the file that defines it. */
export const COMMANDS: Record<string, [summary: string, load: () => Promise<CommandFile>]> = {
  demo: ['everything on a local service with a synthetic portfolio', () => import('./demo.ts')],
  sync: ['walk the source, load what changed, build, check and release', () => import('./sync.ts')],
  build: ['build and check a release without walking', () => import('./build.ts')],
  test: ['run the tests of your own models', () => import('./build.ts')],
  export: ['write a release, or the journal of a month, as files', () => import('./export.ts')],
  period: ['accounting months: list, close, reopen, remap, true-up', () => import('./books.ts')],
  accounting: ['the accounts that journals are booked to', () => import('./books.ts')],
  publish: ['copy a release to where others query it', () => import('./export.ts')],
  run: ['run one job of jobs/ now', () => import('./run.ts')],
  jobs: ['list the jobs', () => import('./run.ts')],
  serve: ['run every job when it is due, and the web side', () => import('./serve.ts')],
  fleet: ['many lenders: serve, status, run', () => import('./serve.ts')],
  events: ['what webhooks have brought', () => import('./sync.ts')],
  query: ['SQL over a release, read-only', () => import('./query.ts')],
  sql: ['a shell for SQL over a release', () => import('./query.ts')],
  diff: ['which deals and fields moved the totals between two releases', () => import('./build.ts')],
  report: ['the portfolio report as one HTML page', () => import('./build.ts')],
  docs: ['the data dictionary and model graph as one HTML page', () => import('./build.ts')],
  quarantine: ['the records that could not be read', () => import('./sync.ts')],
  tape: ['what came in from outside, as it came', () => import('./keep.ts')],
  verify: ['examine everything that is kept', () => import('./keep.ts')],
  trace: ['where what is known of a deal or a figure comes from', () => import('./trace.ts')],
  evidence: ['what an auditor needs to check a release or a batch', () => import('./trace.ts')],
  backup: ['copy everything that cannot be built again', () => import('./keep.ts')],
  rebuild: ['compute the warehouse again from the tapes and compare', () => import('./keep.ts')],
  restore: ['bring a backup back into an empty data folder', () => import('./keep.ts')],
  prune: ['remove what is older than the settings keep', () => import('./keep.ts')],
  status: ['last runs, last certificate and current release', () => import('./status.ts')],
  doctor: ['check configuration, source, data folder, models and release', () => import('./doctor.ts')],
  explain: ['what an error means by its code', () => import('./help.ts')],
  completion: ['shell completion for bash, zsh or fish', () => import('./help.ts')],
  config: ['the effective settings, secrets masked', () => import('./help.ts')],
  service: ['run the local Deal Financing Service with synthetic deals', () => import('./service.ts')],
  push: ['send records to the Deal Financing Service', () => import('./push.ts')],
}

/** A file of commands: each adds options and work to an empty command. */
interface CommandFile {
  commands: Record<string, (command: CliCommand) => void>
}

/**
 * Creates the command line.
 *
 * @param args only the commands named in it are loaded; by default all are, as `completion` needs them
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
  const needsAll = args === undefined || args.includes('completion')
  for (const [name, [summary, load]] of Object.entries(COMMANDS)) {
    const command = program.command(name).summary(summary).description(summary)
    if (needsAll || args.includes(name)) (await load()).commands[name]?.(command)
  }
  return program
}

/** Runs one command line and prints its error. @returns the exit code */
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

/** Turns Commander's `error: unknown command 'snyc'\n(Did you mean sync?)` into an error of ours. */
function explainUsage({code, message}: CommanderError): LoantapeError {
  const words = message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ')
  return newError('USAGE', `Command line: ${code === 'commander.help' ? 'expected a command' : words}.`, {
    kept: 'Nothing was started.',
    next: '`loantape --help` lists the commands, `loantape <command> --help` the options of one.',
  })
}
