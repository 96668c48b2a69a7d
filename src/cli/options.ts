import {Option} from 'commander'
import {parseDateOption} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import type {Claim} from '../schedule/run-job.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {type Release, requireRelease} from '../store/release.ts'
import type {CliCommand, Invocation} from './command.ts'

/** An option that takes a date. @throws ConfigError `USAGE` */
export function dateOption(flags: string, description: string): Option {
  const [name = ''] = flags.split(' ')
  return new Option(flags, description).argParser((text) => parseDateOption(name, text))
}

/** Reads a whole number from 0 to `most` given as an option. */
export function parseCount(name: string, most: number): (text: string) => number {
  return (text) => {
    const count = Number(text)
    if (/^\d+$/.test(text) && count <= most) return count
    throw newError('USAGE', `Value '${text}' in ${name}: expected a whole number from 0 to ${most}.`)
  }
}

/** The option that names the scheduled run of this process. */
export function claimOption(): Option {
  return new Option('--claim <run.attempt>', 'given by the scheduler').argParser(parseClaim).hideHelp()
}

function parseClaim(text: string): Claim {
  const [, jobRunId, attempt] = /^(\d+)\.(\d+)$/.exec(text) ?? []
  if (jobRunId !== undefined) return {jobRunId: Number(jobRunId), attempt: Number(attempt)}
  throw newError('USAGE', `Value '${text}' in --claim: expected <run>.<attempt>, as the scheduler passes it.`)
}

/** The options of a command that reads a release. */
export interface ReleaseOptions {
  release?: string
  asOf?: string
}

/** Adds {@link ReleaseOptions} to a command. */
export function addReleaseOptions(command: CliCommand): CliCommand {
  return command
    .option('--release <id>', 'of this release; the current one by default')
    .addOption(dateOption('--as-of <date>', 'of the portfolio as of this business date, YYYY-MM-DD'))
}

/** The release of {@link ReleaseOptions}; the release of a past date is built if necessary. */
export async function requireAskedRelease(call: Invocation<ReleaseOptions>): Promise<Release> {
  const {config, options} = call
  const {asOf, release} = options
  if (asOf === undefined) return requireRelease(dataFolderAt(config.dataDir), release)
  // Loaded late, because most commands read a release that exists.
  const {requireBuilt} = await import('../build/build.ts')
  return await requireBuilt(config, {asOf}, call.world)
}
