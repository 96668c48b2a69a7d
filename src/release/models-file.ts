import {existsSync, readFileSync} from 'node:fs'
import {writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {z} from 'zod'
import {parseJson} from '../json.ts'
import type {BuildPlan} from '../types.ts'

/** A model as a release was built with it. */
export type ReleaseModel = z.output<typeof releaseModel>
const releaseModel = z.object({
  /** `core.deal` */
  name: z.string(),
  description: z.string(),
  grain: z.array(z.string()),
  columns: z.array(z.object({name: z.string(), type: z.string(), meaning: z.string()})),
  /** Columns whose values over the parts of a portfolio add up to the whole's. */
  adds_up: z.array(z.string()).default([]),
  /** Models, seeds and raw tables it is built from. */
  reads: z.array(z.string()),
  /** Whether each row depends on rows of its own deal alone. */
  is_per_deal: z.boolean(),
  is_published: z.boolean(),
  sql: z.string(),
})

const FILE = 'models.json'

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

/** The models of a release, each after those it reads; undefined of one that an earlier version built. */
export function readReleaseModels(dir: string): ReleaseModel[] | undefined {
  const path = join(dir, FILE)
  return existsSync(path) ? z.array(releaseModel).parse(parseJson(readFileSync(path, 'utf8'))) : undefined
}
