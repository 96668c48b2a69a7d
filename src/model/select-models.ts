import {type LoantapeError, newError} from '../errors.ts'

/** One part of a selection: models by name or glob, with so many steps of what they read and what reads them. */
interface Selector {
  pattern: RegExp
  parents: number
  children: number
}

const selectorPattern = /^(?:(\d*)\+)?([a-z0-9_*?]+\.[a-z0-9_*?]+)(?:\+(\d*))?$/

/**
 * The models a selection names. Parts are separated by commas or spaces and add up: `mart.run` one model, `mart.*` a
 * schema, `+mart.run` with everything it is built from, `mart.run+` with everything built from it, `1+mart.run+2`
 * with so many steps of each.
 *
 * @param reads what each model reads; names that are no keys are no models
 * @returns names of models
 * @throws ConfigError `SELECT_SYNTAX`, or `SELECT_UNKNOWN` when a part names no model
 */
export function selectModels(
  selection: string,
  reads: ReadonlyMap<string, readonly string[]>,
): ReadonlySet<string> {
  const parents = (name: string) => (reads.get(name) ?? []).filter((read) => reads.has(read))
  const children = (name: string) => [...reads.keys()].filter((other) => reads.get(other)?.includes(name))
  const selected = new Set<string>()
  for (const part of splitSelection(selection)) {
    const selector = parseSelector(part)
    const named = [...reads.keys()].filter((name) => selector.pattern.test(name))
    if (named.length === 0)
      throw newError(
        'SELECT_UNKNOWN',
        `Selection '${part}' in --select names no model: expected one of ${[...reads.keys()].toSorted().join(', ')}.`,
      )
    for (const name of [
      ...expand(named, parents, selector.parents),
      ...expand(named, children, selector.children),
    ]) {
      selected.add(name)
    }
  }
  return selected
}

/** The models that these are built from, themselves included. */
export function withAncestors(
  names: ReadonlySet<string>,
  reads: ReadonlyMap<string, readonly string[]>,
): ReadonlySet<string> {
  return expand([...names], (name) => (reads.get(name) ?? []).filter((read) => reads.has(read)), Infinity)
}

function expand(
  names: readonly string[],
  next: (name: string) => readonly string[],
  steps: number,
): Set<string> {
  const reached = new Set(names)
  let edge = names
  for (let step = 0; step < steps && edge.length > 0; step += 1) {
    edge = [...new Set(edge.flatMap(next))].filter((name) => !reached.has(name))
    for (const name of edge) reached.add(name)
  }
  return reached
}

function splitSelection(selection: string): string[] {
  const parts = selection.split(/[\s,]+/).filter((part) => part !== '')
  if (parts.length > 0) return parts
  throw syntaxError(selection)
}

function parseSelector(part: string): Selector {
  const match = selectorPattern.exec(part)
  if (!match) throw syntaxError(part)
  const [, parents, pattern = '', children] = match
  const steps = (text: string | undefined) => (text === undefined ? 0 : text === '' ? Infinity : Number(text))
  const glob = pattern.replaceAll('.', '\\.').replaceAll('*', '.*').replaceAll('?', '.')
  return {pattern: new RegExp(`^${glob}$`), parents: steps(parents), children: steps(children)}
}

function syntaxError(part: string): LoantapeError {
  return newError(
    'SELECT_SYNTAX',
    `Selection '${part}' in --select: expected schema.model, schema.*, +schema.model or schema.model+.`,
  )
}
