/** A violation; the words before the first colon say where. */
export class Finding extends Error {
  /** Number of the story's event at which it appeared, from 0. */
  place?: number
}
