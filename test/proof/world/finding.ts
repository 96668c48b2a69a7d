/** Something that is not as it must be; the words before the first colon say where. */
export class Finding extends Error {
  /** Number of the story's event at which it showed, from 0. */
  place?: number
}
