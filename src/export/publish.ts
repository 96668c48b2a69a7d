import {randomUUID} from 'node:crypto'
import {join} from 'node:path'
import {readSources} from '../build/sources.ts'
import type {Config} from '../core/config.ts'
import {codeOf, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {quoteTable} from '../store/database.ts'
import {requireFolderId} from '../store/recorded.ts'
import {openRelease, type Release, readReleaseModels, requireRelease} from '../store/release.ts'
import {acquireLock} from '../store/runs.ts'
import {readColumns} from '../store/sql.ts'
import {openStateDb, requireThere} from '../store/state-db.ts'
import type {ClickhouseRequest} from './clickhouse.ts'
import {
  describeTable,
  type PUBLISH_TARGETS,
  type ReleaseTarget,
  readTotals,
  type TargetTable,
  type VisibleRelease,
} from './target.ts'

type PublishTarget = (typeof PUBLISH_TARGETS)[number]

/** `publish --json` prints it. */
export type PublishResult = Awaited<ReturnType<typeof publishTo>>

/**
 * Publishes the current release by default. With `isForced`, even if readers see a newer release, this one, or one of another
 * data folder.
 * @throws ConfigError `CONFIG_MISSING`, `RELEASE_PARTIAL`; LockedError `RUN_IN_PROGRESS`; what {@link publishTo} throws
 */
export async function publishRelease(
  config: Config,
  request: {to: PublishTarget; releaseId?: string | undefined; isForced?: boolean},
  world: World,
): Promise<PublishResult> {
  const folder = dataFolderAt(config.dataDir)
  const release = requireRelease(folder, request.releaseId)
  if (release.dir === folder.scratch)
    throw newError('RELEASE_PARTIAL', `Release '${request.releaseId}': expected one that holds every table.`)
  // Opening a missing database would create one, with the id of another folder.
  requireThere(folder.stateDb)
  using stateDb = openStateDb(folder.stateDb)
  const folderId = requireFolderId(stateDb)
  const lock = {runId: randomUUID(), command: 'publish', name: `publication to ${request.to}`}
  using _lock = acquireLock(stateDb, lock, world)
  await using target = await openTarget(config, request.to, world)
  const command = `loantape publish ${request.to}`
  return await publishTo(target, release, {...request, folderId, command}, world)
}

/** Clients are loaded late, since they would slow the start of every command. */
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

/** A server that a cloud has put to sleep needs this long to wake. */
const LONGEST_SIGN_IN_MS = 60_000

/** Changes nothing there. Returns the server. @throws what opening a target throws; DeferredError `PUBLISH_UNREACHABLE` */
export async function signIn(config: Config, to: PublishTarget, world: World): Promise<string> {
  if (to === 'postgres') {
    await using target = await openTarget(config, to, world)
    return target.server
  }
  const {openSession} = await import('./clickhouse-layout.ts')
  await using session = openSession(clickhouseOf(config), world.signal, LONGEST_SIGN_IN_MS)
  await session.run('select 1')
  return session.server
}

function clickhouseOf(config: Config): ClickhouseRequest {
  const {clickhouseUrl: url, clickhouseUser: user, clickhousePassword: password} = config
  if (url === undefined)
    throw newError('CONFIG_MISSING', 'No ClickHouse to publish to: LOANTAPE_CLICKHOUSE_URL not set.')
  return {url, user, password, cluster: config.clickhouseCluster, source: config.clickhouseSource}
}

/**
 * Every table is at the target, with the same rows and sums, before readers see any of it. `loaded` counts the tables that were
 * sent; the target had the others from earlier releases.
 * @throws UnexpectedError `PUBLISH_INCOMPLETE`; ConfigError `PUBLISH_OLDER`, `PUBLISH_FOREIGN`; DeferredError `INTERRUPTED`
 */
export async function publishTo(
  target: ReleaseTarget,
  release: Release,
  {isForced = false, folderId, command}: {isForced?: boolean; folderId: string; command: string},
  world: Pick<World, 'log' | 'signal'>,
) {
  const {manifest} = release
  const result = {
    release_id: manifest.release_id,
    server: target.server,
    tables: manifest.tables.length,
    rows: manifest.tables.reduce((sum, {rows}) => sum + rows, 0),
  }
  try {
    // A stop while the target was opened.
    world.signal.throwIfAborted()
    const visible = await target.prepare()
    if (visible && !isForced) {
      if (visible.release_id === manifest.release_id)
        return {outcome: 'unchanged' as const, ...result, loaded: 0}
      const seen = `Readers at ${target.server} see release ${visible.release_id}`
      if (visible.folder_id !== folderId)
        throw newError(
          'PUBLISH_FOREIGN',
          `${seen} of data folder ${visible.folder_id}; this folder is ${folderId}.`,
          {
            next: `Publish each lender to a place of its own. To take the other's place: \`${command} --force\`.`,
          },
        )
      if (orderOf(manifest) < orderOf(visible))
        throw newError('PUBLISH_OLDER', `${seen}, which is newer than ${manifest.release_id}.`, {
          next: `To show them the older one anyway: \`${command} --release ${manifest.release_id} --force\`.`,
        })
    }
    const tables = await describeTables(release)
    const sent = await target.publish({release, tables, folderId})
    // Not an error: the release is published, and the next publication prunes again.
    await target.prune().catch((error: unknown) => {
      world.log.warn({err: error}, 'old releases at the target could not be removed')
    })
    return {outcome: 'published' as const, ...result, loaded: sent.length}
  } catch (error) {
    if (!world.signal.aborted || codeOf(error) === 'PUBLISH_UNSURE') throw error
    throw newError('INTERRUPTED', `The publication was ${messageOf(world.signal.reason)}.`, {
      kept: 'Readers still see the previously published release and nothing of this one.',
      next: `Run \`${command}\` again.`,
      cause: world.signal.reason,
    })
  }
}

/** Orders releases by day, and those of one day by what was known. */
const orderOf = ({as_of, known_at}: Pick<VisibleRelease, 'as_of' | 'known_at'>) => `${as_of} ${known_at}`

async function describeTables(release: Release): Promise<TargetTable[]> {
  const {dir, manifest} = release
  const models = readReleaseModels(dir)
  await using db = await openRelease(release)
  return await Array.fromAsync(manifest.tables, async ({name, rows, file, sha256, order}) => {
    const from = quoteTable('release', name)
    const columns = await readColumns(db, from)
    const totals = await readTotals(db, columns, from)
    if (totals[0] !== String(rows))
      throw newError(
        'PUBLISH_INCOMPLETE',
        `Table '${name}' has ${totals[0]} rows: its manifest says ${rows}.`,
      )
    return {...describeTable(models, name, columns), file: join(dir, file), sha256, order, totals}
  })
}

export type CombinedVerification = Awaited<ReturnType<typeof verifyCombined>>

/** Compares totals over all lenders with the sums of each lender's. @throws ConfigError `CONFIG_MISSING` */
export async function verifyCombined(config: Config, {signal}: World) {
  const request = clickhouseOf(config)
  const {openSession} = await import('./clickhouse-layout.ts')
  const {compareTotals} = await import('./clickhouse-combined.ts')
  await using session = openSession(request, signal)
  const totals = await compareTotals(session, readSources(config, []).models)
  const differing = totals.filter(({together, sum}) => together !== sum).length
  return {server: session.server, totals, differing}
}
