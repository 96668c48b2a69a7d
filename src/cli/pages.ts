import type {Command} from 'commander'
import {parseDateOption} from '../config.ts'
import {buildRelease} from '../pipeline/build.ts'
import {describeTables} from '../pipeline/dictionary.ts'
import {reportPortfolio} from '../pipeline/report.ts'
import {requireRelease} from '../release/manifest.ts'
import {writeFileAtomically} from '../warehouse/atomic-file.ts'
import {createDataFolder, dataFolderAt, requireOutFile} from '../warehouse/data-folder.ts'
import type {Cli, CommonOptions} from './context.ts'

interface PageOptions extends CommonOptions {
  out?: string
  release?: string
  asOf?: string
}

/** `loantape docs`. */
export function addDocs(program: Command, cli: Cli): void {
  program
    .command('docs')
    .description('the data dictionary and model graph as one HTML page')
    .option('--out <file>', 'where to write it; dictionary.html in the data folder by default')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<PageOptions>()
      const config = cli.readConfig(options)
      const folder = dataFolderAt(config.dataDir)
      const file =
        options.out === undefined ? `${folder.root}/dictionary.html` : requireOutFile(folder, options.out)
      const page = await describeTables(folder, config, cli.createWorld(config))
      if (options.out === undefined) createDataFolder(folder)
      writeFileAtomically(file, page)
      cli.printResult(options, {file}, () => `The data dictionary: ${file}`)
    })
}

/** `loantape report`. */
export function addReport(program: Command, cli: Cli): void {
  program
    .command('report')
    .description('the portfolio report as one HTML page')
    .option('--release <id>', 'of this release; the current one by default')
    .option('--as-of <date>', 'of the portfolio as of this business date, YYYY-MM-DD')
    .option('--out <file>', 'where to write it; report-<release>.html in the data folder by default')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<PageOptions>()
      const config = cli.readConfig(options)
      const folder = dataFolderAt(config.dataDir)
      const out = options.out === undefined ? undefined : requireOutFile(folder, options.out)
      const {asOf} = options
      const releaseId =
        asOf === undefined
          ? options.release
          : (await buildRelease(config, {asOf: parseDateOption('--as-of', asOf)}, cli.createWorld(config)))
              .release_id
      const release = requireRelease(folder, releaseId)
      const {release_id} = release.manifest
      const file = out ?? `${folder.root}/report-${release_id}.html`
      writeFileAtomically(file, await reportPortfolio(release))
      cli.printResult(options, {file, release_id}, () => `The portfolio report: ${file}`)
    })
}
