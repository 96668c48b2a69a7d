import {readdirSync, readFileSync} from 'node:fs'
import {ZodError} from 'zod'
import catalogue from './errors.json' with {type: 'json'}

/** What went wrong, what is kept, and what to do: every message for users is built from these. */
export interface Failure {
  /** Stable, for programs: `SOURCE_CURSOR_LOOP`. */
  code: string
  /** Problem 'value' in where: what was expected. */
  problem: string
  /** What is still intact. */
  kept?: string | undefined
  /** What to do next. */
  next?: string | undefined
  cause?: unknown
  /** For programs: printed with `--json` as `error.details`. */
  details?: unknown
}

/** The base of every error loantape raises on purpose. */
export abstract class LoantapeError extends Error {
  abstract readonly exitCode: number
  readonly code: string
  readonly problem: string
  readonly kept: string | undefined
  readonly next: string | undefined
  readonly details: unknown

  constructor(failure: Failure) {
    const words = [failure.problem, failure.kept, failure.next].filter((part) => part !== undefined)
    super(
      words.reduce((said, next) => said + (said.endsWith('\n') ? '' : ' ') + next),
      {cause: failure.cause},
    )
    this.name = new.target.name
    this.code = failure.code
    this.problem = failure.problem
    this.kept = failure.kept
    this.next = failure.next
    this.details = failure.details
  }
}

/** An unforeseen fault of the engine, the disk or the program. */
export class UnexpectedError extends LoantapeError {
  readonly exitCode = 1
}

/** Wrong usage or configuration: nothing was started. */
export class ConfigError extends LoantapeError {
  readonly exitCode = 2
}

/** A model or check failed: nothing was released. */
export class CheckError extends LoantapeError {
  readonly exitCode = 3
}

/** Another run holds the warehouse. */
export class LockedError extends LoantapeError {
  readonly exitCode = 4
}

/** The source refused the credentials. */
export class AuthError extends LoantapeError {
  readonly exitCode = 5
}

/** The walk could not be finished now; progress is kept and the next run continues it. */
export class DeferredError extends LoantapeError {
  readonly exitCode = 6
}

/** The source broke its contract: continuing would record something false. */
export class ContractError extends LoantapeError {
  readonly exitCode = 7
}

/** A guard refused to apply the walk; `--accept` continues. */
export class GuardError extends LoantapeError {
  readonly exitCode = 8
}

/** A failure worth retrying; only the retry policy of the source catches it. */
export class RetryableError extends LoantapeError {
  readonly exitCode = 6
}

/** What each exit code means, from 0. */
export const EXIT_CODES = [
  'done, or nothing new',
  'unexpected: engine, disk, or a defect',
  'usage or configuration; nothing was started',
  'a model or check failed and nothing was released; a `test` failed; or `push` left rows out',
  'another run holds the warehouse',
  'the source refused the credentials',
  'the walk is incomplete, its progress is kept: rate limit, outage, signal',
  'the source broke its contract: envelope, cursor loop, unreadable, too much quarantined',
  'a guard refused the walk; `--accept` goes on',
] as const

/** The kinds of errors of the catalogue. */
const KINDS: Record<string, new (failure: Failure) => LoantapeError> = {
  unexpected: UnexpectedError,
  config: ConfigError,
  check: CheckError,
  locked: LockedError,
  auth: AuthError,
  deferred: DeferredError,
  contract: ContractError,
  guard: GuardError,
}

/** The code of an error of the catalogue. */
export type ErrorCode = keyof typeof catalogue

/** The catalogue of errors: kind, what is kept, what to do next. */
export const CATALOGUE: Readonly<Record<ErrorCode, {kind: string; kept?: string; next?: string}>> = catalogue

/**
 * An error of the catalogue.
 *
 * @param problem what is wrong: value, place and what was expected
 * @param more overrides the catalogue
 */
export function newError(
  code: ErrorCode,
  problem: string,
  more: Partial<Omit<Failure, 'code' | 'problem'>> = {},
): LoantapeError {
  const {kind, ...said} = CATALOGUE[code]
  return new (kindOf(kind))({...said, ...more, code, problem})
}

/** The same error with another `kept` sentence. */
export function sayKept(error: LoantapeError, kept: string): LoantapeError {
  const {code, problem, next, details, cause} = error
  return isErrorCode(code) ? newError(code, problem, {kept, next, details, cause}) : error
}

/** An error that another process reported. */
export function retellError({code, problem, ...said}: Failure): LoantapeError {
  return isErrorCode(code) ? newError(code, problem, said) : new UnexpectedError({code, problem, ...said})
}

function isErrorCode(code: string): code is ErrorCode {
  return code in CATALOGUE
}

/** The exit code of a kind of the catalogue. */
export function exitCodeOf(kind: string): number {
  return new (kindOf(kind))({code: '', problem: ''}).exitCode
}

function kindOf(kind: string): new (failure: Failure) => LoantapeError {
  const Kind = KINDS[kind]
  if (Kind) return Kind
  throw new Error(`kind '${kind}' in errors.json`)
}

/** Closes the engine's message so that more text can follow: a line with a caret marker ends, all else becomes a sentence. */
export function closeWords(words: string): string {
  return words.endsWith('^') ? `${words}\n` : words.replace(/[^.!?]$/, '$&.')
}

/** The message of anything thrown; for a schema error its paths and reasons, not JSON. */
export function messageOf(error: unknown): string {
  if (error instanceof ZodError)
    return error.issues
      .slice(0, 3)
      .map(({path, message}) => `${path.join('.') || 'value'}: ${message}`)
      .join('; ')
  return error instanceof Error ? error.message : String(error)
}

/** The stable code of anything thrown: ours, the system's (`ENOSPC`), or `UNEXPECTED`. */
export function codeOf(error: unknown): string {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code
  return 'UNEXPECTED'
}

/**
 * Anything thrown as one of our errors: disk faults are named plainly, others stay as they are. If cleaning up failed as
 * well, the first error counts.
 */
export function explainError(error: unknown): LoantapeError {
  if (error instanceof LoantapeError) return error
  if (error instanceof SuppressedError) return explainError(error.suppressed)
  const words = messageOf(error)
  if (/no space left|ENOSPC|file too large|EFBIG|disk quota|EDQUOT|database or disk is full/i.test(words)) {
    return newError('DISK_FULL', `The disk or its quota is full: ${words.split('\n')[0]}.`, {cause: error})
  }
  // SQLite says "disk I/O error" for every fault of the file, including a write beyond a size limit.
  if (/disk I\/O error|\bEIO\b|\bEROFS\b/i.test(words)) {
    return newError('DISK_FAULT', `The disk could not be written or read: ${words}.`, {cause: error})
  }
  if (isOutOfFiles(words)) {
    const said = words.split('\n')[0]?.replace(/\.$/, '')
    return newError('TOO_MANY_FILES', `The system lets this process open no more files: ${said}.`, {
      cause: error,
    })
  }
  return new UnexpectedError({
    code: codeOf(error),
    problem: `Unexpected: ${words.replace(/\.?$/, '.')}`,
    kept: 'What was stored before is intact.',
    next: 'Run again; if it comes back, report it with LOANTAPE_LOG_LEVEL=debug.',
    cause: error,
  })
}

/** Files that may have been closed between the failure and our count. */
const FILES_AT_ONCE = 8

function isOutOfFiles(words: string): boolean {
  if (/too many open files|\bE[MN]FILE\b/i.test(words)) return true
  // SQLite says this for any file it cannot open, whatever the reason.
  if (!/unable to open database file/i.test(words)) return false
  try {
    const [, most] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return readdirSync('/proc/self/fd').length + FILES_AT_ONCE >= Number(most ?? Number.POSITIVE_INFINITY)
  } catch (error) {
    return isOutOfFiles(messageOf(error))
  }
}
