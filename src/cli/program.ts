import {type Command, CommanderError} from 'commander'
import {explainError, type LoantapeError, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {VERSION} from '../core/process.ts'
import {CliCommand} from './command.ts'
import type {Cli} from './context.ts'

/** Every command in the order of the help: what it does, and what makes it of an empty one. */
export const COMMANDS: Record<string, [summary: string, load: () => Promise<(command: CliCommand) => void>]> =
  {
    demo: [
      'everything on a local service with a synthetic portfolio',
      async () => (await import('./demo.ts')).addDemo,
    ],
    sync: [
      'walk the source, load what changed, build, check and release',
      async () => (await import('./sync.ts')).addSync,
    ],
    build: ['build and check a release without walking', async () => (await import('./build.ts')).addBuild],
    test: ['run the tests of your own models', async () => (await import('./build.ts')).addTest],
    export: [
      'write a release, or the journal of a month, as files',
      async () => (await import('./export.ts')).addExport,
    ],
    period: [
      'accounting months: list, close, reopen, remap, true-up',
      async () => (await import('./books.ts')).addPeriod,
    ],
    accounting: [
      'the accounts that journals are booked to',
      async () => (await import('./books.ts')).addAccounting,
    ],
    publish: [
      'copy a release to where others query it',
      async () => (await import('./export.ts')).addPublish,
    ],
    run: ['run one job of jobs/ now', async () => (await import('./run.ts')).addRun],
    jobs: ['the jobs there are', async () => (await import('./run.ts')).addJobs],
    serve: [
      'run every job when it is due, and the web side',
      async () => (await import('./serve.ts')).addServe,
    ],
    fleet: ['many lenders: serve, status, run', async () => (await import('./serve.ts')).addFleet],
    events: ['what webhooks have brought', async () => (await import('./sync.ts')).addEvents],
    query: ['SQL over a release, read-only', async () => (await import('./query.ts')).addQuery],
    sql: ['a shell for SQL over a release', async () => (await import('./query.ts')).addSql],
    diff: [
      'which deals and fields moved the totals between two releases',
      async () => (await import('./build.ts')).addDiff,
    ],
    report: ['the portfolio report as one HTML page', async () => (await import('./build.ts')).addReport],
    docs: [
      'the data dictionary and model graph as one HTML page',
      async () => (await import('./build.ts')).addDocs,
    ],
    quarantine: ['the records that could not be read', async () => (await import('./sync.ts')).addQuarantine],
    tape: ['what came in from outside, as it came', async () => (await import('./keep.ts')).addTape],
    verify: ['examine everything that is kept', async () => (await import('./keep.ts')).addVerify],
    trace: [
      'where what is known of a deal or a figure comes from',
      async () => (await import('./trace.ts')).addTrace,
    ],
    evidence: [
      'what an auditor needs to check a release or a batch',
      async () => (await import('./trace.ts')).addEvidence,
    ],
    backup: ['copy everything that cannot be built again', async () => (await import('./keep.ts')).addBackup],
    rebuild: [
      'compute the warehouse anew from the tapes and compare',
      async () => (await import('./keep.ts')).addRebuild,
    ],
    restore: [
      'bring a backup back into an empty data folder',
      async () => (await import('./keep.ts')).addRestore,
    ],
    prune: ['remove what is older than the settings keep', async () => (await import('./keep.ts')).addPrune],
    status: [
      'last runs, last certificate and current release',
      async () => (await import('./status.ts')).addStatus,
    ],
    doctor: [
      'check configuration, source, data folder, models and release',
      async () => (await import('./doctor.ts')).addDoctor,
    ],
    explain: ['what an error means by its code', async () => (await import('./help.ts')).addExplain],
    completion: [
      'completion of words for bash, zsh or fish',
      async () => (await import('./help.ts')).addCompletion,
    ],
    config: ['the effective settings, secrets masked', async () => (await import('./help.ts')).addConfig],
    service: [
      'run the local Deal Financing Service with synthetic deals',
      async () => (await import('./service.ts')).addService,
    ],
    push: ['send records to the Deal Financing Service', async () => (await import('./push.ts')).addPush],
  }

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
    if (args === undefined || args.includes(name)) (await load())(command)
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
