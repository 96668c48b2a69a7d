import type {Database} from '../store/database.ts'
import {type Release, readReleaseModels} from '../store/release.ts'
import {readTables} from '../store/sql.ts'
import type {BatchFile} from './batch.ts'
import type {Dialect} from './dialect.ts'
import {describeTable} from './target.ts'

/**
 * Describes files of CSV as a Data Package (datapackage.org, version 2), so that types, keys and meanings survive them.
 *
 * @param files each named after its table
 * @returns the text of `datapackage.json`
 */
export async function describePackage(
  db: Database,
  {dir, manifest}: Release,
  {files, dialect}: {files: readonly BatchFile[]; dialect: Dialect},
): Promise<string> {
  const models = readReleaseModels(dir)
  const tables = await readTables(db)
  const resources = files.map(({name: path, bytes, sha256}) => {
    const name = path.replace(/\.csv$/, '')
    const {description, grain, columns} = describeTable(models, name, tables.get(name) ?? [])
    const fields = columns.map(({name, type, meaning}) => {
      const of = TYPES[type] ?? {type: 'number', decimalChar: dialect.decimal}
      return {name, ...of, ...(meaning && {description: meaning})}
    })
    return {
      name,
      type: 'table',
      path,
      ...(description && {description}),
      format: 'csv',
      mediatype: 'text/csv',
      encoding: dialect.encoding,
      bytes,
      hash: `sha256:${sha256}`,
      contract: manifest.tables.find((table) => table.name === name)?.contract,
      dialect: {
        delimiter: dialect.delimiter,
        lineTerminator: dialect.lineEnding === 'crlf' ? '\r\n' : '\n',
      },
      schema: {fields, missingValues: [''], ...(grain.length > 0 && {primaryKey: grain})},
    }
  })
  const content = {
    $schema: 'https://datapackage.org/profiles/2.0/datapackage.json',
    name: 'loantape',
    id: manifest.release_id,
    resources,
  }
  return `${JSON.stringify(content, null, 2)}\n`
}

/** How Table Schema names DuckDB's types; others are numbers. */
const TYPES: Readonly<Record<string, object>> = {
  VARCHAR: {type: 'string'},
  DATE: {type: 'date'},
  BOOLEAN: {type: 'boolean'},
  BIGINT: {type: 'integer'},
  TIMESTAMP: {type: 'datetime', format: '%Y-%m-%dT%H:%M:%S.%fZ'},
}
