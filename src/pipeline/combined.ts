import {NotRewritten, toClickhouseSql} from '../clickhouse/model-sql.ts'
import {parseSelects} from '../model/selects.ts'
import type {ReleaseModel} from '../release/models-file.ts'
import type {CombinedModel} from '../release-target.ts'
import type {World} from '../types.ts'
import {openDatabase} from '../warehouse/database.ts'

/** Reference data that models of all lenders together read. */
const SHARED_SEEDS = ['seed.status']

/** What a model over all lenders can be built from beside other models: what is published, and what a release keeps for it. */
export interface CombinedInputs {
  models: readonly ReleaseModel[]
  /** `work` tables that the release keeps. */
  kept: readonly string[]
  /** What the name of a table, or `as_of`, becomes. */
  nameOf: (table: string) => string
}

/** Models over all lenders, and the tables they need that are not published. */
export interface CombinedPlan {
  models: CombinedModel[]
  inputs: string[]
}

/**
 * Finds the marts that can be computed over all lenders together from what each of them publishes: those whose rows are not of
 * one deal, that tell of deals, and that need nothing of a single lender's, such as its walks, feeds and limits.
 */
export async function planCombined(
  {models, kept, nameOf}: CombinedInputs,
  {log}: Pick<World, 'log'>,
): Promise<CombinedPlan> {
  await using db = await openDatabase({threads: 1})
  const byName = new Map(models.map((model) => [model.name, model]))
  const isOfDeals = (model: ReleaseModel | undefined) => model?.grain.includes('deal_id') ?? false
  const given = new Set([
    ...SHARED_SEEDS,
    'mart.run',
    ...models.filter(({name}) => name.startsWith('core.') || kept.includes(name)).map(({name}) => name),
  ])
  const selects = await parseSelects(
    db,
    models.map(({name, sql}) => ({name, file: name, sql})),
  )
  const found = new Map<string, CombinedModel & {tellsOfDeals: boolean}>()
  for (const {name, description, reads, columns, is_published} of models) {
    const isKnown = reads.every((read) => given.has(read) || found.has(read))
    if (given.has(name) || name.startsWith('accounting.') || !isKnown || isOfDeals(byName.get(name))) continue
    const tree = selects.get(name)?.statements[0]
    const tellsOfDeals = reads.some((read) => isOfDeals(byName.get(read)) || found.get(read)?.tellsOfDeals)
    if (is_published && !tellsOfDeals) continue
    const sql = rewrite(tree, nameOf)
    if (typeof sql !== 'string') {
      log.info({reason: `${name}: ${sql.reason}`}, 'a model is not computed over all lenders')
      continue
    }
    found.set(name, {
      name,
      comment: description,
      columns: columns.map(({name, type, meaning}) => ({name, type, comment: meaning})),
      isShown: is_published,
      reads,
      tellsOfDeals,
      sql,
    })
  }
  const needed = new Set<string>()
  const need = (name: string) => {
    if (needed.has(name)) return
    needed.add(name)
    for (const read of found.get(name)?.reads ?? []) need(read)
  }
  for (const {name, isShown} of found.values()) if (isShown) need(name)
  return {
    models: [...found.values()].filter(({name}) => needed.has(name)),
    inputs: [...needed].filter((name) => SHARED_SEEDS.includes(name) || kept.includes(name)).sort(),
  }
}

/** The SQL of a model over all lenders, or why there is none. */
function rewrite(tree: unknown, nameOf: (table: string) => string): string | {reason: string} {
  const variable = (name: string) => {
    // Of what a build is given, lenders together have the day alone.
    if (name !== 'as_of') throw new NotRewritten(`the variable ${name}`)
    return nameOf(name)
  }
  try {
    return toClickhouseSql(tree, {table: nameOf, variable})
  } catch (error) {
    if (error instanceof NotRewritten) return {reason: error.message}
    throw error
  }
}
