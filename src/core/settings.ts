import {isIP} from 'node:net'
import {resolve} from 'node:path'
import {z} from 'zod'
import {isTimeZone, parseInstant} from './clock.ts'
import {namesUser} from './text.ts'

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
    .meta({isSecret: true})

/** An optional path; in a fleet it must lie in its source's folder. */
const path = () => z.string().optional().meta({isPath: true})

const WEBHOOK_SECRET = /^whsec_(?:[A-Za-z0-9+/]{4}){8,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** The settings file in a working folder. In a fleet's folder, its settings apply to all sources. */
export const ENV_FILE = '.env'

export const SOURCE_NAME = /^[a-z][a-z0-9_]{0,39}$/

/** Read from `LOANTAPE_<NAME_IN_CAPITALS>`. Generated documents keep this order. */
export const SETTINGS = {
  baseUrl: webUrl()
    .refine((url = '') => !namesUser(url), 'expected no user: source.json can name one')
    .describe(
      'Base URL of the Deal Financing Service, API prefix included; the data folder is pinned to it. A query is sent with each request, never stored or shown.',
    )
    .meta({example: 'https://deals.example.com/v1'}),
  apiKey: secret(1)
    .describe('API key, sent as a Bearer token unless source.json says otherwise.')
    .meta({example: 'sk_live_...'}),
  nextApiKey: secret(1).describe(
    'A second key, used once the source refuses the first (401): set it, restart, delete the first, make it LOANTAPE_API_KEY; no night is lost.',
  ),
  clientCertFile: path()
    .describe('PEM file with the certificate that the source asks for, what signed it, and its key.')
    .meta({example: '/etc/loantape/client.pem'}),
  dataDir: z
    .string()
    .refine(
      (path) => !resolve(path).includes('?'),
      'expected no ? in its path: the engine cuts a file name off there',
    )
    .prefault('./data')
    .describe('Folder that holds everything loantape writes.')
    .meta({isPath: true}),
  ratePerSecond: number(0.01, 100_000, 5).describe('Upper bound of requests per second to the source.'),
  pageSize: integer(1, 100, 100).describe('Records asked for per page.'),
  detail: z
    .enum(['auto', 'on', 'off'])
    .prefault('auto')
    .describe(
      'Which own pages of deals are fetched: `auto` where list rows lack a field, `on` each in turn, `off` none.',
    ),
  detailBudgetMinutes: number(0, 1440, 20).describe(
    'Minutes a run may spend on own pages, borrowers and documents; later runs fetch what does not fit.',
  ),
  streams: z
    .string()
    .prefault('deals')
    .describe('What is synced (docs/analyst-guide.md).')
    .meta({example: 'deals,borrowers,documents'}),
  stage: z
    .string()
    .optional()
    .describe(
      'Walk only deals of this status, and the own pages of those that left it until they end; without own pages they stay missing. The data folder is pinned to it.',
    )
    .meta({example: 'underwriting'}),
  shrinkLimitPct: number(0, 100, 5).describe(
    'Percentage of known deals that may be newly absent; else the walk is refused.',
  ),
  changeLimitPct: number(0, 100, 20).describe(
    'Percentage of known deals that may change amount, leave a funded status, or change another field, each counted by itself; else the walk is refused.',
  ),
  timeZone: z
    .string()
    .refine(isTimeZone, 'expected an IANA time zone')
    .prefault('America/New_York')
    .describe('Time zone of business dates, and of jobs that name no other.'),
  dayCutoff: z
    .string()
    .regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'expected HH:MM')
    .prefault('06:00')
    .describe('Local time at which a business day begins: what is earlier counts for the day before.'),
  memoryMb: integerWithin(64, 16_777_216)
    .optional()
    .describe(
      'Megabytes the engine may hold; the rest spills to the disk. By default a third of the memory for a walk (at least 512), 80 % for a build (at most 1700) and for `query`.',
    )
    .meta({example: '2048'}),
  sqlDir: path().describe(
    'A folder of your own models, checks, seeds and tests, added to the built-in ones.',
  ),
  jobsDir: path().describe('A folder of your own jobs, added to the built-in ones.'),
  webHost: z
    .string()
    .regex(/^[\w.:-]+$/, 'expected a host name or address')
    .prefault('127.0.0.1')
    .describe('Address `loantape serve` listens on; any but a loopback one needs LOANTAPE_WEB_TOKEN.'),
  webPort: integer(0, 65_535, 8321).describe('Port of the web side; 0 takes a free one.'),
  webProxy: commaSeparated(isAddressRange, 'expected addresses or ranges such as 10.0.0.0/8, with commas')
    .describe('Addresses or ranges of the proxy in front, whose `X-Forwarded-For` then says who asks.')
    .meta({example: '10.0.0.0/8'}),
  webToken: secret(16).describe(
    'Token for the workbench and metrics, as Bearer or as the password of a browser; or `sha256:` and its hex digest.',
  ),
  webViewerToken: secret(16).describe(
    'Another token, for those who may look but change nothing; needs LOANTAPE_WEB_TOKEN.',
  ),
  viewerTables: z
    .string()
    .regex(
      /^\w+\.(\w+|\*)(\s*,\s*\w+\.(\w+|\*))*$/,
      'expected tables such as core.deal, or mart.*, with commas',
    )
    .optional()
    .describe('The only tables that viewers can read; by default all.')
    .meta({example: 'mart.*,core.deal'}),
  webhookSecret: commaSeparated(
    (value) => WEBHOOK_SECRET.test(value),
    'expected whsec_ and at least 24 bytes in base64; two with a comma',
  )
    .describe(
      'Secret the service signs its webhooks with, or, while it is rotated, both with a comma; without it none is taken.',
    )
    .meta({isSecret: true, example: 'whsec_...'}),
  fleetRuns: integer(1, 64, 2).describe(
    'Runs that `loantape fleet serve`, or a `loantape fleet run`, carries out at once, over all sources.',
  ),
  alarmWebhookUrl: webUrl()
    .describe('Where alarms are posted as JSON that Slack, Mattermost and others take.')
    .meta({isSecret: true, example: 'https://hooks.slack.com/services/...'}),
  alarmEmailTo: z
    .string()
    .regex(/\S@\S/, 'expected mail addresses, with commas')
    .optional()
    .describe('Addresses for alarms, comma-separated; needs LOANTAPE_SMTP_URL.')
    .meta({example: 'data-team@example.com'}),
  alarmEmailFrom: z.string().prefault('loantape@localhost').describe('Sender of those e-mails.'),
  smtpUrl: z
    .url({protocol: /^smtps?$/, hostname: /./, error: 'expected an smtp:// or smtps:// URL'})
    .optional()
    .describe('Mail server; its password goes over TLS alone.')
    .meta({isSecret: true, example: 'smtps://user:password@mail.example.com:465'}),
  alarmMaxAgeHours: number(0.01, 8760, 26).describe(
    'Hours without a successful sync after which an alarm is raised.',
  ),
  deadManUrl: webUrl()
    .describe('URL requested after each successful job that syncs, for a service that notices its absence.')
    .meta({isSecret: true, example: 'https://hc-ping.com/...'}),
  accountingFile: path()
    .describe(
      'File of the accounts that journals are booked to (docs/accounting.md); by default `accounting.json` of the data folder.',
    )
    .meta({example: './accounting.json'}),
  postgresUrl: z
    .url({protocol: /^postgres(ql)?$/, error: 'expected a postgres:// URL'})
    .optional()
    .describe('PostgreSQL database that `loantape publish postgres` fills.')
    .meta({
      isSecret: true,
      example: 'postgres://loantape:password@db.example.com:5432/reporting?sslmode=verify-full',
    }),
  postgresReader: z
    .string()
    .optional()
    .describe('Role that may read what is published in PostgreSQL.')
    .meta({example: 'reporting'}),
  clickhouseUrl: webUrl()
    .refine((url) => !url?.includes('?'), 'expected no query')
    .describe('ClickHouse server, or a node of a cluster, that `loantape publish clickhouse` fills.')
    .meta({example: 'https://clickhouse.example.com:8443'}),
  clickhouseUser: z
    .string()
    .optional()
    .describe('User that publishes there: it creates databases, tables and views.')
    .meta({example: 'loantape'}),
  clickhousePassword: z.string().optional().describe('Password of that user.').meta({isSecret: true}),
  clickhouseCluster: z
    .string()
    .optional()
    .describe('Cluster over whose nodes tables are spread.')
    .meta({example: 'reporting'}),
  clickhouseSource: z
    .string()
    .regex(SOURCE_NAME, 'expected lower-case letters, digits and _, a letter first')
    .prefault('main')
    .describe('Name of this lender there, beside those of others; in a fleet that of its folder.'),
  targetsFile: path()
    .describe('JSON file of the targets of `loantape export --deliver`: docs/exports.md.')
    .meta({example: 'targets.json'}),
  ratesFile: path()
    .describe('JSON file of the feeds that `loantape run rates` reads reference rates from: docs/rates.md.')
    .meta({example: 'rates.json'}),
  tapeKeyFile: path()
    .describe(
      'File with the key of tapes, outside the data folder, made at the first walk; by default `loantape/tape.key` of the user’s configuration folder.',
    )
    .meta({example: '/etc/loantape/tape.key'}),
  tapeDays: integer(1, 36_500, 400).describe(
    'Days that tapes are kept, counted back from the last; `loantape prune` removes older ones, once a backup was made since. History stays.',
  ),
  batchesKept: integer(1, 36_500, 400).describe(
    'Batches of tables kept of each profile; `loantape prune` removes older ones. Those of accounting periods stay.',
  ),
  logLevel: z
    .enum(['debug', 'info', 'warn', 'error', 'silent'])
    .optional()
    .describe('Least severe log line written to stderr: `warn` on a terminal, else `info`.')
    .meta({example: 'debug'}),
  now: z
    .string()
    .refine((text) => parseInstant(text) !== null, 'expected an ISO 8601 instant with an offset')
    .optional()
    .describe('An instant that freezes the business clock, for rehearsals and tests.')
    .meta({example: '2026-01-31T23:00:00Z'}),
}

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
}

export type Fixed = typeof FIXED
