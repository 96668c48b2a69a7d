import {hash} from 'node:crypto'

function countEdits(from: string, to: string): number {
  let row = Array.from({length: to.length + 1}, (_, index) => index)
  for (const [index, letter] of [...from].entries()) {
    const next = [index + 1]
    for (const [column, other] of [...to].entries()) {
      const [replaced = 0, removed = 0, added = 0] = [row[column], row[column + 1], next[column]]
      next.push(Math.min(replaced + Number(letter !== other), removed + 1, added + 1))
    }
    row = next
  }
  return row.at(-1) ?? 0
}

const bareOf = (name: string) => name.slice(name.indexOf('.') + 1)

/** Returns the nearest known name; undefined if more than a third of the letters differ, not counting the schema. */
export function findNearest(asked: string, known: readonly string[]): string | undefined {
  const [best] = known
    .map((name) => ({name, edits: countEdits(asked, asked.includes('.') ? name : bareOf(name))}))
    .sort((a, b) => a.edits - b.edits)
  return best && best.edits <= bareOf(asked).length / 3 ? best.name : undefined
}

/** Says what was expected instead of an unknown name. */
export function expectOneOf(asked: string, known: readonly string[], none = 'there is none yet'): string {
  if (known.length === 0) return none
  const nearest = findNearest(asked, known)
  return nearest === undefined
    ? `expected one of ${known.join(', ')}`
    : `expected a name that is known; the nearest is '${nearest}'`
}

/** `a, b, c, …`: the sign stands for more. */
export const listSome = (names: readonly string[]): string =>
  [...names.slice(0, 3), ...(names.length > 3 ? ['…'] : [])].join(', ')

/** Writes line ends as `\\n`, so that a foreign text stays on one line. */
export const escapeLineEnds = (text: string): string => text.replaceAll('\n', '\\n').replaceAll('\t', '\\t')

/** Matches characters that a reader does not see, or that change the direction of text. */
export const INVISIBLE = /[[\p{Cc}\p{Bidi_Control}\u00ad\u200b\u2060\ufeff]--[\n\t]]/gv

export function shorten(text: string): string {
  return text.length > 80 ? `${text.slice(0, 79)}…` : text
}

/** Makes a foreign word safe to log and store. Known words stay; others may be names of people, so they become part of their sha256. */
export function tellForeign(word: string, known: ReadonlySet<string> | RegExp = new Set()): string {
  const isKnown = known instanceof RegExp ? known.test(word) : known.has(word)
  return isKnown ? word : `sha256:${hash('sha256', word).slice(0, 12)}`
}

/** Writes the path of a foreign field, safe to log and store. */
export const tellPath = (path: readonly (string | number)[]): string =>
  path.map((name) => (typeof name === 'string' ? tellForeign(name, FIELD_NAME) : name)).join('.')

/** Matches a field name. Without spaces, dots and at signs, it cannot be a person's name or address. */
export const FIELD_NAME = /^[A-Za-z_][\w-]{0,63}$/

/** Whether a URL has a user or a password. */
export function namesUser(url: string): boolean {
  const {username = '', password = ''} = URL.parse(url) ?? {}
  return username + password !== ''
}

const HERE = /^(localhost\.?|127(\.\d+){3}|0\.0\.0\.0|\[::1?\]|\[::ffff:7f.*\])$/

export const isHere = (url: string | URL) => HERE.test(new URL(url).hostname)
