import {z} from 'zod'
import {codeOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {digestFile} from '../store/files.ts'
import {combinedName, createCombined} from './clickhouse-combined.ts'
import {
  contentPrefix,
  createDatabases,
  createState,
  createTables,
  isThereAlready,
  literal,
  openSession,
  type Place,
  placeOf,
  quote,
  type Session,
  STATE,
  typeOf,
} from './clickhouse-layout.ts'
import {
  buildTotals,
  isSameTotals,
  type PublishedRelease,
  type ReleaseTarget,
  type TargetTable,
} from './target.ts'

/** A holder that has not said so for so long is gone. */
const LEASE_MS = 30_000

/** The right to publish one source; disposing it gives it back. */
export interface Lease extends AsyncDisposable {
  /** Higher than that of every publication of the source before. */
  number: number
  /** A query of one row with the number of the last lease of the source: whether it is still this one. */
  lastSql: string
}

const leaseRow = z.object({number: z.coerce.number(), until: z.string(), now: z.string(), ends: z.string()})

/**
 * Takes the right to publish a source. ClickHouse knows no locks, but creates a table of a name once: `lease_<source>_<number>`,
 * whose comment says until when it holds. One that is not held any more is followed by the next number.
 *
 * @throws LockedError `PUBLISH_LOCKED`
 */
export async function takeLease(
  session: Session,
  place: Place,
  {source, leaseMs = LEASE_MS}: {source: string; leaseMs?: number | undefined},
  {realClock, log}: Pick<World, 'realClock' | 'log'>,
): Promise<Lease> {
  const named = literal(`^lease_${source}_[0-9]+$`)
  const number = `toUInt64(extract(name, '[0-9]+$'))`
  const from = `from system.tables where database = '${STATE}' and match(name, ${named})`
  const tableOf = (number: number) => `${STATE}.${quote(`lease_${source}_${number}`)}`
  const list = () =>
    session.rows(
      leaseRow,
      `select ${number} as number, comment as until, toString(now64(3, 'UTC')) as now,
         toString(now64(3, 'UTC') + toIntervalMillisecond(${leaseMs})) as ends
       ${from} order by number desc`,
    )
  const locked = (why: string) =>
    newError(
      'PUBLISH_LOCKED',
      `Another publication of source '${source}' to ${session.server} is under way: ${why}.`,
    )
  let [last] = await list()
  const {until} = last ?? {}
  while (last && last.until > last.now) {
    if (last.until !== until) throw locked(`it has just said so`)
    await realClock.sleep(Math.min(1000, leaseMs / 4))
    ;[last] = await list()
  }
  const [{published = 0, ends = ''} = {}] = await session.rows(
    z.object({published: z.coerce.number(), ends: z.string()}),
    `select max(number) as published, toString(now64(3, 'UTC') + toIntervalMillisecond(${leaseMs})) as ends
     from ${STATE}.published where source = ${literal(source)}`,
  )
  const own = Math.max(last?.number ?? 0, published) + 1
  try {
    await session.run(
      `create table ${tableOf(own)}${place.on} (nothing UInt8) engine = MergeTree order by nothing comment '${ends}'`,
    )
  } catch (error) {
    if (isThereAlready(error)) throw locked('it came first')
    throw error
  }
  const say = (until: string) =>
    session.run(`alter table ${tableOf(own)}${place.on} modify comment '${until}'`)
  const [first, ...before] = await list()
  if (first?.number !== own) {
    await session.run(`drop table if exists ${tableOf(own)}${place.on}`)
    throw locked('it came first')
  }
  for (const {number} of before) await session.run(`drop table if exists ${tableOf(number)}${place.on}`)
  let renewal: Promise<void> = Promise.resolve()
  const timer = setInterval(() => {
    renewal = renew().catch((error: unknown) => {
      // Whoever takes it then is seen before anything is shown to readers.
      log.warn({err: error}, 'the right to publish to ClickHouse could not be renewed')
    })
  }, leaseMs / 3)
  async function renew(): Promise<void> {
    const [last] = await list()
    if (last?.number === own) await say(last.ends)
  }
  return {
    number: own,
    lastSql: `select max(${number}) ${from}`,
    async [Symbol.asyncDispose]() {
      clearInterval(timer)
      await renewal
      // What cannot be said ends by itself.
      await say('').catch((error: unknown) => {
        log.info({err: error}, 'the right to publish to ClickHouse ends by itself')
      })
    },
  }
}

/** Where ClickHouse is, and whose releases are published there. */
export interface ClickhouseRequest {
  /** `https://host:8443` */
  url: string
  user?: string | undefined
  password?: string | undefined
  /** The cluster that holds the tables; one server without it. */
  cluster?: string | undefined
  /** Lower-case letters, digits and `_`: whose releases they are. */
  source: string
  /** Releases of the source that stay, the one readers see among them. */
  releasesKept: number
  /** How long the right to publish holds without being renewed; half a minute by default. */
  leaseMs?: number
}

/** Names a table. */
type Named = Pick<TargetTable, 'schema' | 'name'>

const keptRow = z.object({
  release_id: z.string(),
  as_of: z.string(),
  known_at: z.string(),
  contents: z.array(z.string()),
})

/**
 * ClickHouse as a target, shared with other sources. The rows of a table are a partition of their own, named after the source,
 * the digest of the table's file and the publication that sent it; views show those that the last row of `loantape.published` names.
 * That one row shows every table of a release at once. What a release that stays has with the same totals is not sent again; a partition that no
 * release points at is never pointed at again: a publication that was held up may still write or remove it.
 *
 * @throws ConfigError `PUBLISH_FOREIGN`, `CLICKHOUSE_TYPE`, `PUBLISH_PRIVILEGE`; LockedError `PUBLISH_LOCKED`; AuthError
 *   `PUBLISH_AUTH`; DeferredError `PUBLISH_LOST`, `PUBLISH_UNREACHABLE`, `PUBLISH_UNSURE`; so do all steps of the target
 */
export async function openClickhouse(
  request: ClickhouseRequest,
  world: Pick<World, 'realClock' | 'log' | 'signal'>,
): Promise<ReleaseTarget> {
  const session = openSession(request, world.signal)
  const place = placeOf(request.cluster)
  const source = literal(request.source)
  let lease: Lease | undefined
  let release: PublishedRelease | undefined
  const localOf = ({schema, name}: Named) => `${quote(schema)}.${quote(`${name}_local`)}`
  const wholeOf = ({schema, name}: Named) => `${quote(schema)}.${quote(place.whole(name))}`
  /** The contents of releases that stay, then those that were sent: no other publication writes or removes either. */
  const contents: string[] = []
  const findContent = (table: TargetTable) =>
    contents.findLast((content) => content.startsWith(contentPrefix(request.source, table)))

  return {
    server: session.server,
    combinedName,

    async prepare() {
      await createState(session, place)
      lease = await takeLease(session, place, request, world)
      const kept = await session.rows(
        keptRow,
        `select release_id, toString(as_of) as as_of, formatDateTime(known_at, '%Y-%m-%dT%H:%i:%S.%fZ') as known_at, contents
         from ${STATE}.published where source = ${source} order by number desc limit ${request.releasesKept}`,
      )
      contents.push(...kept.toReversed().flatMap((release) => release.contents))
      return kept[0]
    },

    async begin(published) {
      release = published
      await createDatabases(session, place, [...new Set(published.tables.map(({schema}) => schema))])
      await createTables(session, place, published.tables)
      await createCombined(session, place, published)
    },

    async verify(table) {
      const content = findContent(table)
      if (content === undefined) return false
      const totals = buildTotals(table.columns, quote).map((total, index) => `${total} as total_${index}`)
      const grain = table.grain.map(quote).join(', ')
      const copies = grain === '' ? "'0'" : `toString(count() - uniqExact(tuple(${grain})))`
      const [{copies: found, ...rest} = {}] = await session.rows(
        z.record(z.string(), z.string()),
        `select ${totals.join(', ')}, ${copies} as copies from ${wholeOf(table)} where content = ${literal(content)}`,
      )
      return isSameTotals(Object.values(rest), table.totals) && found === '0'
    },

    async load(table) {
      const name = `${table.schema}.${table.name}`
      if ((await digestFile(table.file)) !== table.sha256)
        throw newError('PUBLISH_INCOMPLETE', `File '${table.file}' is not what its manifest says.`)
      // Under a name of its own: a publication that was held up may go on writing under another.
      const content = `${contentPrefix(request.source, table)}${lease?.number}`
      contents.push(content)
      const columns = table.columns.map((column) => quote(column.name)).join(', ')
      const structure = table.columns
        .map((column) => `${quote(column.name)} ${typeOf(column, name)}`)
        .join(', ')
      await session.send(
        `insert into ${wholeOf(table)} (source, content, ${columns})
         select ${source}, ${literal(content)}, ${columns} from input(${literal(structure)}) format Parquet`,
        table.file,
      )
      if (request.cluster !== undefined)
        await session.run(`system sync replica${place.on} ${localOf(table)} lightweight`)
    },

    async activate() {
      if (!lease || !release) return
      const {release_id, as_of, known_at, time_zone, currency, generator} = release.manifest
      const names = release.tables.map((table) => literal(findContent(table) ?? ''))
      const values = [
        release_id,
        as_of,
        known_at.replace('T', ' ').replace('Z', ''),
        time_zone,
        currency,
        generator,
      ]
      const [id, day, instant, ...others] = values.map(literal)
      const row = [
        source,
        lease.number,
        id,
        `toDate32(${day})`,
        `toDateTime64(${instant}, 6, 'UTC')`,
        ...others,
      ]
      await session
        .run(
          `insert into ${STATE}.published
           select ${row.join(', ')}, [${names.join(', ')}], now64(3)
           where (${lease.lastSql}) = ${lease.number}`,
        )
        .catch((error: unknown) => {
          if (codeOf(error) !== 'PUBLISH_LOST') throw error
          throw newError(
            'PUBLISH_UNSURE',
            `The connection to ClickHouse at ${session.server} was lost while the release was shown to readers.`,
            {cause: error},
          )
        })
      const [shown] = await session.rows(
        z.object({number: z.coerce.number()}),
        `select number from ${STATE}.release where source = ${source}`,
      )
      if (shown?.number === lease.number) return
      throw newError(
        'PUBLISH_LOCKED',
        `Another publication of source '${request.source}' to ${session.server} has taken over from this one.`,
        {kept: 'Readers see the release before, or that one.'},
      )
    },

    async prune() {
      const kept = await session.rows(
        z.object({number: z.coerce.number()}),
        `select number from ${STATE}.published where source = ${source} order by number desc limit ${request.releasesKept}`,
      )
      const oldest = Math.min(...kept.map(({number}) => number))
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
           and not has(kept, partition)`,
      )
      for (const {content, ...table} of stale)
        await session.run(`alter table ${localOf(table)}${place.on} drop partition ${literal(content)}`)
    },

    async [Symbol.asyncDispose]() {
      await lease?.[Symbol.asyncDispose]()
      await session[Symbol.asyncDispose]()
    },
  }
}
