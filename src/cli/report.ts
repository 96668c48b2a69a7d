import {writeFileAtomically} from '../warehouse/atomic-file.ts'
import {dataFolderAt, requireOutFile} from '../warehouse/data-folder.ts'
import {renderReport} from '../web/report.ts'
import type {Call, CliCommand} from './command.ts'
import {dateOption, type ReleaseOptions, requireAskedRelease} from './options.ts'

/** `loantape report`. */
export default function addReport(command: CliCommand): void {
  command
    .example('report --as-of 2026-06-30')
    .option('--release <id>', 'of this release; the current one by default')
    .addOption(dateOption('--as-of <date>', 'of the portfolio as of this business date, YYYY-MM-DD'))
    .option('--out <file>', 'where to write it; report-<release>.html in the data folder by default')
    .does(
      async (call: Call<ReleaseOptions & {out?: string}>) => {
        const folder = dataFolderAt(call.config.dataDir)
        const out = call.options.out === undefined ? undefined : requireOutFile(folder, call.options.out)
        const release = await requireAskedRelease(call)
        const {release_id} = release.manifest
        const file = out ?? `${folder.root}/report-${release_id}.html`
        writeFileAtomically(file, await renderReport(release))
        return {file, release_id}
      },
      ({file}) => `The portfolio report: ${file}`,
    )
}
