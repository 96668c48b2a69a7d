import {z} from 'zod'
import type {Ledger} from './ledger.ts'

/** One time the checks of a release were run. */
export interface Checking {
  release_id: string
  /** ISO 8601 of the real clock. */
  checked_at: string
  /** How many checks there were. */
  checks: number
  failed: CheckFailure[]
}

/** Checkings the ledger keeps. */
const KEPT = 100

const checkingRow = z.object({
  checking_id: z.number(),
  release_id: z.string(),
  checked_at: z.string(),
  checks: z.number(),
})

/** A check that found rows, with the ids of the first of them. */
export type CheckFailure = z.output<typeof failureRow>
const failureRow = z.object({
  name: z.string(),
  severity: z.enum(['error', 'warn']),
  /** Rows that are wrong. */
  failures: z.number(),
  ids: z.string().transform((text) => z.array(z.string()).parse(JSON.parse(text))),
})

/**
 * Keeps what the checks of a release found; the oldest are let go.
 *
 * @param isPlain whether the release was to become the current one
 */
export function storeChecking({db}: Ledger, checking: Checking, isPlain: boolean): void {
  db.exec('begin immediate')
  try {
    const {lastInsertRowid} = db
      .prepare('insert into checking (release_id, checked_at, checks, is_plain) values (?, ?, ?, ?)')
      .run(checking.release_id, checking.checked_at, checking.checks, isPlain ? 1 : 0)
    const insert = db.prepare(
      'insert into check_failure (checking_id, name, severity, failures, ids) values (?, ?, ?, ?, ?)',
    )
    for (const {name, severity, failures, ids} of checking.failed) {
      insert.run(lastInsertRowid, name, severity, failures, JSON.stringify(ids))
    }
    const oldest = Number(lastInsertRowid) - KEPT
    db.prepare('delete from check_failure where checking_id <= ?').run(oldest)
    db.prepare('delete from checking where checking_id <= ?').run(oldest)
    db.exec('commit')
  } catch (error) {
    db.exec('rollback')
    throw error
  }
}

/** The last time the checks of a release that was to become current were run. */
export function findLastChecking({db}: Ledger): Checking | undefined {
  const row = db.prepare('select * from checking where is_plain = 1 order by checking_id desc limit 1').get()
  if (!row) return undefined
  const {checking_id, ...checking} = checkingRow.parse(row)
  const failed = db
    .prepare('select * from check_failure where checking_id = ? order by severity, name')
    .all(checking_id)
  return {...checking, failed: failed.map((failure) => failureRow.parse(failure))}
}
