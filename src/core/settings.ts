import {isIP} from 'node:net'
import {resolve} from 'node:path'
import {z} from 'zod'
import {isTimeZone, parseInstant} from './clock.ts'

const within = (form: RegExp, what: string, low: number, high: number) =>
  z
    .string()
    .regex(form, `expected ${what} from ${low} to ${high}`)
    .transform(Number)
    .pipe(z.number().min(low, `expected at least ${low}`).max(high, `expected at most ${high}`))

const number = (low: number, high: number, fallback: number) =>
  within(/^\d+(\.\d+)?$/, 'a number', low, high).prefault(String(fallback))

const integerWithin = (low: number, high: number) => within(/^\d+$/, 'a whole number', low, high)

const integer = (low: number, high: number, fallback: number) =>
  integerWithin(low, high).prefault(String(fallback))

const webUrl = () => z.url({protocol: /^https?$/, error: 'expected an http or https URL'}).optional()

function isAddressRange(text: string): boolean {
  const [address = '', bits = '0', ...more] = text.split('/')
  const most = {4: 32, 6: 128}[isIP(address)] ?? -1
  return more.length === 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= most
}

const commaSeparated = (isValid: (value: string) => boolean, expected: string) =>
  z
    .string()
    .refine((text) => text.split(/\s*,\s*/).every(isValid), expected)
    .optional()

const secret = (least: number) =>
  z
    .string()
    .regex(
      new RegExp(`^[\\x21-\\x7e]{${least},}$`),
      `expected ${least} or more printable characters without spaces`,
    )
    .optional()

/** An optional path; in a fleet it must lie in its source's folder. */
const path = () => z.string().optional().meta({isPath: true})

const WEBHOOK_SECRET = /^whsec_(?:[A-Za-z0-9+/]{4}){8,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** The settings file in a working folder. In a fleet's folder, its settings apply to all sources. */
export const ENV_FILE = '.env'

/** The name of a lender in a fleet. */
export const SOURCE_NAME = /^[a-z][a-z0-9_]{0,39}$/

/**
 * Every setting, read from `LOANTAPE_<NAME_IN_CAPITALS>`: form and default. Generated documents keep this order and take the
 * descriptions from `settings.json`.
 */
export const SETTINGS = {
  baseUrl: webUrl(),
  apiKey: secret(1).meta({isSecret: true}),
  nextApiKey: secret(1).meta({isSecret: true}),
  clientCertFile: path(),
  dataDir: z
    .string()
    .refine(
      (path) => !resolve(path).includes('?'),
      'expected no ? in its path: the engine cuts a file name off there',
    )
    .prefault('./data')
    .meta({isPath: true}),
  ratePerSecond: number(0.01, 100_000, 5),
  pageSize: integer(1, 100, 100),
  detail: z.enum(['auto', 'on', 'off']).prefault('auto'),
  detailBudgetMinutes: number(0, 1440, 20),
  streams: z.string().prefault('deals'),
  stage: z.string().optional(),
  shrinkLimitPct: number(0, 100, 5),
  changeLimitPct: number(0, 100, 20),
  timeZone: z.string().refine(isTimeZone, 'expected an IANA time zone').prefault('America/New_York'),
  dayCutoff: z
    .string()
    .regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'expected HH:MM')
    .prefault('06:00'),
  memoryMb: integerWithin(64, 16_777_216).optional(),
  sqlDir: path(),
  jobsDir: path(),
  webHost: z
    .string()
    .regex(/^[\w.:-]+$/, 'expected a host name or address')
    .prefault('127.0.0.1'),
  webPort: integer(0, 65_535, 8321),
  webProxy: commaSeparated(isAddressRange, 'expected addresses or ranges such as 10.0.0.0/8, with commas'),
  webToken: secret(16).meta({isSecret: true}),
  webViewerToken: secret(16).meta({isSecret: true}),
  viewerTables: z
    .string()
    .regex(
      /^\w+\.(\w+|\*)(\s*,\s*\w+\.(\w+|\*))*$/,
      'expected tables such as core.deal, or mart.*, with commas',
    )
    .optional(),
  webhookSecret: commaSeparated(
    (value) => WEBHOOK_SECRET.test(value),
    'expected whsec_ and at least 24 bytes in base64; two with a comma',
  ).meta({isSecret: true}),
  fleetRuns: integer(1, 64, 2),
  alarmWebhookUrl: webUrl().meta({isSecret: true}),
  alarmEmailTo: z.string().optional(),
  alarmEmailFrom: z.string().prefault('loantape@localhost'),
  smtpUrl: z
    .url({protocol: /^smtps?$/, error: 'expected an smtp:// or smtps:// URL'})
    .optional()
    .meta({isSecret: true}),
  alarmMaxAgeHours: number(0.01, 8760, 26),
  deadManUrl: webUrl().meta({isSecret: true}),
  accountingFile: path(),
  postgresUrl: z
    .url({protocol: /^postgres(ql)?$/, error: 'expected a postgres:// URL'})
    .optional()
    .meta({isSecret: true}),
  postgresReader: z.string().optional(),
  clickhouseUrl: webUrl(),
  clickhouseUser: z.string().optional(),
  clickhousePassword: z.string().optional().meta({isSecret: true}),
  clickhouseCluster: z.string().optional(),
  clickhouseSource: z
    .string()
    .regex(SOURCE_NAME, 'expected lower-case letters, digits and _, a letter first')
    .prefault('main'),
  targetsFile: path(),
  ratesFile: path(),
  tapeKeyFile: path(),
  tapeDays: integer(1, 36_500, 400),
  logLevel: z.enum(['debug', 'info', 'warn', 'error', 'silent']).optional(),
  now: z
    .string()
    .refine((text) => parseInstant(text) !== null, 'expected an ISO 8601 instant with an offset')
    .optional(),
}

/** The effective settings. */
export type Settings = z.output<z.ZodObject<typeof SETTINGS>>

/** Constants that are the same for all lenders; tests may pass other values. */
export const FIXED = {
  /** Concurrent requests for details and lists. More would not help: the rate limit is reached first. */
  detailConcurrency: 4,
  /** A run that would wait longer for rate limits ends; the next continues it. */
  maxWaitMinutes: 60,
  /** A request is retried after this long without an answer, or without the next part of one. */
  requestTimeoutSeconds: 30,
  /** With the pauses between them, a run survives an outage of half a minute. */
  retries: 5,
  /** A hundred records of 300 KB: no page of deals is larger. */
  maxAnswerMb: 32,
  /** A portfolio that doubles between two walks is another portfolio or a fault. Not applied to the first walk. */
  growthLimitPct: 100,
  /** A week of nights. Older releases are rebuilt on request, byte for byte. */
  releasesKept: 7,
  /** The same for releases of past dates. */
  pastReleasesKept: 7,
  /** `auto` builds only changed deals if that is faster; proofs force one or the other. */
  build: 'auto' as 'auto' | 'incremental' | 'whole',
  /** The built-in models take a minute for a million deals. */
  modelTimeoutSeconds: 1800,
  /** Queries of pages take a second for a million deals. */
  pageTimeoutSeconds: 15,
  /** People's own questions may take longer than those of pages. */
  questionTimeoutSeconds: 30,
  /** A preview may build the release of a month. */
  historyTimeoutSeconds: 60,
  /** More than a year of nights. Batches of closed periods are never removed. */
  batchesKept: 400,
}

/** {@link FIXED}, or the values of a test. */
export type Fixed = typeof FIXED
