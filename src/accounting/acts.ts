import {randomBytes} from 'node:crypto'
import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {gzipSync} from 'node:zlib'
import {z} from 'zod'
import type {Config} from '../core/config.ts'
import {explainError, messageOf, newError, sayKept} from '../core/errors.ts'
import {formatParts} from '../core/json.ts'
import {addAmounts} from '../core/money.ts'
import {VERSION} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {
  changeTape,
  findHead,
  findTapeKey,
  noteTape,
  noteUnit,
  requireFolderId,
  writeFact,
} from '../store/recorded.ts'
import {releaseManifestSchema} from '../store/release.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {type Frame, type NumberedLine, textOf, writeWholeTape} from '../store/tape.ts'
import {
  findReadKey,
  type KeyConfig,
  keyFileOf,
  makeTapeKey,
  requireTapeKey,
  type TapeKey,
} from '../store/tape-key.ts'
import {adoptEnded, pathOfTape} from '../sync/tapes.ts'
import {batchRow} from './issued.ts'
import {mappingSchema} from './mapping.ts'
import {nextPeriod, periodEventSchema, type RegisteredLoan, registeredLoanSchema} from './periods.ts'
import {issuedLineSchema, journalLineSchema, tiedTermSchema} from './profiles.ts'

/** Holds everything needed to hand the batch out again byte for byte. */
export type BatchAct = z.output<typeof batchSchema>
const batchSchema = batchRow.extend({
  lines: z.array(issuedLineSchema),
  files: z.array(z.object({name: z.string(), sha256: z.string(), content: z.string()})),
})

/** A missing tape keeps its units, so that the record has no gap. */
const goneTapeSchema = z.object({
  name: z.string(),
  path: z.string(),
  units: z.array(z.object({no: z.number(), kind: z.string(), chain: z.string()})),
})

/** Without a text, a note withdraws the one that it replaces. */
export type Note = z.output<typeof noteSchema>
export const noteSchema = z.object({
  note_no: z.number(),
  about: z.enum(['day', 'deal', 'limit']),
  /** `YYYY-MM-DD`, the id of a deal, or the name of a limit. */
  subject: z.string(),
  text: z.string().nullable(),
  /** ISO 8601, business clock. */
  at: z.string(),
  who: z.string(),
  replaces: z.number().nullable(),
})

/** Something done for good that cannot be computed. An act counts once it is on a tape; the state database holds its effects. */
export type Act = z.output<typeof actSchema>
const actSchema = z.discriminatedUnion('act', [
  z.object({act: z.literal('batch issued'), at: z.string(), batches: z.array(batchSchema)}),
  z.object({
    act: z.literal('true-up'),
    at: z.string(),
    batches: z.array(batchSchema),
    history_id: z.string(),
    event: periodEventSchema,
  }),
  z.object({
    act: z.literal('period closed'),
    closed: z.object({
      period: z.string(),
      release: releaseManifestSchema,
      mapping: mappingSchema,
      lines: z.array(journalLineSchema),
      terms: z.array(tiedTermSchema),
      register: z.array(registeredLoanSchema),
    }),
    event: periodEventSchema,
  }),
  z.object({act: z.literal('period reopened'), event: periodEventSchema}),
  z.object({act: z.literal('periods remapped'), mapping: mappingSchema, event: periodEventSchema}),
  z.object({act: z.literal('noted'), note: noteSchema}),
  z.object({act: z.literal('tapes pruned'), at: z.string(), tapes: z.array(goneTapeSchema)}),
  z.object({
    act: z.literal('key replaced'),
    since: z.string(),
    why: z.string(),
    fingerprint: z.string(),
  }),
  z.object({
    act: z.literal('went on'),
    at: z.string(),
    who: z.string(),
    why: z.string(),
    tapes: z.array(goneTapeSchema),
    /** Chains and batches that other stores name but the record lacks. */
    losses: z.array(z.string()),
    /** The last unit in the warehouse, if the record lacks it. */
    history_head: z.string().optional(),
  }),
])

/** What may be long is on lines of its own before an act, and the act holds their number. */
const LONG = ['lines', 'register', 'content']

function formatAct(act: Act): {frame: Frame; body: Buffer}[] {
  const parts: Buffer[] = []
  const text = JSON.stringify(act, (name, value) => {
    const isList = Array.isArray(value)
    if (!LONG.includes(name) || (!isList && typeof value !== 'string')) return value
    const own = isList ? [...formatParts(value)] : [JSON.stringify(value)]
    parts.push(...own.map((part) => Buffer.from(part)))
    return own.length
  })
  const lines = parts.map((body) => ({frame: {frame: 'part' as const}, body}))
  return [...lines, {frame: {frame: 'act', act: act.act}, body: Buffer.from(text)}]
}

/** @throws UnexpectedError `DATA_NEWER` if the act is of a later version */
export function parseAct(line: NumberedLine, tape: string): Act {
  const parts = [...line.parts]
  const act = JSON.parse(textOf(line), (name, value) => {
    if (!LONG.includes(name) || typeof value !== 'number') return value
    const own = parts.splice(0, value).map((part) => JSON.parse(part.toString()))
    return Array.isArray(own[0]) ? own.flat() : own[0]
  })
  const found = actSchema.safeParse(act)
  if (found.success) return found.data
  const words = messageOf(found.error)
  throw newError('DATA_NEWER', `Tape '${tape}': this version of loantape cannot read its act: ${words}.`)
}

/** Performs the act that `decide` chooses, in one transaction. An error after it is on its tape says that it stands. */
export type Perform = <A extends Act | undefined>(decide: () => A) => A

/** Each act is written to a tape of its own and takes effect in the state database. */
export function createPerformer(
  config: KeyConfig,
  {folder, stateDb, newKey}: {folder: DataFolder; stateDb: StateDb; newKey?: TapeKey},
  {realClock, onStep}: Pick<World, 'realClock' | 'onStep'>,
): Perform {
  return (decide) => {
    let file = ''
    const write = (act: Act) => {
      const key = newKey ?? requireTapeKey(config, folder, stateDb, {realClock})
      adoptEnded(folder, stateDb, key)
      const begun_at = new Date(realClock.now()).toISOString()
      const name = `act_${begun_at.replace(/[-:.]/g, '')}_${randomBytes(3).toString('hex')}`
      // In the order of keys in which it is read from a tape, so that a state database computed from tapes is the same.
      applyAct(stateDb, actSchema.parse(act))
      const path = pathOfTape(name, begun_at)
      file = join(folder.root, path)
      const {no, chain: previous} = findHead(stateDb)
      const {chain, ...finished} = writeWholeTape(
        {tapes: folder.tapes, path: file},
        [
          {frame: {frame: 'begin', tape: name, kind: 'act', act: act.act, version: VERSION, begun_at}},
          ...formatAct(act),
          {frame: {frame: 'outcome', kind: 'act', outcome: 'settled', no: no + 1, previous}},
        ],
        key,
        requireFolderId(stateDb),
      )
      onStep('act written')
      const ended = {ended_at: begun_at, ...finished}
      noteTape(stateDb, {name, path, fingerprint: key.fingerprint, begun_at, ...ended})
      noteUnit(stateDb, {no: no + 1, tape: name, kind: 'act', chain}, false)
    }
    try {
      return stateDb.transaction(() => {
        const act = decide()
        if (act) write(act)
        return act
      })
    } catch (error) {
      throw existsSync(file) ? sayKept(explainError(error), ON_TAPE, LOOK) : error
    }
  }
}

const ON_TAPE = 'What you asked for is on its tape all the same, and takes effect with the next command.'
const LOOK = 'Correct the cause, then look whether it is there before you do it again.'

/** @throws ConfigError `NOT_WRITABLE` */
export function openBooks(config: Pick<Config, 'dataDir'> & KeyConfig, world: World) {
  const folder = requireWritable(dataFolderAt(config.dataDir))
  const stateDb = openStateDb(folder.stateDb)
  const perform = createPerformer(config, {folder, stateDb}, world)
  return {folder, stateDb, perform, [Symbol.dispose]: () => stateDb[Symbol.dispose]()}
}

/** Runs when an act is performed, and when it is read back from a tape. */
export const applyAct = (stateDb: StateDb, act: Act): void =>
  stateDb.transaction(() => applyParts(stateDb, act))

function applyParts(stateDb: StateDb, act: Act): void {
  if ('event' in act) stateDb.insert('period_event', act.event)
  if ('batches' in act) for (const batch of act.batches) storeBatch(stateDb, {...batch, issued_at: act.at})
  switch (act.act) {
    case 'true-up':
      // Everything issued and closed depends on this history from now on.
      for (const table of ['journal_batch', 'closed_period'])
        stateDb.run(`update ${table} set history_id = ?`, [act.history_id])
      break
    case 'period closed':
      storeClosedPeriod(stateDb, act)
      break
    case 'period reopened':
      dropClosedPeriod(stateDb, act.event.period)
      break
    case 'periods remapped':
      stateDb.insert('remapped_period', {period: act.event.period}, 'or ignore')
      break
    case 'noted':
      stateDb.insert('note', act.note)
      break
    case 'tapes pruned':
      for (const {name} of act.tapes) changeTape(stateDb, name, {outcome: null, removed_at: act.at})
      break
    case 'key replaced':
      // A key that was found again may be taken again.
      stateDb.insert('tape_key', {fingerprint: act.fingerprint, since: act.since, why: act.why}, 'or replace')
      break
    case 'went on':
      for (const {name} of act.tapes) changeTape(stateDb, name, {outcome: 'lost', removed_at: act.at})
      for (const what of listGivenUp(act)) {
        const is_in_history = act.losses.includes(what) ? 0 : 1
        stateDb.insert('record_loss', {what, is_in_history}, 'or replace')
      }
      stateDb.insert('went_on', {at: act.at, why: act.why, given_up: listGivenUp(act).size})
      if (act.history_head !== undefined) writeFact(stateDb, 'history_head', act.history_head)
  }
}

/** Stores a batch as not yet handed over, which one without files never is. Call it in a transaction. */
function storeBatch(stateDb: StateDb, batch: BatchAct & {issued_at: string}): void {
  const {lines, files, ...named} = batch
  const {lastInsertRowid: batch_no} = stateDb.insert('journal_batch', {...named, is_handed_over: 0})
  for (const {name, content} of files)
    stateDb.insert('journal_file', {batch_no, name, content: gzipSync(content)})
  // Lines of a reversal also name the batch that they reverse; only the fields of a line are stored.
  for (const line of lines) stateDb.insert('issued_line', {batch_no, ...issuedLineSchema.parse(line)})
}

export const addUpLoans = (register: readonly RegisteredLoan[]) => ({
  loans: register.length,
  amount: addAmounts(register.map(({loan_amount}) => loan_amount)),
})

function storeClosedPeriod(stateDb: StateDb, {closed}: Extract<Act, {act: 'period closed'}>): void {
  const pack = (list: readonly unknown[]) =>
    gzipSync(Buffer.concat([...formatParts(list).map((part) => Buffer.from(`${part}\n`))]))
  stateDb.insert('closed_period', {
    period: closed.period,
    release: JSON.stringify(closed.release),
    mapping: JSON.stringify(closed.mapping),
    lines: pack(closed.lines),
    terms: JSON.stringify(closed.terms),
    register: pack(closed.register),
    history_id: closed.release.history_id,
    ...addUpLoans(closed.register),
    ...stateDb.one(
      z.object({after_batch: z.number()}),
      'select coalesce(max(batch_no), 0) as after_batch from journal_batch',
    ),
  })
}

/** If balances were to be moved in the next period, they are now moved in this one. */
function dropClosedPeriod(stateDb: StateDb, period: string): void {
  stateDb.run('delete from closed_period where period = ?', [period])
  const {changes} = stateDb.run('delete from remapped_period where period = ?', [nextPeriod(period)])
  if (changes > 0) stateDb.insert('remapped_period', {period}, 'or ignore')
}

/** Chains of units, and batches. */
export function listGivenUp({tapes, losses}: Extract<Act, {act: 'went on'}>): Set<string> {
  return new Set([...losses, ...tapes.flatMap(({units}) => units.map(({chain}) => chain))])
}

/** A lost key gives way to the one at hand, or a new one. @throws ConfigError `TAPE_KEY_FILE`; `RECORD_WHOLE` if it is not lost */
export function replaceTapeKey(
  config: KeyConfig & Pick<Config, 'dataDir'>,
  why: string,
  {realClock, onStep}: Pick<World, 'realClock' | 'onStep'>,
): {file: string; fingerprint: string} {
  const folder = requireWritable(dataFolderAt(config.dataDir))
  const file = keyFileOf(config, folder)
  using stateDb = openStateDb(folder.stateDb)
  const found = findReadKey(config, folder)
  if (found && found.fingerprint === findTapeKey(stateDb))
    throw newError('RECORD_WHOLE', `Tape key '${file}' is that of the tapes: it is not lost.`)
  const key = found ?? makeTapeKey(config, folder)
  const since = new Date(realClock.now()).toISOString()
  const perform = createPerformer(config, {folder, stateDb, newKey: key}, {realClock, onStep})
  perform(() => ({act: 'key replaced', fingerprint: key.fingerprint, since, why}))
  return {file, fingerprint: key.fingerprint}
}
