import {Argument, Command, CommanderError, Help, Option} from 'commander'
import {isCalendarDate} from '../core/clock.ts'
import {explainError, type LoantapeError, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {VERSION} from '../core/process.ts'
import type {Claim} from '../schedule/job-runs.ts'
import {type does, refuseValue} from './command.ts'
import specs from './commands.json' with {type: 'json'}
import type {Cli} from './context.ts'

/** An option in `commands.json`, by its flags: its description, or an object with more. */
type OptionSpec =
  | string
  | {
      about: string
      /** The name of its format: see {@link FORMS}. */
      form?: string
      /** The highest value of a count. */
      most?: number
      default?: string | number
      choices?: string[]
      conflicts?: string[]
      hidden?: boolean
      mandatory?: boolean
    }

/** A command in `commands.json`. */
interface CommandSpec {
  /** The file with its code, which also has its subcommands. */
  file?: string
  /** Its description in the list of commands; by default `about`. */
  summary?: string
  about: string
  example?: string
  /** Its arguments, by name with brackets. */
  args?: Readonly<Record<string, string | {about: string; choices: string[]}>>
  options?: Readonly<Record<string, OptionSpec>>
  /** Skips comparing the stores of the data folder: the command does it itself, or reads none of them. */
  examines?: boolean
  /** Needs a data folder that holds something; by default if it does not examine. */
  needs?: boolean
}

/** Every command by its words, in the order of the help. */
export const COMMANDS: Readonly<Record<string, CommandSpec>> = specs

/** The files of the commands, loaded on demand; each exports its commands by their words. */
const FILES: Record<string, () => Promise<{commands: Record<string, ReturnType<typeof does>>}>> = {
  books: () => import('./books.ts'),
  build: () => import('./build.ts'),
  demo: () => import('./demo.ts'),
  doctor: () => import('./doctor.ts'),
  export: () => import('./export.ts'),
  help: () => import('./help.ts'),
  init: () => import('./init.ts'),
  keep: () => import('./keep.ts'),
  push: () => import('./push.ts'),
  query: () => import('./query.ts'),
  run: () => import('./run.ts'),
  serve: () => import('./serve.ts'),
  service: () => import('./service.ts'),
  status: () => import('./status.ts'),
  sync: () => import('./sync.ts'),
  trace: () => import('./trace.ts'),
}

/** Creates the command line. The file of a command is loaded when the command is called. */
export function createProgram(cli: Cli): Command {
  const program = new Command('loantape')
  const {subcommandTerm} = Help.prototype
  program
    .description('Reporting and data-sync pipeline for real-estate loan deals.')
    .version(VERSION)
    .option('--data <dir>', 'folder that holds everything loantape writes (LOANTAPE_DATA_DIR, ./data)')
    .option('--json', 'print exactly one JSON object on stdout')
    .addOption(new Option('--who <name>', 'who acts: the workbench says it').hideHelp())
    .showSuggestionAfterError()
    .configureHelp({
      showGlobalOptions: true,
      subcommandTerm: (one) => (one.parent === program ? one.name() : subcommandTerm(one)),
    })
    .exitOverride()
    .configureOutput({outputError: () => undefined})
    .addHelpText('after', '\nExit codes and settings: docs/configuration.md. Start with `loantape demo`.')
  const known = new Map([['', program]])
  for (const [path, spec] of Object.entries(COMMANDS)) {
    const words = path.split(' ')
    const parent = known.get(words.slice(0, -1).join(' ')) ?? program
    const command = parent.command(words.at(-1) ?? path)
    known.set(path, command)
    describeCommand(command, spec)
    // A command without an example only groups others.
    if (spec.example === undefined) continue
    const load = FILES[COMMANDS[words[0] ?? path]?.file ?? '']
    command.action(async () => {
      const deed = (await load?.())?.commands[path]
      if (!deed) throw new Error(`command '${path}' in commands.json`)
      await deed(cli, command, spec)
    })
  }
  return program
}

function describeCommand(command: Command, spec: CommandSpec): void {
  command.description(spec.about).summary(spec.summary ?? spec.about)
  for (const [name, said] of Object.entries(spec.args ?? {})) {
    if (typeof said === 'string') command.argument(name, said)
    else command.addArgument(new Argument(name, said.about).choices(said.choices))
  }
  for (const [flags, option] of Object.entries(spec.options ?? {}))
    command.addOption(createOption(flags, option))
  if (spec.example !== undefined) command.addHelpText('after', `\nExample:\n  loantape ${spec.example}`)
}

function createOption(flags: string, spec: OptionSpec): Option {
  const {about, form, most, choices, conflicts, ...more} = typeof spec === 'string' ? {about: spec} : spec
  const option = new Option(flags, about)
  if (choices) option.choices(choices)
  if (conflicts) option.conflicts(conflicts)
  if (more.default !== undefined)
    option.default(more.default, form === 'hours' ? `${more.default}h` : undefined)
  if (form !== undefined) option.argParser(createParser(flags, form, most))
  return option.hideHelp(more.hidden ?? false).makeOptionMandatory(more.mandatory ?? false)
}

/** Formats of options: what is expected, and a parser that returns undefined for any other text. */
const FORMS: Record<string, {expected: string; parse: (text: string, before: unknown) => unknown}> = {
  date: {
    expected: 'a calendar date YYYY-MM-DD',
    parse: (text) => (isCalendarDate(text) ? text : undefined),
  },
  count: {
    expected: 'a whole number from 0 to',
    parse: (text) => (/^\d+$/.test(text) ? Number(text) : undefined),
  },
  hours: {
    expected: 'hours, such as 26h',
    parse: (text) => (/^\d+(\.\d+)?h?$/.test(text) ? Number.parseFloat(text) : undefined),
  },
  claim: {
    expected: '<run>.<attempt>, as the scheduler passes it',
    parse(text): Claim | undefined {
      const [, id, attempt] = /^(\d+)\.(\d+)$/.exec(text) ?? []
      return id === undefined ? undefined : {job_run_id: Number(id), attempt: Number(attempt)}
    },
  },
  once: {
    expected: 'it once: take walks back one at a time',
    parse: (text, before) => (before === undefined ? text : undefined),
  },
  list: {expected: 'a text', parse: (text, before) => (before === undefined ? text : `${before},${text}`)},
}

function createParser(flags: string, form: string, most = Number.POSITIVE_INFINITY) {
  const {expected, parse} = FORMS[form] ?? {expected: form, parse: () => undefined}
  return (text: string, before: unknown) => {
    const value = parse(text, before)
    if (value === undefined || Number(value) > most)
      throw refuseValue(text, flags, form === 'count' ? `${expected} ${most}` : expected)
    return value
  }
}

/** Runs one command line and prints its error. @returns the exit code */
export async function runProgram(cli: Cli, args: readonly string[]): Promise<number> {
  try {
    await createProgram(cli).parseAsync(args, {from: 'user'})
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

/** Converts Commander's `error: unknown command 'snyc'\n(Did you mean sync?)` to one of our errors. */
function explainUsage({code, message}: CommanderError): LoantapeError {
  const words = message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ')
  return newError('USAGE', `Command line: ${code === 'commander.help' ? 'expected a command' : words}.`, {
    kept: 'Nothing was started.',
    next: '`loantape --help` lists the commands, `loantape <command> --help` the options of one.',
  })
}
