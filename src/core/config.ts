import {hash} from 'node:crypto'
import {homedir} from 'node:os'
import {isAbsolute, join} from 'node:path'
import {z} from 'zod'
import {codeOf, expectationOf, newError} from './errors.ts'
import {scrubSecrets} from './log.ts'
import {quantity} from './money.ts'
import {FIXED, type Fixed, SETTINGS, type Settings} from './settings.ts'
import {findNearest} from './text.ts'

/** The base URL is split, so that the part without secrets can be stored and shown. */
export interface Config extends Settings, Fixed {
  /** The query of the base URL, `?key=…`; only requests carry it. */
  baseUrlQuery?: string | undefined
  /** The tape key file used if no setting names one. */
  defaultKeyFile: string
  /** The name of a fleet's source; undefined outside a fleet. */
  source?: string | undefined
  /** The working folder of that source; its relative paths start here. */
  sourceDir?: string | undefined
}

const configSchema = z.object(SETTINGS)

/** `pageSize` → `LOANTAPE_PAGE_SIZE`. */
export function envNameOf(key: string): string {
  return `LOANTAPE_${key.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`
}

const listKeys = (mark: 'isSecret' | 'isPath') =>
  Object.entries(configSchema.shape).flatMap(([key, schema]) => (schema.meta()?.[mark] === true ? [key] : []))

/** Masked when shown. A file or a command can also provide them: `LOANTAPE_API_KEY_FILE`, `LOANTAPE_API_KEY_COMMAND`. */
const SECRETS = listKeys('isSecret')

export const listPaths = (config: Config): string[] =>
  listKeys('isPath').flatMap((key) => z.string().safeParse(Reflect.get(config, key)).data ?? [])

/**
 * Reads the settings from environment variables.
 * @param outside `run` returns what a setting's command prints; without it, commands are refused
 * @throws ConfigError `CONFIG_INVALID` listing every problem at once
 */
export function parseConfig(
  env: Record<string, string | undefined>,
  outside: {
    readFile: (path: string) => string
    run?: (name: string, command: string) => string
    findHome?: () => string
  },
): Config {
  const problems: string[] = []
  const given: Record<string, string> = {}
  /** The settings that name a secret's file or command. */
  const from: Record<string, string> = {}
  for (const key of Object.keys(configSchema.shape)) {
    const text = env[envNameOf(key)]
    if (text) given[key] = text
  }
  for (const key of SECRETS) {
    const [ofFile, ofCommand] = [`${envNameOf(key)}_FILE`, `${envNameOf(key)}_COMMAND`]
    const [file, command] = [env[ofFile], env[ofCommand]]
    if (given[key] !== undefined) continue
    from[key] = file ? ofFile : ofCommand
    if (file)
      try {
        given[key] = outside.readFile(file).trim()
      } catch (error) {
        problems.push(`${ofFile} '${file}': cannot be read (${codeOf(error)})`)
      }
    else if (command && outside.run) given[key] = outside.run(ofCommand, command).trim()
    // Otherwise anyone who can edit a lender's settings could run programs as the user of all lenders.
    else if (command) problems.push(`${ofCommand}: expected no command in a fleet; name a file`)
  }
  const parsed = configSchema.safeParse(given)
  for (const issue of parsed.error?.issues ?? []) {
    const key = String(issue.path[0])
    problems.push(`${from[key] ?? envNameOf(key)} '${maskValue(key, given[key])}': ${expectationOf(issue)}`)
  }
  // Without a mail server, nights would look quiet. With only a viewer token, nobody would be asked for a token.
  for (const [half, other] of [
    ['alarmEmailTo', 'smtpUrl'],
    ['webViewerToken', 'webToken'],
  ] as const)
    if (given[half] !== undefined && given[other] === undefined)
      problems.push(`${envNameOf(half)}: does nothing without ${envNameOf(other)}`)
  const [operators, viewers] = [given.webToken, given.webViewerToken].map((one) => one && digestOfToken(one))
  if (operators && operators === viewers)
    problems.push(
      'LOANTAPE_WEB_VIEWER_TOKEN: expected another token than LOANTAPE_WEB_TOKEN: viewers would be operators',
    )
  problems.push(...findUnknownNames(env))
  const configHome = findConfigHome(env, outside.findHome ?? homedir)
  if (configHome === undefined && !given.tapeKeyFile)
    problems.push('LOANTAPE_TAPE_KEY_FILE: expected a file, because this user has no home folder')
  if (!parsed.success || problems.length > 0)
    throw newError(
      'CONFIG_INVALID',
      `Configuration has ${quantity(problems.length, 'problem')}:\n${problems.map((line) => `  - ${line}`).join('\n')}\n`,
    )
  const {baseUrl, ...parsedSettings} = parsed.data
  const settings = {
    ...parsedSettings,
    ...FIXED,
    defaultKeyFile: join(configHome ?? '', 'loantape', 'tape.key'),
  }
  if (baseUrl === undefined) return settings
  // The query may hold a secret.
  const [, address = '', query] = /^([^?#]*)(\?[^#]+)?/.exec(baseUrl) ?? []
  return {...settings, baseUrl: address.replace(/\/+$/, ''), ...(query && {baseUrlQuery: query})}
}

/** A token may also be set as its digest. Returns hex. */
export const digestOfToken = (token: string): string =>
  /^sha256:([0-9a-f]{64})$/i.exec(token)?.[1]?.toLowerCase() ?? hash('sha256', token)

function findConfigHome(env: Record<string, string | undefined>, findHome: () => string): string | undefined {
  try {
    const {XDG_CONFIG_HOME: given = '', HOME} = env
    const dir = isAbsolute(given) ? given : join(HOME || findHome(), '.config')
    // In a relative one, each folder that a command starts in would have a key of its own.
    return isAbsolute(dir) ? dir : undefined
  } catch {
    // The user id has no entry in passwd, as in containers.
    return undefined
  }
}

const PREFIX = 'LOANTAPE_'

function findUnknownNames(env: Record<string, string | undefined>): string[] {
  const known = new Set([
    ...Object.keys(configSchema.shape).map(envNameOf),
    ...SECRETS.flatMap((key) => [`${envNameOf(key)}_FILE`, `${envNameOf(key)}_COMMAND`]),
  ])
  const unknown = Object.keys(env).filter((name) => name.toUpperCase().startsWith(PREFIX) && !known.has(name))
  return unknown.map((name) => {
    const nearest = findNearest(
      name.slice(PREFIX.length).toUpperCase(),
      [...known].map((setting) => setting.slice(PREFIX.length)),
    )
    return `${name}: no such setting${nearest === undefined ? '' : `; the nearest is ${PREFIX}${nearest}`}`
  })
}

export function maskConfig(config: Config): Record<string, string | number | null> {
  const {baseUrl, baseUrlQuery = '', tapeKeyFile = config.defaultKeyFile} = config
  const shown = {...config, tapeKeyFile, ...(baseUrl !== undefined && {baseUrl: `${baseUrl}${baseUrlQuery}`})}
  const settings = Object.entries(shown).filter(([key]) => key in SETTINGS)
  return Object.fromEntries(
    settings.map(([key, value]) => [
      envNameOf(key),
      typeof value === 'string' ? maskValue(key, value) : (value ?? null),
    ]),
  )
}

/** Masks secrets, also those in a URL and keys pasted into the wrong setting. */
function maskValue(key: string, value = ''): string {
  if (SECRETS.includes(key) && value) return '***'
  const scrubbed = scrubSecrets(value)
  if (!key.endsWith('Url')) return scrubbed
  return scrubbed.replace(/^(?!\w+:\/\/).*@/s, '***@').replace(/[?#].*$/s, '?***')
}

/** Requests that may be sent at once after a pause. */
export function burstOf({ratePerSecond}: Pick<Config, 'ratePerSecond'>): number {
  return Math.max(5, Math.ceil(ratePerSecond))
}

export interface SourceConfig extends Config {
  baseUrl: string
  apiKey: string
}

/** @throws ConfigError `CONFIG_MISSING` naming each that is missing */
export function requireSource(config: Config): SourceConfig {
  const {baseUrl, apiKey} = config
  if (baseUrl !== undefined && apiKey !== undefined) return {...config, baseUrl, apiKey}
  const missing = [baseUrl === undefined && 'LOANTAPE_BASE_URL', apiKey === undefined && 'LOANTAPE_API_KEY']
  throw newError('CONFIG_MISSING', `No source to read: ${missing.filter(Boolean).join(' and ')} not set.`, {
    next: 'Set them in the environment or in .env (docs/configuration.md lists them), or run `loantape demo`, which brings its own service.',
  })
}
