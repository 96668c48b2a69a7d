import {totalmem} from 'node:os'

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
