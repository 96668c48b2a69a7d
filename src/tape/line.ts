import {isUtf8} from 'node:buffer'
import {createHash} from 'node:crypto'
import {z} from 'zod'

/** What a line of a tape says: how a unit began, what was received or done, how it ended. */
export const FRAME_KINDS = ['begin', 'list', 'detail', 'children', 'look', 'rates', 'act', 'outcome'] as const

/** One line of a tape without its body. */
export interface Frame {
  frame: (typeof FRAME_KINDS)[number]
  [field: string]: unknown
}

/** A line that was read. */
export interface TapeLine {
  frame: Frame
  /** Of the body, also where that was dropped. */
  sha256: string | undefined
  /** As received, byte for byte; undefined where there was none, or it was dropped. */
  body: Buffer | undefined
  /** sha256 of the chain before and of this line without its body. */
  chain: string
  /** The text that the chain covers. */
  covered: string
}

/** What the first line's chain follows. */
export const CHAIN_START = '0'.repeat(64)

/** Ends what the chain covers. Inside the text of JSON its quotes would be escaped. */
const MARK = ',"chain":"'
/** Begins a body that stands as it was received, up to the last brace of the line. */
const RAW = ',"raw":'

const frameSchema = z.looseObject({
  frame: z.enum(FRAME_KINDS),
  sha256: z.string().optional(),
  encoding: z.literal('base64').optional(),
})
const bodySchema = z.object({body: z.string()})

const digest = (content: string | Buffer) => createHash('sha256').update(content).digest('hex')

/**
 * Writes a line: the frame with the sha256 of its body, the chain, the body. A body of one line of UTF-8 stands as received,
 * one of several lines as JSON text, any other as base64. The chain covers the digest, so that a body may be dropped one day.
 */
export function formatLine(
  frame: Frame,
  body: Buffer | undefined,
  previous: string,
): {text: string; chain: string} {
  const isText = body === undefined || isUtf8(body)
  const covered = JSON.stringify({
    ...frame,
    ...(body && {sha256: digest(body)}),
    ...(!isText && {encoding: 'base64'}),
  })
  const chain = digest(`${previous}\n${covered}`)
  return {text: `${covered.slice(0, -1)}${MARK}${chain}"${formatBody(body, isText)}}`, chain}
}

function formatBody(body: Buffer | undefined, isText: boolean): string {
  if (body === undefined) return ''
  const text = body.toString(isText ? 'utf8' : 'base64')
  return isText && !text.includes('\n') ? `${RAW}${text}` : `,"body":${JSON.stringify(text)}`
}

const requestSchema = z.looseObject({path: z.string()})

/** What a line asked for: `/deals?limit=100`. */
export function targetOf({request}: Frame): string {
  const {path, ...query} = requestSchema.parse(request)
  const asked = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) asked.set(name, String(value))
  return asked.size > 0 ? `${path}?${asked}` : path
}

/** A line as it stands on its tape, but for its body. */
export function formatBare({covered, chain}: TapeLine): string {
  return `${covered.slice(0, -1)}${MARK}${chain}"}`
}

/** Reads a line that follows `previous`; what is wrong with it where it does not. */
export function parseLine(text: string, previous: string): TapeLine | {problem: string} {
  const line = readLineAlone(text)
  if (!line) return {problem: 'it has no chain'}
  if (line.chain !== digest(`${previous}\n${line.covered}`))
    return {problem: 'it does not follow the line before'}
  return line.body === undefined || digest(line.body) === line.sha256
    ? line
    : {problem: 'its body is not what was received'}
}

/** Reads a line without comparing it with what it says of itself; undefined where it has no chain. */
export function readLineAlone(text: string): TapeLine | undefined {
  const end = text.indexOf(MARK)
  if (end === -1) return undefined
  const covered = `${text.slice(0, end)}}`
  const chain = text.slice(end + MARK.length, end + MARK.length + CHAIN_START.length)
  const {sha256, encoding, ...frame} = frameSchema.parse(JSON.parse(covered))
  const said = text.slice(end + MARK.length + chain.length + 1)
  if (sha256 === undefined || said === '}') return {frame, sha256, body: undefined, chain, covered}
  const body = said.startsWith(RAW)
    ? said.slice(RAW.length, -1)
    : bodySchema.parse(JSON.parse(`{${said.slice(1)}`)).body
  return {frame, sha256, body: Buffer.from(body, encoding ?? 'utf8'), chain, covered}
}
