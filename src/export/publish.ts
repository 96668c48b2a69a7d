import {mkdtempDisposable} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {parseSelects} from '../build/compile.ts'
import {readSources} from '../build/sources.ts'
import type {Config} from '../core/config.ts'
import {codeOf, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {type Database, openDatabase, quoteLiteral, quoteName} from '../store/database.ts'
import {digestFile} from '../store/files.ts'
import {type Release, type ReleaseModel, readReleaseModels, requireRelease} from '../store/release.ts'
import type {ClickhouseRequest} from './clickhouse.ts'
import type {CombinedTotal} from './clickhouse-combined.ts'
import {NotRewritten, toClickhouseSql} from './clickhouse-sql.ts'
import {
  buildTotals,
  type CombinedModel,
  type PublishedRelease,
  type PublishTarget,
  type ReleaseTarget,
  type TargetColumn,
  type TargetTable,
  type VisibleRelease,
} from './target.ts'

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

const columnRow = z.object({table: z.string(), name: z.string(), type: z.string(), comment: z.string()})
const tableRow = z.object({table: z.string(), comment: z.string()})

/** What the tables of a release are, from the database attached as `release` or `kept`. */
async function describeTables(db: Database, catalog: 'release' | 'kept') {
  const columns = await db.all(
    columnRow,
    `select concat(schema_name, '.', table_name) as "table", column_name as name, data_type as type, coalesce(comment, '') as comment
     from duckdb_columns() where database_name = '${catalog}' order by column_index`,
  )
  const tables = await db.all(
    tableRow,
    `select concat(schema_name, '.', table_name) as "table", coalesce(comment, '') as comment
     from duckdb_tables() where database_name = '${catalog}'`,
  )
  return new Map(
    tables.map(({table, comment}) => [
      table,
      {comment, columns: columns.filter((one) => one.table === table)},
    ]),
  )
}

/** A table as an SQL identifier. */
const nameOf = (catalog: string, table: string) => [catalog, ...table.split('.').map(quoteName)].join('.')

/**
 * Reads what the published tables of a release are, and what is in them; for a target that holds several lenders also the tables that
 * models over all of them need, written to files that go when this is disposed.
 *
 * @throws UnexpectedError `PUBLISH_INCOMPLETE` where a table is not what the manifest says
 */
async function readPublished(
  {dir, database, work, manifest}: Pick<Release, 'dir' | 'database' | 'work' | 'manifest'>,
  {combinedName}: Pick<ReleaseTarget, 'combinedName'>,
  world: Pick<World, 'log'>,
): Promise<PublishedRelease & AsyncDisposable> {
  const models = readReleaseModels(dir)
  const grainOf = (table: string) => models.find(({name}) => name === table)?.grain ?? []
  await using db = await openDatabase({
    attach: [
      {path: database, alias: 'release', readOnly: true},
      ...(combinedName ? [{path: work, alias: 'kept', readOnly: true}] : []),
    ],
  })
  const described = await describeTables(db, 'release')
  const tables: TargetTable[] = []
  for (const {name, rows, file, sha256, order} of manifest.tables) {
    const {comment = '', columns = []} = described.get(name) ?? {}
    const totals = await readTotals(db, nameOf('release', name), columns)
    if (totals[0] !== String(rows))
      throw newError(
        'PUBLISH_INCOMPLETE',
        `Table '${name}' has ${totals[0]} rows: its manifest says ${rows}.`,
      )
    const place = {...splitName(name), file: join(dir, file), sha256, order}
    tables.push({...place, comment, columns, grain: grainOf(name), totals})
  }
  if (!combinedName)
    return {manifest, database, tables, combined: [], [Symbol.asyncDispose]: async () => undefined}
  const kept = await describeTables(db, 'kept')
  const plan = await planCombined({models, kept: [...kept.keys()], nameOf: combinedName}, world)
  const folder = await mkdtempDisposable(join(tmpdir(), 'loantape-publish-'))
  for (const name of plan.inputs) {
    const catalog = kept.has(name) ? 'kept' : 'release'
    const {comment = '', columns = []} = (kept.get(name) ?? described.get(name)) || {}
    const plain = columns.map((column) => ({...column, type: plainTypeOf(column.type)}))
    const cells = plain.map(
      (column) => `cast(${quoteName(column.name)} as ${column.type}) as ${quoteName(column.name)}`,
    )
    const grain = grainOf(name)
    const order = grain.length > 0 ? grain : plain.slice(0, 1).map((column) => column.name)
    const file = join(folder.path, `${name}.parquet`)
    await db.run(
      `copy (select ${cells.join(', ')} from ${nameOf(catalog, name)} order by ${order.map(quoteName).join(', ')})
       to ${quoteLiteral(file)} (format parquet, compression zstd, compression_level 1)`,
    )
    tables.push({
      ...splitName(name),
      comment: models.find((model) => model.name === name)?.description ?? comment,
      columns: plain,
      grain,
      order,
      file,
      sha256: await digestFile(file),
      totals: await readTotals(db, `(select ${cells.join(', ')} from ${nameOf(catalog, name)})`, plain),
    })
  }
  return {
    manifest,
    database,
    tables,
    combined: plan.models,
    [Symbol.asyncDispose]: () => folder.remove(),
  }
}

function splitName(table: string): {schema: string; name: string} {
  const [schema = '', name = ''] = table.split('.')
  return {schema, name}
}

/** The type that every target knows, for one that only a table has that is not published. */
function plainTypeOf(type: string): string {
  if (/^U?(TINY|SMALL)?INT(EGER)?$/.test(type)) return 'BIGINT'
  return /^(HUGE|UBIG)INT$/.test(type) ? 'DECIMAL(38,0)' : type
}

async function readTotals(db: Database, from: string, columns: readonly TargetColumn[]): Promise<string[]> {
  const totals = buildTotals(columns, quoteName)
  const found = await db.one(z.record(z.string(), z.string()), `select ${totals.join(', ')} from ${from}`)
  return Object.values(found)
}

/** What a publication came to; `publish --json` prints it. */
export interface PublishResult {
  outcome: 'published' | 'unchanged'
  release_id: string
  server: string
  tables: number
  rows: number
  /** Tables that were sent: the others are there from a release before. */
  loaded: number
}

/**
 * Publishes a release, the current one by default, at the target that the settings name.
 *
 * @param request.isForced also where readers see a newer one
 * @throws ConfigError `CONFIG_MISSING`; what {@link publishTo} throws
 */
export async function publishRelease(
  config: Config,
  request: {to: PublishTarget; releaseId?: string | undefined; isForced?: boolean},
  world: World,
): Promise<PublishResult> {
  const open = openerOf(config, request.to, world)
  const release = requireRelease(dataFolderAt(config.dataDir), request.releaseId)
  await using target = await open()
  return await publishTo(target, release, {...request, command: `loantape publish ${request.to}`}, world)
}

/** Opens a target. Its client is loaded here: every command would take longer to start. */
function openerOf(config: Config, to: PublishTarget, world: World): () => Promise<ReleaseTarget> {
  if (to === 'clickhouse') {
    const request = clickhouseOf(config)
    return async () => (await import('./clickhouse.ts')).openClickhouse(request, world)
  }
  const {postgresUrl: url, postgresReader: reader} = config
  if (url === undefined)
    throw newError('CONFIG_MISSING', 'No PostgreSQL to publish to: LOANTAPE_POSTGRES_URL not set.', {
      next: 'Set it, or LOANTAPE_POSTGRES_URL_FILE, in the environment or in .env.',
    })
  return async () => (await import('./postgres.ts')).openPostgres({url, reader}, world)
}

/** Releases of a lender that stay there, the one readers see among them: somebody may still be reading the one before. */
const CLICKHOUSE_RELEASES = 3

/** Where ClickHouse is, by the settings. @throws ConfigError `CONFIG_MISSING` */
function clickhouseOf(config: Config): ClickhouseRequest {
  const {clickhouseUrl: url, clickhouseUser: user, clickhousePassword: password} = config
  if (url === undefined)
    throw newError('CONFIG_MISSING', 'No ClickHouse to publish to: LOANTAPE_CLICKHOUSE_URL not set.')
  return {
    url,
    user,
    password,
    cluster: config.clickhouseCluster,
    source: config.clickhouseSource,
    releasesKept: CLICKHOUSE_RELEASES,
  }
}

/**
 * Publishes a release: every table is there, with the same rows and sums, before readers see any of it.
 *
 * @throws UnexpectedError `PUBLISH_INCOMPLETE`; ConfigError `PUBLISH_OLDER`; DeferredError `INTERRUPTED`, `PUBLISH_UNSURE`; what
 *   the target throws
 */
export async function publishTo(
  target: ReleaseTarget,
  release: Pick<Release, 'dir' | 'database' | 'work' | 'manifest'>,
  {isForced = false, command}: {isForced?: boolean; command: string},
  world: Pick<World, 'log' | 'signal'>,
): Promise<PublishResult> {
  const {manifest} = release
  const result = {
    release_id: manifest.release_id,
    server: target.server,
    tables: manifest.tables.length,
    rows: manifest.tables.reduce((sum, {rows}) => sum + rows, 0),
  }
  try {
    const visible = await target.prepare()
    if (visible?.release_id === manifest.release_id) return {outcome: 'unchanged', ...result, loaded: 0}
    if (visible && isOlder(manifest, visible) && !isForced) {
      throw newError(
        'PUBLISH_OLDER',
        `Readers at ${target.server} see release ${visible.release_id}, which is newer than ${manifest.release_id}.`,
        {next: `To show them the older one all the same: \`${command} --force\`.`},
      )
    }
    await using published = await readPublished(release, target, world)
    await target.begin(published)
    let loaded = 0
    for (const table of published.tables) {
      if (await target.verify(table)) continue
      await target.load(table)
      loaded += 1
      if (await target.verify(table)) continue
      throw newError(
        'PUBLISH_INCOMPLETE',
        `Table '${table.schema}.${table.name}' arrived at ${target.server} otherwise than it was sent: expected ${table.totals[0]} rows, and the same totals.`,
      )
    }
    await target.activate()
    // Published it is: what cannot be removed now is removed by the next publication.
    await target.prune().catch((error: unknown) => {
      world.log.warn({err: error}, 'old releases could not be removed where this one is published')
    })
    return {outcome: 'published', ...result, loaded}
  } catch (error) {
    if (!world.signal.aborted || codeOf(error) === 'PUBLISH_UNSURE') throw error
    throw newError('INTERRUPTED', `The publication was ${messageOf(world.signal.reason)}.`, {
      kept: 'Readers still see the release published before; nothing of this one is visible.',
      next: `Run \`${command}\` again.`,
      cause: world.signal.reason,
    })
  }
}

/** Whether readers see something that is of a later day, or knows more of the same. */
function isOlder({as_of, known_at}: VisibleRelease, visible: VisibleRelease): boolean {
  return as_of === visible.as_of ? known_at < visible.known_at : as_of < visible.as_of
}

/** What lenders are together, held against what each of them says. */
export interface CombinedVerification {
  server: string
  /** Each column that adds up. */
  totals: CombinedTotal[]
  differing: number
}

/**
 * Compares every column that adds up over all lenders with the sum of what each has published.
 *
 * @throws ConfigError `CONFIG_MISSING`; what the connection throws
 */
export async function verifyCombined(config: Config, {signal}: World): Promise<CombinedVerification> {
  const request = clickhouseOf(config)
  // Only here: every command would take longer to start.
  const {openSession} = await import('./clickhouse-layout.ts')
  const {compareTotals} = await import('./clickhouse-combined.ts')
  await using session = openSession(request, signal)
  const totals = await compareTotals(session, readSources(config, []).models)
  return {
    server: session.server,
    totals,
    differing: totals.filter(({together, sum}) => together !== sum).length,
  }
}
