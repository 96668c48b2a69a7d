import {tmpdir} from 'node:os'
import {buildModels, type Counted} from '../../src/build/build-models.ts'
import {type History, insertHistory} from '../../src/build/case-rows.ts'
import {compileModels} from '../../src/build/compile.ts'
import {withAncestors} from '../../src/build/read-models.ts'
import {readSources} from '../../src/build/sources.ts'
import {parseConfig} from '../../src/core/config.ts'
import type {BuildPlan} from '../../src/core/types.ts'
import {type Database, openDatabase} from '../../src/store/database.ts'
import {migrate} from '../../src/store/warehouse.ts'
import {anyRow} from '../support/data.ts'

export const ZONE = {timeZone: 'America/New_York', dayCutoff: '06:00'}

/** What a release counts by default: everything until the end of March 2026, in {@link ZONE}. */
const ALL: Counted = {asOf: '2026-03-31', knownAt: '2026-12-31 00:00:00', ...ZONE}

export const shipped = readSources(parseConfig({LOANTAPE_DATA_DIR: tmpdir()}, {readFile: () => ''}), [])

export async function builtInPlan() {
  return {plan: await compileModels(shipped), checks: shipped.checks}
}

export async function buildRelease(
  history: History,
  counted: Partial<Counted> = {},
  plan?: Pick<BuildPlan, 'models' | 'seeds' | 'reads' | 'columns'>,
): Promise<Database> {
  const attach = ['release', 'history'].map((alias) => ({path: ':memory:', alias}))
  const db = await openDatabase({attach})
  await migrate(db, 'history')
  await insertHistory(db, history)
  await buildModels(db, plan ?? (await builtInPlan()).plan, {...ALL, ...counted})
  return db
}

/** Returns the plan of the tables that a query names and of all they are built from. */
export async function planOf(sql: string): Promise<BuildPlan> {
  const {plan} = await builtInPlan()
  const named = plan.models.map(({name}) => name).filter((name) => sql.includes(name))
  const names = withAncestors(new Set(named), plan.reads)
  return {...plan, models: plan.models.filter(({name}) => names.has(name))}
}

export async function query(
  history: History,
  sql: string,
  counted: Partial<Counted> = {},
): Promise<unknown[]> {
  await using db = await buildRelease(history, counted, await planOf(sql))
  // Without `await`, the database would close before its query ends.
  return await db.all(anyRow, sql)
}
