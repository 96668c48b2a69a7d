import {publishRelease} from '../pipeline/publish.ts'
import type {PublishResult} from '../postgres/copy-release.ts'
import type {Call, CliCommand} from './command.ts'

/** `loantape publish postgres`. */
export default function addPublish(command: CliCommand): void {
  command
    .command('postgres')
    .example('publish postgres')
    .description(
      'into PostgreSQL (LOANTAPE_POSTGRES_URL): readers see one release or the other, never a mixture',
    )
    .option('--release <id>', 'this release; the current one by default')
    .does(
      ({config, options: {release}, world}: Call<{release?: string}>) =>
        publishRelease(config, {releaseId: release}, world),
      renderPublished,
    )
}

/** What a publication came to, for people. */
export function renderPublished({outcome, release_id, server, tables, rows}: PublishResult): string {
  return outcome === 'unchanged'
    ? `Release ${release_id} is published at ${server} already.`
    : `Release ${release_id} published at ${server}: ${tables} tables, ${rows} rows.`
}
