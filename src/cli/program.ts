import {basename} from 'node:path'
import {Command, CommanderError, Help, Option} from 'commander'
import {isCalendarDate} from '../core/clock.ts'
import {explainError, type LoantapeError, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {VERSION} from '../core/process.ts'
import type {Claim} from '../schedule/job-runs.ts'
import {type does, refuseValue} from './command.ts'
import specs from './commands.json' with {type: 'json'}
import type {Cli} from './context.ts'

/** Its description, or an object with more. */
type OptionSpec =
  | string
  | {
      about: string
      /** The highest value; the option then takes a count, from `least` or 0 on. */
      most?: number
      least?: number
      /** Its key in {@link FORMS}; without one, any text is taken. */
      form?: string
      default?: string | number
      choices?: string[]
      conflicts?: string[]
      hidden?: boolean
      mandatory?: boolean
    }

interface CommandSpec {
  /** The file with its code and that of its subcommands; by default one of its own name. */
  file?: string
  /** Its description; the list of commands shows it up to the first `;`. */
  about: string
  example?: string
  /** Its arguments, by name with brackets. */
  args?: Readonly<Record<string, string>>
  /** Reads a release, and takes {@link OF_RELEASE}. */
  ofRelease?: boolean
  options?: Readonly<Record<string, OptionSpec>>
  /** Skips comparing the stores of the data folder: the command does it itself, or reads none of them. */
  examines?: boolean
  /** Needs a data folder that holds something; by default if it does not examine. */
  needs?: boolean
}

/** Commands by their words, in the order of the help. */
export const COMMANDS: Readonly<Record<string, CommandSpec>> = specs

/** Loaded on demand; each exports its commands by their words. */
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
    const [first = path] = words
    const load = FILES[COMMANDS[first]?.file ?? first]
    command.action(async () => {
      const deed = (await load?.())?.commands[path]
      if (!deed) throw new Error(`command '${path}' in commands.json`)
      await deed(cli, command, spec)
    })
  }
  return program
}

const OF_RELEASE: NonNullable<CommandSpec['options']> = {
  '--release <id>': {about: 'of this release; the current one by default', conflicts: ['asOf']},
  '--as-of <date>': {about: 'of the portfolio as of this business date, YYYY-MM-DD', form: 'date'},
}

function describeCommand(command: Command, {about, args = {}, ...spec}: CommandSpec): void {
  command.description(about).summary(about.replace(/;.*/, ''))
  for (const [name, said] of Object.entries(args)) command.argument(name, said)
  for (const [flags, option] of Object.entries({...(spec.ofRelease && OF_RELEASE), ...spec.options}))
    command.addOption(createOption(flags, typeof option === 'string' ? {about: option} : option))
  if (spec.example !== undefined) command.addHelpText('after', `\nExample:\n  loantape ${spec.example}`)
}

function createOption(flags: string, spec: Exclude<OptionSpec, string>): Option {
  const {about, most, least = 0, choices, conflicts = [], hidden = false, mandatory = false} = spec
  const option = new Option(flags, about).default(spec.default).conflicts(conflicts)
  const form = most === undefined ? FORMS[spec.form ?? ''] : countWithin(least, most)
  if (spec.form !== undefined && !form) throw new Error(`form '${spec.form}' in commands.json`)
  if (form)
    option.argParser((text, before) => {
      const value = form.parse(text, before)
      if (value === undefined) throw refuseValue(text, flags, form.expected)
      return value
    })
  if (choices) option.choices(choices)
  return option.hideHelp(hidden).makeOptionMandatory(mandatory)
}

/** What an option expects. The parser returns undefined for any other text. */
interface Form {
  expected: string
  parse: (text: string, before: unknown) => unknown
}

const countWithin = (least: number, most: number): Form => ({
  expected: `a whole number from ${least} to ${most}`,
  parse: (text) =>
    /^\d+$/.test(text) && Number(text) >= least && Number(text) <= most ? Number(text) : undefined,
})

/** By `form` in `commands.json`. */
const FORMS: Record<string, Form> = {
  date: {
    expected: 'a calendar date YYYY-MM-DD',
    parse: (text) => (isCalendarDate(text) ? text : undefined),
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
  // Messages name a batch with its profile.
  batch: {expected: 'the id of a batch', parse: (text) => basename(text)},
  list: {expected: 'a text', parse: (text, before) => (before === undefined ? text : `${before},${text}`)},
}

/** Prints the error, if any. Returns the exit code. */
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
    next: '`loantape --help` lists the commands, `loantape <command> --help` the options of one.',
  })
}
