import {z} from 'zod'
import {isCalendarDate} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {nameOfUser} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {inStateTransaction, openStateDb, type StateDb} from '../store/state-db.ts'
import {openHistory} from '../store/warehouse.ts'
import {createPerformer, type Note, noteSchema} from './acts.ts'

/** Most characters of a note. */
export const LONGEST_NOTE = 500

/** The text of a note: its lines end in `\n`, and none of its characters controls anything else. */
export const noteText = z
  .string()
  .transform((text) => text.replaceAll(/\r\n?/g, '\n').trim())
  .refine((text) => text !== '' && text.length <= LONGEST_NOTE && !/[\p{Cc}--[\t\n]]/v.test(text))

/** What a note can be about; one that replaces another is about the same, its subject the number of that one. */
export const ABOUT = ['day', 'deal', 'limit', 'replaces'] as const

interface Draft {
  about: (typeof ABOUT)[number]
  /** `YYYY-MM-DD`, the id of a deal, the name of a limit, or the number of a note. */
  subject: string
  /** Null to withdraw the note of this number. */
  text: string | null
  /** The user by default. */
  who?: string | undefined
}

/**
 * Writes a note, or withdraws one, as an act.
 *
 * @throws ConfigError `USAGE`; `UNKNOWN_NAME` if the deal is unknown, or what it replaces does not stand; UnexpectedError
 * `HISTORY_MISSING`
 */
export async function writeNote(config: Config, draft: Draft, world: World): Promise<Note> {
  const folder = dataFolderAt(config.dataDir)
  const text = draft.text === null ? null : noteText.safeParse(draft.text).data
  if (text === undefined)
    throw newError(
      'USAGE',
      `Note: expected 1 to ${LONGEST_NOTE} characters, none of them a control character.`,
    )
  await requireSubject(folder, draft)
  requireWritable(folder)
  using stateDb = openStateDb(folder.stateDb)
  const perform = createPerformer(config, {folder, stateDb}, world)
  return inStateTransaction(stateDb, () => {
    const before = draft.about === 'replaces' ? requireStanding(stateDb, draft.subject) : null
    const {about, subject} = before ?? noteSchema.pick({about: true, subject: true}).parse(draft)
    const [last = 0] = stateDb.column(z.number(), 'select note_no from note order by note_no desc limit 1')
    const signed = {at: new Date(world.clock.now()).toISOString(), who: draft.who ?? nameOfUser()}
    const note = {note_no: last + 1, about, subject, text, ...signed, replaces: before?.note_no ?? null}
    perform({act: 'noted', note})
    return note
  })
}

async function requireSubject(folder: DataFolder, {about, subject}: Draft): Promise<void> {
  if (about === 'day' ? !isCalendarDate(subject) : !/^\P{Cc}{1,200}$/v.test(subject)) {
    const expected = about === 'day' ? 'a calendar date YYYY-MM-DD' : '1 to 200 characters'
    throw newError('USAGE', `Value '${subject.slice(0, 200)}' in --${about}: expected ${expected}.`)
  }
  await using db = await openHistory(folder)
  const sql = 'select 1 from history.raw.deal_head where deal_id = $1'
  // An unknown id could be any text, and exports refuse some as ids.
  if (about === 'deal' && (await db.first(z.unknown(), sql, [subject])) === undefined)
    throw newError('UNKNOWN_NAME', `Deal '${subject}' in --deal: the history has none of this id.`)
}

function requireStanding(stateDb: StateDb, no: string): Note {
  const find = (where: string) => stateDb.first(noteSchema, `select * from note where ${where} = ?`, [no])
  const [note, later] = [find('text is not null and note_no'), find('replaces')]
  if (note && !later) return note
  const ended = later && `${later.who} ${later.text === null ? 'withdrew' : 'replaced'} it at ${later.at}`
  throw newError('UNKNOWN_NAME', `Note '${no}' does not stand: ${ended ?? 'there is none of this number'}.`)
}

/** Everything that was noted, replaced and withdrawn, in that order. */
export const listNotes = (stateDb: StateDb): Note[] =>
  stateDb.all(noteSchema, 'select * from note order by note_no')

/** A note that neither was replaced nor withdrawn. */
export type StandingNote = z.output<typeof standingNote>
const standingNote = noteSchema.extend({text: z.string()})

/** The notes that stand about days, or about limits, in their order. */
export const listStanding = (stateDb: StateDb, about: 'day' | 'limit'): StandingNote[] =>
  stateDb.all(
    standingNote,
    `select * from note
     where about = ? and text is not null and note_no not in (select replaces from note where replaces is not null)
     order by subject, note_no`,
    [about],
  )
