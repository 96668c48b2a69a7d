import {hash} from 'node:crypto'
import {existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {parseJson} from '../json.ts'
import type {BuildPlan, Check, Model, Seed} from '../types.ts'
import {GENERATOR} from '../version.ts'
import {writeFileAtomically} from '../warehouse/atomic-file.ts'
import {markPerDeal} from './per-deal.ts'

/** Where plans are kept, and the engine that compiled them. */
export interface PlanCache {
  /** The folder can be removed at any time. */
  dir: string
  engine: string
}

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

/** The text of a plan that was compiled before by the same engine; undefined where there is none. */
export function readPlan(cache: PlanCache, fingerprint: string): string | undefined {
  const path = pathOf(cache, fingerprint)
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined
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
export function formatPlan({models, reads, checkReads, columns}: BuildPlan): string {
  return JSON.stringify({
    models: models.map(({name}) => name),
    reads: [...reads],
    checkReads: [...checkReads],
    columns: [...columns],
  })
}

/** Keeps a plan for the next process, and the latest of those before. */
export function keepPlan(cache: PlanCache, fingerprint: string, text: string): void {
  mkdirSync(cache.dir, {recursive: true, mode: 0o700})
  writeFileAtomically(pathOf(cache, fingerprint), text)
  const kept = readdirSync(cache.dir)
    .filter((name) => name.startsWith('plan-'))
    .map((name) => join(cache.dir, name))
    .map((path) => ({path, at: statSync(path, {throwIfNoEntry: false})?.mtimeMs ?? 0}))
    .sort((a, b) => b.at - a.at)
  for (const {path} of kept.slice(KEPT_PLANS)) rmSync(path, {force: true})
}

function pathOf({dir, engine}: PlanCache, fingerprint: string): string {
  return join(dir, `plan-${hash('sha256', [fingerprint, engine, GENERATOR].join('\n')).slice(0, 16)}.json`)
}
