import {readFileSync} from 'node:fs'
import {writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {z} from 'zod'
import {parseJson} from '../json.ts'
import type {CheckOutcome} from '../release-manifest.ts'
import type {BuildPlan, Check} from '../types.ts'

/** A model as a release was built with it. */
export type ReleaseModel = z.output<typeof releaseModel>
const releaseModel = z.object({
  /** `core.deal` */
  name: z.string(),
  description: z.string(),
  grain: z.array(z.string()),
  columns: z.array(z.object({name: z.string(), type: z.string(), meaning: z.string()})),
  /** Columns whose values over the parts of a portfolio add up to the whole's. */
  adds_up: z.array(z.string()),
  /** Models, seeds and raw tables it is built from. */
  reads: z.array(z.string()),
  /** Whether each row depends on rows of its own deal alone. */
  is_per_deal: z.boolean(),
  is_published: z.boolean(),
  sql: z.string(),
})

const FILE = 'models.json'

/** A check as it was run on a release, with the first rows that it found. */
export type ReleaseCheck = z.output<typeof releaseCheck>
const releaseCheck = z.object({
  name: z.string(),
  severity: z.enum(['error', 'warn']),
  /** What it demands. */
  description: z.string(),
  failures: z.number(),
  rows: z.array(z.record(z.string(), z.unknown())),
})

const CHECKS_FILE = 'checks.json'

/** Writes into a release what was checked and what was found. */
export async function writeChecks(
  dir: string,
  checks: readonly Check[],
  outcomes: readonly CheckOutcome[],
): Promise<void> {
  const demands = new Map(checks.map(({name, description}) => [name, description]))
  const written = outcomes.map(
    ({name, severity, failures, rows}): ReleaseCheck => ({
      name,
      severity,
      description: demands.get(name) ?? '',
      failures,
      rows,
    }),
  )
  await writeFile(join(dir, CHECKS_FILE), JSON.stringify(written))
}

/** The checks of a release, those that found rows first. */
export function readReleaseChecks(dir: string): ReleaseCheck[] {
  const checks = z.array(releaseCheck).parse(parseJson(readFileSync(join(dir, CHECKS_FILE), 'utf8')))
  return checks.toSorted((a, b) => Number(b.failures > 0) - Number(a.failures > 0))
}

/** Writes into a release what its tables mean and how each was computed. */
export async function writeModels(
  dir: string,
  {models, reads, columns}: Pick<BuildPlan, 'models' | 'reads' | 'columns'>,
): Promise<void> {
  const written = models.map((model): ReleaseModel => {
    const types = new Map(columns.get(model.name)?.map(({name, type}) => [name, type]))
    return {
      name: model.name,
      description: model.description,
      grain: model.grain,
      columns: model.columns.map(({name, meaning}) => ({name, type: types.get(name) ?? '', meaning})),
      adds_up: model.addsUp,
      reads: [...(reads.get(model.name) ?? [])],
      is_per_deal: model.isPerDeal,
      is_published: model.isPublished,
      sql: model.sql,
    }
  })
  await writeFile(join(dir, FILE), JSON.stringify(written))
}

/** The models of a release, each after those it reads. */
export function readReleaseModels(dir: string): ReleaseModel[] {
  return z.array(releaseModel).parse(parseJson(readFileSync(join(dir, FILE), 'utf8')))
}
