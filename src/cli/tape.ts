import {groupThousands} from '../money.ts'
import {rebuildWarehouse} from '../pipeline/rebuild.ts'
import {replaceTapeKey} from '../pipeline/tape-key.ts'
import {readTape, type VerifyResult, verifyAll} from '../pipeline/verify.ts'
import type {Call, CliCommand} from './command.ts'
import {renderRebuilt} from './rebuild.ts'
import {joinLines} from './table.ts'

/** `loantape tape` and `loantape verify`. */
export function addTape(program: CliCommand): void {
  const tape = program.command('tape').description('what came in from outside, as it came')
  tape
    .command('cat')
    .example('tape cat w_20260630T033000Z-9463c9_9b45ad')
    .description('the lines of one tape as JSON, for jq and the like')
    .argument('<walk>', 'id of a walk, or a date: what was read beside the walks of that day')
    .does(({cli, config}, unit: string) => {
      for (const line of readTape(config, unit)) cli.printJson(line)
    })
  tape
    .command('new-key')
    .example('tape new-key --why "the old one was lost"')
    .description('go on with a new key where the former is lost; tapes sealed with it stay closed')
    .requiredOption('--why <reason>', 'kept in the state database')
    .does(
      ({config, options, world}: Call<{why: string}>) => replaceTapeKey(config, options.why, world),
      ({file, fingerprint, set_aside}) =>
        joinLines([
          `Tapes are sealed with key ${fingerprint} from now on: ${file}`,
          set_aside && `Set aside: ${set_aside}`,
        ]),
    )
  program
    .command('verify')
    .example('verify')
    .description('examine everything that is kept: tapes, certificates, current release, batches')
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
