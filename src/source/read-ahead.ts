/**
 * Holds the outcome of work that was started before anyone waits for it: a failure in the meantime is kept for whoever
 * comes to read it, instead of ending the process as an unhandled rejection.
 */
export async function holdOutcome<T>(work: Promise<T>): Promise<PromiseSettledResult<T>> {
  const [outcome] = await Promise.allSettled([work])
  return outcome
}

/** The value of an outcome; throws its failure. */
export function readOutcome<T>(outcome: PromiseSettledResult<T>): T {
  if (outcome.status === 'rejected') throw outcome.reason
  return outcome.value
}
