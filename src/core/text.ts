import {hash} from 'node:crypto'

/** How many letters must be changed, dropped or added to make one text the other. */
function countEdits(from: string, to: string): number {
  let row = Array.from({length: to.length + 1}, (_, index) => index)
  for (const [index, letter] of [...from].entries()) {
    const next = [index + 1]
    for (const [column, other] of [...to].entries()) {
      const [kept = 0, gone = 0, come = 0] = [row[column], row[column + 1], next[column]]
      next.push(Math.min(kept + Number(letter !== other), gone + 1, come + 1))
    }
    row = next
  }
  return row.at(-1) ?? 0
}

const bareOf = (name: string) => name.slice(name.indexOf('.') + 1)

/**
 * The known name that is most like the one asked for; undefined where more than a third of its letters differ, those of a schema
 * not counted.
 */
export function findNearest(asked: string, known: readonly string[]): string | undefined {
  const ranked = known
    .map((name) => ({name, edits: countEdits(asked, asked.includes('.') ? name : bareOf(name))}))
    .sort((a, b) => a.edits - b.edits)
  const [best] = ranked
  return best && best.edits <= bareOf(asked).length / 3 ? best.name : undefined
}

/** What was expected in place of a name that is not known: the nearest, or all there are where none is near. */
export function expectOneOf(asked: string, known: readonly string[]): string {
  const nearest = findNearest(asked, known)
  return nearest === undefined
    ? `expected one of ${known.join(', ')}`
    : `expected a name that is known; the nearest is '${nearest}'`
}

/** A text of the data no longer than a name is. */
export function shorten(text: string): string {
  return text.length > 80 ? `${text.slice(0, 79)}…` : text
}

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
