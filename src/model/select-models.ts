import {type LoantapeError, newError} from '../errors.ts'
import {expectOneOf} from '../nearest.ts'

/** What each model reads; names that are no keys are no models. */
type Reads = ReadonlyMap<string, readonly string[]>

const selectorPattern = /^(?:(\d*)\+)?([a-z0-9_*?]+\.[a-z0-9_*?]+)(?:\+(\d*))?$/

/**
 * The models a selection names. Parts are separated by commas or spaces and add up: `mart.run` one model, `mart.*` a
 * schema, `+mart.run` with everything it is built from, `mart.run+` with everything built from it, `1+mart.run+2`
 * with so many steps of each.
 *
 * @returns names of models
 * @throws ConfigError `USAGE`, or `UNKNOWN_NAME` when a part names no model
 */
export function selectModels(selection: string, reads: Reads): ReadonlySet<string> {
  const parts = selection.split(/[\s,]+/).filter((part) => part !== '')
  if (parts.length === 0) throw syntaxError(selection)
  return new Set(parts.flatMap((part) => selectPart(part, reads)))
}

function selectPart(part: string, reads: Reads): string[] {
  const match = selectorPattern.exec(part)
  if (!match) throw syntaxError(part)
  const [, parents, glob = '', children] = match
  const pattern = new RegExp(`^${glob.replaceAll('.', '\\.').replaceAll('*', '.*').replaceAll('?', '.')}$`)
  const named = [...reads.keys()].filter((name) => pattern.test(name))
  if (named.length === 0)
    throw newError(
      'UNKNOWN_NAME',
      `Selection '${part}' in --select names no model: ${expectOneOf(glob, [...reads.keys()].toSorted())}.`,
    )
  const listReaders = (name: string) => [...reads.keys()].filter((other) => reads.get(other)?.includes(name))
  return [
    ...expand(named, (name) => listModelsRead(name, reads), countSteps(parents)),
    ...expand(named, listReaders, countSteps(children)),
  ]
}

/** The models that these are built from, themselves included. */
export function withAncestors(names: ReadonlySet<string>, reads: Reads): ReadonlySet<string> {
  return expand([...names], (name) => listModelsRead(name, reads), Infinity)
}

function listModelsRead(name: string, reads: Reads): string[] {
  return (reads.get(name) ?? []).filter((read) => reads.has(read))
}

/** `+` stands for all steps, `2+` for two; without a plus there are none. */
function countSteps(text: string | undefined): number {
  if (text === undefined) return 0
  return text === '' ? Infinity : Number(text)
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

function syntaxError(part: string): LoantapeError {
  return newError(
    'USAGE',
    `Selection '${part}' in --select: expected schema.model, schema.*, +schema.model or schema.model+.`,
  )
}
