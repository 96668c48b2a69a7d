import {quantity} from '../money.ts'
import {type PublishResult, publishRelease} from '../pipeline/publish.ts'
import {PUBLISH_TARGETS} from '../release-target.ts'
import type {Call, CliCommand} from './command.ts'

const ABOUT = {
  postgres: 'into PostgreSQL (LOANTAPE_POSTGRES_URL): readers see one release or the other, never a mixture',
  clickhouse:
    'into ClickHouse (LOANTAPE_CLICKHOUSE_URL), beside those of other sources: readers see one release or the other',
}

/** `loantape publish postgres|clickhouse`. */
export default function addPublish(command: CliCommand): void {
  for (const to of PUBLISH_TARGETS) {
    command
      .command(to)
      .example(`publish ${to}`)
      .description(ABOUT[to])
      .option('--release <id>', 'this release; the current one by default')
      .option('--force', 'also where readers see a newer one')
      .does(
        ({config, options: {release, force}, world}: Call<{release?: string; force?: boolean}>) =>
          publishRelease(config, {to, releaseId: release, isForced: force ?? false}, world),
        renderPublished,
      )
  }
}

/** What a publication came to, for people. */
export function renderPublished({outcome, release_id, server, tables, rows, loaded}: PublishResult): string {
  if (outcome === 'unchanged') return `Release ${release_id} is published at ${server} already.`
  const sent =
    loaded === tables
      ? ''
      : ` ${quantity(loaded, 'table')} ${loaded === 1 ? 'was' : 'were'} sent, the others were there.`
  return `Release ${release_id} published at ${server}: ${quantity(tables, 'table')}, ${quantity(rows, 'row')}.${sent}`
}
