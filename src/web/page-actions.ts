import {z} from 'zod'
import type {StateDb} from '../store/state-db.ts'

const text = z.string().nullable()

/** An action of an operator on a page; instants are ISO 8601, real clock. */
export type PageAction = z.output<typeof actionRow>
const actionRow = z.object({
  action_id: z.number(),
  /** `web` and the address it came from. */
  who: z.string(),
  /** The command line that does the same. */
  command: z.string(),
  began_at: z.string(),
  /** Null until it ends. */
  ended_at: text,
  /** Null also if nobody saw its end. */
  exit_code: z.number().nullable(),
  /** Its result. */
  words: text,
})

/** Notes the begin of an action. @returns its number */
export function beginAction(
  stateDb: StateDb,
  {who, command}: {who: string; command: string},
  now: number,
): number {
  const row = {who, command, began_at: new Date(now).toISOString()}
  return Number(stateDb.insert('page_action', row).lastInsertRowid)
}

/** Notes the end of an action. */
export function endAction(
  stateDb: StateDb,
  actionId: number,
  {exitCode, words}: {exitCode: number | null; words: string},
  now: number,
): void {
  const ended_at = new Date(now).toISOString()
  stateDb.update('page_action', {action_id: actionId}, {ended_at, exit_code: exitCode, words})
}

/** The last actions, newest first. */
export function listActions(stateDb: StateDb, limit: number): PageAction[] {
  return stateDb.all(actionRow, 'select * from page_action order by action_id desc limit ?', [limit])
}

/** The actions that have not ended, oldest first. */
export function listOpenActions(stateDb: StateDb): PageAction[] {
  return stateDb.all(actionRow, 'select * from page_action where ended_at is null order by action_id')
}
