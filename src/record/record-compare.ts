import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {type Act, createPerformer, listGivenUp} from '../accounting/acts.ts'
import {listAllBatches} from '../accounting/issued.ts'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {signedBy} from '../books/close-period.ts'
import type {Config} from '../core/config.ts'
import {LoantapeError, newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, hasStores, listNames, requireWritable} from '../store/data-folder.ts'
import {
  type Disagreement,
  findHead,
  findRecorded,
  listLosses,
  listRecorded,
  type RecordedUnit,
  refuse,
  short,
  type TapeRow,
} from '../store/recorded.ts'
import {findCurrentRelease, type Release} from '../store/release.ts'
import {inStateTransaction, openStateDb, type StateDb} from '../store/state-db.ts'
import {compareWarehouse, planCatchUp, readStand} from '../sync/catch-up.ts'
import {catchUpState} from './record-state.ts'

/**
 * Compares every store with the tapes; see `bringUpToDate` (record.ts).
 *
 * @returns whether all were compared: a warehouse that is in use or damaged is left out
 * @throws ConfigError `STORES_DISAGREE`
 */
export async function requireAgreement(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  world: World,
): Promise<boolean> {
  refuse(folder, compareTapes(config, folder, stateDb, world).problems)
  const problems = await compareWarehouse(config, folder, stateDb, world)
  refuse(folder, problems ?? [])
  return problems !== null
}

/** Lists everything on which the stores disagree, after bringing the state database up to date if possible. */
export async function listDisagreements(config: Config, world: World): Promise<Disagreement[]> {
  const folder = dataFolderAt(config.dataDir)
  if (!hasStores(folder)) return []
  using stateDb = openStateDb(folder.stateDb)
  const {problems} = compareTapes(config, folder, stateDb, world)
  return [...problems, ...((await compareWarehouse(config, folder, stateDb, world)) ?? [])]
}

/**
 * Continues although something that other stores name is missing, and records on a tape what was given up.
 *
 * @throws ConfigError `RECORD_WHOLE` if nothing is missing
 */
export async function goOn(
  config: Config,
  why: string,
  world: World,
): Promise<{given_up: string[]; problems: string[]}> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  using stateDb = openStateDb(folder.stateDb)
  const {problems: own, gaps, gone} = compareTapes(config, folder, stateDb, world, {fillsGaps: true})
  const plan = await planCatchUp(
    config,
    {folder, stateDb},
    world,
    gone.map(({unit}) => unit),
  )
  const found = [...own, ...(plan?.problems ?? [])]
  const foreign = found.find(({losses}) => losses.length === 0)
  if (foreign) refuse(folder, [foreign])
  if (found.length + gaps.length === 0)
    throw newError('RECORD_WHOLE', `Data folder '${folder.root}': nothing is missing.`)
  // A unit whose tape is gone may well be in the warehouse, which then must not be replaced by one without it.
  const losses = [...new Set(found.flatMap((one) => (one.store === 'tape' ? [] : one.losses)))]
  const head = existsSync(folder.warehouse) ? ((await readStand(folder)).tape_head ?? '') : ''
  const recorded = listRecorded(stateDb)
  const act: Extract<Act, {act: 'went on'}> = {
    act: 'went on',
    ...signedBy(world),
    why,
    tapes: [
      ...gone.map((row) => describeGone(recorded, row)),
      ...gaps.map(({no, kind, chain, tape}) => ({unit: tape, path: '', units: [{no, kind, chain}]})),
    ],
    losses,
    history_head: head !== '' && losses.includes(head) ? head : undefined,
  }
  const perform = createPerformer(config, {folder, stateDb}, world)
  inStateTransaction(stateDb, () => perform(act))
  const problems = [
    ...found.map(({problem}) => problem),
    ...gaps.map(({no}) => `unit ${no} of the record is missing.`),
  ]
  return {given_up: [...listGivenUp(act)], problems}
}

/** Compares the state database with the tapes and, if they agree, the current release and the batches with both. */
function compareTapes(
  config: Config,
  folder: DataFolder,
  stateDb: StateDb,
  world: World,
  options: {fillsGaps?: boolean} = {},
): ReturnType<typeof catchUpState> {
  const found = catchUpState(config, folder, stateDb, world, options)
  return found.problems.length > 0 ? found : {...found, problems: compareOutputs(folder, stateDb)}
}

/** A missing tape with its units of the record. */
export function describeGone(
  recorded: readonly RecordedUnit[],
  {unit, path}: Pick<TapeRow, 'unit' | 'path'>,
): {unit: string; path: string; units: Omit<RecordedUnit, 'tape'>[]} {
  const units = recorded.filter(({tape}) => tape === unit).map(({no, kind, chain}) => ({no, kind, chain}))
  return {unit, path, units}
}

/** The current release must rest on a unit of the record, and every journal batch on an act. */
function compareOutputs(folder: DataFolder, stateDb: StateDb): Disagreement[] {
  const losses = listLosses(stateDb)
  const isKnown = (what: string) => losses.has(what) || findRecorded(stateDb, what) !== undefined
  const release = tryRelease(folder)
  const found: Disagreement[] = []
  const head = release?.manifest.tape_head ?? ''
  if (release && head !== '' && !isKnown(head)) {
    const {no, chain} = findHead(stateDb)
    found.push({
      store: 'current',
      problem: `release '${release.manifest.release_id}' rests on a unit of the record that is missing (${short(head)}); tapes and state database end at unit ${no} (${short(chain)}).`,
      losses: [head],
    })
  }
  const issued = new Set(listAllBatches(stateDb).map(({profile, batch_id}) => `${profile}/${batch_id}`))
  const unknown = JOURNAL_NAMES.flatMap((name) =>
    listNames(join(folder.exports, name)).map((id) => ({name, id})),
  )
    .filter(
      ({name, id}) => !id.startsWith('.') && existsSync(join(folder.exports, name, id, 'manifest.json')),
    )
    .map(({name, id}) => `${name}/${id}`)
    .filter((batch) => !issued.has(batch) && !losses.has(batch))
  if (unknown.length > 0)
    found.push({
      store: 'exports',
      problem: `${quantity(unknown.length, 'journal batch')} that the record does not know: ${unknown.slice(0, 3).join(', ')}${unknown.length > 3 ? ', …' : ''}. Their entries would be issued once more.`,
      losses: unknown,
    })
  return found
}

/** The current release; its readers report a damaged one. */
function tryRelease(folder: DataFolder): Release | undefined {
  try {
    return findCurrentRelease(folder)
  } catch (error) {
    if (error instanceof LoantapeError) return undefined
    throw error
  }
}
