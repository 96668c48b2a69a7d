import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import type {PublishResult} from '../postgres/copy-release.ts'
import {requireRelease} from '../release/manifest.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'

/**
 * Copies a release, the current one by default, into the PostgreSQL database of the settings.
 *
 * @throws ConfigError `CONFIG_POSTGRES_MISSING`; what `publishToPostgres` throws
 */
export async function publishRelease(
  config: Config,
  request: {releaseId?: string | undefined},
  world: World,
): Promise<PublishResult> {
  const {postgresUrl: url, postgresReader: reader} = config
  if (url === undefined) {
    throw newError('CONFIG_POSTGRES_MISSING', 'No PostgreSQL to publish to: LOANTAPE_POSTGRES_URL not set.')
  }
  const release = requireRelease(dataFolderAt(config.dataDir), request.releaseId)
  // Only here: every command would take longer to start.
  const {publishToPostgres} = await import('../postgres/copy-release.ts')
  return await publishToPostgres(release, {url, reader}, world)
}
