import {z} from 'zod'

/** How CSV is written, as the command line and the steps of jobs say it; left out, by RFC 4180 in UTF-8. */
export type Dialect = z.output<typeof dialectSchema>
export const dialectSchema = z
  .strictObject({
    lineEnding: z.enum(['lf', 'crlf']).default('lf'),
    /** `'` before texts that a spreadsheet would take for formulas. */
    spreadsheetSafe: z.boolean().default(false),
    delimiter: z
      .enum([',', ';', '|', 'tab'])
      .default(',')
      .transform((sign) => (sign === 'tab' ? '\t' : sign)),
    /** What stands before the decimals of a number. */
    decimal: z.enum(['.', ',']).default('.'),
    /** Every text in quotes, so that importers do not take digits for a number. */
    quoteTexts: z.boolean().default(false),
    /** A byte order mark, by which Excel knows UTF-8. */
    bom: z.boolean().default(false),
    encoding: z.enum(['utf-8', 'windows-1252']).default('utf-8'),
    /** `?` for a character that the encoding lacks; otherwise it is refused. */
    replaceCharacters: z.boolean().default(false),
  })
  .refine(({delimiter, decimal}) => delimiter !== decimal, {
    path: ['decimal'],
    error: "expected another delimiter with it, such as ';'",
  })
  .refine(({bom, encoding}) => !bom || encoding === 'utf-8', {path: ['bom'], error: 'expected utf-8 with it'})
  .refine(({replaceCharacters, encoding}) => !replaceCharacters || encoding !== 'utf-8', {
    path: ['replaceCharacters'],
    error: 'expected windows-1252 with it',
  })

/** The dialect of a batch for which none was asked. */
export const USUAL_DIALECT: Dialect = dialectSchema.parse({})

/** A name as the command line has it: `spreadsheet-safe`. */
export const wordOf = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

/** What is not usual of a dialect: the same dialect has the same words. */
export const listWords = (dialect: Dialect): string[] =>
  Object.entries(dialect)
    .filter(([name, value]) => value !== Object(USUAL_DIALECT)[name])
    .map(([name, value]) => (typeof value === 'string' ? value : wordOf(name)))
