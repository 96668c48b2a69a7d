import {hash} from 'node:crypto'

/**
 * A word of somebody else as it may be told, logged and stored: a known one as it is, of any other the beginning of its sha256,
 * since it could name a person.
 */
export function tellForeign(word: string, known: ReadonlySet<string> | RegExp): string {
  const isKnown = known instanceof RegExp ? known.test(word) : known.has(word)
  return isKnown ? word : `sha256:${hash('sha256', word).slice(0, 12)}`
}

/** Knows no word. */
export const NONE: ReadonlySet<string> = new Set()

/** What programs call a field. A name of a person has a space, a dot or an at sign. */
export const FIELD_NAME = /^[A-Za-z_][\w-]{0,63}$/
