import {mkdtempDisposable} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {parseSelects} from '../build/compile.ts'
import {withAncestors} from '../build/read-models.ts'
import {readSources} from '../build/sources.ts'
import type {Config} from '../core/config.ts'
import {codeOf, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {openDatabase, quoteLiteral, quoteName} from '../store/database.ts'
import {digestFile} from '../store/files.ts'
import {type Release, type ReleaseModel, readReleaseModels, requireRelease} from '../store/release.ts'
import {readColumns} from '../store/sql.ts'
import type {ClickhouseRequest} from './clickhouse.ts'
import type {CombinedTotal} from './clickhouse-combined.ts'
import {NotRewritten, toClickhouseSql} from './clickhouse-sql.ts'
import {
  buildTotals,
  type PublishedRelease,
  type PublishTarget,
  type ReleaseTarget,
  type TargetTable,
  type VisibleRelease,
} from './target.ts'

/** The result of a publication; `publish --json` prints it. */
export interface PublishResult {
  outcome: 'published' | 'unchanged'
  release_id: string
  server: string
  tables: number
  rows: number
  /** Tables that were sent; the target had the others from earlier releases. */
  loaded: number
}

/**
 * Publishes a release, the current one by default, to a configured target.
 *
 * @param request.isForced publishes even if readers see a newer release
 * @throws ConfigError `CONFIG_MISSING`; what {@link publishTo} throws
 */
export async function publishRelease(
  config: Config,
  request: {to: PublishTarget; releaseId?: string | undefined; isForced?: boolean},
  world: World,
): Promise<PublishResult> {
  const release = requireRelease(dataFolderAt(config.dataDir), request.releaseId)
  await using target = await openTarget(config, request.to, world)
  return await publishTo(target, release, {...request, command: `loantape publish ${request.to}`}, world)
}

/** Opens a target. Its client is loaded late, or every command would start slower. */
async function openTarget(config: Config, to: PublishTarget, world: World): Promise<ReleaseTarget> {
  if (to === 'clickhouse')
    return await (await import('./clickhouse.ts')).openClickhouse(clickhouseOf(config), world)
  const {postgresUrl: url, postgresReader: reader} = config
  if (url === undefined)
    throw newError('CONFIG_MISSING', 'No PostgreSQL to publish to: LOANTAPE_POSTGRES_URL not set.', {
      next: 'Set it, or LOANTAPE_POSTGRES_URL_FILE, in the environment or in .env.',
    })
  return await (await import('./postgres.ts')).openPostgres({url, reader}, world)
}

/** Releases kept per lender, including the visible one: somebody may still be reading the previous one. */
const CLICKHOUSE_RELEASES = 3

/** The configured ClickHouse. @throws ConfigError `CONFIG_MISSING` */
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
 * Publishes a release: every table is at the target, with the same rows and sums, before readers see any of it.
 *
 * @throws UnexpectedError `PUBLISH_INCOMPLETE`; ConfigError `PUBLISH_OLDER`; DeferredError `INTERRUPTED`, `PUBLISH_UNSURE`; what
 *   the target throws
 */
export async function publishTo(
  target: ReleaseTarget,
  release: Release,
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
        {next: `To show them the older one anyway: \`${command} --force\`.`},
      )
    }
    await using published = await readPublished(release, target, world)
    await target.begin(published)
    // The other tables only serve totals over all lenders.
    const released = new Set(manifest.tables.map(({name}) => name))
    let loaded = 0
    for (const table of published.tables) {
      if (await target.verify(table)) continue
      await target.load(table)
      if (released.has(`${table.schema}.${table.name}`)) loaded += 1
      if (await target.verify(table)) continue
      throw newError(
        'PUBLISH_INCOMPLETE',
        `Table '${table.schema}.${table.name}' differs at ${target.server} from what was sent: expected ${table.totals[0]} rows, and the same totals.`,
      )
    }
    await target.activate()
    // The release is published; the next publication removes what cannot be removed now.
    await target.prune().catch((error: unknown) => {
      world.log.warn({err: error}, 'old releases at the target could not be removed')
    })
    return {outcome: 'published', ...result, loaded}
  } catch (error) {
    if (!world.signal.aborted || codeOf(error) === 'PUBLISH_UNSURE') throw error
    throw newError('INTERRUPTED', `The publication was ${messageOf(world.signal.reason)}.`, {
      kept: 'Readers still see the previously published release and nothing of this one.',
      next: `Run \`${command}\` again.`,
      cause: world.signal.reason,
    })
  }
}

/** Whether a release is of an earlier day than the visible one, or of the same day with earlier knowledge. */
function isOlder({as_of, known_at}: VisibleRelease, visible: VisibleRelease): boolean {
  return as_of === visible.as_of ? known_at < visible.known_at : as_of < visible.as_of
}

/**
 * Describes the published tables of a release and computes their totals. For a target that holds several lenders it also writes the
 * unpublished tables that models over all lenders need; disposing removes these files.
 *
 * @throws UnexpectedError `PUBLISH_INCOMPLETE` when a table differs from the manifest
 */
async function readPublished(
  {dir, database, work, manifest}: Release,
  {combinedName}: Pick<ReleaseTarget, 'combinedName'>,
  world: Pick<World, 'log'>,
): Promise<PublishedRelease & AsyncDisposable> {
  const models = readReleaseModels(dir)
  await using db = await openDatabase({
    attach: [
      {path: database, alias: 'release', readOnly: true},
      ...(combinedName ? [{path: work, alias: 'kept', readOnly: true}] : []),
    ],
  })
  const describe = async (table: string, path: string) => {
    const {description = '', grain = [], columns = []} = models.find(({name}) => name === table) ?? {}
    const meanings = new Map(columns.map(({name, meaning}) => [name, meaning]))
    const there = await readColumns(db, path)
    const [schema = '', name = ''] = table.split('.')
    const described = there.map((column) => ({...column, meaning: meanings.get(column.name) ?? ''}))
    return {schema, name, description, grain, columns: described}
  }
  const addUp = async (columns: TargetTable['columns'], from: string) => {
    const sql = `select ${buildTotals(columns, quoteName).join(', ')} from ${from}`
    return Object.values(await db.one(z.record(z.string(), z.string()), sql))
  }
  const tables: TargetTable[] = []
  for (const {name, rows, file, sha256, order} of manifest.tables) {
    const about = await describe(name, nameOf('release', name))
    const totals = await addUp(about.columns, nameOf('release', name))
    if (totals[0] !== String(rows))
      throw newError(
        'PUBLISH_INCOMPLETE',
        `Table '${name}' has ${totals[0]} rows: its manifest says ${rows}.`,
      )
    tables.push({...about, file: join(dir, file), sha256, order, totals})
  }
  const published = {manifest, database, tables}
  if (!combinedName) return {...published, combined: [], [Symbol.asyncDispose]: async () => undefined}
  const kept = await db.column(
    z.string(),
    `select concat(schema_name, '.', table_name) from duckdb_tables() where database_name = 'kept'`,
  )
  const plan = await planCombined({models, kept, nameOf: combinedName}, world)
  const folder = await mkdtempDisposable(join(tmpdir(), 'loantape-publish-'))
  for (const name of plan.inputs) {
    const path = nameOf(kept.includes(name) ? 'kept' : 'release', name)
    const about = await describe(name, path)
    const columns = about.columns.map((column) => ({...column, type: plainTypeOf(column.type)}))
    const cells = columns.map(
      (column) => `cast(${quoteName(column.name)} as ${column.type}) as ${quoteName(column.name)}`,
    )
    const order = about.grain.length > 0 ? about.grain : columns.slice(0, 1).map((column) => column.name)
    const file = join(folder.path, `${name}.parquet`)
    const select = `select ${cells.join(', ')} from ${path}`
    await db.run(
      `copy (${select} order by ${order.map(quoteName).join(', ')})
       to ${quoteLiteral(file)} (format parquet, compression zstd, compression_level 1)`,
    )
    const totals = await addUp(columns, `(${select})`)
    tables.push({...about, columns, order, file, sha256: await digestFile(file), totals})
  }
  return {...published, combined: plan.models, [Symbol.asyncDispose]: () => folder.remove()}
}

/** A table as an SQL identifier. */
const nameOf = (catalog: string, table: string) => [catalog, ...table.split('.').map(quoteName)].join('.')

/** A type that every target knows; unpublished tables may have others. */
function plainTypeOf(type: string): string {
  if (/^U?(TINY|SMALL)?INT(EGER)?$/.test(type)) return 'BIGINT'
  return /^(HUGE|UBIG)INT$/.test(type) ? 'DECIMAL(38,0)' : type
}

/** Reference data that models over all lenders read. */
const SHARED_SEEDS = ['seed.status']

/**
 * Finds the marts that can be computed over all lenders from what each publishes: marts that describe deals, whose rows are not
 * single deals, and that read nothing of one lender alone, such as its walks, feeds and limits.
 *
 * @param release `kept` are the `work` tables that the release keeps; `nameOf` names a table, or `as_of`, at the target
 * @returns the models, and the unpublished tables they need
 */
export async function planCombined(
  release: {
    models: readonly ReleaseModel[]
    kept: readonly string[]
    nameOf: (table: string) => string
  },
  {log}: Pick<World, 'log'>,
): Promise<{models: ReleaseModel[]; inputs: string[]}> {
  const {models, kept, nameOf} = release
  await using db = await openDatabase({threads: 1})
  const ofDeals = new Set(models.filter(({grain}) => grain.includes('deal_id')).map(({name}) => name))
  const given = new Set([
    ...SHARED_SEEDS,
    'mart.run',
    ...models.filter(({name}) => name.startsWith('core.') || kept.includes(name)).map(({name}) => name),
  ])
  const selects = await parseSelects(
    db,
    models.map(({name, sql}) => ({name, file: name, sql})),
  )
  const found = new Map<string, ReleaseModel & {describesDeals: boolean}>()
  for (const model of models) {
    const {name, reads, is_published} = model
    const isKnown = reads.every((read) => given.has(read) || found.has(read))
    if (given.has(name) || name.startsWith('accounting.') || !isKnown || ofDeals.has(name)) continue
    const describesDeals = reads.some((read) => ofDeals.has(read) || found.get(read)?.describesDeals)
    if (is_published && !describesDeals) continue
    try {
      const sql = toClickhouseSql(selects.get(name)?.statements[0], {
        table: nameOf,
        variable(variable) {
          if (variable === 'as_of') return nameOf(variable)
          throw new NotRewritten(`the variable ${variable}`)
        },
      })
      found.set(name, {...model, describesDeals, sql})
    } catch (error) {
      if (!(error instanceof NotRewritten)) throw error
      log.info({reason: `${name}: ${error.message}`}, 'a model is not computed over all lenders')
    }
  }
  const isInput = (name: string) => SHARED_SEEDS.includes(name) || kept.includes(name)
  const published = [...found.values()].filter((model) => model.is_published)
  const reads = new Map([...found].map(([name, model]) => [name, model.reads]))
  const needed = withAncestors(new Set(published.map(({name}) => name)), reads)
  const needing = [...found.values()].filter(({name}) => needed.has(name))
  return {
    models: needing,
    inputs: [...new Set(needing.flatMap((model) => model.reads))].filter(isInput).sort(),
  }
}

/** Totals over all lenders, compared with the sum over each. */
export interface CombinedVerification {
  server: string
  /** One for each column that adds up. */
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
