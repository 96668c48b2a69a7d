import type {ClickhouseRequest} from '../clickhouse/target.ts'
import type {Config} from '../config.ts'
import {codeOf, messageOf, newError} from '../errors.ts'
import {type Release, requireRelease} from '../release/manifest.ts'
import type {PublishTarget, ReleaseTarget, VisibleRelease} from '../release-target.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {readPublished} from './published-tables.ts'

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
    return async () => (await import('../clickhouse/target.ts')).openClickhouse(request, world)
  }
  const {postgresUrl: url, postgresReader: reader} = config
  if (url === undefined)
    throw newError('CONFIG_MISSING', 'No PostgreSQL to publish to: LOANTAPE_POSTGRES_URL not set.', {
      next: 'Set it, or LOANTAPE_POSTGRES_URL_FILE, in the environment or in .env.',
    })
  return async () => (await import('../postgres/target.ts')).openPostgres({url, reader}, world)
}

/** Releases of a lender that stay there, the one readers see among them: somebody may still be reading the one before. */
const CLICKHOUSE_RELEASES = 3

/** Where ClickHouse is, by the settings. @throws ConfigError `CONFIG_MISSING` */
export function clickhouseOf(config: Config): ClickhouseRequest {
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
