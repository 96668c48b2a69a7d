import {existsSync, readFileSync} from 'node:fs'
import {dealStream} from '../contract/deal.ts'
import {
  createFieldsError,
  isSameMapping,
  type KnownField,
  type MappedField,
  parseMappedFields,
} from '../contract/mapped-field.ts'
import {codeOf, messageOf} from '../errors.ts'
import {listKnownFields, writeKnownFields} from '../load/mapped-fields.ts'
import {findLastSettle} from '../load/settle.ts'
import type {World} from '../types.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {openHistory} from '../warehouse/history.ts'
import {hasWarehouse} from '../warehouse/warehouse.ts'

/**
 * The fields that `fields.json` of the data folder maps, by name; none where it is not there.
 *
 * @throws ConfigError `FIELDS_FILE`
 */
export function readMappedFields({fields: file}: DataFolder): MappedField[] {
  if (!existsSync(file)) return []
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (cause) {
    throw createFieldsError(file, `it cannot be read (${codeOf(cause)})`, cause)
  }
  return parseMappedFields(text, file, dealStream.wireFields)
}

/**
 * A warehouse that holds nothing yet maps what `fields.json` says; every other learns of a change by a rebuild, with its past, and goes on
 * as it is until then, whatever the file says.
 *
 * @throws ConfigError `FIELDS_FILE` where nothing is stored yet
 */
export async function adoptFields(
  db: Database,
  folder: DataFolder,
  {log}: Pick<World, 'log'>,
): Promise<void> {
  if ((await findLastSettle(db)) === null) {
    const fields = readMappedFields(folder)
    await writeKnownFields(
      db,
      fields.map((field) => ({...field, since: null})),
    )
    return
  }
  try {
    if (isSameMapping(readMappedFields(folder), await listKnownFields(db))) return
    log.warn({file: folder.fields}, 'fields.json has changed: `loantape rebuild --apply` brings it in')
  } catch (error) {
    if (codeOf(error) !== 'FIELDS_FILE') throw error
    log.warn({reason: messageOf(error)}, 'fields.json cannot be used; the fields stay as they are mapped')
  }
}

/** The fields whose values are at hand in the warehouse there is. */
export async function findKnownFields(folder: DataFolder): Promise<KnownField[]> {
  if (!hasWarehouse(folder)) return []
  await using db = await openHistory(folder)
  return await listKnownFields(db, 'history')
}
