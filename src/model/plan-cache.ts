import {hash} from 'node:crypto'
import {existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {parseJson} from '../json.ts'
import type {BuildPlan, Check, Model, Seed} from '../types.ts'
import {GENERATOR} from '../version.ts'
import {keepText, readKept} from '../warehouse/atomic-file.ts'
import {fingerprintModels} from './build-models.ts'
import {markPerDeal} from './changed-deals.ts'
import {BUILT_IN_SQL} from './read-models.ts'

/** What a build is compiled from. */
export interface ModelSource {
  models: readonly Model[]
  seeds: readonly Seed[]
  checks: readonly Check[]
}

/** Enough for the plans of the months whose accounts differ. */
const KEPT_PLANS = 20

const lists = z.array(z.tuple([z.string(), z.array(z.string())]))
const planFile = z.object({
  models: z.array(z.string()),
  reads: lists,
  checkReads: lists,
  columns: z.array(z.tuple([z.string(), z.array(z.object({name: z.string(), type: z.string()}))])),
})

/** The plan of the models as they are shipped, compiled when they were written: `npm run docs` writes it. */
export const SHIPPED_PLAN: string = join(BUILT_IN_SQL, 'plan.json')

/**
 * What the plan of these sources is known by. Rows of a computed seed do not count: they were validated as they were read, and no plan
 * depends on them.
 *
 * @param engine its version, such as `v1.5.6`
 */
export function keyOfPlan({models, checks, seeds}: ModelSource, engine: string): string {
  const shapes = seeds.map((seed) => (seed.isComputed ? {...seed, text: seed.columns.join()} : seed))
  return hash('sha256', [fingerprintModels(models, checks, shapes), engine, GENERATOR].join('\n')).slice(
    0,
    16,
  )
}

/** The text of a plan that was compiled before, here or for the package; undefined where there is none. */
export function readPlan(dir: string | undefined, key: string): string | undefined {
  const kept = dir && readKept(pathOf(dir, key))
  if (kept) return kept
  const shipped = existsSync(SHIPPED_PLAN) ? readFileSync(SHIPPED_PLAN, 'utf8') : ''
  return shipped.startsWith(`{"key":"${key}"`) ? shipped : undefined
}

/** Makes the plan of these sources from its text; undefined where the text is not of them. */
export function parsePlan(text: string, source: ModelSource): BuildPlan | undefined {
  const plan = planFile.safeParse(parseJson(text)).data
  const models = plan?.models.flatMap((name) => source.models.find((model) => model.name === name) ?? [])
  if (!plan || models?.length !== source.models.length) return undefined
  const reads = new Map(plan.reads)
  return {
    models: markPerDeal(models, reads),
    seeds: source.seeds,
    reads,
    checkReads: new Map(plan.checkReads),
    columns: new Map(plan.columns),
  }
}

/** Everything of a plan that its sources do not say. */
export function formatPlan(key: string, {models, reads, checkReads, columns}: BuildPlan): string {
  return JSON.stringify({
    key,
    models: models.map(({name}) => name),
    reads: [...reads],
    checkReads: [...checkReads],
    columns: [...columns],
  })
}

/** Keeps a plan for the next process, and the latest of those before. */
export function keepPlan(dir: string, key: string, text: string): void {
  mkdirSync(dir, {recursive: true, mode: 0o700})
  keepText(pathOf(dir, key), text)
  const kept = readdirSync(dir)
    .filter((name) => name.startsWith('plan-'))
    .map((name) => join(dir, name))
    .map((path) => ({path, at: statSync(path, {throwIfNoEntry: false})?.mtimeMs ?? 0}))
    .sort((a, b) => b.at - a.at)
  for (const {path} of kept.slice(KEPT_PLANS)) rmSync(path, {force: true})
}

function pathOf(dir: string, key: string): string {
  return join(dir, `plan-${key}.json`)
}
