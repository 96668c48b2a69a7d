import {Option} from 'commander'
import {newError} from '../errors.ts'
import type {Claim} from '../schedule/execute-run.ts'
import type {CommonOptions} from './context.ts'

/** The options of a command that the scheduler starts. */
export interface ClaimOptions extends CommonOptions {
  claim?: Claim
}

/** The option by which the scheduler says which run a process carries out. */
export function claimOption(): Option {
  return new Option('--claim <run.attempt>', 'given by the scheduler').argParser(parseClaim).hideHelp()
}

function parseClaim(text: string): Claim {
  const [, jobRunId, attempt] = /^(\d+)\.(\d+)$/.exec(text) ?? []
  if (jobRunId !== undefined) return {jobRunId: Number(jobRunId), attempt: Number(attempt)}
  throw newError('USAGE_CLAIM', `Value '${text}' in --claim: expected what the scheduler gives.`)
}
