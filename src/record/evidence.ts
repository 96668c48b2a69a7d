import {hash} from 'node:crypto'
import {cpSync, mkdirSync, readFileSync} from 'node:fs'
import {open, writeFile} from 'node:fs/promises'
import {STATUS_CODES} from 'node:http'
import {basename, join} from 'node:path'
import {isDeepStrictEqual} from 'node:util'
import {gzipSync} from 'node:zlib'
import {z} from 'zod'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {dealStream} from '../contract/deal.ts'
import {readPage} from '../contract/list.ts'
import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {findValue, isObject, parseJson} from '../core/json.ts'
import {GENERATOR} from '../core/process.ts'
import {FIELD_NAME, tellForeign} from '../core/text.ts'
import type {WireRecord, World} from '../core/types.ts'
import {findBatches} from '../export/batch.ts'
import {createNormaliser} from '../source/record.ts'
import {type DataFolder, dataFolderAt, requireNewFolder} from '../store/data-folder.ts'
import {beginFolder} from '../store/files.ts'
import {readHistoryId} from '../store/moment.ts'
import {isOfActs, listRecorded, type RecordedUnit} from '../store/recorded.ts'
import {releaseManifestSchema, requireRelease} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {openStateDb} from '../store/state-db.ts'
import {type Frame, type TapeLine, targetOf, textOf} from '../store/tape.ts'
import {requireReadKey, type TapeKey} from '../store/tape-key.ts'
import {openHistory} from '../store/warehouse.ts'
import {listKnownFields} from '../sync/mapped-fields.ts'
import {listReadableTapes, type ReadableTape} from '../sync/tapes.ts'
import {findPast} from '../sync/walk.ts'

const MANIFEST = 'manifest.json'

const CHECK = join(import.meta.dirname, '../../evidence/check.py')

interface EvidenceRequest {
  /** The id of a release or batch, or `current`. */
  of: string
  to: string
  /** `YYYY-MM-DD`: includes the answers on all tapes from this day on; by default only those of the release's walk. */
  from?: string | undefined
  /** Writes whole answers, including fields outside the contract. */
  allFields?: boolean | undefined
}

export type EvidenceResult = Awaited<ReturnType<typeof writeEvidence>>

/**
 * Writes a folder with which anybody can check a release without loantape: every line of its tapes without the body, the answers
 * of a walk as a WARC (whole, or reduced to the fields of the contract), the certificates, and a script; for a batch also its
 * files and, if it is a journal, the act that issued it.
 * @throws ConfigError `UNKNOWN_NAME`, `EVIDENCE_HISTORY`, `OUT_PLACE`, `RELEASE_NONE`, `TAPE_KEY_LOST`; UnexpectedError
 *   `EVIDENCE_TAPES`, `TAPE_DAMAGED`
 */
export async function writeEvidence(config: Config, request: EvidenceRequest, world: World) {
  const {to, allFields = false} = request
  const folder = dataFolderAt(config.dataDir)
  const dir = requireNewFolder(folder, to, 'evidence')
  const proof = await collectProof(config, folder, request, world)
  const {subject, batch, tapeHead, act, before, tapes, certificates} = proof
  const batch_id = batch === undefined ? null : basename(batch)
  using evidence = beginFolder(dir)
  const {shown, ...written} = await writeTapes(evidence.dir, proof, request)
  await writeJson(evidence.dir, 'evidence.json', {
    format: 'loantape evidence 1',
    generator: GENERATOR,
    ...subject,
    tape_head: tapeHead,
    act_head: act?.chain ?? null,
    batch_id,
    before,
    tapes: tapes.map(({entry}) => entry),
    answers_of: shown,
    reduced: !allFields,
  })
  await writeJson(evidence.dir, 'certificates.json', certificates)
  await writeFile(join(evidence.dir, 'check.py'), readFileSync(CHECK))
  if (batch !== undefined) cpSync(batch, join(evidence.dir, 'batch'), {recursive: true})
  if (act) await writeFile(join(evidence.dir, 'act.json'), act.text)
  evidence.finish()
  return {
    outcome: 'written' as const,
    dir,
    release_id: subject.release_id,
    batch_id,
    tapes: tapes.length,
    ...written,
  }
}

/** Only a batch has a `profile`. */
const subjectSchema = releaseManifestSchema
  .pick({release_id: true, known_at: true, history_id: true, source: true})
  .extend({profile: z.string().optional()})

/** Collecting it throws if the release cannot be proven. */
type Proof = Awaited<ReturnType<typeof collectProof>>
async function collectProof(config: Config, folder: DataFolder, {of, from}: EvidenceRequest, world: World) {
  const [{dir: batch} = {}] = findBatches(folder, of)
  const {profile = '', ...subject} = subjectSchema.parse(
    batch === undefined
      ? requireRelease(folder, of === 'current' ? undefined : of).manifest
      : JSON.parse(readFileSync(join(batch, MANIFEST), 'utf8')),
  )
  const key = requireReadKey(config, folder)
  const {historyId, tapeHead, baseUrl, mapped, walks} = await readStored(folder, subject.known_at, world)
  if (subject.history_id !== historyId)
    throw newError(
      'EVIDENCE_HISTORY',
      `'${of}' was made from another history than the one of this data folder.`,
    )
  const isJournal = JOURNAL_NAMES.includes(profile)
  const {tapes, before, act, gap} = followBack(folder, key, tapeHead, isJournal ? of : undefined)
  if (gap === undefined && !tapes.some(({name}) => name === subject.source.walk_id))
    throw newError(
      'EVIDENCE_TAPES',
      `The tape that '${of}' rests on is not kept, or is sealed with another key.`,
    )
  if (isJournal && (!act || gap !== undefined))
    throw newError(
      'EVIDENCE_TAPES',
      `The tape ${gap === undefined ? '' : `'${gap}', which leads to that `}of the act that issued '${of}' is not kept, or is sealed with another key.`,
    )
  // Tapes of acts, which no pruning removes, have no answers.
  const oldest = tapes.find(({name}) => !isOfActs(name))
  const first = dayOf(oldest?.lines().next().value?.frame)
  if (from !== undefined && before !== null && from < first)
    throw newError('EVIDENCE_TAPES', `Day '${from}' in --from: the tapes that are kept begin on ${first}.`)
  const deals: Stream = {...dealStream, mapped}
  const certificates = walks.filter(({walk_id}) => tapes.some(({name}) => name === walk_id))
  return {subject, batch, tapeHead, act, tapes, before, baseUrl, deals, certificates}
}

/** Not open while tapes are read, so that nobody waits for it. */
async function readStored(folder: DataFolder, knownAt: string, world: World) {
  await using db = await openHistory(folder, world)
  return {
    ...(await readHistoryId(db, knownAt)),
    baseUrl: (await findPast(db, dealStream)).baseUrl ?? '',
    mapped: await listKnownFields(db),
    walks: await db.all(z.looseObject({walk_id: z.string()}), readQuery('certificates')),
  }
}

/**
 * The tapes that lead to a head, or on to the act that issued a batch, oldest first. `before` is the head before them, whose
 * tape is no longer kept; `gap` is a tape that lacks between head and act.
 */
function followBack(folder: DataFolder, key: TapeKey, head: string, batchId: string | undefined) {
  using stateDb = openStateDb(folder.stateDb)
  const readable = new Map(listReadableTapes(folder, stateDb, key).map((tape) => [tape.name, tape]))
  const recorded = listRecorded(stateDb)
  const length = recorded.findIndex(({chain}) => chain === head) + 1
  const act = batchId === undefined ? undefined : findIssuing(recorded.slice(length), readable, batchId)
  const last = length === 0 ? undefined : (act ?? recorded[length - 1])
  const until = recorded.filter(({no}) => last && no <= last.no)
  const gap = until.slice(length).find(({tape}) => !readable.has(tape))?.tape
  const from = until.findLastIndex(({tape}) => !readable.has(tape)) + 1
  const byTape = Map.groupBy(until.slice(from), ({tape}) => readable.get(tape))
  // `last` is the chain of the last line to include, `entry` the file name in the evidence.
  const tapes = [...byTape].flatMap(([tape, units]) =>
    tape ? [{...tape, last: units.at(-1)?.chain, entry: `${tape.name}.jsonl`}] : [],
  )
  return {tapes, before: until[from - 1]?.chain ?? null, act, gap}
}

const issuing = z.looseObject({batches: z.array(z.looseObject({batch_id: z.string()})).default([])})

function findIssuing(
  units: readonly RecordedUnit[],
  readable: ReadonlyMap<string, ReadableTape>,
  batchId: string,
): {no: number; chain: string; text: string} | undefined {
  for (const {no, chain, tape} of units.filter(({tape}) => isOfActs(tape)))
    for (const line of readable.get(tape)?.lines() ?? []) {
      if (line.frame.frame !== 'act') continue
      const text = textOf(line)
      const {batches} = issuing.parse(JSON.parse(text))
      if (batches.some(({batch_id}) => batch_id === batchId)) return {no, chain, text}
    }
}

const dayOf = (begin?: Frame) => String(begin?.businessDate ?? begin?.tape ?? '')

/** Every line without its body, and the answers of the release's walk, or those of every day since `from`. */
async function writeTapes(
  dir: string,
  {tapes, subject, baseUrl, deals}: Proof,
  {from, allFields}: EvidenceRequest,
) {
  const reduce = createReducer(deals)
  const isShown = (begin: Frame) =>
    from === undefined ? begin.tape === subject.source.walk_id : dayOf(begin) >= from
  const written = {
    lines: 0,
    answers: 0,
    /** Not as received, because fields were left out or `source.json` translated them. */
    reduced: 0,
    shown: [] as string[],
  }
  mkdirSync(join(dir, 'tapes'), {mode: 0o700})
  await using archive = await open(join(dir, 'responses.warc.gz'), 'wx')
  const description = {software: GENERATOR, format: 'WARC File Format 1.1', isPartOf: subject.release_id}
  const date = `${subject.known_at.slice(0, 19)}Z`
  const head = {type: 'warcinfo', place: JSON.stringify(description), date, fields: {}}
  await archive.writeFile(formatRecord(head, 'application/warc-fields', formatHeaders(description)))
  for (const {entry, last, lines} of tapes) {
    await using file = await open(join(dir, 'tapes', entry), 'wx')
    let isOpen = false
    for (const line of lines()) {
      const {frame} = line.frame
      written.lines += 1
      await file.writeFile(`${line.bare}\n`)
      if (frame === 'begin') isOpen = isShown(line.frame) && !isClosed(line.frame)
      if (isOpen && written.shown.at(-1) !== entry) written.shown.push(entry)
      if (line.chain === last) break
      // Replayed records were in an earlier answer.
      if (isOpen && line.body && frame !== 'replay' && (frame !== 'received' || allFields)) {
        // Feeds of rates contain no personal data.
        const reduced = allFields || frame === 'rates' ? undefined : reduce(line)
        const shown = reduced ?? (line.original && textOf(line))
        await archive.writeFile(formatAnswer(line, {place: `${entry}:${line.number}`, baseUrl, shown}))
        written.answers += 1
        if (shown !== undefined && !(allFields && line.original?.body)) written.reduced += 1
      }
    }
  }
  return written
}

/** Answers about books or people are never written. */
function isClosed({kind, stream: name}: Frame): boolean {
  if (kind === 'act') return true
  return STREAMS.some((stream) => stream.name === name && stream.privacy !== undefined)
}

/** Creates objects on the way. */
function setValue(holder: object, [name = '', ...inner]: readonly string[], value: unknown): void {
  const within = findValue(holder, [name]) ?? {}
  Reflect.set(holder, name, inner.length === 0 ? value : within)
  if (inner.length > 0) setValue(Object(within), inner, value)
}

/** Leaves out objects and lists. */
function keepPaths(value: unknown, paths: readonly (readonly string[])[]): WireRecord {
  const kept: WireRecord = {}
  for (const path of paths) {
    const found = findValue(value, path, null)
    if (found !== undefined && (found === null || typeof found !== 'object')) setValue(kept, path, found)
  }
  return kept
}

/**
 * Reduces an answer about deals: each readable deal to its known fields, and the envelope of a list to its paging fields, with a
 * hash in place of the cursor. Undefined if nothing has to be left out.
 */
function createReducer(deals: Stream): (line: TapeLine) => string | undefined {
  const normalise = createNormaliser(deals)
  const paths = [...deals.wireFields.map((name) => [name]), ...(deals.mapped ?? []).map(({path}) => path)]
  return (line) => {
    const body = parseJson(textOf(line))
    const {frame, envelope, listed, known} = line.frame
    if (frame === 'list') {
      const {records, path, nextCursor} = readPage(body, String(envelope))
      const unread = new Set(normalise(records, 0n).quarantined.map(({position}) => position))
      const place = String(envelope)
        .replace(/^.* \| (top level)?/, '')
        .split('.')
        .filter(Boolean)
      const next = [...place, 'next_cursor']
      const kept = keepPaths(body, [[...place, 'has_more'], next])
      const reduced = records.map((deal, position) => (unread.has(position) ? null : keepPaths(deal, paths)))
      // Its own name may be a person's.
      const told = path.map((name) => tellForeign(name, FIELD_NAME))
      setValue(kept, told, reduced)
      if (isDeepStrictEqual(kept, body)) return undefined
      setValue(kept, next, nextCursor && tellForeign(nextCursor))
      return JSON.stringify(kept)
    }
    const data = isObject(body) ? body.data : undefined
    const isRead = normalise([{...Object(listed ?? known), ...Object(data)}], 0n).observations.length > 0
    const kept = {data: isObject(data) && isRead ? keepPaths(data, paths) : null}
    return isDeepStrictEqual(kept, body) ? undefined : JSON.stringify(kept)
  }
}

const writeJson = (dir: string, name: string, content: unknown): Promise<void> =>
  writeFile(join(dir, name), `${JSON.stringify(content, null, 2)}\n`)

const answerFrame = z.object({
  status: z.number(),
  headers: z.record(z.string(), z.string()),
  received_at: z.string(),
})

/** As received, with the headers that were kept and its length, or as `shown`. */
function formatAnswer(
  {frame, body = Buffer.alloc(0), sha256}: TapeLine,
  {place, baseUrl, shown}: {place: string; baseUrl: string; shown: string | undefined},
): Buffer {
  const {status, headers, received_at: date} = answerFrame.parse(frame)
  const target = targetOf(frame)
  const isOfRates = frame.frame === 'rates'
  const uri = isOfRates ? `urn:loantape:rates:${encodeURIComponent(target)}` : `${baseUrl}${target}`
  const named = {'WARC-Target-URI': uri, 'Loantape-Line': place}
  if (shown !== undefined) {
    const fields = {...named, 'Loantape-Received-Digest': `sha256:${sha256}`}
    return formatRecord({type: 'conversion', place, date, fields}, 'application/json', shown)
  }
  const said = formatHeaders({...headers, 'content-length': String(body.length)})
  const head = Buffer.from(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${said}\r\n`)
  const fields = {...named, 'WARC-Payload-Digest': `sha256:${sha256}`}
  const content = Buffer.concat([head, body])
  return formatRecord({type: 'response', place, date, fields}, 'application/http; msgtype=response', content)
}

/** ISO 28500, WARC 1.1. */
function formatRecord(
  {type, place, date, fields}: {type: string; place: string; date: string; fields: Record<string, string>},
  contentType: string,
  block: string | Buffer,
): Buffer {
  const content = Buffer.from(block)
  const id = hash('sha256', `${type} ${place}`)
  const uuid = id.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-8$3-8$4-$5')
  const header = formatHeaders({
    'WARC-Type': type,
    'WARC-Record-ID': `<urn:uuid:${uuid}>`,
    'WARC-Date': date,
    ...fields,
    'WARC-Block-Digest': `sha256:${hash('sha256', content)}`,
    'Content-Type': contentType,
    'Content-Length': String(content.length),
  })
  return gzipSync(Buffer.concat([Buffer.from(`WARC/1.1\r\n${header}\r\n`), content, Buffer.from('\r\n\r\n')]))
}

function formatHeaders(fields: Record<string, string>): string {
  return Object.entries(fields)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')
}
