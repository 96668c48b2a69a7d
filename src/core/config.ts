import {homedir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {isCalendarDate} from './clock.ts'
import {codeOf, newError} from './errors.ts'
import {scrubSecrets} from './log.ts'
import {quantity} from './money.ts'
import {FIXED, type Fixed, SETTINGS, type Settings} from './settings.ts'
import {findNearest} from './text.ts'

/** The settings, the base URL parted so that it can be stored and shown. */
export interface Config extends Settings, Fixed {
  /** The query of the base URL, `?key=…`: nothing but requests holds it. */
  baseUrlQuery?: string | undefined
  /** Where the key of tapes is made that no setting names. */
  defaultKeyFile: string
  /** The name of a source of a fleet; undefined of a lender alone. */
  source?: string | undefined
  /** Its working folder, from which its paths count. */
  sourceDir?: string | undefined
}

const configSchema = z.object(SETTINGS)

/** `pageSize` → `LOANTAPE_PAGE_SIZE`. */
function envNameOf(key: string): string {
  return `LOANTAPE_${key.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`
}

/** Every setting as the generated documents show it, in their order. */
export function listSettings() {
  return Object.entries(configSchema.shape).map(([key, schema]) => {
    const {description = '', example} = schema.meta() ?? {}
    const fallback = schema.safeParse(undefined).data
    return {
      env: envNameOf(key),
      about: description,
      values: describeValues(schema),
      default: fallback === undefined ? undefined : String(fallback),
      example: example === undefined ? undefined : String(example),
    }
  })
}

/** What a setting may be, in the words that refuse what it may not. */
function describeValues(schema: z.ZodType): string {
  const [, expected = ''] = /expected (.+)/.exec(schema.safeParse('\0').error?.issues[0]?.message ?? '') ?? []
  return expected.replace(/"(\w+)"/g, '`$1`').replaceAll('|', ', ')
}

/** Secrets that may stand in a file of their own. */
const KEYS_IN_FILES = [
  'apiKey',
  'postgresUrl',
  'clickhousePassword',
  'webToken',
  'webViewerToken',
  'webhookSecret',
  'alarmWebhookUrl',
  'smtpUrl',
  'deadManUrl',
]

/**
 * Reads the settings from environment variables.
 *
 * @throws ConfigError `CONFIG_INVALID` listing every problem at once
 */
export function parseConfig(
  env: Record<string, string | undefined>,
  files: {readFile: (path: string) => string},
): Config {
  const problems: string[] = []
  const given: Record<string, string> = {}
  for (const key of Object.keys(configSchema.shape)) {
    const text = env[envNameOf(key)]
    if (text) given[key] = text
  }
  for (const key of KEYS_IN_FILES) {
    const name = `${envNameOf(key)}_FILE`
    const file = env[name]
    if (!file || given[key] !== undefined) continue
    try {
      given[key] = files.readFile(file).trim()
    } catch (error) {
      problems.push(`${name} '${file}': cannot be read (${codeOf(error)})`)
    }
  }
  const parsed = configSchema.safeParse(given)
  for (const issue of parsed.error?.issues ?? []) {
    const key = String(issue.path[0])
    problems.push(`${envNameOf(key)} '${maskValue(key, given[key])}': ${issue.message}`)
  }
  problems.push(...findHalfSetMail(given), ...findUnknownNames(env))
  if (!parsed.success || problems.length > 0) {
    throw newError(
      'CONFIG_INVALID',
      `Configuration has ${quantity(problems.length, 'problem')}:\n${problems.map((line) => `  - ${line}`).join('\n')}\n`,
    )
  }
  const {baseUrl, ...parsedSettings} = parsed.data
  const configHome = env.XDG_CONFIG_HOME || join(env.HOME || homedir(), '.config')
  const settings = {...parsedSettings, ...FIXED, defaultKeyFile: join(configHome, 'loantape', 'tape.key')}
  if (baseUrl === undefined) return settings
  const {name, query} = splitSourceAddress(baseUrl)
  return {...settings, baseUrl: name, ...(query !== '' && {baseUrlQuery: query})}
}

/**
 * Parts the address of a source: its name, by which it is stored, compared and printed, and the query that requests carry,
 * which may be a secret. No request carries user, password or fragment.
 */
function splitSourceAddress(url: string): {name: string; query: string} {
  const [, name = '', query = ''] = /^([^?#]*)(\?[^#]*)?/.exec(url) ?? []
  return {
    name: name.replace(/^(\w+:\/\/)[^/]*@/, '$1').replace(/\/+$/, ''),
    query: query === '?' ? '' : query,
  }
}

/** Alarms that reach nobody look like a night without any. */
function findHalfSetMail({alarmEmailTo, smtpUrl}: Record<string, string>): string[] {
  if ((alarmEmailTo === undefined) === (smtpUrl === undefined)) return []
  const [given, missing] =
    alarmEmailTo === undefined ? ['smtpUrl', 'alarmEmailTo'] : ['alarmEmailTo', 'smtpUrl']
  return [`${envNameOf(given)}: sends nothing without ${envNameOf(missing)}`]
}

function isSecret(key: string): boolean {
  return Object.entries(configSchema.shape).some(
    ([name, schema]) => name === key && schema.meta()?.isSecret === true,
  )
}

const PREFIX = 'LOANTAPE_'

function findUnknownNames(env: Record<string, string | undefined>): string[] {
  const known = new Set([
    ...Object.keys(configSchema.shape).map(envNameOf),
    ...KEYS_IN_FILES.map((key) => `${envNameOf(key)}_FILE`),
  ])
  const unknown = Object.keys(env).filter((name) => name.startsWith(PREFIX) && !known.has(name))
  return unknown.map((name) => {
    const nearest = findNearest(
      name.slice(PREFIX.length),
      [...known].map((setting) => setting.slice(PREFIX.length)),
    )
    return `${name}: no such setting${nearest === undefined ? '' : `; the nearest is ${PREFIX}${nearest}`}`
  })
}

/** The settings as a table for people: secrets masked. */
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

/** A base URL may hold a password or a key, and a key may be given under the wrong name. */
function maskValue(key: string, value = ''): string {
  if (isSecret(key) && value) return '***'
  return scrubSecrets(key === 'baseUrl' ? value.replace(/[?#].*$/s, '?***') : value)
}

/** Requests that may follow each other at once after a pause: those of a second, and five at least. */
export function burstOf({ratePerSecond}: Pick<Config, 'ratePerSecond'>): number {
  return Math.max(5, Math.ceil(ratePerSecond))
}

/** The settings a source needs. */
export interface SourceConfig extends Config {
  baseUrl: string
  apiKey: string
}

/**
 * The settings once more, with base URL and key known to be there.
 *
 * @throws ConfigError `CONFIG_MISSING` naming each that is missing
 */
export function requireSource(config: Config): SourceConfig {
  const {baseUrl, apiKey} = config
  if (baseUrl !== undefined && apiKey !== undefined) return {...config, baseUrl, apiKey}
  const missing = [baseUrl === undefined && 'LOANTAPE_BASE_URL', apiKey === undefined && 'LOANTAPE_API_KEY']
  throw newError('CONFIG_MISSING', `No source to read: ${missing.filter(Boolean).join(' and ')} not set.`, {
    next: 'Set them in the environment or in .env (see .env.example), or run `loantape demo`, which brings its own service.',
  })
}

/**
 * Reads a date given on the command line.
 *
 * @throws ConfigError `USAGE` when it is not a calendar date
 */
export function parseDateOption(name: string, text: string): string {
  if (isCalendarDate(text)) return text
  throw newError('USAGE', `Date '${text}' in ${name}: expected a calendar date YYYY-MM-DD.`)
}
