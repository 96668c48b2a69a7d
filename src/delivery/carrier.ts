import {type Failure, type LoantapeError, newError, RetryableError} from '../errors.ts'

/** A file of a batch as it is sent. */
export interface Parcel {
  /** Relative to the batch's folder, `/` between its parts. */
  name: string
  /** Where it lies on disk. */
  path: string
  bytes: number
  sha256: string
}

/** A connection to a target; a file it took is whole under its name, or not there under it at all. */
export interface Carrier extends AsyncDisposable {
  /** @throws TargetFailure `TARGET_FAILED`; AuthError `TARGET_AUTH`, `TARGET_HOST_KEY`; ConfigError `TARGET_REFUSED` */
  put(parcel: Parcel): Promise<void>
}

/** What holds of every delivery that did not come to its end. */
export const UNFINISHED = {
  kept: 'The batch on disk is as it was; files the target has already are not sent again.',
  next: 'Run the same export with --deliver again: it goes on with what is missing.',
}

/** A failure that may be over in a moment. */
export class TargetFailure extends RetryableError {
  /** How long the target asked to be left alone, ms. */
  readonly retryAfterMs: number

  constructor(failure: Failure, retryAfterMs: number) {
    super(failure)
    this.retryAfterMs = retryAfterMs
  }
}

/** A failure that may be over in a moment, or when the target said. */
export function failed(where: string, what: string, cause?: unknown, retryAfterMs = 0): TargetFailure {
  const problem = `Target ${where}: ${what}.`
  return new TargetFailure({code: 'TARGET_FAILED', problem, ...UNFINISHED, cause}, retryAfterMs)
}

/** A target that will not take this. */
export function refused(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_REFUSED', `Target ${where}: ${what}.`, {cause})
}

/** A target that does not know us. */
export function unauthorised(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_AUTH', `Target ${where} refused the credentials: ${what}.`, {cause})
}
