import pLimit from 'p-limit'
import type {Database} from './database.ts'
import {interruptUntilCleared} from './statement-limit.ts'

/**
 * Does pieces of work side by side, one at a time on each connection, and each after those it waits for.
 *
 * @param pieces each after those it waits for, as if they were done one after the other
 * @returns what each came to, in their order
 * @throws what the first to fail has thrown; the others under way are interrupted then, and none is begun
 */
export async function inLanes<P, T>(
  {lanes}: Database,
  pieces: readonly P[],
  work: (piece: P, lane: Database) => Promise<T>,
  waitsFor: (piece: P) => readonly P[] = () => [],
): Promise<T[]> {
  const free = [...lanes]
  const inTurn = pLimit(lanes.length)
  let failure: {cause: unknown} | undefined
  let repeat: NodeJS.Timeout | undefined
  const begin = async (piece: P): Promise<T> => {
    if (failure) throw failure.cause
    const lane = free.pop()
    if (!lane) throw new Error('more is under way than there are connections')
    try {
      return await work(piece, lane)
    } catch (cause) {
      failure ??= {cause}
      repeat ??= interruptUntilCleared(() => lanes.filter((other) => other !== lane && !free.includes(other)))
      throw cause
    } finally {
      free.push(lane)
    }
  }
  const results = new Map<P, Promise<T>>()
  for (const piece of pieces) {
    const before = Promise.all(waitsFor(piece).map((other) => results.get(other)))
    results.set(
      piece,
      before.then(() => inTurn(() => begin(piece))),
    )
  }
  await Promise.allSettled(results.values())
  clearInterval(repeat)
  if (failure) throw failure.cause
  return Promise.all(results.values())
}
