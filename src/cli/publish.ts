import type {Command} from 'commander'
import {publishRelease} from '../pipeline/publish.ts'
import type {PublishResult} from '../postgres/publish.ts'
import type {Cli, CommonOptions} from './context.ts'

interface PublishOptions extends CommonOptions {
  release?: string
}

/** `loantape publish postgres`. */
export function addPublish(program: Command, cli: Cli): void {
  program
    .command('publish')
    .description('copy a release to where others query it')
    .command('postgres')
    .description(
      'into PostgreSQL (LOANTAPE_POSTGRES_URL): readers see one release or the other, never a mixture',
    )
    .option('--release <id>', 'this release; the current one by default')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<PublishOptions>()
      const config = cli.readConfig(options)
      const request = options.release === undefined ? {} : {releaseId: options.release}
      const result = await publishRelease(config, request, cli.createWorld(config))
      cli.printResult(options, result, renderPublished)
    })
}

/** What a publication came to, for people. */
export function renderPublished({outcome, release_id, server, tables, rows}: PublishResult): string {
  return outcome === 'unchanged'
    ? `Release ${release_id} is published at ${server} already.`
    : `Release ${release_id} published at ${server}: ${tables} tables, ${rows} rows.`
}
