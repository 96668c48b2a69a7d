import {existsSync, lstatSync, readFileSync, realpathSync, statSync} from 'node:fs'
import {writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {z} from 'zod'
import {closeWords, findMachineFault, LoantapeError, messageOf, newError, tolerate} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {groupThousands, quantity} from '../core/money.ts'
import type {BuildPlan} from '../core/types.ts'
import type {DataFolder} from './data-folder.ts'
import {type Database, openDatabase, quoteLiteral} from './database.ts'
import {digestFile} from './files.ts'
import {readQuery} from './sql.ts'

export type CheckResult = z.output<typeof checkResult>
export const checkResult = z.object({
  name: z.string(),
  severity: z.enum(['error', 'warn']),
  failures: z.number(),
  /** The first few wrong rows as text, each beginning with its id. */
  samples: z.array(z.string()),
  /** The ids of up to 100 wrong rows. */
  ids: z.array(z.string()),
  /** The sum of the wrong rows' column `deals`, if they have one. */
  deals: z.number().optional(),
  next: z.string().optional(),
})

/** A check that ran, with the first rows it found, up to 100. */
const releaseCheck = z.object({
  ...checkResult.pick({name: true, severity: true}).shape,
  description: z.string(),
  failures: z.number(),
  rows: z.array(z.record(z.string(), z.unknown())),
})

export type CheckOutcome = CheckResult & z.output<typeof releaseCheck>

export type ReleaseTable = z.output<typeof releaseTable>
const releaseTable = z.object({
  name: z.string(),
  rows: z.number(),
  file: z.string(),
  bytes: z.number(),
  sha256: z.string(),
  /** The columns that order its Parquet file. */
  order: z.array(z.string()),
  /** Higher than in the release before if columns were removed, moved or changed their type. */
  contract: z.number(),
})

/** A decision to go on without lost tapes, units or batches. */
export type WentOn = z.output<typeof wentOnSchema>
export const wentOnSchema = z.object({
  /** ISO 8601 */
  at: z.string(),
  why: z.string(),
  given_up: z.number(),
})

const part = z.object({deals: z.number(), amount: z.string()})

/** Leads from the records of the last walk to the present deals; amounts are decimal text. */
export type SourceBridge = z.output<typeof sourceBridgeSchema>
export const sourceBridgeSchema = z.object({
  walk_id: z.string(),
  business_date: z.string(),
  complete: z.boolean(),
  records: z.number(),
  distinct: z.number(),
  amount_total: z.string(),
  duplicates: z.number(),
  quarantined: z.number(),
  kept_quarantined: part,
  kept_missing: part,
  adjusted: part,
  present: part,
})

export type ReleaseManifest = z.output<typeof releaseManifestSchema>
export const releaseManifestSchema = z.object({
  schema_version: z.literal(1),
  generator: z.string(),
  engine: z.string(),
  release_id: z.string(),
  /** `YYYY-MM-DD` */
  as_of: z.string(),
  /** ISO 8601 with microseconds, UTC. */
  known_at: z.string(),
  /** The id of the last settle that counts; it identifies everything the release knows. */
  history_id: z.string(),
  /** The tape's chain at that settle, which covers every line before it. */
  tape_head: z.string(),
  /** Oldest first; absent if nothing was lost. */
  went_on: z.array(wentOnSchema).optional(),
  /** The business date of the last walk that counts. */
  observed_until: z.string(),
  currency: z.literal('USD'),
  time_zone: z.string(),
  source: sourceBridgeSchema,
  checks: z.object({passed: z.number(), warned: z.number(), results: z.array(checkResult)}),
  models: z.array(z.object({name: z.string(), rows: z.number(), duration_ms: z.number()})),
  tables: z.array(releaseTable),
  /** Files besides the tables and the manifest. */
  files: z.array(z.object({file: z.string(), bytes: z.number()})),
})

/** The published tables, and the `work` tables that pages and the next build read. */
export type ReleaseDatabases = ReturnType<typeof databasesOf>

export function databasesOf(dir: string) {
  return {database: join(dir, 'portfolio.duckdb'), work: join(dir, 'work.duckdb')}
}

export interface Release extends ReleaseDatabases {
  dir: string
  manifest: ReleaseManifest
}

/**
 * Undefined if there is none.
 * @throws UnexpectedError `RELEASE_DAMAGED` if its manifest cannot be read, or a file is missing or has another size
 */
export function readRelease(dir: string): Release | undefined {
  const path = join(dir, 'manifest.json')
  if (!existsSync(path)) return undefined
  const parsed = releaseManifestSchema.safeParse(parseJson(readFileSync(path, 'utf8')))
  if (!parsed.success) throw newError('RELEASE_DAMAGED', `Manifest '${path}': ${messageOf(parsed.error)}.`)
  const {data: manifest} = parsed
  for (const {file, bytes} of [...manifest.files, ...manifest.tables]) {
    const found = statSync(join(dir, file), {throwIfNoEntry: false})?.size
    if (found === bytes) continue
    const words =
      found === undefined
        ? 'is missing'
        : `has ${quantity(found, 'byte')}: its manifest says ${groupThousands(bytes)}`
    throw newError('RELEASE_DAMAGED', `File '${join(dir, file)}' ${words}.`)
  }
  return {dir, ...databasesOf(dir), manifest}
}

/** Reads something of a release; undefined if the release is damaged or was removed meanwhile. */
export const unlessDamaged = <T>(read: () => T): T | undefined =>
  tolerate(['RELEASE_DAMAGED', 'ENOENT'], read)

/** The release has its own folder, since the link may be moved while it is read. @throws UnexpectedError `RELEASE_DAMAGED` */
export function findCurrentRelease(folder: Pick<DataFolder, 'current'>): Release | undefined {
  const {current} = folder
  const findLink = () => lstatSync(current, {throwIfNoEntry: false})?.ino
  const link = findLink()
  try {
    const release = existsSync(current) ? readRelease(realpathSync(current)) : undefined
    if (release || link === undefined) return release
    throw newError('RELEASE_DAMAGED', `Link '${current}' leads to no release.`)
  } catch (error) {
    // A build has made a new link and removed the release that was being read.
    if (findLink() !== link) return findCurrentRelease(folder)
    throw error
  }
}

export function examineCurrent(folder: DataFolder): {
  release: ReleaseManifest | undefined
  damage?: LoantapeError
} {
  try {
    // The release may have been removed meanwhile.
    return {release: tolerate(['ENOENT'], () => findCurrentRelease(folder))?.manifest}
  } catch (error) {
    if (error instanceof LoantapeError) return {release: undefined, damage: error}
    throw error
  }
}

const SCRATCH = 'scratch'

/**
 * `scratch` is the release of the last `build --select`; the default is the current one.
 * @throws ConfigError `UNKNOWN_NAME`, `RELEASE_NONE`
 */
export function requireRelease(folder: DataFolder, releaseId?: string): Release {
  if (releaseId === undefined) {
    const current = findCurrentRelease(folder)
    if (current) return current
    throw newError('RELEASE_NONE', `No release in '${folder.root}'.`)
  }
  const dir = releaseId === SCRATCH ? folder.scratch : join(folder.releases, releaseId)
  const release = /^[\w-]+$/.test(releaseId) ? readRelease(dir) : undefined
  if (release) return release
  if (releaseId === SCRATCH)
    throw newError('UNKNOWN_NAME', `No scratch release in '${folder.root}'.`, {
      next: '`loantape build --select` makes it.',
    })
  throw newError('UNKNOWN_NAME', `Release '${releaseId}' is not in '${folder.releases}'.`, {
    next: '`loantape status` shows the current one; `loantape build --as-of` makes one for a past date.',
  })
}

/** A model as it was when the release was built. */
export type ReleaseModel = z.output<typeof releaseModel>
const releaseModel = z.object({
  /** `core.deal` */
  name: z.string(),
  description: z.string(),
  grain: z.array(z.string()),
  columns: z.array(z.object({name: z.string(), type: z.string(), meaning: z.string()})),
  /** Columns whose values over the parts of a portfolio add up to the total. */
  adds_up: z.array(z.string()),
  /** Models, seeds and raw tables. */
  reads: z.array(z.string()),
  /** Each row depends only on rows of its own deal. */
  is_per_deal: z.boolean(),
  is_published: z.boolean(),
  sql: z.string(),
})

const FILE = 'models.json'

const CHECKS_FILE = 'checks.json'

export async function writeChecks(dir: string, outcomes: readonly CheckOutcome[]): Promise<void> {
  await writeFile(join(dir, CHECKS_FILE), JSON.stringify(z.array(releaseCheck).parse(outcomes)))
}

/** Checks that found rows come first. */
export function readReleaseChecks(dir: string) {
  const checks = z.array(releaseCheck).parse(parseJson(readFileSync(join(dir, CHECKS_FILE), 'utf8')))
  return checks.toSorted((a, b) => Number(b.failures > 0) - Number(a.failures > 0))
}

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
      is_per_deal: model.isOfDeals,
      is_published: model.isPublished,
      sql: model.sql,
    }
  })
  await writeFile(join(dir, FILE), JSON.stringify(written))
}

/** Each after those it reads. */
export function readReleaseModels(dir: string): ReleaseModel[] {
  return z.array(releaseModel).parse(parseJson(readFileSync(join(dir, FILE), 'utf8')))
}

export const MOST_SPILLED = '4GB'

interface QuestionOptions {
  /** The default is 80 % of all memory. */
  memoryMb?: number | undefined
  /** Also attaches the `work` tables, as `kept`, and sets the variables that models use. */
  withWork?: boolean
  /** The folder that queries may spill into; without it they cannot spill. */
  spillDir?: string
  /** The only other file that statements can reach; none by default. */
  file?: string | undefined
}

const MACROS = readQuery('macros')

export const RELEASE_NEXT = 'Remove the release folder and run `loantape build`, which makes it again.'

/**
 * Whether the file of a table, or a copy of it, is as its release's manifest says.
 * @throws UnexpectedError `RELEASE_DAMAGED`
 */
export async function requireIntact(path: string, {sha256}: ReleaseTable, copy = path): Promise<void> {
  if ((await digestFile(copy)) === sha256) return
  const problem = `File '${path}' does not have the sha256 of its manifest.`
  throw newError('RELEASE_DAMAGED', problem, {next: RELEASE_NEXT})
}

/** Read-only, attached as `release`. @throws UnexpectedError `RELEASE_DAMAGED` if its database does not open */
export async function openRelease({dir, database}: Release, {isReader = true} = {}): Promise<Database> {
  const attach = [{path: database, alias: 'release', readOnly: true}]
  const db = await openDatabase({attach, isReader}).catch((error: unknown) => {
    const [words = ''] = messageOf(error).split('\n')
    // The machine or the rights of this user may be at fault, or the release was removed meanwhile.
    if (findMachineFault(error) || /permission denied/i.test(words) || !existsSync(dir)) throw error
    const problem = `Database '${database}' does not open: ${closeWords(words)}`
    throw newError('RELEASE_DAMAGED', problem, {next: RELEASE_NEXT, cause: error})
  })
  await db.run(`set search_path = 'release.main'; ${MACROS}`)
  return db
}

/** A block of an open release that was changed, which the engine only finds when it reads it. */
export function findReleaseDamage(error: unknown): LoantapeError | undefined {
  const [words = ''] = messageOf(error).split('\n')
  if (!words.startsWith('IO Error: Corrupt')) return undefined
  const problem = `Database of the release cannot be read: ${closeWords(words)}`
  return newError('RELEASE_DAMAGED', problem, {next: RELEASE_NEXT, cause: error})
}

/** Opens a release for statements that people type; they can reach nothing outside the release. */
export async function openForQuestions(release: Release, options: QuestionOptions = {}): Promise<Database> {
  const {memoryMb, withWork, spillDir, file} = options
  const {as_of, time_zone} = release.manifest
  const db = await openRelease(release, {isReader: false})
  const statements = [
    memoryMb !== undefined && `set memory_limit = '${memoryMb}MB'`,
    withWork &&
      `attach ${quoteLiteral(release.work)} as kept (read_only);
       set variable as_of = date ${quoteLiteral(as_of)}; set variable time_zone = ${quoteLiteral(time_zone)}`,
    spillDir !== undefined &&
      `set temp_directory = ${quoteLiteral(spillDir)}; set max_temp_directory_size = '${MOST_SPILLED}'`,
    file !== undefined && `set allowed_paths = [${quoteLiteral(file)}]`,
    'set enable_external_access = false; set lock_configuration = true',
  ]
  await db.run(statements.filter((sql) => sql).join('; '))
  return db
}
