import {z} from 'zod'
import type {Model} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {createModelError} from './model-error.ts'
import {findCall, walkTree} from './table-references.ts'

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
 * @param plan the engine's bound plan, which knows the types
 * @throws CheckError `MODEL_INEXACT_SUM`, with file and line
 */
export async function requireExactSums(db: Database, model: Model, plan: unknown): Promise<void> {
  const found: {name: string; of: string; type: string}[] = []
  walkTree(plan, (node) => {
    if (!('expression_class' in node)) return
    const sum = boundSum.safeParse(node).data
    const type = sum?.arguments[0]?.id
    if (sum && SUMS.includes(sum.name) && (type === 'DOUBLE' || type === 'FLOAT')) {
      found.push({name: sum.name, of: sum.children[0]?.alias ?? '', type})
    }
  })
  const [first] = found
  if (!first) return
  const place = {file: model.file, line: await findCall(db, model, first.name)}
  throw createModelError('MODEL_INEXACT_SUM', place, {
    problem: `${first.name}(${first.of || '…'}) of model '${model.name}' adds up ${first.type}: expected DECIMAL or whole numbers, whose sum does not depend on their order,`,
  })
}
