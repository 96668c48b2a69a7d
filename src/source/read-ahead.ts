/** What is asked for ahead may fail before anyone waits for it: whoever awaits it later gets the error, as ever. */
export function readAhead<T>(answer: Promise<T>): Promise<T> {
  void Promise.allSettled([answer])
  return answer
}
