import {Option} from 'commander'
import {parseDateOption} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import type {Claim} from '../schedule/run-job.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {type Release, requireRelease} from '../store/release.ts'
import type {Call} from './command.ts'

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

/** The option by which the scheduler says which run a process carries out. */
export function claimOption(): Option {
  return new Option('--claim <run.attempt>', 'given by the scheduler').argParser(parseClaim).hideHelp()
}

function parseClaim(text: string): Claim {
  const [, jobRunId, attempt] = /^(\d+)\.(\d+)$/.exec(text) ?? []
  if (jobRunId !== undefined) return {jobRunId: Number(jobRunId), attempt: Number(attempt)}
  throw newError('USAGE', `Value '${text}' in --claim: expected what the scheduler gives.`)
}

/** What a command offers that reads a release. */
export interface ReleaseOptions {
  release?: string
  asOf?: string
}

/** The release that is asked for; that of a past date is built when it is not there. */
export async function requireAskedRelease(call: Call<ReleaseOptions>): Promise<Release> {
  const {config, options} = call
  const {asOf, release} = options
  if (asOf === undefined) return requireRelease(dataFolderAt(config.dataDir), release)
  // Loaded here: a release that is there needs no builder.
  const {requireBuilt} = await import('../build/build.ts')
  return await requireBuilt(config, {asOf}, call.world)
}
