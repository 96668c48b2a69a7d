import {z} from 'zod'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import type {ReleaseModel} from '../store/release.ts'

export type DealSet = Awaited<ReturnType<typeof createDealSet>>

/**
 * Restricts a release to some deals, with all their history. Tables with one deal per row are filtered; the others are computed
 * again by their models. Tables about walks or limits stay as they are: they describe the whole portfolio.
 * @param db has the release attached as `release` and its `work` tables as `kept`; `as_of` and `known_at` are set as variables
 * @param condition SQL over `core.deal`
 */
export async function createDealSet(
  db: Database,
  models: readonly ReleaseModel[],
  {catalog, condition}: {catalog: string; condition: string},
) {
  const byName = new Map(models.map((model) => [model.name, model]))
  const schemas = models.flatMap(({name, reads}) => [name, ...reads]).map((name) => name.split('.')[0] ?? '')
  const seeds = await db.column(
    z.string(),
    `select table_name from duckdb_tables() where database_name = 'release' and schema_name = 'seed'`,
  )
  const made = new Set(seeds.map((name) => `seed.${name}`))
  await db.run(
    [
      `attach ':memory:' as ${catalog}`,
      ...[...new Set([...schemas, 'seed'])].map((schema) => `create schema ${catalog}.${quoteName(schema)}`),
      ...seeds.map(
        (name) => `create view ${catalog}.seed.${quoteName(name)} as from release.seed.${quoteName(name)}`,
      ),
      `create table ${catalog}.main.deals as select deal_id from release.core.deal as deal where ${condition}`,
    ].join(';\n'),
  )
  // A condition with a subquery is evaluated once.
  const isPlain = !/\bselect\b/.test(condition)
  // When most deals are kept, leaving out the others is several times as fast.
  const {is_most} = await db.one(
    z.object({is_most: z.boolean()}),
    `select 2 * (select count(*) from ${catalog}.main.deals) > count(*) as is_most from release.core.deal`,
  )
  const isMost = is_most && byName.has('core.deal_history')
  if (isMost)
    await db.run(
      `create table ${catalog}.main.others as
         select deal_id from release.core.deal as deal
         where ${isPlain ? `(${condition}) is not true` : `deal_id not in (from ${catalog}.main.deals)`}
         union all
         select deal_id from release.core.deal_history where valid_to is null and change = 'vanished'`,
    )

  async function make(name: string): Promise<void> {
    if (made.has(name)) return
    const table = `${catalog}.${qualify(name)}`
    const model = byName.get(name)
    const stored = `${model?.is_published === false ? 'kept' : 'release'}.${qualify(name)}`
    if (name === 'core.deal' && isPlain) {
      // A filter is several times as fast as a join.
      await db.run(`create view ${table} as from ${stored} as deal where ${condition}`)
    } else if (model?.is_per_deal || model?.grain.join() === 'deal_id') {
      const [join, ids] = isMost && OF_HISTORY.includes(name) ? ['anti', 'others'] : ['semi', 'deals']
      const those = `select stored.* from ${stored} as stored ${join} join ${catalog}.main.${ids} using (deal_id)`
      await db.run(`create view ${table} as ${those}`)
    } else if (!model || model.reads.some((read) => read.startsWith('raw.') || read === 'seed.limit')) {
      await db.run(`create view ${table} as from ${stored}`)
    } else {
      for (const read of model.reads) await make(read)
      await db.run(`set search_path = ${quoteLiteral(`${catalog}.main`)}`)
      const columns = model.columns.map((column) =>
        model.is_published
          ? `${quoteName(column.name)}::${column.type} as ${quoteName(column.name)}`
          : quoteName(column.name),
      )
      await db.run(`create table ${table} as select ${columns.join(', ')} from (${model.sql}\n)`)
    }
    made.add(name)
  }

  return {
    /** Holds the tables, in the release's schemas. */
    catalog,
    /** Makes what does not exist yet, and the tables it reads. */
    async require(names: readonly string[]) {
      for (const name of names) await make(name)
    },
  }
}

/** Tables of ours whose deals are all in `core.deal_history`; other tables may also hold unknown deals. */
const OF_HISTORY = [
  'core.deal',
  'core.deal_history',
  'work.position_span',
  'work.deal_life',
  'work.deal_standing',
  'work.funded_movement',
  'work.stage_spell',
]

const qualify = (name: string) => name.split('.').map(quoteName).join('.')
