import {findNearest} from '../nearest.ts'
import type {BuildPlan, Model} from '../types.ts'
import {createModelError} from './model-error.ts'
import {findTables, type ParsedSelect, type TableReference} from './table-references.ts'

/**
 * Sorts models so that each stands behind what it reads; where nothing decides, by name.
 *
 * @param selects each model's SELECT, by name
 * @param given tables that exist without a model: `raw.…` and `seed.…`
 * @returns the models in order, and what each of them reads: models, seeds and raw tables
 * @throws CheckError `MODEL_UNKNOWN_TABLE`, `MODEL_CYCLE`, with file and line
 */
export function orderModels(
  models: readonly Model[],
  selects: ReadonlyMap<string, ParsedSelect>,
  given: ReadonlySet<string>,
): Pick<BuildPlan, 'models' | 'reads'> {
  const byName = new Map(models.map((model) => [model.name, model]))
  const references = new Map<string, TableReference[]>()
  for (const model of models) {
    const select = selects.get(model.name)
    const read = [...(select ? findTables(select) : []), ...model.declaredDependencies]
    const unknown = read.find(({name}) => !byName.has(name) && !given.has(name))
    if (unknown) {
      const nearest = findNearest(unknown.name, [...byName.keys(), ...given])
      throw createModelError(
        'MODEL_UNKNOWN_TABLE',
        {file: model.file, line: unknown.line},
        `Unknown table '${unknown.name}': expected a model, a seed or a raw table, written as schema.table${nearest === undefined ? '' : `; the nearest is '${nearest}'`},`,
      )
    }
    references.set(model.name, read)
  }
  const reads = [...references].map(
    ([name, read]) => [name, [...new Set(read.map((table) => table.name))]] as const,
  )
  return {models: sortByReads(byName, references), reads: new Map(reads)}
}

function sortByReads(byName: Map<string, Model>, reads: Map<string, TableReference[]>): Model[] {
  const ordered = new Set<Model>()
  const visit = (model: Model, path: readonly string[]): void => {
    if (ordered.has(model)) return
    const chain = [...path, model.name]
    for (const {name, line} of reads.get(model.name) ?? []) {
      if (chain.includes(name)) {
        const cycle = [...chain.slice(chain.indexOf(name)), name].join(' → ')
        throw createModelError(
          'MODEL_CYCLE',
          {file: model.file, line},
          `Models read each other in a cycle, ${cycle}: expected an order,`,
        )
      }
      const read = byName.get(name)
      if (read) visit(read, chain)
    }
    ordered.add(model)
  }
  for (const name of [...byName.keys()].sort()) {
    const model = byName.get(name)
    if (model) visit(model, [])
  }
  return [...ordered]
}
