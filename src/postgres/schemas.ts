import {escapeIdentifier} from 'pg'
import {z} from 'zod'
import {codeOf, newError} from '../errors.ts'
import type {VisibleRelease} from '../release-target.ts'
import type {World} from '../types.ts'
import type {Session} from './session.ts'

/** Marks what is ours: a schema without it is never touched. */
export const MARK = 'loantape release'

/** Where `release` says what readers see now. */
export const STATE = 'loantape'

/** Our schemas, by what their names begin with. */
export async function listSchemas(session: Session): Promise<{live: string[]; old: string[]}> {
  const names = await session.column(
    z.string(),
    `select nspname from pg_namespace
     where obj_description(oid, 'pg_namespace') like '${MARK} %' order by nspname`,
  )
  const isOld = (name: string) => /^loantape_(old|new)_\d+_/.test(name)
  return {live: names.filter((name) => !isOld(name)), old: names.filter(isOld)}
}

/**
 * Drops what releases before left: tables only, so that nothing of others that depends on them goes with them. What is
 * still in use stays until the next publication.
 */
export async function dropOldSchemas(session: Session, world: Pick<World, 'log'>): Promise<void> {
  for (const schema of (await listSchemas(session)).old) {
    const tables = await listTables(session, [schema])
    const drops = tables.length === 0 ? '' : `drop table ${tables.join(', ')};`
    try {
      await session.run(
        `begin; set local lock_timeout = '500ms'; ${drops} drop schema ${escapeIdentifier(schema)}; commit`,
      )
    } catch (error) {
      await session.run('rollback')
      // lock_not_available, dependent_objects_still_exist
      if (!['55P03', '2BP01'].includes(codeOf(error))) throw error
      world.log.info({reason: schema}, 'an old release in PostgreSQL is still in use: it is dropped later')
    }
  }
}

/** Our tables, quoted, that of {@link STATE} first. */
export async function listTables(session: Session, schemas: readonly string[]): Promise<string[]> {
  return await session.column(
    z.string(),
    `select format('%I.%I', schemaname, tablename) as name from pg_tables
     where schemaname = any($1) order by schemaname <> '${STATE}', name`,
    [schemas],
  )
}

/** The release readers see now, if there is one. */
export async function findPublished(session: Session): Promise<VisibleRelease | undefined> {
  const [isThere] = await session.column(z.boolean(), `select to_regclass('${STATE}.release') is not null`)
  if (!isThere) return undefined
  const [release_id, as_of = '', known_at = ''] = await session.row(
    `select release_id, as_of::text, to_char(known_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') from ${STATE}.release`,
  )
  return release_id === undefined ? undefined : {release_id, as_of, known_at}
}

/** @throws ConfigError `PUBLISH_FOREIGN` */
export async function requireOwnSchemas(session: Session, schemas: readonly string[]): Promise<void> {
  const foreign = await session.column(
    z.string(),
    `select nspname from pg_namespace
     where nspname = any($1) and coalesce(obj_description(oid, 'pg_namespace'), '') not like '${MARK} %'`,
    [schemas],
  )
  if (foreign.length === 0) return
  throw newError(
    'PUBLISH_FOREIGN',
    `Schema '${foreign.join("', '")}' at ${session.server} was not made by loantape: expected a database without it.`,
  )
}

/**
 * A view or function on our tables would go on showing the old release; one within our schemas would go with it.
 *
 * @throws ConfigError `POSTGRES_DEPENDENT`
 */
export async function requireNoDependents(session: Session): Promise<void> {
  const found = await session.column(
    z.string(),
    `with
     ours as (
       select oid from pg_namespace where obj_description(oid, 'pg_namespace') like '${MARK} %'
     ),
     objects as (
       select 'pg_class'::regclass as class, rule.ev_class as object
       from pg_depend as dependency
       inner join pg_class as base on base.oid = dependency.refobjid and dependency.refclassid = 'pg_class'::regclass
       inner join pg_rewrite as rule on rule.oid = dependency.objid and dependency.classid = 'pg_rewrite'::regclass
       where base.relnamespace in (select oid from ours)
       union
       select dependency.classid, dependency.objid
       from pg_depend as dependency
       inner join pg_class as base on base.oid = dependency.refobjid and dependency.refclassid = 'pg_class'::regclass
       where dependency.classid = 'pg_proc'::regclass and base.relnamespace in (select oid from ours)
       union
       select 'pg_proc'::regclass, oid from pg_proc where pronamespace in (select oid from ours)
     )
     select pg_describe_object(class, object, 0) as name from objects order by name`,
  )
  if (found.length === 0) return
  throw newError(
    'POSTGRES_DEPENDENT',
    `Published tables at ${session.server} are read there by: ${found.join(', ')}. It would go on showing the old release, or go with it.`,
  )
}
