import {InvalidArgumentError} from 'commander'
import {newError} from '../errors.ts'
import {groupThousands, quantity} from '../money.ts'
import {type RebuildResult, rebuildWarehouse} from '../pipeline/rebuild.ts'
import type {Call, CliCommand} from './command.ts'
import {joinLines} from './table.ts'

interface RebuildOptions {
  apply?: boolean
  without?: string
  why?: string
}

/** `loantape rebuild`. */
export default function addRebuild(command: CliCommand): void {
  command
    .description('compute the warehouse anew from the tapes and say in what it differs; change nothing')
    .example('rebuild --apply')
    .option('--without <walk>', 'as if this walk had never been applied; one at a time', takeOne)
    .option('--why <reason>', 'why it is taken back; kept on the tape')
    .option('--apply', 'put the new warehouse in the place of the old one, which is set aside')
    .does(
      ({config, options, world}: Call<RebuildOptions>) =>
        rebuildWarehouse(config, {isApplied: options.apply ?? false, without: readWithout(options)}, world),
      renderRebuilt,
    )
}

function takeOne(walk: string, before: string | undefined): string {
  if (before !== undefined) throw new InvalidArgumentError('Take one walk back after the other.')
  return walk
}

function readWithout({without, why}: RebuildOptions): {walk: string; why: string} | undefined {
  if (without === undefined) return undefined
  if (why !== undefined) return {walk: without, why}
  throw newError('USAGE', `Walk '${without}' in --without: expected --why with it.`, {
    next: "Say why: `--why 'the clock was a day ahead'`.",
  })
}

/** What a rebuild came to, in words. */
export function renderRebuilt({outcome, units, since, differences, set_aside}: RebuildResult): string {
  const from = since === null ? '' : `, settled since ${since}`
  return joinLines([
    `${quantity(units, 'unit')} on tapes${from}.`,
    outcome === 'equal' && 'The warehouse is what they say.',
    differences === null && 'The warehouse there is cannot be read; nothing was compared.',
    ...(differences ?? []).map(
      ({table, only_now, only_rebuilt}) =>
        `raw.${table}: ${quantity(only_now, 'row')} only now, ${groupThousands(only_rebuilt)} only in the new one`,
    ),
    outcome === 'different' && '`--apply` puts the new one in its place.',
    outcome === 'rebuilt' && 'The new warehouse is in place.',
    ...set_aside.map((file) => `Set aside: ${file}`),
  ])
}
