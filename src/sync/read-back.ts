import {z} from 'zod'
import {newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {Database} from '../store/database.ts'
import type {Frame} from '../store/tape-format.ts'
import {writeChanged, writeSetting} from '../store/warehouse.ts'
import {createReader, instant, type Known, readKnown} from './intake.ts'
import {certifyWalk, settleUnit} from './settle.ts'
import {createStage} from './stream-tables.ts'
import {type HistoryUnit, readUnit} from './tape-units.ts'
import {isHistory, type Tapes} from './tapes.ts'
import {storeWalk} from './walk-state.ts'

/**
 * Makes the stage and reads back what dead runs had read: an open walk resumes where its tape ends. Walks that cannot be
 * continued are ended on their tapes.
 *
 * @param left the units that {@link Tapes.listLeft} names
 */
export async function resumeWalks(
  {db, tapes}: {db: Database; tapes: Tapes},
  left: readonly string[],
  {log}: Pick<World, 'log'>,
): Promise<Known> {
  await createStage(db)
  const known = await readKnown(db)
  for (const unit of left) {
    const reader = createReader(db, known)
    if (!(await tapes.reopen(unit, reader.take))) continue
    const {intake, kind, problem} = await reader.finish()
    const walk = intake?.kind === 'walk' ? intake : undefined
    if (walk && walk.walk.answers > 0) {
      known.walks.set(walk.stream.name, walk)
      continue
    }
    if (problem !== null) log.warn({unit, reason: problem}, 'what a run had read cannot be continued')
    const why = problem ?? 'its run died'
    const tapeHead = await tapes.conclude(unit, {outcome: 'abandoned', why})
    if (walk) await storeWalk(db, walk.stream, walk.walk, {state: 'abandoned', how: why, tapeHead})
    else if (isHistory(kind, 'abandoned')) await writeSetting(db, 'tape_head', tapeHead)
    await tapes.finish(unit)
  }
  return known
}

const outcomeFrame = z.object({
  outcome: z.string(),
  why: z.string().optional(),
  recorded_at: instant.optional(),
  is_certified: z.boolean().optional(),
  details: z.object({fetched: z.number(), failed: z.number()}).optional(),
})
const hashKeyFrame = z.object({hashKey: z.string().optional()})

/**
 * Settles a unit again from its tape, at the same instant as its run; the guards are not asked again. Requires the stage.
 *
 * @param without why each walk that was taken back no longer counts, by its id
 * @returns its outcome
 * @throws UnexpectedError `DATA_NEWER` if this version cannot read the tape; `TAPE_DAMAGED`
 */
export async function settleAgain(
  db: Database,
  unit: HistoryUnit,
  without: ReadonlyMap<string, string>,
): Promise<Frame> {
  const reader = createReader(db, await readKnown(db))
  let hashKey: string | undefined
  let end: Frame = {frame: 'begin'}
  for (const line of readUnit(unit)) {
    end = line.frame
    if (end.frame === 'begin') ({hashKey} = hashKeyFrame.parse(end))
    await reader.take(line)
  }
  const {intake, problem} = await reader.finish()
  const {outcome, why, recorded_at: now, is_certified, details} = outcomeFrame.parse(end)
  if (!isHistory(unit.kind, outcome)) return end
  if (outcome === 'settled' && problem !== null)
    throw newError(
      'DATA_NEWER',
      `Tape '${unit.tape.file}' of '${unit.tape.unit}' cannot be read by this version: ${problem}.`,
    )
  const takenBack = without.get(unit.tape.unit)
  if (intake?.kind === 'walk' && is_certified) await certifyWalk(db, intake.stream, intake.walk)
  if (intake && outcome === 'settled' && now !== undefined && takenBack === undefined) {
    await settleUnit(db, intake, {now, details, conclude: async () => unit.chain})
  } else if (intake?.kind === 'walk') {
    const state = outcome === 'refused' ? outcome : 'abandoned'
    const how = takenBack === undefined ? String(why) : `taken back: ${takenBack}`
    await storeWalk(db, intake.stream, intake.walk, {state, how, tapeHead: unit.chain})
  }
  // A unit that stored nothing counts as contained.
  await writeChanged(db, {tape_head: unit.chain, ...(intake && {hash_key: hashKey})})
  return end
}
