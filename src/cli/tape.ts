import {quantity} from '../money.ts'
import {replaceTapeKey} from '../pipeline/acts.ts'
import {goOn} from '../pipeline/record-compare.ts'
import {readTape} from '../pipeline/verify.ts'
import type {Call, CliCommand} from './command.ts'
import {joinLines} from './table.ts'

/** `loantape tape`. */
export default function addTape(command: CliCommand): void {
  command
    .command('cat')
    .example('tape cat w_20260630T033000Z-9463c9_9b45ad')
    .description('the lines of one tape as JSON, for jq and the like')
    .argument('<walk>', 'id of a walk or an act, or a date: what was read beside the walks of that day')
    .examines()
    .does(({cli, config}, unit: string) => {
      for (const line of readTape(config, unit)) cli.printJson(line)
    })
  command
    .command('new-key')
    .example('tape new-key --why "the old one was lost"')
    .examines()
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
  command
    .command('go-on')
    .example('tape go-on --why "the disk with the tapes of May is lost"')
    .description('go on from what is there although tapes, or what other stores name, are missing')
    .requiredOption('--why <reason>', 'kept on a tape')
    .examines()
    .does(
      ({config, options, world}: Call<{why: string}>) => goOn(config, options.why, world),
      ({problems, given_up}) =>
        joinLines([
          'Noted on a tape, with the reason:',
          ...problems.map((problem) => `  ${problem}`),
          `${quantity(given_up.length, 'unit or batch')} given up. \`loantape period true-up\` shows by how much books and history differ.`,
        ]),
    )
}
