import {z} from 'zod'
import type {KnownField, MappedField} from '../contract/mapped-field.ts'
import {STREAMS} from '../contract/streams.ts'
import {newError} from '../errors.ts'
import {rebuildHead} from '../load/head.ts'
import {listKnownFields, writeKnownFields} from '../load/mapped-fields.ts'
import {tablesOf} from '../load/stream-tables.ts'
import {type Database, quoteLiteral} from '../warehouse/database.ts'
import type {TapeUnit} from './tape-units.ts'

/**
 * Takes over into the empty database `warehouse` what was stored before the first settle of the tapes.
 *
 * @param fields those to be mapped; undefined where they stay as they are
 * @param from `since`: `recorded_at` of that settle; `isReadable`: whether the warehouse there is can be read, as `present`
 * @throws UnexpectedError `REBUILD_BASE` where it cannot be read
 */
export async function takeOver(
  db: Database,
  {units, fields}: {units: readonly TapeUnit[]; fields: readonly MappedField[] | undefined},
  {since, isReadable}: {since: string | null; isReadable: boolean},
): Promise<void> {
  const isFromTheStart = units.some(({before}) => before === null)
  if (isReadable) {
    await takeOverFields(db, fields, since)
    await takeOverRows(db, units, since)
  } else if (isFromTheStart) {
    await writeKnownFields(
      db,
      (fields ?? []).map((field) => ({...field, since: null})),
    )
  } else {
    throw newError(
      'REBUILD_BASE',
      `The warehouse cannot be read, and the tapes begin ${since === null ? 'nowhere' : `at ${since}`}: what was stored before is in no tape.`,
    )
  }
}

/** A field that is mapped anew is known only of what stands on the tapes. */
async function takeOverFields(
  db: Database,
  fields: readonly MappedField[] | undefined,
  since: string | null,
): Promise<void> {
  const known = await listKnownFields(db, 'present')
  const {is_older} = await db.one(
    z.object({is_older: z.boolean()}),
    'select exists (from present.raw.settle where $1::timestamp is null or recorded_at < $1::timestamp) as is_older',
    [since],
  )
  const date = (field: MappedField): KnownField => {
    const before = known.find(
      ({name, type, path}) =>
        name === field.name && type === field.type && path.join('\n') === field.path.join('\n'),
    )
    return {...field, since: before ? before.since : is_older ? since : null}
  }
  await writeKnownFields(db, (fields ?? known).map(date))
}

async function takeOverRows(db: Database, units: readonly TapeUnit[], since: string | null): Promise<void> {
  const before = since === null ? 'true' : `recorded_at < ${quoteLiteral(since)}`
  const names = units.map(({tape}) => quoteLiteral(tape.unit)).join(', ') || `''`
  const isKept = 'walk_id in (select walk_id from warehouse.raw.walk)'
  const isMapped =
    'name in (select name from warehouse.raw.mapped_field semi join present.raw.mapped_field using (name, path, type))'
  const kept: Record<string, string> = {
    walk: `(state = 'applied' and ${before}) or (state in ('refused', 'abandoned') and walk_id not in (${names}))`,
    listing: isKept,
    drift: isKept,
    quarantine: isKept,
    setting: 'true',
    rate: before,
    settle: before,
    deal_extra: `${before} and ${isMapped}`,
  }
  for (const stream of STREAMS) {
    for (const table of [tablesOf(stream).version, tablesOf(stream).confirmation]) {
      if (table !== null) kept[table.split('.').at(-1) ?? ''] = before
    }
  }
  for (const [table, condition] of Object.entries(kept)) {
    await db.run(`insert into warehouse.raw.${table} by name from present.raw.${table} where ${condition}`)
  }
  if (since !== null) {
    await db.run(
      `update warehouse.raw.quarantine set replayed_at = null where replayed_at >= ${quoteLiteral(since)}`,
    )
  }
  for (const stream of STREAMS) await rebuildHead(db, stream)
}
