import {replaceTapeKey} from '../accounting/acts.ts'
import {newError} from '../core/errors.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {createBackupSender, type SentBackup} from '../outputs.ts'
import {backUp, examineBackup, restoreBackup, sayAuthentic} from '../record/backup.ts'
import {type PruneResult, pruneData} from '../record/prune.ts'
import {goOn} from '../record/record-compare.ts'
import {compareBooks, readTape, type VerifyResult, verifyAll} from '../record/verify.ts'
import {dataFolderAt, requireStores} from '../store/data-folder.ts'
import {type RebuildResult, rebuildWarehouse} from '../sync/rebuild.ts'
import {warnOfUnknown} from './books.ts'
import {does, type Invocation} from './command.ts'
import type {Text} from './table.ts'

export const commands = {
  verify: does(
    async (call: Invocation<{rebuild?: boolean; backup?: string}>) => {
      const {config, options, world} = call
      if (options.backup !== undefined) {
        const {listed: _, ...examined} = await examineBackup(config, options.backup)
        return examined
      }
      requireStores(dataFolderAt(config.dataDir))
      const verified = await verifyAll(config, world)
      const isRebuilt = options.rebuild && !verified.problems.some(({path}) => /^(tape|state)/.test(path))
      const rebuilt = isRebuilt ? await rebuildWarehouse(config, {keepsFields: true}, world) : undefined
      const books = rebuilt && compareBooks(config)
      return {...verified, ...(rebuilt && {rebuilt, books})}
    },
    (found) => {
      if ('from' in found)
        return `${quantity(found.files, 'file')} of ${found.from} ${found.files === 1 ? 'is as it was' : 'are as they were'} written.\n${sayAuthentic(found)}`
      const {rebuilt, books, ...verified} = found
      return [
        renderVerified(verified),
        rebuilt && renderRebuilt(rebuilt),
        rebuilt && !books && 'Some acts cannot be read: the books were not compared with them.',
        books?.length === 0 && 'The books match the acts on the tapes.',
        books?.map((table) => `state.sqlite: ${table} differs from the acts on the tapes.`),
      ]
    },
    (found) => {
      if ('from' in found) return 0
      const {outcome, rebuilt, books = []} = found
      return outcome === 'damaged' || rebuilt?.outcome === 'different' || books.length > 0 ? 1 : 0
    },
  ),
  'tape cat': does(({cli, config}, name: string) => {
    for (const line of readTape(config, name)) cli.printJson(line)
  }),
  'tape new-key': does(
    ({config, options, world}: Invocation<{why: string}>) => replaceTapeKey(config, options.why, world),
    ({file, fingerprint}) => `Tapes are sealed with key ${fingerprint} from now on: ${file}`,
  ),
  'tape go-on': does(
    ({config, options, world}: Invocation<{why: string}>) => goOn(config, options.why, world),
    ({problems, given_up}) => [
      'Recorded on a tape, with the reason:',
      {indented: problems},
      `Units and batches given up: ${groupThousands(given_up.length)}. \`loantape period true-up\` shows by how much books and history differ.`,
      warnOfUnknown(given_up.filter((what) => what.includes('/'))),
    ],
  ),
  backup: does(async ({config, options, world}: Invocation<{deliver?: string[]}>, dir: string) => {
    const send = createBackupSender(config, options.deliver ?? [], world)
    const made = await backUp(config, dir, world)
    return {...made, deliveries: await send(made)}
  }, renderBackup),
  restore: does(
    ({config, options}: Invocation<{trust?: boolean}>, backup: string) =>
      restoreBackup(config, backup, options.trust),
    (restored) => [
      `Brought back ${quantity(restored.files, 'file')} of ${restored.from}.`,
      sayAuthentic(restored),
      'The next sync reads what has changed since.',
      restored.last_batches.map((batch) => `Last journal batch in it: ${batch}.`),
      restored.last_batches.length > 0 &&
        'If your books have later ones, delete their imports there: what they held is issued again.',
    ],
  ),
  rebuild: does(({config, options, world}: Invocation<{apply?: boolean; without?: string; why?: string}>) => {
    const {apply: isApplied = false, without: walk, why} = options
    if (walk === undefined && why !== undefined)
      throw newError('USAGE', `Option --why '${why}': it says why a walk is taken back; add --without.`)
    if (walk === undefined) return rebuildWarehouse(config, {isApplied}, world)
    if (why !== undefined) return rebuildWarehouse(config, {isApplied, without: {walk, why}}, world)
    throw newError('USAGE', `Walk '${walk}' in --without: expected --why with it.`, {
      next: "Say why: `--why 'the clock was a day ahead'`.",
    })
  }, renderRebuilt),
  prune: does(
    ({config, options: {dryRun = false}, world}: Invocation<{dryRun?: boolean}>) =>
      pruneData(config, {isDryRun: dryRun}, world),
    renderPruned,
  ),
}

function renderVerified(found: VerifyResult): Text {
  const {tapes, closed, removed, given_up, problems} = found
  return [
    tapes === 0
      ? 'There are no tapes yet.'
      : `${quantity(tapes, 'tape')} on record since ${found.since}, ${quantity(found.lines, 'line')} read.`,
    closed > 0 &&
      `${groupThousands(closed)} ${closed === 1 ? 'is' : 'are'} sealed with a key that was given up or is not at hand: only ${closed === 1 ? 'its' : 'their'} sha256 was compared.`,
    removed > 0 &&
      `${quantity(removed, 'older tape')} ${removed === 1 ? 'was' : 'were'} removed by \`loantape prune\`.`,
    given_up > 0 &&
      `${quantity(given_up, 'tape')} ${given_up === 1 ? 'was' : 'were'} given up by \`loantape tape go-on\`.`,
    `${quantity(found.walks, 'applied walk')} ${found.walks === 1 ? 'adds' : 'add'} up; ${quantity(found.release_tables, 'table')} of the current release and ${quantity(found.batch_files, 'file')} of batches were compared.`,
    problems.map(({path, problem, next}) => `${path}: ${problem}${next === undefined ? '.' : ` ${next}`}`),
    problems.some(({next}) => next === undefined) &&
      'History, releases and books are as before. Bring these files back from a backup.',
  ]
}

export function renderBackup(made: SentBackup): Text {
  const {dir, files, bytes, tape_key, authenticated, deliveries} = made
  return [
    `Backed up ${quantity(files, 'file')}, ${(bytes / 1e6).toFixed(1)} MB: ${dir}`,
    tape_key && `The key of tapes, ${tape_key}, is not among them: keep a copy of it elsewhere.`,
    !authenticated &&
      'Its manifest carries no MAC, because the key of tapes is not at hand: nobody will be able to tell whether it was changed.',
    deliveries.map(({target, folder, sent}) => `${target}: took ${quantity(sent, 'file')} below ${folder}`),
  ]
}

function renderRebuilt({outcome, units, since, differences, set_aside}: RebuildResult): Text {
  const from = since === null ? '' : `, settled since ${since}`
  return [
    `${quantity(units, 'unit')} on tapes${from}.`,
    outcome === 'equal' && 'The warehouse matches them.',
    differences === null && 'The present warehouse cannot be read; nothing was compared.',
    differences?.map(
      ({table, only_now, only_rebuilt}) =>
        `raw.${table}: ${quantity(only_now, 'row')} only now, ${groupThousands(only_rebuilt)} only in the new one`,
    ),
    outcome === 'different' && '`--apply` puts the new one in its place.',
    outcome === 'rebuilt' && 'The new warehouse is in place.',
    set_aside.map((file) => `Set aside: ${file}`),
  ]
}

export function renderPruned({outcome, quarantined, unsaved, ...removed}: PruneResult): Text {
  const listed = [
    ...removed.releases.map((id) => `release ${id}`),
    ...removed.batches.map((batch) => `batch ${batch}`),
    ...removed.tapes.map((path) => `tape ${path}`),
    ...removed.replaced,
    ...(quarantined > 0 ? [`the content of ${quantity(quarantined, 'quarantined record')}`] : []),
  ]
  return [
    listed.length === 0
      ? 'Nothing to remove.'
      : [outcome === 'dry_run' ? 'Would be removed:' : 'Removed:', {indented: listed}],
    unsaved > 0 && `Kept until a backup is made: ${quantity(unsaved, 'older tape')}.`,
  ]
}
