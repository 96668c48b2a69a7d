import {readFileSync} from 'node:fs'
import {posix, resolve} from 'node:path'
import {z} from 'zod'
import {codeOf, newError} from '../core/errors.ts'
import {describeIssues, parseWritten} from '../core/json.ts'
import {expectOneOf} from '../core/text.ts'
import {requireOwnPlace} from '../store/data-folder.ts'
import {readWrittenText} from '../store/files.ts'

/** Where batches are delivered to. */
export type Target = FolderTarget | SftpTarget | HttpTarget

/** A target under its name in the targets file. */
export interface NamedTarget {
  name: string
  target: Target
}

const text = z.string().min(1)

/** A folder, such as a share. */
export type FolderTarget = z.output<typeof folderTarget>
const folderTarget = z.strictObject({
  kind: z.literal('folder'),
  path: text.describe('Existing folder that batches are copied to'),
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
  password_file: text.optional().describe('File with the password, if there is no key'),
})

/** File names are appended to the URL, and messages show it. */
const isBare = ({search, hash, username, password}: URL) => search + hash + username + password === ''

/** An endpoint that takes files by PUT. */
export type HttpTarget = z.output<typeof httpTarget>
const httpTarget = z.strictObject({
  kind: z.literal('http'),
  url: z
    .url({protocol: /^https?$/, error: 'expected an http or https URL'})
    .refine((url) => !URL.canParse(url) || isBare(new URL(url)), 'expected no query, fragment or password')
    .describe('Files are PUT below it'),
  token_file: text.optional().describe('File with the bearer token'),
})

const targetsSchema = z.record(
  z.string().regex(/^[\w-]+$/, 'expected letters, digits, - and _'),
  z.discriminatedUnion('kind', [folderTarget, sftpTarget, httpTarget]),
)

/** The location of a target, whatever its name. */
export function placeOf(target: Target): string {
  if (target.kind === 'folder') return resolve(target.path)
  if (target.kind === 'http') return baseOf(target)
  const {user, host, port, path} = target
  return `sftp://${user}@${host}:${port}/${posix.normalize(path)}`
}

/** The URL of an endpoint without a trailing `/`. */
export function baseOf({url}: HttpTarget): string {
  return url.replace(/\/+$/, '')
}

/** The local folders and files that a target names. */
function listPaths(target: Target): string[] {
  if (target.kind === 'folder') return [target.path]
  const files = Object.entries(target).filter(([field]) => field.endsWith('_file'))
  return files.map(([, file]) => String(file))
}

/**
 * Reads the targets of these names, or all.
 *
 * @throws ConfigError `CONFIG_MISSING`, `TARGETS_INVALID`, `UNKNOWN_NAME`, `FLEET_DATA_SHARED`
 */
export function readTargets(
  {targetsFile: path, sourceDir}: {targetsFile?: string | undefined; sourceDir?: string | undefined},
  names?: readonly string[],
): NamedTarget[] {
  if (path === undefined) {
    throw newError('CONFIG_MISSING', 'No targets to deliver to: LOANTAPE_TARGETS_FILE not set.', {
      next: 'Describe them in a JSON file (see docs/exports.md) and set the variable to its path.',
    })
  }
  const targets = parseTargets(path)
  return (names ?? Object.keys(targets)).map((name) => {
    const target = targets[name]
    if (target) {
      for (const named of listPaths(target)) requireOwnPlace({sourceDir}, named)
      return {name, target}
    }
    throw newError(
      'UNKNOWN_NAME',
      `Target '${name}' is not in '${path}': ${expectOneOf(name, Object.keys(targets))}.`,
    )
  })
}

function parseTargets(path: string): Record<string, Target> {
  const refuse = (problem: string, cause?: unknown) =>
    newError('TARGETS_INVALID', `Targets in '${path}': ${problem}.`, {cause})
  const parsed = targetsSchema.safeParse(parseWritten(readWrittenText(path, refuse), refuse))
  if (parsed.success) return parsed.data
  throw refuse(describeIssues(parsed.error, '').join('; '))
}

/** The content of a secret file, or of a pipe, as secret managers give it. @throws ConfigError `TARGETS_INVALID` */
export function readSecret(path: string | undefined): string | undefined {
  if (path === undefined) return undefined
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    throw newError('TARGETS_INVALID', `Secret file '${path}' cannot be read (${codeOf(error)}).`, {
      next: 'Correct the path in the targets file, or the permissions of the file.',
      cause: error,
    })
  }
}
