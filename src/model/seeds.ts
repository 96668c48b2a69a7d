import {basename, join} from 'node:path'
import {parse} from 'csv-parse/sync'
import {z} from 'zod'
import {codeOf, type ErrorCode} from '../errors.ts'
import type {Seed} from '../types.ts'
import {canonicalSql} from '../warehouse/canonical.ts'
import {type Database, quoteLiteral, quoteName} from '../warehouse/database.ts'
import {listFiles, readSqlFile} from '../warehouse/sql-file.ts'
import {readColumns} from '../warehouse/table-columns.ts'
import {createModelError, createSqlError} from './model-error.ts'
import {widenDecimal} from './wide-decimals.ts'

/** `canonical` is text in the form statuses are compared in. */
const SEED_TYPES = ['varchar', 'canonical', 'bigint', 'date', 'boolean', 'decimal(18,2)']
const TEXT_TYPES = ['varchar', 'canonical']

/**
 * Reads every `seeds/<name>.csv` of the folders. The header names each column, with its type behind a colon
 * (`deal_id,funded_on:date,"limit:decimal(18,2)"`); the first column is the key. A later folder's file replaces an earlier
 * one of the same name and may leave the types out: those of the replaced file hold.
 *
 * @returns seeds by name
 * @throws CheckError `SEED_HEADER`
 */
export function readSeeds(folders: readonly string[]): Seed[] {
  const seeds = new Map<string, Seed>()
  for (const file of folders.flatMap((folder) => listFiles(join(folder, 'seeds'), '.csv'))) {
    const seed = parseSeed(basename(file, '.csv'), file)
    const replaced = seeds.get(seed.name)
    seeds.set(seed.name, {...seed, types: {...replaced?.types, ...seed.types}})
  }
  return [...seeds.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

function parseSeed(name: string, file: string): Seed {
  const text = readSqlFile(file)
  const types: Record<string, string> = {}
  for (const field of readHeader(text, file)) {
    const [column = '', type] = field.split(':').map((part) => part.trim())
    const isKnown = type === undefined || SEED_TYPES.includes(type)
    if (!isKnown || !/^[a-z][a-z0-9_]*$/.test(column)) {
      throw createModelError(
        'SEED_HEADER',
        {file, line: 1},
        `Seed column '${field}': expected name or name:type with a type of ${SEED_TYPES.join(', ')}, in quotes where it has a comma,`,
      )
    }
    if (type !== undefined) types[column] = type
  }
  return {name, file, text, types}
}

function readHeader(text: string, file: string): string[] {
  const line = text.split('\n')[0] ?? ''
  try {
    return parse(line, {trim: true})[0] ?? ['']
  } catch (error) {
    const problem = `Seed header '${line}' (${codeOf(error)}): expected columns as a CSV file has them,`
    throw createModelError('SEED_HEADER', {file, line: 1}, problem)
  }
}

const wrongRow = z.object({line: z.coerce.number(), value: z.string().nullable()})

/**
 * Writes a seed into `release.seed.<name>`, ordered by its key.
 *
 * @throws CheckError `SEED_VALUE` or `SEED_KEY`, with file and line
 */
export async function loadSeed(db: Database, seed: Seed): Promise<void> {
  const rows = quoteName(`seed_${seed.name}`)
  try {
    await db.run(
      `create or replace temp table ${rows} as
       select row_number() over () + 1 as line, columns(*)
       from ${seed.rowsSql ?? `read_csv(${quoteLiteral(seed.file)}, header = true, all_varchar = true, delim = ',', quote = '"', escape = '"')`}`,
    )
  } catch (error) {
    throw createSqlError('SEED_CSV', `Seed '${seed.name}' is not a CSV`, {file: seed.file, line: 1}, error)
  }
  const found = (await readColumns(db, rows)).filter(({name}) => name !== 'line')
  const columns = found.map(({name: header}) => {
    const name = header.split(':')[0]?.trim() ?? header
    return {header, name, type: widenDecimal(name, seed.types[name] ?? 'varchar')}
  })
  const refuse = async (code: ErrorCode, value: string, expected: string, wrong: string) => {
    const row = await db.first(
      wrongRow,
      `select line, ${value} as value from ${rows} ${wrong} order by line limit 1`,
    )
    if (!row) return
    const problem = `Value '${row.value ?? ''}' of seed column ${expected},`
    throw createModelError(code, {file: seed.file, line: row.line}, problem)
  }
  for (const {header, name, type} of columns.filter((column) => !TEXT_TYPES.includes(column.type))) {
    const value = quoteName(header)
    const wrong = `where ${value} is not null and try_cast(trim(${value}) as ${type}) is null`
    await refuse('SEED_VALUE', value, `'${name}': expected ${type}`, wrong)
  }
  const [key] = columns
  if (key) {
    const value = quoteName(key.header)
    const isTwice = `row_number() over (partition by ${buildValueSql(key)} order by line) > 1`
    const expected = `'${key.name}': expected a key that is given and stands once`
    await refuse('SEED_KEY', value, expected, `qualify ${value} is null or ${isTwice}`)
  }
  const typed = columns.map((column) => `${buildValueSql(column)} as ${quoteName(column.name)}`)
  await db.run(
    `create table release.seed.${quoteName(seed.name)} as select ${typed.join(', ')} from ${rows} order by 1`,
  )
  await db.run(`drop table ${rows}`)
}

function buildValueSql({header, type}: {header: string; type: string}): string {
  const text = quoteName(header)
  return type === 'canonical' ? canonicalSql(text) : `cast(trim(${text}) as ${type})`
}
