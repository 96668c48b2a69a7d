import {z} from 'zod'
import {type LoantapeError, newError} from '../errors.ts'
import {describeIssues, parseJson} from '../json.ts'

const text = z.string().min(1, 'expected a value').max(200, 'expected at most 200 characters')

/** Where the rates of one provider are read, and which of its columns say what. */
export type RateFeed = z.output<typeof rateFeedSchema>
export const rateFeedSchema = z
  .strictObject({
    name: z
      .string()
      .regex(/^[a-z0-9][a-z0-9_-]{0,59}$/, 'expected lower-case letters, digits, - and _')
      .meta({description: 'What the feed is called in `core.reference_rate`. Another name is another feed.'}),
    url: z
      .url({protocol: /^https?$/, error: 'expected an http or https URL'})
      .refine(
        (url) => !/^[^/]*\/\/[^/?#]*@/.test(url),
        'expected a URL without user and password; key_file names a key',
      )
      .optional()
      .meta({description: 'Where it is fetched. Either this or `file`.'}),
    file: text.optional().meta({description: 'A file that something else puts there.'}),
    key_file: text.optional().meta({
      description:
        'File with a key sent as Bearer token. Without it, what lies under `LOANTAPE_BASE_URL` is asked with the key of the source, anything else without a key.',
    }),
    format: z.enum(['csv', 'json']).meta({description: '`csv` with a header, or `json`.'}),
    rows: z.string().default('').meta({
      description:
        'JSON: path of the array of rows, such as `data` or `result.items`; the whole body by default.',
    }),
    delimiter: z.string().length(1, 'expected one character').default(',').meta({
      description: 'CSV: what separates columns.',
    }),
    date: text.meta({description: 'Column (JSON: path in a row) of the day a value is of.'}),
    date_format: z.enum(['iso', 'us']).default('iso').meta({
      description:
        '`iso`: `2026-03-02`, or an instant, whose day in `LOANTAPE_TIME_ZONE` counts; `us`: `3/2/2026`.',
    }),
    rate: z
      .union([text.transform((column) => [column]), z.array(text).min(1)], {
        error: 'expected a column or a list of columns',
      })
      .optional()
      .meta({description: 'Column of the name of the rate; of several the texts are joined by `/`.'}),
    rate_name: text.optional().meta({description: 'Or the name itself, where the feed holds one rate only.'}),
    value: text.meta({description: 'Column of the value.'}),
    missing: z.array(z.string()).default(['', '.']).meta({
      description: 'Texts that mean that there is no value for the day; so does a null.',
    }),
  })
  .superRefine((feed, context) => {
    requireOne(context, 'url', [feed.url, feed.file], 'expected either url or file')
    requireOne(context, 'rate', [feed.rate, feed.rate_name], 'expected either rate or rate_name')
    if (feed.key_file !== undefined && feed.url === undefined) {
      context.addIssue({code: 'custom', path: ['key_file'], message: 'expected only beside url'})
    }
  })

function requireOne(
  context: z.RefinementCtx,
  field: string,
  [one, other]: [unknown, unknown],
  message: string,
): void {
  if ((one === undefined) === (other === undefined)) {
    context.addIssue({code: 'custom', path: [field], message})
  }
}

const feedsSchema = z.strictObject({
  feeds: z.array(rateFeedSchema).superRefine((feeds, context) => {
    feeds.forEach(({name}, index) => {
      if (feeds.findIndex((other) => other.name === name) < index) {
        context.addIssue({
          code: 'custom',
          path: [index, 'name'],
          message: 'expected a name no other feed has',
        })
      }
    })
  }),
})

/**
 * Reads the feeds of a file.
 *
 * @param file named in errors
 * @throws ConfigError `RATES_FILE` naming file and field
 */
export function parseRateFeeds(content: string, file: string): RateFeed[] {
  const json = parseJson(content)
  // The parser's own message quotes the file.
  if (json === undefined) throw createFeedsError(file, 'expected JSON')
  const parsed = feedsSchema.safeParse(json)
  if (parsed.success) return parsed.data.feeds
  throw createFeedsError(file, describeIssues(parsed.error).join('; '))
}

/** The error of a file of feeds that cannot be used. */
export function createFeedsError(file: string, problem: string, cause?: unknown): LoantapeError {
  return newError('RATES_FILE', `Rate feeds in '${file}': ${problem}.`, {cause})
}
