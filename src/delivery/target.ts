import {readFileSync} from 'node:fs'
import {posix, resolve} from 'node:path'
import {z} from 'zod'
import {codeOf, type LoantapeError, newError} from '../errors.ts'
import {describeIssues} from '../json.ts'
import {expectOneOf} from '../nearest.ts'

const text = z.string().min(1)

/** A folder, such as a share. */
export type FolderTarget = z.output<typeof folderTarget>
const folderTarget = z.strictObject({
  kind: z.literal('folder'),
  path: text.describe('Folder the batch is copied to; it has to be there'),
})

/** A server that speaks SFTP. */
export type SftpTarget = z.output<typeof sftpTarget>
const sftpTarget = z.strictObject({
  kind: z.literal('sftp'),
  host: text,
  port: z.int().min(1).max(65_535).default(22),
  user: text,
  path: text.describe('Folder on the server'),
  host_key: z
    .string()
    .regex(/^SHA256:[A-Za-z0-9+/]{43}$/, 'expected SHA256:… as ssh-keygen -lf prints it')
    .describe("Fingerprint of the server's host key; another key is refused"),
  private_key_file: text.optional().describe('File with the private key'),
  passphrase_file: text.optional().describe('File with the passphrase of the key'),
  password_file: text
    .optional()
    .describe('File with the password; LOANTAPE_TARGET_SECRET where neither is named'),
})

/** Names of files are put behind the URL, and its words are shown. */
const isBare = ({search, hash, username, password}: URL) => search + hash + username + password === ''

/** An endpoint that takes files by PUT. */
export type HttpTarget = z.output<typeof httpTarget>
const httpTarget = z.strictObject({
  kind: z.literal('http'),
  url: z
    .url({protocol: /^https?$/, error: 'expected an http or https URL'})
    .refine((url) => !URL.canParse(url) || isBare(new URL(url)), 'expected no query, fragment or password')
    .describe('Files are PUT below it'),
  token_file: text
    .optional()
    .describe('File with the bearer token; LOANTAPE_TARGET_SECRET where none is named'),
})

/** Where batches are delivered to. */
export type Target = z.output<typeof targetSchema>
const targetSchema = z.discriminatedUnion('kind', [folderTarget, sftpTarget, httpTarget])

/** A target under the name it has in the targets file. */
export interface NamedTarget {
  name: string
  target: Target
  /** The password or token of a target that names no file for it. */
  secret?: string | undefined
}

/** Where a target is, whatever it is called. */
export function placeOf(target: Target): string {
  if (target.kind === 'folder') return resolve(target.path)
  if (target.kind === 'http') return baseOf(target)
  const {user, host, port, path} = target
  return `sftp://${user}@${host}:${port}/${posix.normalize(path)}`
}

/** The URL files are put below, without `/` at its end. */
export function baseOf({url}: HttpTarget): string {
  return url.replace(/\/+$/, '')
}

const targetsSchema = z.record(
  z.string().regex(/^[\w-]+$/, 'expected letters, digits, - and _'),
  targetSchema,
)

/**
 * Reads targets: those of these names, or all.
 *
 * @param settings `targetSecret` is for the one target that names no file for its secret
 * @throws ConfigError `TARGETS_MISSING`, `TARGETS_INVALID`, `TARGET_UNKNOWN`
 */
export function readTargets(
  settings: {targetsFile?: string | undefined; targetSecret?: string | undefined},
  names?: readonly string[],
): NamedTarget[] {
  const {targetsFile: path, targetSecret} = settings
  if (path === undefined) {
    throw newError('TARGETS_MISSING', 'No targets to deliver to: LOANTAPE_TARGETS_FILE not set.')
  }
  const targets = parseTargets(path)
  const bare = Object.keys(targets).filter((name) => namesNoSecret(targets[name]))
  if (targetSecret !== undefined && bare.length > 1) {
    throw invalid(
      path,
      `${bare.join(', ')} name no file for their secret, and LOANTAPE_TARGET_SECRET would be sent to each: expected at most one`,
    )
  }
  return (names ?? Object.keys(targets)).map((name) => {
    const target = targets[name]
    if (target) return {name, target, secret: namesNoSecret(target) ? targetSecret : undefined}
    throw newError(
      'TARGET_UNKNOWN',
      `Target '${name}' is not in '${path}': ${expectOneOf(name, Object.keys(targets))}.`,
    )
  })
}

function namesNoSecret(target: Target | undefined): boolean {
  if (target?.kind === 'http') return target.token_file === undefined
  return target?.kind === 'sftp' && (target.private_key_file ?? target.password_file) === undefined
}

function parseTargets(path: string): Record<string, Target> {
  let content: unknown
  try {
    content = JSON.parse(readFileSync(path, 'utf8'))
  } catch (error) {
    const problem = error instanceof SyntaxError ? 'expected JSON' : `cannot be read (${codeOf(error)})`
    throw invalid(path, problem, error)
  }
  const parsed = targetsSchema.safeParse(content)
  if (parsed.success) return parsed.data
  throw invalid(path, describeIssues(parsed.error, '').join('; '))
}

function invalid(path: string, problem: string, cause?: unknown): LoantapeError {
  return newError('TARGETS_INVALID', `Targets in '${path}': ${problem}.`, {cause})
}

/**
 * The content of a secret's file.
 *
 * @throws ConfigError `TARGET_SECRET` naming the file
 */
export function readSecret(path: string | undefined): string | undefined {
  if (path === undefined) return undefined
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    throw newError('TARGET_SECRET', `Secret file '${path}' cannot be read (${codeOf(error)}).`, {
      cause: error,
    })
  }
}
