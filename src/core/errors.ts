import {readdirSync, readFileSync} from 'node:fs'
import {ZodError} from 'zod'
import byKind from './errors.json' with {type: 'json'}

/** Every message for users is built from these parts. */
export interface Failure {
  /** Stable code for programs: `SOURCE_CURSOR_LOOP`. */
  code: string
  /** Problem 'value' in where: what was expected. */
  problem: string
  kept?: string | undefined
  next?: string | undefined
  cause?: unknown
  /** For programs: printed with `--json` as `error.details`. */
  details?: unknown
}

/** A problem found by `verify`, `doctor` or a similar check. */
export type Fault = Pick<Failure, 'problem' | 'next'>

/** The kinds of errors, by what to do about them. Exit codes follow this order, from 1. */
const KINDS = {
  unexpected: 'unexpected: engine, disk, or a defect; or what was examined is not well',
  config: 'usage or configuration',
  check: 'a model, check or test failed; a file would not import; or `push` left rows out',
  locked: 'another run, or a publication, goes on',
  auth: 'the source, a target or a database refused the credentials',
  deferred: 'not done yet, progress is kept: rate limit, outage, signal',
  contract: 'the source broke its contract: envelope, cursor loop, unreadable, too much quarantined',
  guard: 'a guard refused the walk; `--accept` goes on',
}
type Kind = keyof typeof KINDS

export const EXIT_CODES: readonly string[] = ['done, or nothing new', ...Object.values(KINDS)]

export function exitCodeOf(kind: string): number {
  return Object.keys(KINDS).indexOf(kind) + 1
}

/** An error that loantape raises on purpose. Its name comes from its kind: ConfigError for `config`. */
export class LoantapeError extends Error {
  readonly kind: Kind
  readonly exitCode: number
  readonly code: string
  readonly problem: string
  readonly kept: string | undefined
  readonly next: string | undefined
  readonly details: unknown

  constructor(failure: Failure, kind: Kind = 'unexpected') {
    const words = [failure.problem, failure.kept, failure.next].filter((part) => part !== undefined)
    super(
      words.reduce((said, next) => said + (said.endsWith('\n') ? '' : ' ') + next),
      {cause: failure.cause},
    )
    this.name = `${kind.charAt(0).toUpperCase()}${kind.slice(1)}Error`
    this.kind = kind
    this.exitCode = exitCodeOf(kind)
    this.code = failure.code
    this.problem = failure.problem
    this.kept = failure.kept
    this.next = failure.next
    this.details = failure.details
  }
}

export function isOfKind<K extends Kind>(error: unknown, ...kinds: K[]): error is LoantapeError & {kind: K} {
  return error instanceof LoantapeError && kinds.some((kind) => kind === error.kind)
}

/** A failure that may soon pass; `withRetries` tries again. */
export class RetryableError extends LoantapeError {
  /** The pause that the other side asked for, ms. */
  readonly waitMs: number

  constructor(failure: Failure, waitMs = 0) {
    super(failure, 'deferred')
    this.waitMs = waitMs
  }
}

export type ErrorCode = {[K in Kind]: keyof (typeof byKind)[K]}[Kind]

/** A code for a run that ended without saying how. */
export type EndCode = keyof (typeof byKind)['ended']

export const CATALOGUE = Object.fromEntries(
  Object.entries(byKind).flatMap(([kind, errors]) =>
    Object.entries(errors).map(([code, said]) => [code, {kind, ...said}]),
  ),
) as Readonly<Record<ErrorCode, Words & {kind: Kind}> & Record<EndCode, Words & {kind: 'ended'}>>
type Words = Pick<Failure, 'kept' | 'next'>

/** `problem`: the value, its place, what was expected; `more` overrides the catalogue. */
export function newError(
  code: ErrorCode,
  problem: string,
  more: Partial<Omit<Failure, 'code' | 'problem'>> = {},
): LoantapeError {
  const {kind, ...said} = CATALOGUE[code]
  return new LoantapeError({...said, ...more, code, problem}, kind)
}

export function sayKept(error: LoantapeError, kept: string, next = error.next): LoantapeError {
  return new LoantapeError({...error, kept, next, cause: error.cause}, error.kind)
}

/** Recreates an error that another process reported. */
export function retellError({code, problem, ...said}: Failure): LoantapeError {
  return isErrorCode(code) ? newError(code, problem, said) : new LoantapeError({code, problem, ...said})
}

const isErrorCode = (code: string): code is ErrorCode => code in CATALOGUE

/** Ends an engine message so that more text can follow: with a line break after a caret marker, otherwise with a full stop. */
export function closeWords(words: string): string {
  return words.endsWith('^') ? `${words}\n` : words.replace(/[^.!?]$/, '$&.')
}

/** Returns what a schema expected, without the library's words: `Invalid input: expected object, received undefined`. */
export const expectationOf = ({message}: {message: string}): string =>
  message
    .replace(/^(Invalid|Too) [\w ]+[:.] expected/i, 'expected')
    .replace(/received undefined$/, 'found none')

/** For a schema error the first paths and reasons, not JSON. */
export function messageOf(error: unknown): string {
  if (error instanceof ZodError)
    return error.issues
      .slice(0, 3)
      .map((issue) => `${issue.path.join('.') || 'value'}: ${expectationOf(issue)}`)
      .join('; ')
  return error instanceof Error ? error.message : String(error)
}

/** Returns our code, the system's (`ENOSPC`), or `UNEXPECTED`. */
export function codeOf(error: unknown): string {
  // Some system errors have an empty code, or one such as "Unknown system error -122".
  const code = error instanceof Error && 'code' in error ? error.code : ''
  return typeof code === 'string' && !/^(Unknown|$)/.test(code) ? code : 'UNEXPECTED'
}

/** What the work returns; undefined if it fails with one of these codes. */
export function tolerate<T>(codes: readonly string[], work: () => T): T | undefined {
  try {
    return work()
  } catch (error) {
    if (codes.includes(codeOf(error))) return undefined
    throw error
  }
}

/**
 * Returns the code of a failed connection with what could not be reached, perhaps a proxy (`ECONNREFUSED 10.0.0.7:3128`), or with
 * the client's words (`UND_ERR_SOCKET, other side closed`).
 */
export function reachOf(error: unknown): string {
  const [words, code] = [messageOf(error), codeOf(error)]
  const reached = /(?<=^(connect|getaddrinfo) )E\w+ \S+/.exec(words)?.[0] ?? code
  return code.startsWith('UND_') ? `${code}, ${words}` : reached
}

/** Disk faults get a plain message, our own errors stay as they are. If cleanup failed as well, the first error counts. */
export function explainError(error: unknown): LoantapeError {
  if (error instanceof LoantapeError) return error
  if (error instanceof SuppressedError) return explainError(error.suppressed)
  const words = messageOf(error)
  const said = words.split('\n')[0]?.replace(/\.$/, '')
  const more = {cause: error}
  // Node has no name for a full quota, 122.
  const full = /no space left|ENOSPC|file too large|EFBIG|disk quota|system error -122|disk is full/i
  if (full.test(words)) return newError('DISK_FULL', `The disk or its quota is full: ${said}.`, more)
  // SQLite says "disk I/O error" for every file fault, including a write beyond a size limit.
  if (/disk I\/O error|input\/output error|\bEIO\b|read-only file system/i.test(words))
    return newError('DISK_FAULT', `The disk could not be written or read: ${said}.`, more)
  if (isOutOfFiles(words))
    return newError('TOO_MANY_FILES', `The system lets this process open no more files: ${said}.`, more)
  if (['EACCES', 'EPERM'].includes(codeOf(error)))
    return newError('NOT_WRITABLE', `This user lacks a right: ${words}.`, {
      kept: CATALOGUE.UNEXPECTED.kept,
      ...more,
    })
  return new LoantapeError({
    ...CATALOGUE.UNEXPECTED,
    ...(['ENOTDIR', 'EISDIR', 'ELOOP'].includes(codeOf(error)) && {
      next: 'Move away what is in its place, then run again.',
    }),
    code: codeOf(error),
    problem: `Unexpected: ${words.replace(/\.?$/, '.')}`,
    cause: error,
  })
}

/** Returns a full or bad disk, or too many open files. A read-only disk is no fault: the user lacks a right. */
export function findMachineFault(error: unknown): LoantapeError | undefined {
  const explained = explainError(error)
  const isOne = ['DISK_FULL', 'DISK_FAULT', 'TOO_MANY_FILES'].includes(explained.code)
  return isOne && !/read-only/i.test(messageOf(error)) ? explained : undefined
}

/** Allowance for files closed between the failure and the count. */
const FILES_AT_ONCE = 8

function isOutOfFiles(words: string): boolean {
  if (/too many open files|\bE[MN]FILE\b/i.test(words)) return true
  // SQLite says this for any file it cannot open, for whatever reason.
  if (!/unable to open database file/i.test(words)) return false
  try {
    const [, most] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return readdirSync('/proc/self/fd').length + FILES_AT_ONCE >= Number(most ?? Number.POSITIVE_INFINITY)
  } catch (error) {
    return isOutOfFiles(messageOf(error))
  }
}
