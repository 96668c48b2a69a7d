import {z} from 'zod'
import {isCalendarDate} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {nameOfUser} from '../core/process.ts'
import type {World} from '../core/types.ts'
import type {StateDb} from '../store/state-db.ts'
import {type Note, noteSchema, openBooks} from './acts.ts'

export const LONGEST_NOTE = 500

export const noteText = z
  .string()
  .transform((text) => text.replaceAll(/\r\n?/g, '\n').trim())
  .refine((text) => text !== '' && text.length <= LONGEST_NOTE && !/[\p{Cc}--[\t\n]]/v.test(text))

/** What a note can be about. One that replaces another is about the same subject; it is named by the number of that note. */
export const ABOUT = ['day', 'deal', 'limit', 'replaces'] as const

interface Draft {
  about: (typeof ABOUT)[number]
  /** `YYYY-MM-DD`, the id of a deal, the name of a limit, or the number of a note to replace. */
  subject: string
  /** Null to withdraw the note with the number in `subject`. */
  text: string | null
}

/** Performs an act. @throws ConfigError `USAGE`, `UNKNOWN_NAME` if the note to replace does not stand */
export function writeNote(config: Config, draft: Draft, world: World): Note {
  const isWithdrawn = draft.about === 'replaces' && draft.text === null
  const text = isWithdrawn ? null : noteText.safeParse(draft.text).data
  if (text === undefined)
    throw newError(
      'USAGE',
      `Note: expected 1 to ${LONGEST_NOTE} characters, none of them a control character.`,
    )
  requireSubject(draft)
  using books = openBooks(config, world)
  const {stateDb, perform} = books
  return perform(() => {
    const before = draft.about === 'replaces' ? requireStanding(stateDb, draft.subject) : null
    const {about, subject} = before ?? noteSchema.pick({about: true, subject: true}).parse(draft)
    const [last = 0] = stateDb.column(z.number(), 'select note_no from note order by note_no desc limit 1')
    const signed = {at: new Date(world.clock.now()).toISOString(), who: world.who ?? nameOfUser()}
    const note = {note_no: last + 1, about, subject, text, ...signed, replaces: before?.note_no ?? null}
    return {act: 'noted', note}
  }).note
}

const SUBJECTS = {
  day: 'a calendar date YYYY-MM-DD',
  deal: 'an id of at most 200 characters',
  limit: 'a name',
  replaces: 'a number',
}

function requireSubject({about, subject}: Draft): void {
  // The engine's years begin with 1.
  const isFit =
    about === 'day' ? isCalendarDate(subject) && subject >= '0001' : /^\P{Cc}{1,200}$/v.test(subject)
  if (isFit) return
  throw newError('USAGE', `Value '${subject.slice(0, 200)}' in --${about}: expected ${SUBJECTS[about]}.`)
}

function requireStanding(stateDb: StateDb, no: string): Note {
  const find = (where: string) => stateDb.first(noteSchema, `select * from note where ${where} = ?`, [no])
  const [note, later] = [find('text is not null and note_no'), find('replaces')]
  if (note && !later) return note
  const ended = later && `${later.who} ${later.text === null ? 'withdrew' : 'replaced'} it at ${later.at}`
  throw newError('UNKNOWN_NAME', `Note '${no}' does not stand: ${ended ?? 'there is none of this number'}.`)
}

/** Ordered by number, including those replaced and withdrawn. */
export const listNotes = (stateDb: StateDb): Note[] =>
  stateDb.all(noteSchema, 'select * from note order by note_no')

/** Neither replaced nor withdrawn, ordered by subject and number. */
export const listStanding = (stateDb: Pick<StateDb, 'all'>, about: 'day' | 'limit') =>
  stateDb.all(
    noteSchema.extend({text: z.string()}),
    `select * from note
     where about = ? and text is not null and note_no not in (select replaces from note where replaces is not null)
     order by subject, note_no`,
    [about],
  )
