import {z} from 'zod'
import {newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {digestFile} from '../store/files.ts'
import {createCombined, readCombined} from './clickhouse-combined.ts'
import {
  ADDED,
  type ClickhouseServer,
  createDatabases,
  describeFields,
  type Field,
  fieldsOf,
  openSession,
  type Session,
  sourceField,
} from './clickhouse-layout.ts'
import {literal, quote, STATE, VISIBLE} from './clickhouse-sql.ts'
import {
  codeAt,
  isWhole,
  orUnsure,
  type ReleaseTarget,
  requireWhole,
  type TargetTable,
  type VisibleRelease,
  visibleRow,
} from './target.ts'

export interface ClickhouseRequest extends ClickhouseServer {
  /** The lender: lower-case letters, digits and `_`. */
  source: string
}

/** Releases of a source, including the visible one: somebody may still read an earlier one. */
const RELEASES_KEPT = 3

const numberRow = z.object({number: z.coerce.number()})

/**
 * Opens a target that several lenders share. Each table of a publication is one partition, named after the source, the digest of
 * the table's file and the number of the publication; one row of `loantape.published` shows them all. Partitions of kept
 * releases are reused. Other partition names are never used again, because a stalled publication may still write to such a
 * partition or drop it.
 * @throws ConfigError `PUBLISH_FOREIGN`, `CLICKHOUSE_TYPE`, `PUBLISH_PRIVILEGE`; LockedError `PUBLISH_LOCKED`; AuthError
 *   `PUBLISH_AUTH`; DeferredError `PUBLISH_UNREACHABLE`, `PUBLISH_UNSURE`; the methods of the target throw the same
 */
export async function openClickhouse(
  request: ClickhouseRequest,
  world: Pick<World, 'realClock' | 'log' | 'signal'>,
): Promise<ReleaseTarget> {
  const session = openSession(request, world.signal)
  const source = literal(request.source)
  const kept = `where source = ${source} order by number desc limit ${RELEASES_KEPT}`
  let visible: VisibleRelease | undefined
  const isThere = (table: TargetTable, content: string) =>
    isWhole(session, table, `${session.whole(table)} where content = ${literal(content)}`, quote)
  async function load(table: TargetTable, content: string): Promise<void> {
    if ((await digestFile(table.file)) !== table.sha256)
      throw newError('PUBLISH_INCOMPLETE', `File '${table.file}' does not have the sha256 of its manifest.`)
    const fields = fieldsOf(table.columns, `${table.schema}.${table.name}`)
    const columns = fields.map(({name}) => quote(name)).join(', ')
    const structure = fields.map(({name, type}) => `${quote(name)} ${type}`).join(', ')
    await session.send(
      `insert into ${session.whole(table)} (source, content, ${columns})
       select ${source}, ${literal(content)}, ${columns} from input(${literal(structure)}) format Parquet`,
      table.file,
    )
    if (request.cluster !== undefined)
      await session.run(`system sync replica${session.on} ${session.local(table)} lightweight`)
  }

  return {
    server: session.server,
    async prepare() {
      await createState(session)
      const [first] = await session.rows(
        visibleRow,
        `select release_id, toString(as_of) as as_of, formatDateTime(known_at, '%Y-%m-%dT%H:%i:%S.%fZ') as known_at,
           folder_id
         from ${STATE}.published ${kept}`,
      )
      visible = first
      return visible
    },

    async publish({release, tables: published, folderId}) {
      const [former] = await session.rows(
        z.object({name: z.string()}),
        `select source as name from ${STATE}.release where folder_id = ${literal(folderId)} and source <> ${source}`,
      )
      if (former)
        throw newError(
          'PUBLISH_FOREIGN',
          `Readers at ${session.server} see this data folder as source '${former.name}': as '${request.source}', too, it would count twice.`,
          {
            next: `Bring its name back, or remove the former one there: \`delete from ${STATE}.published where source = ${literal(former.name)}\`.`,
          },
        )
      const own = await takeNumber(session, request.source)
      // Not before: another publication could show its release until then, and remove what it no longer keeps.
      const row = z.object({release_id: z.string(), contents: z.array(z.string())})
      const releases = await session.rows(row, `select release_id, contents from ${STATE}.published ${kept}`)
      if (releases[0]?.release_id !== visible?.release_id)
        throw newError(
          'PUBLISH_LOCKED',
          `Another publication of source '${request.source}' has ended meanwhile.`,
          {
            kept: 'Readers see the release of that publication.',
            next: 'Run it again: it compares the two.',
          },
        )
      using combined = await readCombined(release, world)
      const tables = [...published, ...combined.inputs]
      await createTables(session, tables)
      await createCombined(session, {models: combined.models, tables})
      // The partitions of kept releases, which no other publication writes or removes.
      const there = releases.flatMap(({contents}) => contents)
      const sent: TargetTable[] = []
      const contents = await Array.fromAsync(tables, async (table) => {
        const prefix = `${request.source}/${table.schema}.${table.name}/${table.sha256}/`
        const known = there.find((content) => content.startsWith(prefix))
        if (known !== undefined && (await isThere(table, known))) return known
        const content = `${prefix}${own.number}`
        await load(table, content)
        requireWhole(await isThere(table, content), table, session.server)
        sent.push(table)
        return content
      })
      const {release_id, as_of, known_at, time_zone, currency, generator} = release.manifest
      const instant = literal(known_at.replace('T', ' ').replace('Z', ''))
      const insert = `insert into ${STATE}.published
        select ${source}, ${own.number}, ${literal(release_id)}, toDate32(${literal(as_of)}),
          toDateTime64(${instant}, 6, 'UTC'), ${[time_zone, currency, generator, folderId].map(literal).join(', ')},
          [${contents.map(literal).join(', ')}], now64(3)
        where (${own.lastSql}) = ${own.number}`
      const seen = `select number from ${STATE}.release where source = ${source}`
      const [shown] = await orUnsure(session.run(insert).then(() => session.rows(numberRow, seen)))
      if (shown?.number === own.number) return sent.filter((table) => published.includes(table))
      throw newError(
        'PUBLISH_LOCKED',
        `Another publication of source '${request.source}' to ${session.server} has taken over from this one.`,
        {kept: 'Readers see the previous release, or that of the other publication.'},
      )
    },

    async prune() {
      const numbers = await session.rows(numberRow, `select number from ${STATE}.published ${kept}`)
      const [last, oldest] = [numbers[0]?.number ?? 0, numbers.at(-1)?.number ?? 0]
      await session.run(`delete from ${STATE}.published where source = ${source} and number < ${oldest}`)
      const parts =
        request.cluster === undefined
          ? 'system.parts'
          : `clusterAllReplicas(${literal(request.cluster)}, system.parts)`
      const stale = await session.rows(
        z.object({schema: z.string(), name: z.string(), content: z.string()}),
        `with (
           select groupArrayArray(contents)
           from ${STATE}.published where source = ${source}
         ) as kept
         select distinct
           database as schema,
           replaceRegexpOne(table, '_local$', '') as name,
           partition as content
         from ${parts}
         where
           active
           and endsWith(table, '_local')
           and startsWith(partition, ${literal(`${request.source}/`)})
           and database in (select name from system.databases where comment like 'loantape%')
           and not has(kept, partition)
           -- A publication that has taken over from a stalled one may be loading.
           and toUInt64OrZero(extract(partition, '[0-9]+$')) <= ${last}`,
      )
      for (const {content, ...table} of stale)
        await session.run(
          `alter table ${session.local(table)}${session.on} drop partition ${literal(content)}`,
        )
    },

    [Symbol.asyncDispose]: () => session[Symbol.asyncDispose](),
  }
}

async function createState(session: Session): Promise<void> {
  await createDatabases(session, [STATE])
  await session.run(`
    create table if not exists ${STATE}.published${session.on} (
      source String comment 'the lender',
      number UInt64 comment 'the latest of a source is the one readers see',
      release_id String,
      as_of Date32,
      known_at DateTime64(6, 'UTC'),
      time_zone String,
      currency String,
      generator String,
      folder_id String comment 'the data folder that published it',
      contents Array(String) comment 'the partition of each table',
      published_at DateTime64(3, 'UTC')
    ) engine = ${session.engine('everywhere')} order by (source, number)
    comment 'Every release that is kept.'`)
  await session.run(`
    create view if not exists ${STATE}.release${session.on} as
    select * from ${STATE}.published order by number desc limit 1 by source`)
}

/**
 * Creates missing tables and columns, and all the views that show them, since a new node of a cluster has none. In a column that
 * another source lacks, its rows are null.
 * @throws ConfigError `CLICKHOUSE_TYPE`
 */
async function createTables(session: Session, tables: readonly TargetTable[]): Promise<void> {
  const schemas = [...new Set(tables.map(({schema}) => schema))]
  await createDatabases(session, schemas)
  // Refused before any table is made.
  const named = tables.map((table) => {
    const full = `${table.schema}.${table.name}`
    return {table, full, own: fieldsOf(table.columns, full)}
  })
  const databases = schemas.map(literal).join(', ')
  const fields = await session.rows(
    z.object({table: z.string(), name: z.string(), type: z.string(), comment: z.string()}),
    `select concat(database, '.', table) as table, name, type, comment
     from system.columns where database in (${databases}) order by position`,
  )
  // A view would replace a table of its name, with the rows of every lender.
  const holdingRows = new Set([
    ...fields.filter(({name}) => name === 'content').map(({table}) => table),
    ...tables
      .flatMap((table) => [session.local(table), session.whole(table)])
      .map((name) => name.replaceAll('`', '')),
  ])
  const taken = named.find(({full}) => holdingRows.has(full))
  if (taken)
    throw newError('CLICKHOUSE_TYPE', `Table '${taken.full}' has the name of one that loantape adds.`, {
      next: 'Give its model another name.',
    })
  for (const {table, full, own} of named) {
    const [local, whole] = [session.local(table), session.whole(table)]
    const both = [...new Set([local, whole])]
    const drops = both.map((one) => `drop table ${one}${session.on} sync`.replaceAll('`', ''))
    const there = fields.filter((field) => field.table === `${full}_local`)
    await createTable(session, table, own)
    for (const {name, type, comment} of there.length === 0 ? [] : own) {
      const found = there.find((field) => field.name === name)
      if (found && found.type !== type)
        throw newError(
          'CLICKHOUSE_TYPE',
          `Column '${name}' of table '${full}' is ${found.type} at ${session.server}, and ${type} in this release.`,
          {
            next: `Give the column the type it has there, or drop it there: \`${drops.join('; ')}\`; \`loantape publish clickhouse --force\` of each source fills it again.`,
          },
        )
      if (!found)
        for (const one of both)
          await session.run(
            `alter table ${one}${session.on} add column if not exists ${quote(name)} ${type} comment ${literal(comment)}`,
          )
    }
    const ours = [...ADDED, ...own.map(({name}) => name)]
    const columns = [sourceField(), ...own, ...there.filter(({name}) => !ours.includes(name))]
    await session.run(`
      create or replace view ${quote(table.schema)}.${quote(table.name)}${session.on} (${describeFields(columns)}) as
      select ${columns.map(({name}) => quote(name)).join(', ')}
      from ${whole}
      where content in ${VISIBLE}.1
      comment ${literal(table.description)}`)
  }
}

async function createTable(session: Session, table: TargetTable, own: readonly Field[]): Promise<void> {
  const {schema, name, order, description} = table
  const local = session.local(table)
  await session.run(`
    create table if not exists ${local}${session.on} (
      source LowCardinality(String) comment 'the lender',
      content LowCardinality(String) comment 'source, table, sha256 of the Parquet file, and number of the publication',
      ${describeFields(own)}
    )
    engine = ${session.engine('shards')}
    partition by content
    order by (${['source', ...order].map(quote).join(', ')})
    settings allow_nullable_key = 1
    comment ${literal(description)}`)
  if (session.cluster === undefined) return
  const [first = 'source'] = order
  // The sharding expression must not be null.
  const spread = `cityHash64(source, ifNull(toString(${quote(first)}), ''))`
  await session.run(`
    create table if not exists ${session.whole(table)}${session.on} as ${local}
    engine = Distributed(${[session.cluster, schema, `${name}_local`].map(literal).join(', ')}, ${spread})`)
}

/**
 * Takes the next number of a source: whoever took an earlier one shows nothing any more. ClickHouse has no locks, but creates a
 * table name only once, so a number is the table `publication_<source>_<number>`. `lastSql` is SQL of the last number taken.
 * @throws LockedError `PUBLISH_LOCKED` if another publication takes the same
 */
async function takeNumber(session: Session, source: string) {
  const numberOf = `toUInt64OrZero(extract(name, '[0-9]+$'))`
  const taken = `from system.tables where database = '${STATE}' and match(name, ${literal(`^publication_${source}_[0-9]+$`)})`
  const lastSql = `select max(${numberOf}) ${taken}`
  const shownSql = `select max(number) from ${STATE}.published where source = ${literal(source)}`
  const tableOf = (number: number) => `${STATE}.${quote(`publication_${source}_${number}`)}${session.on}`
  const [last] = await session.rows(numberRow, `select greatest((${lastSql}), (${shownSql})) as number`)
  const number = (last?.number ?? 0) + 1
  await session
    .run(`create table ${tableOf(number)} (nothing UInt8) engine = MergeTree order by nothing`)
    .catch((error: unknown) => {
      // The code of TABLE_ALREADY_EXISTS.
      if (codeAt(error) !== '57') throw error
      throw newError(
        'PUBLISH_LOCKED',
        `Another publication of source '${source}' to ${session.server} is under way: it came first.`,
      )
    })
  const earlier = await session.rows(
    numberRow,
    `select ${numberOf} as number ${taken} and number < ${number}`,
  )
  for (const one of earlier) await session.run(`drop table if exists ${tableOf(one.number)}`)
  return {number, lastSql}
}
