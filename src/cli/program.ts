import {type Command, CommanderError} from 'commander'
import {explainError, type LoantapeError, newError} from '../errors.ts'
import {scrubSecrets} from '../log.ts'
import {VERSION} from '../version.ts'
import {addAccounting} from './accounting.ts'
import {addBackup, addRestore} from './backup.ts'
import {addBuild} from './build.ts'
import {CliCommand} from './command.ts'
import {addConfig} from './config.ts'
import type {Cli} from './context.ts'
import {addDemo} from './demo.ts'
import {addDiff} from './diff.ts'
import {addDoctor} from './doctor.ts'
import {addEvents} from './events.ts'
import {addEvidence} from './evidence.ts'
import {addExplain} from './explain.ts'
import {addExport} from './export.ts'
import {addJobs} from './jobs.ts'
import {addDocs, addReport} from './pages.ts'
import {addPeriod} from './period.ts'
import {addPrune} from './prune.ts'
import {addPublish} from './publish.ts'
import {addPush} from './push.ts'
import {addQuarantine} from './quarantine.ts'
import {addQuery} from './query.ts'
import {addRebuild} from './rebuild.ts'
import {addRun} from './run.ts'
import {addServe} from './serve.ts'
import {addService} from './service.ts'
import {addStatus} from './status.ts'
import {addSync} from './sync.ts'
import {addTape} from './tape.ts'
import {addTrace} from './trace.ts'

/** The command line, every command on it. */
export function createProgram(cli: Cli): Command {
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
  for (const add of [
    addDemo,
    addSync,
    addBuild,
    addExport,
    addPeriod,
    addAccounting,
    addPublish,
    addRun,
    addJobs,
    addServe,
    addEvents,
    addQuery,
    addDiff,
    addReport,
    addDocs,
    addQuarantine,
    addTape,
    addTrace,
    addEvidence,
    addBackup,
    addRebuild,
    addRestore,
    addPrune,
    addStatus,
    addDoctor,
    addExplain,
    addConfig,
    addService,
    addPush,
  ]) {
    add(program)
  }
  return program
}

/**
 * Runs one command line and words what goes wrong.
 *
 * @returns the exit code: that of the error, or what the command set
 */
export async function runProgram(program: Command, cli: Cli, args: readonly string[]): Promise<number> {
  try {
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
