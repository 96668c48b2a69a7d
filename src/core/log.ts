import {type DestinationStream, pino} from 'pino'

/** The only fields a log line may have. None can hold a record, a body or a key. */
const ALLOWED_FIELDS = [
  'attempt',
  'batch_id',
  'changes',
  'code',
  'count',
  'done',
  'duration_ms',
  'err',
  'file',
  'host',
  'job',
  'method',
  'pages',
  'path',
  'pid',
  'profile',
  'rate_per_second',
  'reason',
  'release_id',
  'retry_in_ms',
  'slot',
  'source',
  'status',
  'step',
  'stream',
  'total',
  'unit',
  'url',
  'waited_ms',
  'walk_id',
] as const
const allowed = new Set<string>(ALLOWED_FIELDS)

// These match JSON lines, in which a line break is a backslash and a letter, and a quote a backslash and a quote.
// None reads a character again for each one before it: a message may quote a word of a million letters.
const SECRETS: [RegExp, string][] = [
  [/(?:(?<!\w)|(?<=\\[nrt]))sk_(?!(?:live|test)_(?![\w-]))((?:live|test)_)?[\w-]+/g, 'sk_$1***'],
  [/(?:(?<!\w)|(?<=\\[nrt]))whsec_[\w+/=-]+/g, 'whsec_***'],
  [/(?:(?<!\w)|(?<=\\[nrt]))Bearer\s+[^\s"'\\,}]+/gi, 'Bearer ***'],
  [/(:\/\/[^\s:/@"\\]*):[^\s/"\\]+@/g, '$1:***@'],
  [/(:\/\/)[^\s:/?#@"'\\]+@/g, '$1***@'],
  [/(:\/\/(?:(?!:\/\/)[^\s?#"'\\])+)[?#][^\s"'\\]*/g, '$1?***'],
  [/(?<=[/\w][?]|[&#])([^\s=?&#"'\\]+)=[^\s&#"'\\]+/g, '$1=***'],
]

/** Masks keys, webhook secrets, bearer tokens, and the credentials and queries of URLs. */
export function scrubSecrets(text: string): string {
  return SECRETS.reduce((line, [pattern, mask]) => line.replace(pattern, mask), text)
}

/** Drops fields outside the allow-list and masks secrets in the finished line. */
export type Log = Record<
  'debug' | 'info' | 'warn' | 'error',
  (...said: [LogFields, string] | [string]) => void
> & {child: (fields: {source: string}) => Log}
type LogFields = {[field in (typeof ALLOWED_FIELDS)[number]]?: unknown}

/** In a fleet each line names its source. */
export function createLog(
  {level, source}: {level: string; source?: string | undefined},
  destination: DestinationStream,
): Log {
  return pino(
    {
      level,
      base: source === undefined ? null : {source},
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: {
        level: (label) => ({level: label}),
        log: (fields) => Object.fromEntries(Object.entries(fields).filter(([name]) => allowed.has(name))),
      },
      hooks: {streamWrite: scrubSecrets},
      serializers: {err: describeError},
    },
    destination,
  )
}

/** What else an error holds may be a row or a request. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const {type, code, message, stack} = pino.stdSerializers.err(error)
  return {type, code, message, stack}
}

export function createSilentLog(): Log {
  return pino({level: 'silent'})
}
