import {totalmem} from 'node:os'
import {messageOf} from '../errors.ts'
import type {Database} from './database.ts'

/** Megabytes the engine may hold while it loads: enough for any number of common rows; what does not fit spills. */
const COMMON_MB = 56

/** Rows the engine works on at once, however long they are. */
const VECTOR_ROWS = 2048

/** So often it holds them: in a scan, a join, a table and its log. */
const COPIES = 8

const allowedMb = new WeakMap<Database, number>()

/** Sets what the engine may hold in memory while it loads. */
export async function limitLoad(db: Database): Promise<void> {
  await allow(db, COMMON_MB)
}

/** Allows for rows of so many bytes. */
export async function allowWidth(db: Database, bytes: number): Promise<void> {
  await allow(db, COMMON_MB / 2 + (bytes * VECTOR_ROWS * COPIES) / 1e6)
}

/** Runs `work`, and again with more memory as long as it was too little; `work` leaves nothing behind when it fails. */
export async function withEnoughMemory<T>(db: Database, work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work()
    } catch (error) {
      const isTooLittle = /out of memory error|failed to (pin|allocate)/i.test(messageOf(error))
      if (!isTooLittle || !(await allow(db, (allowedMb.get(db) ?? COMMON_MB) * 4))) throw error
    }
  }
}

/** Megabytes: most of what this machine has or its container may use. */
export function mostMemoryMb(): number {
  return (Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY) * 0.8) / 1e6
}

/** Raises the limit, within {@link mostMemoryMb}; whether it could. */
async function allow(db: Database, mb: number): Promise<boolean> {
  const limit = Math.floor(Math.min(mb, mostMemoryMb()))
  if (limit <= (allowedMb.get(db) ?? 0)) return false
  await db.run(`set memory_limit = '${limit}MB'`)
  allowedMb.set(db, limit)
  return true
}
