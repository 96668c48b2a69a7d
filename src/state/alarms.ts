import {z} from 'zod'
import {inStateTransaction, type StateDb} from './state-db.ts'

/** Something that is watched, as it is now. */
export interface Condition {
  /** Stable: `job nightly`, `freshness`, `quarantine`. */
  name: string
  /** `ok`, or what is wrong: another code is another state. */
  state: string
  /** One line. */
  title: string
  /** What is kept, what to do. */
  words: string
  /** When it came to be so, ISO 8601; undefined where that is only known as it is looked at. */
  since?: string | undefined
}

/** An alarm that people were told of. */
type Raised = z.output<typeof alarmRow>
const alarmRow = z.object({
  name: z.string(),
  state: z.string(),
  /** ISO 8601, real clock. */
  since: z.string(),
})

/** A message about a change of state, on its way to one channel. */
export type Notice = z.output<typeof noticeRow>
const noticeRow = z.object({
  notice_id: z.number(),
  channel: z.string(),
  title: z.string(),
  words: z.string(),
  /** A file that goes along where the channel can carry one. */
  file: z.string().nullable(),
})

const DAY_MS = 86_400_000
const KEPT_DAYS = 30
/** A notice that cannot be sent is given up after this long. */
const SENT_WITHIN_DAYS = 3

/** Since when a condition is as it is: since people were told so, where they were. */
export function readSince(stateDb: StateDb, condition: Condition, now: number): string {
  return sinceOf(condition, listRaised(stateDb), now)
}

function sinceOf({name, state, since}: Condition, raised: readonly Raised[], now: number): string {
  const told = raised.find((alarm) => alarm.name === name && alarm.state === state)
  return told?.since ?? since ?? new Date(now).toISOString()
}

const listRaised = (stateDb: StateDb): Raised[] => stateDb.all(alarmRow, 'select * from alarm')

/**
 * Compares conditions with the alarms that are raised and queues one notice per channel for each that changed, in one
 * transaction: however many processes look, a change is told once.
 */
export function settleAlarms(
  stateDb: StateDb,
  {conditions, channels}: {conditions: readonly Condition[]; channels: readonly string[]},
  now: number,
): void {
  const changed = (raised: readonly Raised[]) =>
    conditions.filter(
      ({name, state}) => state !== (raised.find((alarm) => alarm.name === name)?.state ?? 'ok'),
    )
  const names = new Set(conditions.map(({name}) => name))
  const before = listRaised(stateDb)
  const isForgotten = before.some(({name}) => !names.has(name))
  if (changed(before).length === 0 && !isForgotten) return
  inStateTransaction(stateDb, () => {
    const raised = listRaised(stateDb)
    for (const condition of changed(raised)) {
      const {name, state} = condition
      if (state === 'ok') stateDb.run('delete from alarm where name = ?', [name])
      else stateDb.insert('alarm', {name, state, since: sinceOf(condition, raised, now)}, 'or replace')
      const before = raised.find((alarm) => alarm.name === name)
      const message = state === 'ok' ? describeRecovery(condition, before) : condition
      for (const channel of channels) insertNotice(stateDb, {channel, alarm: name, message}, now)
    }
    // What is watched no more, such as a job whose runs are forgotten, is no alarm.
    stateDb.run('delete from alarm where name not in (select value from json_each(?))', [
      JSON.stringify([...names]),
    ])
    stateDb.run('delete from notice where created_at < ?', [new Date(now - KEPT_DAYS * DAY_MS).toISOString()])
  })
}

function describeRecovery(
  {title, words}: Condition,
  before: Raised | undefined,
): {title: string; words: string} {
  const held = before ? `${before.state} had held since ${before.since}. ` : ''
  return {title: `Recovered: ${title}`, words: `${held}${words}`}
}

/** A notice is tried again after this long, then after twice as long each time. */
const FIRST_PAUSE_MS = 60_000
const LONGEST_PAUSE_MS = 3_600_000

/** Queues a message for each channel. One of a name that was told is not told again. */
export function queueNews(
  stateDb: StateDb,
  {
    name,
    channels,
    ...message
  }: {name: string; channels: readonly string[]; title: string; words: string; file: string},
  now: number,
): void {
  inStateTransaction(stateDb, () => {
    if (stateDb.column(z.number(), 'select 1 from notice where alarm = ? limit 1', [name]).length > 0) return
    for (const channel of channels) insertNotice(stateDb, {channel, alarm: name, message}, now)
  })
}

function insertNotice(
  stateDb: StateDb,
  {channel, alarm, message}: {channel: string; alarm: string; message: object},
  now: number,
): void {
  const untried = {attempts: 0, next_attempt_at: now, created_at: new Date(now).toISOString()}
  stateDb.insert('notice', {channel, alarm, message: JSON.stringify(message), ...untried})
}

/** Takes the next notice that is due for sending; nobody else gets it before its next attempt is due. */
export function claimNotice(stateDb: StateDb, channels: readonly string[], now: number): Notice | undefined {
  return stateDb.first(
    noticeRow,
    `update notice set
       attempts = attempts + 1,
       next_attempt_at = ?1 + min(${FIRST_PAUSE_MS} << min(attempts, 6), ${LONGEST_PAUSE_MS})
     where notice_id = (
       select notice_id from notice
       where sent_at is null and next_attempt_at <= ?1 and created_at > ?2
         and channel in (select value from json_each(?3))
       order by notice_id limit 1
     )
     returning notice_id, channel, message ->> '$.title' as title, message ->> '$.words' as words, message ->> '$.file' as file`,
    [now, new Date(now - SENT_WITHIN_DAYS * DAY_MS).toISOString(), JSON.stringify(channels)],
  )
}

/** Records how sending went; `error` null when it arrived. */
export function recordSending(stateDb: StateDb, notice: Notice, error: string | null, now: number): void {
  const sentAt = error === null ? new Date(now).toISOString() : null
  stateDb.run('update notice set sent_at = ?, error = ? where notice_id = ?', [
    sentAt,
    error,
    notice.notice_id,
  ])
}
