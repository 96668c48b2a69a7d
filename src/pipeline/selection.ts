import {selectModels, withAncestors} from '../model/select-models.ts'
import type {BuildPlan, Check} from '../types.ts'

/** What is built for a selection. */
interface SelectionPlan {
  plan: Pick<BuildPlan, 'models' | 'seeds' | 'reads'>
  /** The checks of the selected models that can be run on what is built. */
  checks: readonly Check[]
  /** Tables that are built for the selected ones and not kept. */
  dropped: string[]
}

/**
 * Plans the building of some models: with them what they are built from, which is dropped again, and every check that
 * reads one of them and nothing that is not built. Without a selection all of it is built.
 *
 * @throws ConfigError `SELECT_SYNTAX`, `SELECT_UNKNOWN`
 */
export function planSelection(
  whole: BuildPlan,
  checks: readonly Check[],
  selection: string | undefined,
): SelectionPlan {
  if (selection === undefined) return {plan: whole, checks, dropped: []}
  const selected = selectModels(selection, whole.reads)
  const needed = withAncestors(selected, whole.reads)
  const isBuilt = (table: string) => needed.has(table) || !whole.reads.has(table)
  const models = whole.models.filter(({name}) => needed.has(name))
  return {
    plan: {models, seeds: whole.seeds, reads: whole.reads},
    checks: checks.filter(({name}) => {
      const tables = whole.checkReads.get(name) ?? []
      return tables.some((table) => selected.has(table)) && tables.every(isBuilt)
    }),
    dropped: models.filter(({name, isPublished}) => isPublished && !selected.has(name)).map(({name}) => name),
  }
}
