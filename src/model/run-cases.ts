import {availableParallelism} from 'node:os'
import {z} from 'zod'
import {CheckError, LoantapeError, messageOf} from '../errors.ts'
import type {BuildPlan, Model} from '../types.ts'
import {type Database, openDatabase, quoteName} from '../warehouse/database.ts'
import {migrate} from '../warehouse/migrate.ts'
import {type BuildOptions, buildModels, type Counted} from './build-models.ts'
import {buildCaseHistory} from './case-history.ts'
import {compareRows, isSameRows, type RowDiff, type TextRow} from './compare-rows.ts'
import {insertHistory} from './raw-rows.ts'
import type {ModelCase} from './read-cases.ts'
import {replaceSeeds} from './seeds.ts'
import {withAncestors} from './select-models.ts'

/** What became of a case. */
export interface CaseResult extends RowDiff {
  table: string
  name: string
  file: string
  line: number
  passed: boolean
  /** Why the table could not be built or read; null where it was. */
  problem: string | null
  duration_ms: number
}

/** How cases are run. */
export interface CaseOptions {
  zone: Pick<Counted, 'timeZone' | 'dayCutoff'>
  /** Limits what a database takes; returns what is put around each model. */
  limit?: (db: Database) => Promise<NonNullable<BuildOptions['around']>>
  onDone?: (result: CaseResult) => void
}

/** Later than anything a case stores. */
const EVERYTHING_KNOWN = '9999-12-31 00:00:00'

/**
 * Builds the model of each case, and what it is built from, from the case's history, and compares its rows; cases run side by side.
 *
 * @returns one result a case, in their order
 */
export async function runCases(
  cases: readonly ModelCase[],
  plan: BuildPlan,
  options: CaseOptions,
): Promise<CaseResult[]> {
  const results = new Map<ModelCase, CaseResult>()
  const queue = [...cases]
  const work = async () => {
    await using db = await openDatabase({threads: 1, attach: [{path: ':memory:', alias: 'empty'}]})
    await migrate(db, 'empty')
    const around = await options.limit?.(db)
    for (let tested = queue.shift(); tested; tested = queue.shift()) {
      const result = await runCase(db, tested, {plan, zone: options.zone, ...(around && {around})})
      results.set(tested, result)
      options.onDone?.(result)
    }
  }
  const lanes = Math.min(availableParallelism(), cases.length)
  const ended = await Promise.allSettled(
    Array.from({length: lanes}, () =>
      work().catch((error: unknown) => {
        queue.length = 0
        throw error
      }),
    ),
  )
  const failure = ended.find(({status}) => status === 'rejected')
  if (failure?.status === 'rejected') throw failure.reason
  return cases.flatMap((tested) => results.get(tested) ?? [])
}

interface Bench {
  plan: BuildPlan
  zone: CaseOptions['zone']
  around?: NonNullable<BuildOptions['around']>
}

async function runCase(db: Database, tested: ModelCase, bench: Bench): Promise<CaseResult> {
  const {table, name, file, line} = tested
  const startedAt = performance.now()
  const {problem, ...diff} = await findDiff(db, tested, bench)
  const passed = problem === null && isSameRows(diff)
  const duration_ms = Math.round(performance.now() - startedAt)
  return {table, name, file, line, passed, problem, ...diff, duration_ms}
}

async function findDiff(
  db: Database,
  tested: ModelCase,
  bench: Bench,
): Promise<RowDiff & {problem: string | null}> {
  await db.run(
    `attach ':memory:' as release; attach ':memory:' as history; copy from database empty to history`,
  )
  try {
    const diff = await buildAndCompare(db, tested, bench)
    return {problem: null, ...diff}
  } catch (error) {
    // Whoever stops the run stops all of it.
    if (error instanceof LoantapeError && !(error instanceof CheckError)) throw error
    const problem = error instanceof LoantapeError ? error.problem : (messageOf(error).split('\n\n')[0] ?? '')
    return {problem, missing: [], unexpected: [], different: [], misplaced: null}
  } finally {
    await db.run(`set search_path = 'memory.main'; detach release; detach history`)
  }
}

const textRow: z.ZodType<TextRow> = z.record(z.string(), z.string().nullable())

async function buildAndCompare(
  db: Database,
  tested: ModelCase,
  {plan, zone, around}: Bench,
): Promise<RowDiff> {
  const {table, where, rows} = tested
  const history = buildCaseHistory(tested.walks, zone)
  await insertHistory(db, history)
  const days = [...history.walks, ...history.versions].map(({business_date}) => String(business_date)).sort()
  const asOf = tested.asOf ?? days.at(-1) ?? ''
  const counted = {asOf, knownAt: tested.knownAt ?? EVERYTHING_KNOWN, ...zone}
  const needed = withAncestors(new Set([table]), plan.reads)
  const isRead = (seed: string) => [...needed].some((name) => plan.reads.get(name)?.includes(`seed.${seed}`))
  const models = plan.models.filter(({name}) => needed.has(name)).map(publish(table))
  const seeds = replaceSeeds(plan.seeds, tested.seeds).filter(({name}) => isRead(name))
  await buildModels(db, {...plan, models, seeds}, counted, around && {around})

  const columns = plan.columns.get(table) ?? []
  const {grain = [], order = []} = models.find(({name}) => name === table) ?? {}
  const named = rows[0] ? Object.keys(rows[0]) : columns.map(({name}) => name)
  const shown = [...new Set([...named, ...grain])].map(quoteName).join(', ')
  const found = await db.all(
    textRow,
    `select columns(*)::varchar from (select ${shown} from ${table} where ${where}\n)`,
  )
  const numbers = columns.filter(({type}) => /^(DECIMAL|BIGINT|HUGEINT|DOUBLE)/.test(type))
  return compareRows(rows, found, {
    columns: named,
    grain,
    numbers: new Set(numbers.map(({name}) => name)),
    isOrdered: order.join() !== grain.join(),
  })
}

/** A model of `work`, which no release keeps, is kept to be looked at. */
function publish(table: string): (model: Model) => Model {
  return (model) => (model.name === table ? {...model, isPublished: true} : model)
}
