import {z} from 'zod'
import {type LoantapeError, newError} from '../errors.ts'
import type {StateDb} from '../state/state-db.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {type IssuedBatch, listAllBatches} from './issued.ts'
import {listClosedStands} from './periods.ts'

/** How books and history stand to each other. */
export type Standing =
  /** The history holds everything that was known when something was issued or closed. */
  | 'whole'
  /** It was brought back from before: it lacks some of it. */
  | 'recovered'
  /** It began later: nothing earlier holds in it. */
  | 'another'

/**
 * Whether the history is the one that everything issued and closed was made from, or goes on from it.
 */
export async function readStanding(
  stateDb: StateDb,
  folder: DataFolder,
): Promise<{standing: Standing; lost: string[]}> {
  const batches = listAllBatches(stateDb, {withoutFiles: true})
  const nameOf = ({profile, batch_id}: IssuedBatch) => `batch '${batch_id}' of ${profile}`
  const stands = [
    ...batches.map((batch) => ({what: nameOf(batch), history_id: batch.history_id})),
    ...listClosedStands(stateDb).map(({period, history_id}) => ({
      what: `closed month ${period}`,
      history_id,
    })),
  ]
  if (stands.length === 0) return {standing: 'whole', lost: []}
  await using db = await openHistory(folder)
  const rows = await db.all(
    z.object({history_id: z.string(), recorded_at: z.string()}),
    `select history_id, strftime(recorded_at, '%Y-%m-%dT%H:%M:%S.%fZ') as recorded_at
     from history.raw.settle order by seq`,
  )
  const held = new Set(rows.map(({history_id}) => history_id))
  const lost = stands.filter(({history_id}) => !held.has(history_id)).map(({what}) => what)
  if (lost.length === 0) return {standing: 'whole', lost}
  const [begun, latest] = [rows.at(0), batches.at(-1)]
  if (begun && latest && latest.known_at < begun.recorded_at) {
    return {standing: 'another', lost: [nameOf(latest)]}
  }
  return {standing: 'recovered', lost}
}

/**
 * Makes sure that nothing is issued or closed from a history that lacks what was known when something was: all of it would
 * be booked once more, or taken back.
 *
 * @throws ConfigError `JOURNAL_HISTORY`
 */
export async function requireSameHistory(stateDb: StateDb, folder: DataFolder): Promise<void> {
  const {standing, lost} = await readStanding(stateDb, folder)
  if (standing !== 'whole') throw describeLost(folder, {standing, lost})
}

/** What is said of books that stand on another history, and what to do. */
export function describeLost(
  {root}: Pick<DataFolder, 'root'>,
  {standing, lost}: {standing: Standing; lost: readonly string[]},
): LoantapeError {
  const [first, ...others] = lost
  const stood = others.length === 0 ? `${first} was` : `${first} and ${others.length} more were`
  if (standing === 'another') {
    return newError(
      'JOURNAL_HISTORY',
      `The history in '${root}' began after ${stood} made: it is another one, in whose journal nothing earlier holds.`,
    )
  }
  return newError(
    'JOURNAL_HISTORY',
    `The history in '${root}' lacks what ${stood} made from: it was brought back from before.`,
    {
      next: 'Where its tapes are all there, `loantape rebuild --apply` brings the rest back, else a later backup (docs/operations.md). Where neither is, `loantape period true-up` shows by how much books and history differ, and `loantape period true-up --issue` brings them together.',
    },
  )
}
