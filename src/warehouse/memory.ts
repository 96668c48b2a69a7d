import {totalmem} from 'node:os'
import {setImmediate as nextTurn} from 'node:timers/promises'
import {setFlagsFromString} from 'node:v8'
import {runInNewContext} from 'node:vm'

/** Megabytes this machine has, or its container may use. */
function totalMb(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY) / 1e6
}

/** Megabytes: most of what there is. */
export function mostMemoryMb(): number {
  return totalMb() * 0.8
}

/** Megabytes that staging and settling may hold where nobody says otherwise; the rest spills to the disk. */
export function loadMemoryMb(): number {
  return Math.floor(Math.min(mostMemoryMb(), Math.max(512, totalMb() / 3)))
}

/**
 * Gives back what the engine held for databases that are closed: results keep them in memory until V8 collects these, and it sees
 * no need to, for on its own heap they are small.
 */
export async function giveBackMemory(): Promise<void> {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  collect()
  await nextTurn()
}
