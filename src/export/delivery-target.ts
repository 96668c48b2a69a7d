import {readFileSync, statSync} from 'node:fs'
import {posix, resolve} from 'node:path'
import {z} from 'zod'
import {codeOf, newError} from '../core/errors.ts'
import {parseWritten} from '../core/json.ts'
import {expectOneOf} from '../core/text.ts'
import {requireOwnPlace} from '../store/data-folder.ts'
import {readWrittenText} from '../store/files.ts'

const text = z.string().min(1)

/** Whether file names can be appended to a URL, and messages may show it. */
const isBare = ({search, hash, username, password}: URL) => search + hash + username + password === ''

const bareUrl = z
  .url({protocol: /^https?$/, error: 'expected an http or https URL'})
  .refine((url) => !URL.canParse(url) || isBare(new URL(url)), 'expected no query, fragment or password')
  .transform((url) => new URL(url).href.replace(/\/+$/, ''))

export type Target = z.output<typeof targetSchema>
const targetSchema = z.discriminatedUnion('kind', [
  z.strictObject({kind: z.literal('folder'), path: text}),
  z.strictObject({
    kind: z.literal('sftp'),
    host: text.toLowerCase(),
    port: z.int().min(1).max(65_535).default(22),
    user: text,
    path: text.transform((path) => posix.normalize(path).replace(/(?<=.)\/$/, '')),
    /** The only host key that is accepted. */
    host_key: z.string().regex(/^SHA256:[A-Za-z0-9+/]{43}$/, 'expected SHA256:… as ssh-keygen -lf prints it'),
    private_key_file: text.optional(),
    passphrase_file: text.optional(),
    password_file: text.optional(),
  }),
  /** An endpoint that takes files by PUT. */
  z.strictObject({
    kind: z.literal('http'),
    url: bareUrl,
    /** Holds a bearer token. */
    token_file: text.optional(),
  }),
  /** A bucket of S3, or of a store with the same protocol: MinIO, R2, Google Cloud Storage with HMAC keys. */
  z.strictObject({
    kind: z.literal('s3'),
    bucket: z.string().regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'expected the name of a bucket'),
    region: z.string().regex(/^[a-z0-9-]+$/, 'expected a region such as us-east-1'),
    /** By default Amazon's for the region. */
    endpoint: bareUrl.optional(),
    /** The prefix of all names. */
    path: text.refine((path) => !/(^|\/)\.{1,2}(\/|$)/.test(path), "expected no '.' or '..'").optional(),
    access_key_id: z.string().regex(/^[\w+/=-]+$/, 'expected letters and digits'),
    secret_key_file: text,
  }),
  z.strictObject({
    kind: z.literal('azure'),
    /** `https://<account>.blob.core.windows.net/<container>`, optionally with a prefix for all names. */
    url: bareUrl.refine((url) => new URL(url).pathname.length > 1, 'expected the URL of a container'),
    /** Holds a shared access signature that may create and write. */
    sas_file: text,
  }),
])

export interface NamedTarget {
  name: string
  target: Target
}

/** Does not depend on the name of the target. */
export function placeOf(target: Target): string {
  if (target.kind === 'folder') return resolve(target.path)
  if (target.kind === 'http' || target.kind === 'azure') return target.url
  if (target.kind === 's3') return addressOfBucket(target)
  const {user, host, port, path} = target
  return `sftp://${user}@${host}:${port}/${path}`
}

export function addressOfBucket(target: Extract<Target, {kind: 's3'}>): string {
  const {region, bucket, path = '', endpoint = `https://s3.${region}.amazonaws.com`} = target
  return [endpoint, bucket, ...path.split('/').filter(Boolean).map(encodeURIComponent)].join('/')
}

/** All by default. @throws ConfigError `CONFIG_MISSING`, `TARGETS_INVALID`, `UNKNOWN_NAME`, `FLEET_…` */
export function readTargets(
  {targetsFile: path, sourceDir}: {targetsFile?: string | undefined; sourceDir?: string | undefined},
  names?: readonly string[],
): NamedTarget[] {
  if (names?.length === 0) return []
  if (path === undefined) {
    throw newError('CONFIG_MISSING', 'No targets to deliver to: LOANTAPE_TARGETS_FILE not set.', {
      next: 'Describe them in a JSON file (see docs/exports.md) and set the variable to its path.',
    })
  }
  const refuse = (problem: string, cause?: unknown) =>
    newError('TARGETS_INVALID', `Targets in '${path}': ${problem}.`, {cause})
  const schema = z.record(z.string().regex(/^[\w-]+$/, 'expected letters, digits, - and _'), targetSchema)
  const targets = parseWritten(readWrittenText(path, refuse), refuse, schema)
  return (names ?? Object.keys(targets)).map((name) => {
    const target = Object.hasOwn(targets, name) ? targets[name] : undefined
    if (target) {
      for (const [field, named] of Object.entries(target))
        if (field.endsWith('_file') || (field === 'path' && target.kind === 'folder'))
          requireOwnPlace({sourceDir}, String(named))
      return {name, target}
    }
    throw newError(
      'UNKNOWN_NAME',
      `Target '${name}' is not in '${path}': ${expectOneOf(name, Object.keys(targets))}.`,
    )
  })
}

/** Secrets read from pipes, by path: a pipe can be read only once. */
const ofPipes = new Map<string, string>()

/**
 * Reads a file, or a pipe as secret managers provide. What goes into a header or URL is a word.
 * @throws ConfigError `TARGETS_INVALID`
 */
export function readSecret(path: string | undefined, isWord = false): string | undefined {
  const secret = path === undefined ? undefined : readSecretText(path)
  if (secret === undefined || (isWord ? /^[!-~]+$/ : /./).test(secret)) return secret
  const expected = isWord ? 'a secret of ASCII characters without blanks' : 'a secret'
  throw newError('TARGETS_INVALID', `Secret file '${path}': expected ${expected}.`, {
    next: 'Correct the file, or its path in the targets file.',
  })
}

function readSecretText(path: string): string {
  try {
    const said = ofPipes.get(path)
    if (said !== undefined) return said
    const secret = readFileSync(path, 'utf8').trim()
    if (!statSync(path).isFile()) ofPipes.set(path, secret)
    return secret
  } catch (error) {
    throw newError('TARGETS_INVALID', `Secret file '${path}' cannot be read (${codeOf(error)}).`, {
      next: 'Correct the path in the targets file, or the permissions of the file.',
      cause: error,
    })
  }
}
