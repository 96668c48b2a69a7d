import {z} from 'zod'
import {isTimeZone} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {parseWritten, type Refuse} from '../core/json.ts'
import {isHere, namesUser} from '../core/text.ts'
import {borrowerStream} from './borrower.ts'
import {dealStream} from './deal.ts'
import {documentStream} from './document.ts'
import type {Column, Stream} from './stream.ts'

const path = z
  .string()
  .regex(/^[^\s.]+(\.[^\s.]+)*$/, 'expected names joined by dots')
  .refine((text) => !text.split('.').includes('__proto__'), 'expected another name')
  .meta({description: 'Names joined by dots that lead to a value: property.address.line'})

const place = path.transform((text) => [text])

const places = z.union([
  place,
  z.array(path).min(2).meta({description: "Parts of a text, as of an address: they are joined by ', '."}),
])

const parameter = z.string().min(1).meta({description: 'The name of a query parameter.'})

const address = z
  .string()
  .regex(/^\/[^?#\s]*$/, 'expected a path that begins with / and has no query')
  .meta({description: 'A path below the base URL; {id} stands for the id of the deal.'})

const ofDeal = address.refine((text) => text.includes('{id}'), 'expected {id} for the id of the deal')

export type FieldDescription = z.output<typeof fieldShape>
const fieldShape = z.strictObject({
  path: place,
  unit: z
    .enum(['dollars', 'cents'])
    .optional()
    .meta({description: 'Whole cents, or dollars (the default), 1234.5 or 1,234.50.'}),
  values: z.record(z.string(), z.string()).optional().meta({
    description: "What the source's values are called here, case-sensitive; others stay as they are.",
  }),
  timeZone: z
    .string()
    .refine(isTimeZone, 'expected a time zone such as America/New_York')
    .optional()
    .meta({description: 'The zone of times without an offset; UTC by default.'}),
  epoch: z
    .enum(['seconds', 'milliseconds'])
    .optional()
    .meta({description: 'The time is a number since 1970.'}),
})

/** What was expected, by the name under which a translation keeps a value that is not that. */
export const EXPECTED_OF: ReadonlyMap<string, string> = new Map([
  ['whole_cents', 'expected whole cents'],
  ['since_1970', 'expected seconds or milliseconds since 1970'],
  ['repeated_names', 'expected each name once in an object'],
  ['nested_too_deeply', 'expected a record that nests less deeply'],
])

const byName = place.transform((path) => ({path}))
const textShape = fieldShape.pick({values: true}).extend({path: places})
const FIELD_OF_TYPE: Record<Column['type'], z.ZodType<FieldDescription>> = {
  'DECIMAL(18,2)': z.union([byName, fieldShape.pick({path: true, unit: true})]),
  TIMESTAMP: z.union([
    byName,
    fieldShape
      .pick({path: true, timeZone: true, epoch: true})
      .refine((field) => !field.timeZone || !field.epoch, 'expected one of timeZone and epoch'),
  ]),
  VARCHAR: z.union([places.transform((path) => ({path})), textShape]),
}

function fieldsOf({wireFields, columns, parent}: Stream) {
  const shapes = wireFields.map((name) => {
    const type = columns.find((column) => column.name === name)?.type ?? 'VARCHAR'
    return [name, FIELD_OF_TYPE[type].optional()] as const
  })
  return z
    .strictObject(Object.fromEntries(shapes))
    .default({})
    .superRefine((fields, {addIssue}) => {
      const ids = ['id', ...(parent ? [parent.column] : [])].filter((name) => !fields[name])
      const paths = [...ids, ...Object.values(fields).flatMap((field) => field?.path ?? [])]
      const shared = paths.find((one, index) =>
        paths.some((other, at) => at !== index && `${other}.`.startsWith(`${one}.`)),
      )
      if (shared !== undefined)
        addIssue(`path '${shared}': expected one of its own for each field, not within that of another`)
    })
    .meta({description: 'Where the fields stand; one that is left out stands under its own name.'})
}

/** Repeated names in an answer are found down to this depth. */
const DEEPEST_RECORDS = 3

const records = path
  .refine((text) => text.split('.').length <= DEEPEST_RECORDS, `expected at most ${DEEPEST_RECORDS} names`)
  .optional()
  .meta({description: 'Where the records stand; without it the answer is the list.'})

const absentEnds = z
  .literal(true)
  .optional()
  .meta({description: 'After the last page it is left out, instead of null or empty.'})

const more = path.optional().meta({description: 'A boolean that says whether more records follow.'})

export type Paging = z.output<typeof pagingShape>
const pagingShape = z.discriminatedUnion('by', [
  z.strictObject({
    by: z.literal('cursor'),
    parameter,
    next: path.optional().meta({description: 'Where the next cursor stands; next_cursor by default.'}),
    header: z.string().optional().meta({description: 'The header that holds it instead.'}),
    absentEnds,
    more,
  }),
  z.strictObject({by: z.literal('link')}).meta({description: 'The header Link, with rel="next".'}),
  z
    .strictObject({by: z.literal('url'), next: path, absentEnds})
    .meta({description: 'The answer has the next URL.'}),
  z
    .strictObject({
      by: z.literal('page'),
      parameter,
      first: z.int().min(0).meta({description: 'The number of the first page.'}),
      pages: path.optional().meta({description: 'Where the number of pages stands.'}),
      more,
    })
    .meta({description: 'Page numbers, up to an empty page unless the answer says how many there are.'}),
  z
    .strictObject({
      by: z.literal('offset'),
      parameter,
      total: path.optional().meta({description: 'Where the number of records of the list stands.'}),
      more,
    })
    .meta({description: 'Offsets, up to an empty page unless the answer says how many records there are.'}),
  z.strictObject({by: z.literal('nothing')}).meta({description: 'A list has one page.'}),
])

const paging = pagingShape.optional().meta({description: 'Of this list; that of all lists by default.'})

const dealsShape = z
  .strictObject({
    list: address,
    records,
    paging,
    page: ofDeal.optional().meta({description: "A deal's own page; without it, only lists are read."}),
    record: path
      .optional()
      .meta({description: 'Where the record stands on its own page; without it the answer is the record.'}),
    filter: parameter.optional().meta({description: 'The parameter that filters by status.'}),
    changedSince: parameter.optional().meta({
      description:
        'The parameter that lists what changed since an instant (ISO 8601, UTC): a hint for `events apply`, never a proof.',
    }),
    fields: fieldsOf(dealStream),
  })
  .refine(({page, changedSince}) => changedSince === undefined || page !== undefined, {
    path: ['changedSince'],
    error: 'expected `page` beside it, where what changed is read',
  })

const childShape = (stream: Stream) =>
  z.strictObject({list: ofDeal, records, paging, fields: fieldsOf(stream)}).optional()

const isSafe = (url: string) => !namesUser(url) && (/^https:/i.test(url) || isHere(url))
const tokenUrl = z
  .url({abort: true, error: 'expected a URL'})
  .refine(isSafe, 'expected https, without a user')

const authShape = z.discriminatedUnion('by', [
  z.strictObject({by: z.literal('bearer')}),
  z.strictObject({by: z.literal('header'), name: z.string().regex(/^[\w-]+$/)}),
  z.strictObject({by: z.literal('query'), name: parameter}),
  z
    .strictObject({by: z.literal('basic'), user: z.string()})
    .meta({description: 'The API key is the password.'}),
  z
    .strictObject({by: z.literal('oauth2'), tokenUrl, clientId: z.string(), scope: z.string().optional()})
    .meta({description: 'Client credentials; the API key is the secret of the client.'}),
])

/** How a source differs from the Deal Financing Service. */
export type SourceDescription = z.output<typeof descriptionShape>
export const descriptionShape = z.strictObject({
  $schema: z.string().optional(),
  auth: authShape.default({by: 'bearer'}),
  paging: pagingShape,
  pageSize: parameter.optional().meta({description: 'The parameter for the number of records of a page.'}),
  deals: dealsShape,
  borrowers: childShape(borrowerStream),
  documents: childShape(documentStream),
})

/** @throws ConfigError `SOURCE_FILE` naming the file and every wrong place */
export function parseDescription(json: string, file: string): SourceDescription {
  return parseWritten(json, refuseSourceFile(file), descriptionShape)
}

export function refuseSourceFile(file: string): Refuse {
  return (problem, cause) => newError('SOURCE_FILE', `Source in '${file}': ${problem}.`, {cause})
}
