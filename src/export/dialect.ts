import {z} from 'zod'

/** How CSV is written, as command-line options and job steps say it. The default is RFC 4180 in UTF-8, with LF. */
export type Dialect = z.output<typeof dialectSchema>
export const dialectSchema = z
  .strictObject({
    lineEnding: z.enum(['lf', 'crlf']).default('lf'),
    /** Puts `'` before texts that a spreadsheet would take for formulas. */
    spreadsheetSafe: z.boolean().default(false),
    delimiter: z
      .enum([',', ';', '|', 'tab'])
      .default(',')
      .transform((sign) => (sign === 'tab' ? '\t' : sign)),
    /** The decimal sign of numbers. */
    decimal: z.enum(['.', ',']).default('.'),
    /** Quotes every text, so that importers do not take digits for a number. */
    quoteTexts: z.boolean().default(false),
    /** Writes a byte order mark, which tells Excel that the file is UTF-8. */
    bom: z.boolean().default(false),
    encoding: z.enum(['utf-8', 'windows-1252']).default('utf-8'),
    /** Writes `?` for a character that the encoding lacks; otherwise that character is an error. */
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

export const USUAL_DIALECT: Dialect = dialectSchema.parse({})

/** An option's name on the command line: `spreadsheet-safe`. */
export const wordOf = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

/** The options that are not the default; they are part of a batch's id. */
export const listWords = (dialect: Dialect): string[] =>
  Object.entries(dialect)
    .filter(([name, value]) => value !== Object(USUAL_DIALECT)[name])
    .map(([name, value]) => (typeof value === 'string' ? value : wordOf(name)))
