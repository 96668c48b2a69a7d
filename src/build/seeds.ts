import {basename, join} from 'node:path'
import {CsvError, parse} from 'csv-parse/sync'
import {z} from 'zod'
import {expectType, sqlTypeOf} from '../contract/mapped-field.ts'
import {messageOf} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {expectOneOf} from '../core/text.ts'
import type {Seed} from '../core/types.ts'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {canonicalSql, listFiles, readColumns, readSqlFile} from '../store/sql.ts'
import {createModelError} from './read-models.ts'

/** Fewest digits of a decimal that the engine multiplies by an amount without overflow; at 18 or fewer, both are 64-bit integers. */
const WIDE = 19

/** Names of ratios, percentages and rates; amounts never have such names. */
const RATIO_NAME = /(^|_)(pct|ltv|ratio|rate)$/

/**
 * Whole numbers become BIGINT, and decimals wide enough for `loan_amount * ltv`. DECIMAL(18,2) is money and stays, unless the
 * name is that of a ratio.
 */
function widen(name: string, type: string): string {
  if (/INT(EGER)?$/.test(type)) return 'BIGINT'
  const [, width, scale] = /^DECIMAL\((\d+),(\d+)\)$/i.exec(type) ?? []
  if (width === undefined || Number(width) >= WIDE) return type
  const isMoney = width === '18' && scale === '2' && !RATIO_NAME.test(name)
  return isMoney ? type : `DECIMAL(${WIDE},${scale})`
}

export async function widenNumbers(db: Database, table: string): Promise<void> {
  for (const {name, type} of await readColumns(db, table)) {
    const wide = widen(name, type)
    if (wide !== type) await db.run(`alter table ${table} alter column ${quoteName(name)} type ${wide}`)
  }
}

/**
 * Reads every `seeds/<name>.csv` of the folders. The header names each column, with its type after a colon
 * (`deal_id,funded_on:date,"limit:decimal(18,2)",scope:open|funded`): that of a mapped field, a set of values, or `canonical`,
 * text in the form statuses are compared in. A column with a type has a value in every row, unless `?` ends it. A later folder's
 * file adds its rows to an earlier file of the same name and replaces those with the same key, the first column and
 * `valid_from`.
 * @throws CheckError `SEED_FILE`
 */
export function readSeeds(folders: readonly string[]): Seed[] {
  return folders.reduce<Seed[]>((earlier, folder) => {
    const own = listFiles(join(folder, 'seeds'), '.csv').map((file) =>
      parseSeed({name: basename(file, '.csv'), file, text: readSqlFile(file)}),
    )
    return replaceSeeds(earlier, own, {isAdding: true})
  }, [])
}

/** The column that dates a row: from that day on, the row replaces the previous one of its key. */
const DATED = 'valid_from'

/** Rows of the later seed replace those with the same key. */
function addLines(before: Seed, seed: Seed): Seed {
  const keysOf = ({values}: Row) =>
    [seed.columns[0] ?? '', DATED].map((column) => comparable(seed, column, values[column])).join('\n')
  const ownKeys = new Set(seed.rows.map(keysOf))
  const kept = before.rows.filter((row) => !ownKeys.has(keysOf(row)))
  return {...seed, text: `${before.text}\n${seed.text}`, rows: [...kept, ...seed.rows]}
}

/** The value in the form that keys are compared in. */
function comparable({types}: Seed, column: string, value: string | null | undefined): string {
  const text = value?.trim() ?? ''
  return types[column] === 'canonical' ? text.toLowerCase() : text
}

/** The column that names a row of the earlier seed, from which values left out are copied. */
const LIKE = 'like'

/**
 * Replaces seeds by later ones of the same name, or adds the later rows to them. The columns of the earlier seed come first, then
 * new ones. A column left out is null if optional, else copied from the row that the column `like` names. Its columns keep their
 * types, which models rely on.
 * @throws CheckError `SEED_FILE`
 */
export function replaceSeeds(
  seeds: readonly Seed[],
  later: readonly Seed[],
  {isAdding = false}: {isAdding?: boolean} = {},
): Seed[] {
  const byName = new Map(seeds.map((seed) => [seed.name, seed]))
  for (const seed of later) {
    const before = byName.get(seed.name)
    const aligned = before ? alignTo(before, seed) : seed
    byName.set(seed.name, before && isAdding ? addLines(before, aligned) : aligned)
  }
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

function alignTo(replaced: Seed, seed: Seed): Seed {
  const isCopying = seed.columns.includes(LIKE) && !replaced.columns.includes(LIKE)
  const own = seed.columns.filter((name) => !isCopying || name !== LIKE)
  const lost = replaced.columns.find((name) => !own.includes(name) && !replaced.optional?.includes(name))
  if (lost !== undefined && !isCopying) {
    const expected = `expected the columns of the one it replaces, ${replaced.columns.join(', ')},`
    const place = {file: seed.file, line: 1}
    throw createModelError('SEED_FILE', place, `Seed has no column '${lost}': ${expected}`)
  }
  return {
    ...seed,
    columns: [...new Set([...replaced.columns, ...own])],
    types: {...seed.types, ...replaced.types},
    // Rows of the earlier file have no value in a new column.
    optional: [...(replaced.optional ?? []), ...own.filter((name) => !replaced.columns.includes(name))],
    rows: isCopying ? copyLikes(replaced, seed.rows) : seed.rows,
  }
}

/** Fills in what each row leaves out, from the row of the replaced seed that its `like` names. */
function copyLikes(replaced: Seed, rows: readonly Row[]): Row[] {
  const [key = ''] = replaced.columns
  const lines = new Map(replaced.rows.map(({values}) => [comparable(replaced, key, values[key]), values]))
  return rows.map((row) => {
    const like = row.values[LIKE] ?? ''
    const line = lines.get(comparable(replaced, key, like))
    if (!line) {
      const problem = `Value '${like}' of seed column '${LIKE}': ${expectOneOf(like, [...lines.keys()])},`
      throw createModelError('SEED_FILE', row, problem)
    }
    const given = Object.entries(row.values).filter(([, value]) => value !== null)
    return {...row, values: {...line, ...Object.fromEntries(given)}}
  })
}

/** @throws CheckError `SEED_FILE` */
export function parseSeed(source: Pick<Seed, 'name' | 'file' | 'text'>): Seed {
  const [header = {fields: [''], file: source.file, line: 1}, ...records] = readRecords(source)
  const types: Record<string, string> = {}
  const columns: string[] = []
  const optional: string[] = []
  for (const field of header.fields) {
    const [column = '', type] = field
      .replace(/\?$/, '')
      .split(':')
      .map((part) => part.trim())
    const refuse = (expected: string) =>
      createModelError('SEED_FILE', header, `Seed column '${field}': expected ${expected},`)
    const isType =
      type === undefined || type === 'canonical' || sqlTypeOf(type) !== undefined || setOf(type).length > 1
    if (!isType || !/^[a-z][a-z0-9_]*$/.test(column))
      throw refuse(
        `name or name:type with a type of ${expectType('canonical', 'a|b')}, in quotes if it has a comma`,
      )
    if (columns.includes(column)) throw refuse('a name that is used once')
    columns.push(column)
    if (type !== undefined) types[column] = type
    if (field.endsWith('?')) optional.push(column)
  }
  const rows = records.map(({fields, ...place}) => {
    const {length} = fields
    if (length !== columns.length) {
      const problem =
        length < columns.length
          ? `no value for seed column '${columns.slice(length).join("', '")}'`
          : `value '${fields[columns.length]}' after the last seed column '${columns.at(-1)}'`
      const expected = `expected ${columns.length}, in quotes if one has a comma,`
      const words = `Row of ${quantity(length, 'field')}, ${problem}: ${expected}`
      throw createModelError('SEED_FILE', place, words)
    }
    return {...place, values: Object.fromEntries(columns.map((name, index) => [name, fields[index] || null]))}
  })
  return {...source, types, columns, optional, rows}
}

/** Empty unless the type is a set. */
const setOf = (type: string): string[] => (type.includes('|') ? type.split('|') : [])

type Row = Seed['rows'][number]

const parsedRecords = z.array(
  z.object({record: z.array(z.string()), info: z.object({lines: z.number()}), raw: z.string()}),
)

function readRecords({file, text}: Pick<Seed, 'file' | 'text'>) {
  try {
    const options = {info: true, raw: true, trim: true, relax_column_count: true, skip_empty_lines: true}
    return parsedRecords.parse(parse(text, options)).map(({record, info, raw}) => ({
      fields: record,
      file,
      line: info.lines - raw.replace(/^\n+|\n+$/g, '').split('\n').length + 1,
    }))
  } catch (cause) {
    if (!(cause instanceof CsvError)) throw cause
    const isOpen = cause.code === 'CSV_QUOTE_NOT_CLOSED'
    const problem = isOpen
      ? 'Seed has a quote that never closes: expected one more,'
      : 'Seed has a quote next to other text: expected the whole value in quotes, and quotes inside doubled,'
    const line = isOpen ? text.slice(0, text.lastIndexOf('"')).split('\n').length : Number(cause.lines)
    throw createModelError('SEED_FILE', {file, line}, problem, cause)
  }
}

/** A column name that no seed can have. */
const ROW = quoteName('row no')

/** Ordered by its first column. @throws CheckError `SEED_FILE`, with file and line */
export async function loadSeed(db: Database, seed: Seed): Promise<void> {
  const columns = seed.columns.map((name, index) => {
    const declared = seed.types[name] ?? 'varchar'
    const type = sqlTypeOf(declared) ?? declared
    const wrong = buildErrorSql(index)
    const isRequired = name in seed.types && !seed.optional?.includes(name)
    // Computed text stays as it is, untrimmed: the loan program of an account must equal what the source sent.
    const sql =
      seed.isComputed && type === 'varchar'
        ? quoteName(name)
        : buildValueSql(quoteName(name), type, {wrong, empty: isRequired ? wrong : 'null'})
    return {name, declared, sql}
  })
  const cells = columns.map(({name}, index) => `row[${index + 2}] as ${quoteName(name)}`)
  const key = quoteName(seed.columns[0] ?? '')
  const keys = columns.filter(({name}, index) => index === 0 || name === DATED).map(({sql}) => sql)
  const isWrongKey = `(${key} is null or row_number() over (partition by ${keys.join(', ')} order by ${ROW}) > 1)`
  const table = `release.seed.${quoteName(seed.name)}`
  try {
    await db.run(
      `create or replace table ${table} as
       select ${columns.map(({name, sql}) => `${sql} as ${quoteName(name)}`).join(', ')}
       from (
         select cast(row[1] as bigint) as ${ROW}, ${cells.join(', ')}
         from (select unnest(from_json($1::varchar, '[["varchar"]]')) as row)
       )
       qualify if(${isWrongKey}, ${buildErrorSql(columns.length)}, true)
       order by 1`,
      [
        JSON.stringify(
          seed.rows.map(({values}, index) => [index, ...seed.columns.map((name) => values[name])]),
        ),
      ],
    )
  } catch (error) {
    const [, rowNo, columnNo] = /wrong value (\d+) (\d+)/.exec(messageOf(error)) ?? []
    const row = seed.rows[Number(rowNo)]
    if (!row) throw error
    const {name = seed.columns[0] ?? '', declared = 'a unique key that is not empty'} =
      columns[Number(columnNo)] ?? {}
    const value = row.values[name] ?? ''
    const form = EXAMPLES[declared] ?? declared
    const expected = declared.includes('|') ? `one of ${setOf(declared).join(', ')}` : form
    const problem = `Value '${value}' of seed column '${name}': expected ${expected},`
    throw createModelError('SEED_FILE', row, problem, error)
  }
  await widenNumbers(db, table)
}

const EXAMPLES: Readonly<Record<string, string>> = {
  date: 'date such as 2026-02-26',
  timestamp: 'timestamp in UTC such as 2026-02-26 10:30:00',
}

/** The engine also takes 26-02-26 for a day of the year 26, drops the offset of an instant, and ignores words behind a date. */
const DATED_FORM = String.raw`\d{4}([-/]\d\d?){2}([ T]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?`

/** Fails with the number of the row and of the column. */
const buildErrorSql = (column: number) => `error(concat_ws(' ', 'wrong value', ${ROW}, ${column}))`

function buildValueSql(column: string, type: string, {wrong, empty}: {wrong: string; empty: string}): string {
  const text = `nullif(trim(${column}), '')`
  const choose = (value: string, fits = 'true') =>
    `case when ${text} is null then ${empty} when ${fits} then ${value} else ${wrong} end`
  const set = setOf(type)
  if (set.length > 0) return choose(text, `${text} in (${set.map(quoteLiteral).join(', ')})`)
  if (type === 'varchar') return choose(text)
  if (type === 'canonical') return choose(canonicalSql(text))
  const cast = `try_cast(${text} as ${type})`
  // The engine would round 35.5 to a whole number.
  if (/^(bigint|decimal)/i.test(type)) return choose(cast, `${cast} = try_cast(${text} as decimal(38, 18))`)
  const form = type === 'boolean' ? '.*' : DATED_FORM
  return choose(cast, `${cast} is not null and regexp_full_match(${text}, '${form}')`)
}
