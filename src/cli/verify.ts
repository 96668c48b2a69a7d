import {groupThousands, quantity} from '../money.ts'
import {examineBackup, sayAuthentic} from '../pipeline/backup.ts'
import {compareBooks} from '../pipeline/compare-books.ts'
import {rebuildWarehouse} from '../pipeline/rebuild.ts'
import {type VerifyResult, verifyAll} from '../pipeline/verify.ts'
import type {Call, CliCommand} from './command.ts'
import {renderRebuilt} from './rebuild.ts'
import {joinLines} from './table.ts'

/** `loantape verify`. */
export default function addVerify(command: CliCommand): void {
  command
    .description('examine everything that is kept: tapes, certificates, current release, batches')
    .example('verify')
    .option('--rebuild', 'compute the warehouse anew from them, too, and compare')
    .option(
      '--backup <dir>',
      'examine this backup instead: its files, and its manifest under the key of tapes',
    )
    .examines()
    .does(
      async (call: Call<{rebuild?: boolean; backup?: string}>) => {
        const {cli, config, options, world} = call
        if (options.backup !== undefined) {
          const {paths: _, ...examined} = await examineBackup(config, options.backup)
          return examined
        }
        const verified = await verifyAll(config, world)
        const isRebuilt = options.rebuild && !verified.problems.some(({path}) => path.startsWith('tape/'))
        const rebuilt = isRebuilt ? await rebuildWarehouse(config, {keepsFields: true}, world) : undefined
        const books = rebuilt && compareBooks(config)
        const isOther = rebuilt?.outcome === 'different' || (books && books.length > 0)
        if (verified.outcome === 'damaged' || isOther) cli.exitCode = 1
        return {...verified, ...(rebuilt && {rebuilt, books})}
      },
      (found) => {
        if ('from' in found)
          return `${quantity(found.files, 'file')} of ${found.from} ${found.files === 1 ? 'is as it was' : 'are as they were'} written.\n${sayAuthentic(found)}`
        const {rebuilt, books, ...verified} = found
        return joinLines([
          renderVerified(verified),
          rebuilt && renderRebuilt(rebuilt),
          books?.length === 0 && 'The books are what the acts on the tapes say.',
          ...(books ?? []).map((table) => `state.sqlite: ${table} is not what the acts on the tapes say.`),
        ])
      },
    )
}

function renderVerified(found: VerifyResult): string {
  const {tapes, closed, removed, problems} = found
  return joinLines([
    tapes === 0
      ? 'There are no tapes yet.'
      : `${quantity(tapes, 'tape')} with ${quantity(found.lines, 'line')}, since ${found.since}.`,
    closed > 0 &&
      `${groupThousands(closed)} ${closed === 1 ? 'is' : 'are'} sealed with a key that was given up or is not at hand: only their sha256 was compared.`,
    removed > 0 &&
      `${quantity(removed, 'older tape')} ${removed === 1 ? 'was' : 'were'} removed by \`loantape prune\`.`,
    `${quantity(found.walks, 'applied walk')} ${found.walks === 1 ? 'adds' : 'add'} up; ${quantity(found.release_tables, 'table')} of the current release and ${quantity(found.batch_files, 'file')} of batches were compared.`,
    ...problems.map(({path, problem, next}) => `${path}: ${problem}${next === undefined ? '.' : ` ${next}`}`),
    problems.some(({next}) => next === undefined) &&
      'History, releases and books are as before. Bring these files back from a backup.',
  ])
}
