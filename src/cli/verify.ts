import {groupThousands} from '../money.ts'
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
    .does(
      async (call: Call<{rebuild?: boolean}>) => {
        const {cli, config, options, world} = call
        const verified = await verifyAll(config, world)
        const isRebuilt = options.rebuild && !verified.problems.some(({path}) => path.startsWith('tape/'))
        const rebuilt = isRebuilt ? await rebuildWarehouse(config, {keepsFields: true}, world) : undefined
        if (verified.outcome === 'damaged' || rebuilt?.outcome === 'different') cli.exitCode = 1
        return {...verified, ...(rebuilt && {rebuilt})}
      },
      ({rebuilt, ...verified}) => joinLines([renderVerified(verified), rebuilt && renderRebuilt(rebuilt)]),
    )
}

function renderVerified(found: VerifyResult): string {
  const {tapes, closed, removed, problems} = found
  return joinLines([
    tapes === 0
      ? 'There are no tapes yet.'
      : `${groupThousands(tapes)} tapes with ${groupThousands(found.lines)} lines, since ${found.since}.`,
    closed > 0 &&
      `${groupThousands(closed)} are sealed with a key that was given up or is not at hand: only their sha256 was compared.`,
    removed > 0 && `${groupThousands(removed)} older ones were removed by \`loantape prune\`.`,
    `${groupThousands(found.walks)} applied walks add up; ${found.release_tables} tables of the current release and ${groupThousands(found.batch_files)} files of batches were compared.`,
    ...problems.map(({path, problem, next}) => `${path}: ${problem}${next === undefined ? '.' : ` ${next}`}`),
    problems.some(({next}) => next === undefined) &&
      'History, releases and books are as before. Bring these files back from a backup.',
  ])
}
