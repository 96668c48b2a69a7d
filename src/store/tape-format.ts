import {isUtf8} from 'node:buffer'
import {hash} from 'node:crypto'
import {z} from 'zod'

/** What a line of a tape says: how a unit began, what was received or done, how it ended. */
const FRAME_KINDS = [
  'begin',
  'list',
  'detail',
  'children',
  'look',
  'rates',
  'replay',
  'act',
  'outcome',
] as const

/** One line of a tape without its body. */
export interface Frame {
  frame: (typeof FRAME_KINDS)[number]
  [field: string]: unknown
}

/** A line that was read. */
export interface TapeLine {
  frame: Frame
  /** The sha256 of the body, even if the body was dropped. */
  sha256: string | undefined
  /** The bytes as received; undefined if there were none or they were dropped. */
  body: Buffer | undefined
  /** sha256 of the chain before and of this line without its body. */
  chain: string
  /** The text that the chain covers. */
  covered: string
}

/** The body of a line as text. */
export const textOf = ({body}: TapeLine) => new TextDecoder().decode(body)

/** The chain before the first line. */
export const CHAIN_START = '0'.repeat(64)

/** Ends the part that the chain covers. Inside JSON text its quotes would be escaped. */
const MARK = ',"chain":"'
/** Begins a body that is written as received, up to the last brace of the line. */
const RAW = ',"raw":'

const frameSchema = z.looseObject({
  frame: z.enum(FRAME_KINDS),
  sha256: z.string().optional(),
  encoding: z.literal('base64').optional(),
})
const bodySchema = z.object({body: z.string()})

const digest = (content: string | Buffer) => hash('sha256', content)

/**
 * Writes a line: the frame with the sha256 of its body, the chain, the body. A body of one line of UTF-8 is written as received,
 * one of several lines as JSON text, any other as base64. The chain covers the body's digest, so the body may be dropped later.
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

/** The request of a line: `/deals?limit=100`. */
export function targetOf({request}: Frame): string {
  const {path, ...query} = requestSchema.parse(request)
  const asked = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) asked.set(name, String(value))
  return asked.size > 0 ? `${path}?${asked}` : path
}

/** The text of a line without its body. */
export function formatBare({covered, chain}: TapeLine): string {
  return `${covered.slice(0, -1)}${MARK}${chain}"}`
}

/** The chain that a line states; undefined if it states none. */
export function readChain(text: string): string | undefined {
  const from = text.indexOf(MARK) + MARK.length
  return from < MARK.length ? undefined : text.slice(from, from + CHAIN_START.length)
}

/** Reads a line and verifies that it follows `previous`; otherwise returns what is wrong. */
export function parseLine(text: string, previous: string): TapeLine | {problem: string} {
  const line = readLineAlone(text)
  if (!line) return {problem: 'it has no chain'}
  if (line.chain !== digest(`${previous}\n${line.covered}`))
    return {problem: 'it does not follow the line before'}
  return line.body === undefined || digest(line.body) === line.sha256
    ? line
    : {problem: 'its body is not what was received'}
}

/** Reads a line without verifying it; undefined if it has no chain. */
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
