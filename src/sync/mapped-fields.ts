import {existsSync} from 'node:fs'
import type {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import {dealStream} from '../contract/deal.ts'
import {parseDescription, refuseSourceFile, type SourceDescription} from '../contract/description.ts'
import {
  isSameMapping,
  type KnownField,
  type MappedField,
  parseMappedFields,
  refuseFields,
} from '../contract/mapped-field.ts'
import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import {codeOf, messageOf} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {type Database, inTransaction} from '../store/database.ts'
import {readWrittenText} from '../store/files.ts'
import {hasWarehouse, openHistory} from '../store/warehouse.ts'
import {tablesOf} from './stream-tables.ts'

const fieldRow = z.object({
  name: z.string(),
  path: z.string().transform((text) => z.array(z.string()).parse(JSON.parse(text))),
  type: z.string(),
  meaning: z.string(),
  since: z.string().nullable(),
})

export function listKnownFields(db: Database): Promise<KnownField[]> {
  return db.all(fieldRow, 'from history.raw.mapped_field order by name')
}

/** Writes null as `since`: the values are stored for all rows. */
export function writeKnownFields(db: Database, fields: readonly MappedField[]): Promise<void> {
  return inTransaction(db, async () => {
    await db.run('delete from history.raw.mapped_field')
    for (const {name, path, type, meaning} of fields) {
      const row = [name, JSON.stringify(path), type, meaning]
      await db.run('insert into history.raw.mapped_field values ($1, $2, $3, $4, null)', row)
    }
  })
}

/** The deals first, with the mapped fields of the warehouse. */
export async function readStreams(db: Database): Promise<[Stream, ...Stream[]]> {
  const deals = {...dealStream, mapped: await listKnownFields(db)}
  return [deals, ...STREAMS.filter(({name}) => name !== deals.name)]
}

/**
 * Stores the mapped fields of staged records: values that differ from the last ones, and all values of a record with a new
 * version or a late observation, so that each value is dated when it was seen.
 */
export async function applyMapped(
  db: Database,
  stream: Stream,
  {staged, businessDate, recorded}: {staged: string; businessDate: string; recorded: DuckDBTimestampValue},
): Promise<void> {
  const {head, extra} = tablesOf(stream)
  if (extra === null || stream.mapped?.length === 0) return
  await db.run(
    `insert into ${extra} by name
     with read as (
       select * exclude (mapped, said), unnest(said)
       from (select *, unnest(from_json(mapped, '[{"name":"varchar","value":"varchar","is_readable":"boolean"}]')) as said from ${staged} where mapped is not null)
     ),
     told as (
       from read
       qualify row_number() over (
         partition by deal_id, name order by observed_at desc, (source <> 'list') desc, page_no desc, position desc
       ) = 1
     ),
     known as (
       from ${extra}
       where deal_id in (select deal_id from told)
       qualify row_number() over (partition by deal_id, name order by observed_at desc, seq desc) = 1
     )
     select
       (select coalesce(max(seq), 0) from ${extra}) + row_number() over (order by told.deal_id, told.name) as seq,
       told.deal_id,
       told.name,
       told.value,
       told.is_readable,
       told.observed_at,
       case when told.observed_at < head.observed_at then cast($1 as date) else greatest(cast($1 as date), head.business_date) end
         as business_date,
       $2 as recorded_at
     from told
     left join known on known.deal_id = told.deal_id and known.name = told.name
     left join ${head} as head on head.deal_id = told.deal_id
     where known.value is distinct from told.value
       or known.is_readable is distinct from told.is_readable
       or told.observed_at < known.observed_at
       or told.deal_id in (select deal_id from temp.change where is_appended and kind = 'seen')`,
    [businessDate, recorded],
  )
}

/** @throws ConfigError `SOURCE_FILE` */
export function findDescription({source: file}: DataFolder): SourceDescription | undefined {
  return existsSync(file) ? parseDescription(readWrittenText(file, refuseSourceFile(file)), file) : undefined
}

/** @throws ConfigError `FIELDS_FILE`, `SOURCE_FILE` */
export function readMappedFields(folder: DataFolder): MappedField[] {
  const {fields: file} = folder
  if (!existsSync(file)) return []
  // The translation takes them out of the record.
  const described = Object.values(findDescription(folder)?.deals.fields ?? {}).flatMap(
    (field) => field?.path ?? [],
  )
  return parseMappedFields(readWrittenText(file, refuseFields(file)), file, [
    ...dealStream.wireFields,
    ...described,
  ])
}

/** `recorded_at`, microseconds since the epoch; null before the first. */
export const findLastSettle = (db: Database) =>
  db.value(z.coerce.bigint().nullable(), 'select epoch_us(max(recorded_at)) from history.raw.settle')

/**
 * Adopts the mapping of `fields.json` if the warehouse is empty. Any other warehouse keeps its mapping, whatever the file says,
 * until a rebuild brings the change in with its past.
 * @throws ConfigError `FIELDS_FILE` if nothing is stored yet
 */
export async function adoptFields(db: Database, folder: DataFolder, {log}: Pick<World, 'log'>) {
  if ((await findLastSettle(db)) === null) {
    await writeKnownFields(db, readMappedFields(folder))
    return
  }
  try {
    if (isSameMapping(readMappedFields(folder), await listKnownFields(db))) return
    log.warn({file: folder.fields}, 'fields.json has changed: `loantape rebuild --apply` brings it in')
  } catch (error) {
    if (codeOf(error) !== 'FIELDS_FILE' && codeOf(error) !== 'SOURCE_FILE') throw error
    log.warn({reason: messageOf(error)}, 'fields.json cannot be used; the mapping stays as it is')
  }
}

export async function findKnownFields(folder: DataFolder, world: World): Promise<KnownField[]> {
  if (!hasWarehouse(folder)) return []
  await using db = await openHistory(folder, world)
  return await listKnownFields(db)
}
