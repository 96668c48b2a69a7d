import {describeTables} from '../pipeline/dictionary.ts'
import {writeFileAtomically} from '../warehouse/atomic-file.ts'
import {createDataFolder, dataFolderAt, requireOutFile} from '../warehouse/data-folder.ts'
import type {Call, CliCommand} from './command.ts'

/** `loantape docs`. */
export default function addDocs(command: CliCommand): void {
  command
    .example('docs --out dictionary.html')
    .option('--out <file>', 'where to write it; dictionary.html in the data folder by default')
    .examines()
    .does(
      async ({config, options: {out}, world}: Call<{out?: string}>) => {
        const folder = dataFolderAt(config.dataDir)
        const file = out === undefined ? `${folder.root}/dictionary.html` : requireOutFile(folder, out)
        const page = await describeTables(folder, config, world)
        if (out === undefined) createDataFolder(folder)
        writeFileAtomically(file, page)
        return {file}
      },
      ({file}) => `The data dictionary: ${file}`,
    )
}
