import {z} from 'zod'
import type {Model} from '../types.ts'
import {createModelError} from './model-error.ts'
import {findCall, type ParsedSelect, walkTree} from './table-references.ts'

/** Aggregates that add up: over a DOUBLE their result differs with the number of threads. */
const SUMS = ['sum', 'avg', 'mean', 'fsum', 'sumkahan', 'kahan_sum', 'favg']

const boundSum = z.object({
  expression_class: z.enum(['BOUND_AGGREGATE', 'BOUND_WINDOW']),
  name: z.string(),
  arguments: z.array(z.object({id: z.string()})),
  children: z.array(z.object({alias: z.string().optional()})),
})

/**
 * Holds that a model neither sums nor averages a DOUBLE or FLOAT, as aggregate or over a window.
 *
 * @param bound its SELECT, and the engine's bound plan, which knows the types
 * @throws CheckError `MODEL_INEXACT_SUM`, with file and line
 */
export function requireExactSums(model: Model, {select, plan}: {select: ParsedSelect; plan: unknown}): void {
  const found: {name: string; of: string; type: string}[] = []
  walkTree(plan, (node) => {
    if (!('name' in node && SUMS.includes(String(node.name)))) return
    const sum = boundSum.safeParse(node).data
    const type = sum?.arguments[0]?.id
    if (sum && (type === 'DOUBLE' || type === 'FLOAT')) {
      found.push({name: sum.name, of: sum.children[0]?.alias ?? '', type})
    }
  })
  const [first] = found
  if (!first) return
  const place = {file: model.file, line: findCall(select, first.name)}
  throw createModelError('MODEL_INEXACT_SUM', place, {
    problem: `${first.name}(${first.of || '…'}) of model '${model.name}' adds up ${first.type}: expected DECIMAL or whole numbers, whose sum does not depend on their order,`,
  })
}
