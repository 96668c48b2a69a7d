import {z} from 'zod'
import {inStateTransaction, type StateDb} from './state-db.ts'

/** One time the checks of a release were run, and those that found rows. */
export type Checking = z.output<typeof checkingRow> & {failed: CheckFailure[]}
const checkingRow = z.object({
  release_id: z.string(),
  /** ISO 8601 of the real clock. */
  checked_at: z.string(),
  /** How many checks there were. */
  checks: z.number(),
})

/** Checkings the state database keeps. */
const KEPT = 100

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
export function storeChecking(stateDb: StateDb, checking: Checking, isPlain: boolean): void {
  const {release_id, checked_at, checks, failed} = checking
  inStateTransaction(stateDb, () => {
    const is_plain = Number(isPlain)
    const {lastInsertRowid} = stateDb.insert('checking', {release_id, checked_at, checks, is_plain})
    for (const {name, severity, failures, ids} of failed) {
      const found = {name, severity, failures, ids: JSON.stringify(ids)}
      stateDb.insert('check_failure', {checking_id: lastInsertRowid, ...found})
    }
    const oldest = Number(lastInsertRowid) - KEPT
    stateDb.run('delete from check_failure where checking_id <= ?', [oldest])
    stateDb.run('delete from checking where checking_id <= ?', [oldest])
  })
}

/** The last time the checks of a release that was to become current were run. */
export function findLastChecking(stateDb: StateDb): Checking | undefined {
  const last = stateDb.first(
    checkingRow.extend({checking_id: z.number()}),
    'select * from checking where is_plain = 1 order by checking_id desc limit 1',
  )
  if (!last) return undefined
  const {checking_id, ...checking} = last
  const failed = stateDb.all(
    failureRow,
    'select * from check_failure where checking_id = ? order by severity, name',
    [checking_id],
  )
  return {...checking, failed}
}
