import {constants, existsSync, readFileSync} from 'node:fs'
import {chmod, copyFile} from 'node:fs/promises'
import {join} from 'node:path'
import {z} from 'zod'
import {DEAL_ID} from '../contract/deal.ts'
import {STREAMS} from '../contract/streams.ts'
import type {Config} from '../core/config.ts'
import {parseJson} from '../core/json.ts'
import type {Model, Moment} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {createFolder, stampOf, writeFileAtomically} from '../store/files.ts'
import {momentOf, readHistoryId} from '../store/moment.ts'
import {
  databasesOf,
  type ReleaseDatabases,
  type ReleaseManifest,
  readRelease,
  unlessDamaged,
} from '../store/release.ts'
import {countRows, readQuery} from '../store/sql.ts'
import {schemasOf} from './build-models.ts'

type LastBuild = z.output<typeof lastBuildSchema>
const lastBuildSchema = z.object({
  release_id: z.string(),
  /** Everything a release depends on besides history and moment, as text. */
  inputs: z.string(),
  /** The digests of shared models that `buildModels` returned. */
  shared: z.record(z.string(), z.string()),
  /**
   * The share of deals rebuilt since the last whole build. Rebuilt rows stand at the end of their table, and the rows they
   * replaced still take space.
   */
  rebuilt: z.number(),
  /** When a build was last whole, or last compared with a whole one, ISO 8601. */
  whole_at: z.string(),
  /** Size and time of the release's databases, which verify their own checksums. */
  files: z.string(),
})

/** Undefined if it was removed from the cache. */
export function readLastBuild({lastBuild}: DataFolder): LastBuild | undefined {
  if (!existsSync(lastBuild)) return undefined
  return lastBuildSchema.safeParse(parseJson(readFileSync(lastBuild, 'utf8'))).data
}

export function noteLastBuild(
  {cache, lastBuild}: DataFolder,
  last: Omit<LastBuild, 'files'>,
  files: ReleaseDatabases,
): void {
  createFolder(cache)
  writeFileAtomically(lastBuild, JSON.stringify({...last, files: stampOf(files.database, files.work)}))
}

/** Records that a build equals a whole one. */
export function noteWhole(folder: DataFolder, releaseId: string, at: Date): void {
  const last = readLastBuild(folder)
  if (last?.release_id !== releaseId) return
  writeFileAtomically(folder.lastBuild, JSON.stringify({...last, whole_at: at.toISOString()}))
}

export interface Base {
  /** Without `files`, the databases are certain to be unchanged. */
  last: Omit<LastBuild, 'release_id' | 'files'> & {files?: string}
  dir: string
  manifest: ReleaseManifest
}

/** The last build, if one with these inputs can start from it for this moment. */
export function findBase(folder: DataFolder, inputs: string, moment: Moment): Base | undefined {
  const last = readLastBuild(folder)
  if (last?.inputs !== inputs) return undefined
  const release = unlessDamaged(() => readRelease(join(folder.releases, last.release_id)))
  if (!release) return undefined
  const {asOf, knownAt} = momentOf(release.manifest)
  const isForward = asOf <= moment.asOf && knownAt <= moment.knownAt
  return isForward ? {last, dir: release.dir, manifest: release.manifest} : undefined
}

/** Above this share of rebuilt deals, a whole build is cheaper. */
const MOST_REBUILT = {auto: 0.2, incremental: 1, whole: 0}

/**
 * Attaches what changed since the last build, and copies its databases. Returns the share of deals rebuilt since the last whole
 * build.
 * @throws Error that says why every model must be built whole
 */
export async function attachWhatChanged(
  db: Database,
  to: ReleaseDatabases,
  {config, moment, models}: {config: Pick<Config, 'build'>; moment: Moment; models: readonly Model[]},
  {last, dir, manifest}: Base,
): Promise<number> {
  const before = momentOf(manifest)
  const {historyId} = await readHistoryId(db, before.knownAt)
  if (historyId !== manifest.history_id) throw new Error('the history is another')
  if (!(await doWalksFollow(db, before, moment))) throw new Error('a walk counts between earlier ones')
  const changed = await attachChanged(db, models, before, moment)
  const rebuilt = last.rebuilt + changed / Math.max(1, manifest.source.present.deals)
  if (rebuilt > MOST_REBUILT[config.build]) throw new Error('too many deals have changed')
  const from = databasesOf(dir)
  if (last.files !== undefined && last.files !== stampOf(from.database, from.work))
    throw new Error('its files have changed')
  for (const name of ['database', 'work'] as const) {
    await copyFile(from[name], to[name], constants.COPYFILE_FICLONE)
    await chmod(to[name], 0o600)
  }
  return rebuilt
}

/** The column of each raw table that holds the deal; raw tables left out here belong to no deal. */
export const DEAL_COLUMNS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(STREAMS.map(({name, parent}) => [`${name}_version`, parent?.column ?? DEAL_ID])),
  deal_confirmation: DEAL_ID,
  deal_extra: DEAL_ID,
  listing: 'parent_id',
  quarantine: 'record_id',
}

function counts(row: string, {asOf, knownAt}: Moment): string {
  return `(${row}.business_date <= date ${quoteLiteral(asOf)} and ${row}.recorded_at <= timestamp ${quoteLiteral(knownAt)})`
}

/** A later moment never hides a row. */
function countsNew(row: string, before: Moment, now: Moment): string {
  return `${counts(row, now)} and not coalesce(${counts(row, before)}, false)`
}

/**
 * Whether a deal without a new row is certain to be unchanged since a moment: every walk added since then ended and was stored
 * after everything that counted then.
 */
async function doWalksFollow(db: Database, before: Moment, now: Moment): Promise<boolean> {
  const sql = readQuery('walks_follow', {
    version_counted: counts('version', before),
    record_counted: counts('record', before),
    walk_is_new: countsNew('walk', before, now),
  })
  return await db.value(z.boolean(), sql)
}

/**
 * Attaches the database `changed`: `main.deal` holds the deals with a row visible at only one of the two moments, the schema
 * `raw` all raw rows of those deals. The schemas of models `per: deal_id` exist but are empty. Returns the number of deals.
 */
async function attachChanged(
  db: Database,
  models: readonly Model[],
  before: Moment,
  now: Moment,
): Promise<number> {
  const schemas = ['raw', ...schemasOf(models)]
  await db.run(`attach ':memory:' as changed`)
  for (const schema of schemas) await db.run(`create schema changed.${quoteName(schema)}`)
  const tables = Object.entries(DEAL_COLUMNS)
  const parts = tables.map(([table, column]) =>
    table === 'listing'
      ? `select listing.${column} as ${DEAL_ID} from history.raw.listing as listing
         join history.raw.walk as walk on walk.walk_id = listing.walk_id
         where ${countsNew('walk', before, now)}`
      : `select ${column} as ${DEAL_ID} from history.raw.${table} as version where ${countsNew('version', before, now)}`,
  )
  await db.run(
    `create table changed.main.deal as select distinct ${DEAL_ID} from (${parts.join(' union all ')}) where ${DEAL_ID} is not null`,
  )
  for (const [table, column] of tables) {
    await db.run(
      `create table changed.raw.${table} as from history.raw.${table} where ${column} in (select ${DEAL_ID} from changed.main.deal)`,
    )
  }
  return await countRows(db, 'changed.main.deal')
}
