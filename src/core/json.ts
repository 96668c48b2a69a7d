import type {z} from 'zod'
import {expectationOf, messageOf} from './errors.ts'

type Step = string | number

/** The key under which an object holds the paths of repeated names below it. */
const REPEATED = Symbol('repeated')
/** What looks like the end of a member name. Counting these takes 0.2 µs per record, a tenth of a full scan. */
const NAME_END = /"[ \t\n\r]*:/g
/** Records sit no deeper than this in an answer. */
const MARKED_DEPTH = 4

const BYTE_ORDER_MARK = /^\uFEFF/

/** Undefined if the text is not JSON. If an object repeats a name, the last value wins, and {@link listRepeated} lists the name. */
export function parseJson(text: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(text.replace(BYTE_ORDER_MARK, ''))
  } catch {
    return undefined
  }
  const names = text.match(NAME_END)?.length ?? 0
  if (names !== countMembers(value)) markRepeated(value, findRepeated(text))
  return value
}

/** Lists the paths of repeated names in an object that {@link parseJson} returned. A copy made with `...` keeps them. */
export function listRepeated(value: unknown): readonly Step[][] {
  return isObject(value) ? (Reflect.get(value, REPEATED) ?? []) : []
}

export type Refuse = (problem: string, cause?: unknown) => Error

/** For files written by people: refuses what would be dropped silently, repeated names and `__proto__`, which no schema keeps. */
export function parseWritten<T>(text: string, refuse: Refuse, schema: z.ZodType<T>): T {
  let value: unknown
  try {
    value = JSON.parse(text.replace(BYTE_ORDER_MARK, ''))
  } catch (cause) {
    const [place] = /line \d+ column \d+/.exec(messageOf(cause)) ?? []
    throw refuse(place === undefined ? 'expected JSON' : `expected JSON at ${place}`, cause)
  }
  const [twice] = findRepeated(text)
  if (twice) throw refuse(`${twice.join('.')}: expected each name once in an object`)
  if (/"__proto__"\s*:/.test(text)) throw refuse('__proto__: expected another name')
  const {data, error} = schema.safeParse(value)
  if (error) throw refuse(describeIssues(error).join('; '))
  return data
}

function countMembers(value: unknown): number {
  let members = 0
  const left = [value]
  while (left.length > 0) {
    const one = left.pop()
    if (Array.isArray(one)) {
      for (const part of one) if (typeof part === 'object') left.push(part)
    } else if (isObject(one)) {
      for (const name in one) {
        members += 1
        if (typeof one[name] === 'object') left.push(one[name])
      }
    }
  }
  return members
}

function findRepeated(text: string): Step[][] {
  const found: Step[][] = []
  const names: (Set<string> | undefined)[] = []
  visitParts(text, (path) => {
    names.length = path.length + 1
    const name = path.at(-1)
    if (typeof name !== 'string') return
    const met = names[path.length] ?? new Set()
    names[path.length] = met
    if (met.has(name)) found.push(path.slice(0, MARKED_DEPTH + 1))
    met.add(name)
  })
  return found
}

function markRepeated(value: unknown, paths: readonly Step[][]): void {
  for (const path of paths) {
    let holder = value
    for (const [depth, name] of path.entries()) {
      if (typeof holder !== 'object' || holder === null) break
      const known: Step[][] = Reflect.get(holder, REPEATED) ?? []
      known.push(path.slice(depth))
      if (!Array.isArray(holder)) Reflect.set(holder, REPEATED, known)
      holder = findValue(holder, [String(name)])
    }
  }
}

/** A list of a million items can exceed the 512 MB that a text can hold. */
const ITEMS_IN_PART = 5000

export function* formatParts(list: readonly unknown[]): Generator<string> {
  for (let from = 0; from === 0 || from < list.length; from += ITEMS_IN_PART)
    yield JSON.stringify(list.slice(from, from + ITEMS_IN_PART))
}

/** Joins the lists that {@link formatParts} made, each in a line. */
export function parseParts(parts: Buffer): unknown[] {
  const lists: unknown[] = []
  for (let from = 0, to = 0; from < parts.length; from = to) {
    to = parts.indexOf('\n', from) + 1
    lists.push(JSON.parse(parts.toString('utf8', from, to)))
  }
  return lists.flat()
}

/** Undefined if the value nests too deeply to be written: some thousand levels, which {@link parseJson} reads. */
export function formatJson(value: unknown, replace?: (name: string, value: unknown) => unknown) {
  try {
    return JSON.stringify(value, replace)
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns undefined if the path leads nowhere, and `within` if it leads through null. */
export function findValue(value: unknown, path: readonly string[], within?: null): unknown {
  let found = value
  for (const name of path) {
    if (found === null) return within
    if (typeof found !== 'object' || !Object.hasOwn(found, name)) return undefined
    found = Reflect.get(found, name)
  }
  return found
}

/** Names paths, never values, which could be secrets. `whole` stands for the file itself. */
export function describeIssues({issues}: z.ZodError, whole = '(file)'): string[] {
  return issues.map((issue) => `${issue.path.join('.') || whole}: ${expectationOf(issue)}`)
}

/**
 * Returns the text of a value within valid JSON, unchanged, with all digits and the order of names; undefined if there is no such
 * path. If a name is repeated, the last value wins, as in `JSON.parse`.
 */
export function sliceJson(text: string, path: readonly Step[]): string | undefined {
  let found: {start: number; end: number} | undefined
  visitParts(text, (steps, start, end) => {
    if (steps.length > path.length || steps.some((step, depth) => step !== path[depth])) return
    if (steps.length === path.length) found = {start, end}
    // The last value of a repeated name counts, and it lacks this path.
    else if (found && found.start < start) found = undefined
  })
  return found && text.slice(found.start, found.end)
}

const SCALAR = /[^\s,\]}]+/y

/** Children first. `path` is valid only during the visit. Iterative, because values may nest deeper than the call stack. */
function visitParts(text: string, visit: (path: readonly Step[], start: number, end: number) => void): void {
  const path: Step[] = []
  const starts: number[] = []
  let at = skipBlanks(text, 0)
  while (at < text.length) {
    const sign = text[at]
    let end = at + 1
    if (sign === '{' || sign === '[') {
      starts.push(at)
      path.push(sign === '[' ? 0 : '')
    } else if (sign === '}' || sign === ']') {
      path.pop()
      visit(path, starts.pop() ?? 0, end)
    } else if (sign === ',') {
      const last = path.at(-1)
      if (typeof last === 'number') path[path.length - 1] = last + 1
    } else {
      SCALAR.lastIndex = at
      end = sign === '"' ? findTextEnd(text, at) : at + (SCALAR.exec(text)?.[0].length ?? 1)
      const colon = skipBlanks(text, end)
      if (text[colon] === ':') {
        path[path.length - 1] = String(JSON.parse(text.slice(at, end)))
        end = colon + 1
      } else visit(path, at, end)
    }
    at = skipBlanks(text, end)
  }
}

function skipBlanks(text: string, start: number): number {
  let at = start
  while (at < text.length && ' \t\n\r'.includes(text[at] ?? '')) at += 1
  return at
}

function findTextEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1
    else if (text[at] === '"') return at + 1
  }
  return text.length
}
